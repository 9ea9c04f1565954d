package websocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver"
)

// What waits for the callbacks of one connection is bounded: at either limit it is not read until
// below half. A message larger than the second limit is taken when nothing else waits.
const (
	maxBacklog      = 128
	maxBacklogBytes = 256 << 10
)

// An event is one call of a callback, or something that waits for those before it.
type event struct {
	kind   eventKind
	op     Op
	packed bool       // the payload is to be inflated
	micros uint32     // of a pong: its round trip
	block  *buf.Block // the payload, owned by the event; nil: p
	p      []byte     // valid during the call: inline, or empty
	err    error
}

type eventKind uint8

const (
	opened eventKind = iota
	received
	drained
	ponged
	leaving // not a callback: the answer to what the peer has sent last
	finished
)

// A backlog is the events of one connection that wait for a goroutine, or run on one. It exists
// while there are any and is guarded by Conn.mu except for State, which is the dispatcher's.
type backlog struct {
	dispatch.State
	c       *Conn
	running bool // the dispatcher has it
	queue
}

// A queue is what waits for callbacks, or for Read. It is guarded by Conn.mu except where it says
// otherwise.
type queue struct {
	events []event
	head   int // events before it are done
	bytes  int
	paused bool // the connection is not read
	asked  bool // a request to read on has been sent to the loop

	// received behind the message that reached the limit, in its uncommitted room, because it is
	// still unmasked there
	rest    *buf.Block
	restLen int
}

// message hands a message to its callback, and reports whether enough wait now. On the loop.
func (c *Conn) message(m message) (full bool) {
	s := c.reader.rules.settings
	if s.onMessage == nil && !s.pull || c.end.muted() {
		m.release()
		return false
	}
	ev := event{kind: received, op: m.op, packed: m.compressed, block: m.block, p: m.payload}
	if s.inline && !s.pull {
		c.call(ev)
		return false
	}
	if m.block == nil && len(m.payload) > 0 {
		ev.block = buf.From(m.payload)
	}
	if s.pull {
		return c.keep(ev)
	}
	return c.dispatch(ev)
}

func (b *queue) push(ev event) {
	if ev.block != nil {
		ev.p = nil
		b.bytes += ev.block.Len()
	}
	if len(b.events) == cap(b.events) && b.head > 0 {
		n := copy(b.events, b.events[b.head:])
		clear(b.events[n:])
		b.events, b.head = b.events[:n], 0
	}
	b.events = append(b.events, ev)
}

func (b *queue) full() bool {
	return len(b.events)-b.head >= maxBacklog || b.bytes >= maxBacklogBytes
}

func (b *queue) belowHalf() bool {
	return len(b.events)-b.head < maxBacklog/2 && b.bytes < maxBacklogBytes/2
}

func (b *queue) empty() bool { return b.head == len(b.events) }

// pop takes the first event, and says whether the loop is to be asked to read on.
func (b *queue) pop() (ev event, resume bool) {
	ev = b.events[b.head]
	b.events[b.head] = event{}
	b.head++
	if ev.block != nil {
		b.bytes -= ev.block.Len()
	}
	if b.empty() {
		b.events, b.head = b.events[:0], 0
	}
	if b.paused && !b.asked && b.belowHalf() {
		b.asked, resume = true, true
	}
	return ev, resume
}

// call runs one callback, with nothing held, and reports whether it has returned rather than
// panicked.
func (c *Conn) call(ev event) (returned bool) {
	defer func() {
		driver.Unlabel() // the goroutine runs callbacks of others next
		if !returned {
			c.panicked(recover())
		}
	}()
	s, p := c.reader.rules.settings, ev.p
	if ev.block != nil {
		defer ev.block.Release()
		p = ev.block.Bytes()
	}
	switch ev.kind {
	case opened:
		s.onOpen(c)
	case leaving:
		c.end.leave(c, ev.err)
	case drained:
		s.onDrained(c)
	case finished:
		s.onClose(c, ev.err)
	case ponged:
		if !c.end.muted() {
			s.onPong(c, p, time.Duration(ev.micros)*time.Microsecond)
		}
	case received:
		if c.end.muted() {
			break
		}
		if ev.packed {
			b, err := c.unpack(ev.op, p)
			if err != nil {
				break
			}
			defer b.Release()
			p = b.Bytes()
		}
		s.onMessage(c, ev.op, p)
	}
	return true
}

// panicked ends a connection whose callback has failed.
func (c *Conn) panicked(v any) {
	if v == nil {
		v = "the callback ended its goroutine (runtime.Goexit)"
	}
	c.settings().log.Error("websocket: panic in a callback; its connection is closed with 1011",
		"remote", c.nc.RemoteAddr(), "panic", v, "stack", string(debug.Stack()))
	c.end.fail(c, StatusInternalError, "internal error",
		fmt.Errorf("websocket: panic in a callback: %v: %w", v, &CloseError{Code: StatusInternalError,
			Reason: "internal error"}))
}

// pause stops reading and keeps p, which came behind the message that filled the backlog. On the
// loop.
func (c *Conn) pause(p []byte) {
	c.nc.Pause()
	if len(p) == 0 {
		return
	}
	rest := buf.Get(len(p))
	n := copy(rest.Extend(), p)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.held()
	b.rest, b.restLen = rest, n
}

// held is what waits, of callbacks or of Read. It is called under mu.
func (c *Conn) held() *queue {
	if c.settings().pull {
		if c.cold == nil {
			return nil
		}
		return &c.cold.inbox.queue
	}
	if c.backlog == nil {
		return nil
	}
	return &c.backlog.queue
}

// reading reports whether the connection is not paused. On the loop.
func (c *Conn) reading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.held()
	return b == nil || !b.paused
}

// resume reads on if the callbacks have caught up, or if messages are no longer wanted and only the
// peer's close frame is. On the loop.
func (c *Conn) resume() {
	c.mu.Lock()
	b := c.held()
	if b == nil || !b.paused || !b.asked && !c.end.muted() {
		c.mu.Unlock()
		return
	}
	rest, n := b.rest, b.restLen
	b.rest, b.restLen = nil, 0
	b.paused, b.asked = false, false
	c.forget()
	c.mu.Unlock()
	if rest != nil {
		c.receives(rest.Extend()[:n:n])
		rest.Release()
	} else {
		c.ping.received(c.now())
	}
	if c.reading() {
		c.nc.Resume()
	}
}

// dropRest is for the end of the connection. It is called under mu.
func (c *Conn) dropRest() {
	b := c.held()
	if b == nil {
		return
	}
	if b.rest != nil {
		b.rest.Release()
	}
	b.rest, b.restLen = nil, 0
	b.paused, b.asked = false, false
	c.forget()
}

// This file has callbacks run by internal/dispatch, with DispatchAuto and DispatchPool. The key
// that orders them is the connection: its backlog is the task, and runs the first of its events.

const (
	// poolQueue is the queue of a pool that Options make for themselves. A backlog waits in it at
	// most once, so the number of connections bounds it.
	poolQueue = 1 << 24
	// keptEvents is how much room an idle backlog keeps.
	keptEvents = 2 * maxBacklog
)

// dispatch runs the event here or has the dispatcher run it, and reports whether enough wait now.
// On the loop.
func (c *Conn) dispatch(ev event) (full bool) {
	if c.settings().inline {
		c.call(ev)
		return false
	}
	c.mu.Lock()
	b := c.backlog
	if b == nil {
		b = backlogOf(c)
		c.backlog = b
	}
	b.push(ev)
	full = ev.kind == received && b.full()
	b.paused = b.paused || full
	idle := !b.running
	b.running = true
	c.mu.Unlock()
	if idle {
		b.start()
	}
	return full
}

// start has the first event run, inline or on the pool. On the loop, in a callback of the
// connection.
func (b *backlog) start() {
	l := b.c.settings().tasks.On(b.c.nc.Loop())
	if !l.TryInline(b.c.nc, b, &l.Record) {
		l.ToPool(b)
	}
}

// Do implements dispatch.Task. The backlog is running, so it stays where it is, and not empty.
func (b *backlog) Do() (returned bool) {
	c := b.c
	c.mu.Lock()
	ev, resume := b.pop()
	c.mu.Unlock()
	if resume {
		c.nc.Notify()
	}
	return c.call(ev)
}

// Next implements dispatch.Task.
func (b *backlog) Next() dispatch.Task {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !b.empty() {
		return b
	}
	b.running = false
	c.forget()
	return nil
}

// Kept implements dispatch.Task.
func (b *backlog) Kept() {
	if b.Next() != nil {
		b.start()
	}
}

// backlogOf gives the connection a backlog.
func backlogOf(c *Conn) *backlog {
	b, _ := c.settings().spare.Get().(*backlog)
	if b == nil {
		b = new(backlog)
	}
	b.c = c
	return b
}

// forget gives the backlog back when it is idle, and what strip has left for it. It is called under
// mu.
func (c *Conn) forget() {
	b := c.backlog
	if b == nil || b.running || b.paused || !b.empty() {
		return
	}
	c.backlog = nil
	if c.end.gone() && c.cold != nil && !c.settings().pull { // no message waits to be inflated
		c.cold.windows = nil
		c.dropCold()
	}
	if b.Spent() || cap(b.events) > keptEvents {
		return
	}
	b.State.Clear()
	b.c, b.queue = nil, queue{events: b.events[:0]}
	c.settings().spare.Put(b)
}

// This file implements Options.Pull: a goroutine waits for messages, instead of a callback for
// each.

// An inbox is what a connection with Options.Pull has received and Read has not returned yet. It is
// part of cold, guarded by Conn.mu, and stays when the connection has ended.
type inbox struct {
	queue
	readers []driver.Parker
	busy    bool  // Read has returned a message: its caller may still answer
	err     error // what Read returns when nothing is left

	readDue, writeDue int64 // NetConn's deadlines, as Conn.now counts; 0: none
}

// errNotPulled is for a Read that could never return.
var errNotPulled = errors.New("websocket: Read: the Options have no Pull, so messages go to OnMessage")

// Read waits for the next message of a connection with Options.Pull. What it returns is the
// caller's. When all messages have been read, it fails with the error that OnClose gets. The end of
// ctx leaves the connection as it is. The peer's close frame is answered when what came before it
// has been read, or when Read was not called for Options.CloseTimeout. A FIN without a close frame
// ends the connection in the same way. Several goroutines may read; each message goes to
// one. Not on a loop, where it fails with myriad.ErrOnLoop if it would have to wait.
func (c *Conn) Read(ctx context.Context) (Op, []byte, error) {
	op, b, err := c.pullBlock(ctx, nil)
	if err != nil {
		return 0, nil, err
	}
	if b == nil {
		return op, []byte{}, nil
	}
	defer b.Release()
	return op, append([]byte(nil), b.Bytes()...), nil
}

// pullBlock is Read without a copy: the caller releases the block, which is nil for an empty
// message. expired is asked whenever there is something new, and ends the wait.
func (c *Conn) pullBlock(ctx context.Context, expired func(*inbox) error) (Op, *buf.Block, error) {
	if !c.settings().pull {
		return 0, nil, errNotPulled
	}
	var w driver.Parker
	for {
		ev, ok, err := c.pull(w, expired)
		if err == nil && !ok {
			err = ctx.Err()
		}
		switch {
		case err != nil:
			c.forgetReader(w)
			return 0, nil, err
		case ok && ev.kind == leaving:
			c.end.leave(c, ev.err)
		case ok:
			c.forgetReader(w)
			return c.taken(ev)
		case w == nil:
			e, err := c.engine()
			if err != nil {
				return 0, nil, err
			}
			if !e.HandOff() {
				return 0, nil, fmt.Errorf("websocket: Read would wait for a message: %w", myriad.ErrOnLoop)
			}
			w = e.System().NewParker()
			defer context.AfterFunc(ctx, w.Unpark)()
		default:
			w.Park()
		}
	}
}

// pull takes the first event. If there is none, w is woken when there is something new.
func (c *Conn) pull(w driver.Parker, expired func(*inbox) error) (ev event, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.cold.inbox
	in.busy = false
	if expired != nil {
		if err = expired(in); err != nil {
			return event{}, false, err
		}
	}
	if in.empty() {
		if in.err == nil && w != nil {
			in.readers = append(in.readers, w)
		}
		return event{}, false, in.err
	}
	ev, resume := in.pop()
	if resume {
		c.nc.Notify()
	}
	in.busy = ev.kind == received
	return ev, true, nil
}

// taken is a message for its reader.
func (c *Conn) taken(ev event) (Op, *buf.Block, error) {
	if !ev.packed {
		return ev.op, ev.block, nil
	}
	var p []byte
	if ev.block != nil {
		defer ev.block.Release()
		p = ev.block.Bytes()
	}
	b, err := c.unpack(ev.op, p)
	if err != nil {
		return 0, nil, err
	}
	return ev.op, b, nil
}

// forgetReader takes w off the list, and wakes another reader in its place: the wake that ended its
// wait may have been for a message.
func (c *Conn) forgetReader(w driver.Parker) {
	if w == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.cold.inbox
	for i, other := range in.readers {
		if other == w {
			in.readers = append(in.readers[:i], in.readers[i+1:]...)
			break
		}
	}
	if !in.empty() || in.err != nil {
		in.wake()
	}
}

// wake lets all readers look again. Conn.mu is held.
func (in *inbox) wake() {
	for _, w := range in.readers {
		w.Unpark()
	}
	in.readers = in.readers[:0]
}

// keep lets a message wait for Read, and reports whether enough wait now. On the loop.
func (c *Conn) keep(ev event) (full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.cold.inbox
	if c.end.muted() { // since it was looked at: what waited has been dropped
		if ev.block != nil {
			ev.block.Release()
		}
		return false
	}
	in.push(ev)
	in.wake()
	full = in.full()
	in.paused = in.paused || full
	return full
}

// endInbox notes why the peer sends no more, and reports whether there is something to be read
// before that is answered. It is called under mu.
func (c *Conn) endInbox(err error) (unread bool) {
	if !c.settings().pull {
		return false
	}
	in := c.cold.inbox
	if unread = !in.empty() || in.busy; unread {
		in.push(event{kind: leaving, err: err})
	}
	if in.err == nil {
		in.err = err
	}
	in.wake()
	return unread
}

// emptyInbox drops what has not been read. It is called under mu.
func (c *Conn) emptyInbox() {
	if !c.settings().pull || c.cold == nil {
		return
	}
	in := c.cold.inbox
	for !in.empty() {
		if ev, _ := in.pop(); ev.block != nil {
			ev.block.Release()
		}
	}
	if in.err == nil {
		in.err = errClosing
	}
	in.wake()
}

// strip leaves of cold what outlives the connection, which ends with err, and ends the context.
// Messages that wait for callbacks are still inflated, with the windows, until forget. It is called
// under mu.
func (c *Conn) strip(err error) {
	r := c.needCold()
	kept := cold{end: err, fin: r.fin, life: r.life, slow: r.slow}
	if c.settings().pull || c.backlog != nil {
		kept.windows = r.windows
	}
	if c.settings().pull {
		if r.inbox.err == nil {
			r.inbox.err = err
		}
		r.inbox.wake()
		kept.inbox = r.inbox
	}
	*r = kept
	r.life.End(err) // under mu: a context that is asked for meanwhile is this one, or has ended
}

// wakeLate wakes those whose deadline has passed. On the loop.
func (c *Conn) wakeLate() {
	if !c.settings().pull {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in, now := c.cold.inbox, c.now()
	if in.readDue > 0 && now >= in.readDue {
		in.wake()
	}
	if in.writeDue > 0 && now >= in.writeDue {
		c.slow().Wake()
	}
}

// rearm sets the timer again if deadlines have changed. On the loop.
func (c *Conn) rearm() {
	if (c.settings().pull || c.lateDue() > 0) && c.end.phase() == open {
		c.wakeLate()
		c.arm(c.now())
	}
}

// nextDeadline is the earliest of the deadlines that have not passed, or 0. On the loop.
func (c *Conn) nextDeadline(now int64) (due int64) {
	if due = c.lateDue(); due > 0 {
		due = max(due, now+1)
	}
	if !c.settings().pull {
		return due
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range [...]int64{c.cold.inbox.readDue, c.cold.inbox.writeDue} {
		if d > now && (due == 0 || d < due) {
			due = d
		}
	}
	return due
}

// unpack inflates a message, or fails the connection.
func (c *Conn) unpack(op Op, p []byte) (*buf.Block, error) {
	var w *windows
	if c.reader.rules.terms.inTakeover {
		c.mu.Lock()
		w = c.contexts()
		c.mu.Unlock()
	}
	b, err := c.reader.rules.unpack(op, p, w)
	if err != nil {
		v := err.(*violation) // inflate and notUTF8 give nothing else
		c.end.fail(c, v.code, v.text, err)
	}
	return b, err
}

// NetConn shows a connection with Options.Pull as a net.Conn: a stream of the bytes of the peer's
// messages, of either kind, whose boundaries are lost. Each Write is one message of kind op; it
// waits for room. Close sends StatusNormalClosure and does not wait for the answer. Read gives
// io.EOF when the peer has closed with StatusNormalClosure or StatusGoingAway. Deadlines are those
// of a net.Conn, to the millisecond; one that has passed leaves the connection as it is. Not on a
// loop.
func NetConn(c *Conn, op Op) net.Conn { return &netConn{c: c, op: op} }

type netConn struct {
	c  *Conn
	op Op

	mu   sync.Mutex // one Read at a time
	rest *buf.Block // what Read has not returned of a message
	at   int

	closed atomic.Bool
}

var _ net.Conn = (*netConn)(nil)

func (n *netConn) Read(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for n.rest == nil {
		_, b, err := n.c.pullBlock(context.Background(), func(in *inbox) error { return n.late(in.readDue) })
		if err != nil {
			return 0, n.failed("read", err)
		}
		if n.rest, n.at = b, 0; b != nil && b.Len() == 0 {
			n.drop()
		}
	}
	k := copy(p, n.rest.Bytes()[n.at:])
	if n.at += k; n.at == n.rest.Len() {
		n.drop()
	}
	return k, nil
}

func (n *netConn) drop() {
	n.rest.Release()
	n.rest = nil
}

func (n *netConn) Write(p []byte) (int, error) {
	err := checkMessage(n.op, p)
	if err == nil {
		err = n.writeLate()
	}
	if err == nil {
		err = n.c.writeWaiting(context.Background(), outgoing{op: n.op, p: p}, 0, n.writeLate)
	}
	if err != nil {
		return 0, n.failed("write", err)
	}
	return len(p), nil
}

func (n *netConn) writeLate() error {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if !n.c.settings().pull {
		return errNotPulled
	}
	return n.late(n.c.cold.inbox.writeDue)
}

// late reports whether a deadline has passed.
func (n *netConn) late(due int64) error {
	if due > 0 && n.c.nc != nil && n.c.nc.Loop().Engine().System().Now().UnixMilli() >= due {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// failed is err as a net.Conn returns it.
func (n *netConn) failed(op string, err error) error {
	switch code := CloseStatus(err); {
	case op == "read" && (code == StatusNormalClosure || code == StatusGoingAway):
		return io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = os.ErrDeadlineExceeded // as it is: a timeout in the sense of net.Error
	}
	return &net.OpError{Op: op, Net: "websocket", Source: n.c.LocalAddr(), Addr: n.c.RemoteAddr(), Err: err}
}

func (n *netConn) Close() error {
	if n.closed.Swap(true) {
		return n.failed("close", errClosing)
	}
	err := n.c.Close(StatusNormalClosure, "")
	n.mu.Lock() // a Read that waits has been woken by Close
	defer n.mu.Unlock()
	if n.rest != nil {
		n.drop()
	}
	if err != nil && !errors.Is(err, net.ErrClosed) { // the peer may have closed before
		return n.failed("close", err)
	}
	return nil
}

func (n *netConn) LocalAddr() net.Addr  { return orNone(n.c.LocalAddr()) }
func (n *netConn) RemoteAddr() net.Addr { return orNone(n.c.RemoteAddr()) }

// orNone is for a connection that has not arrived at its loop.
func orNone(a net.Addr) net.Addr {
	if a == nil {
		return &net.TCPAddr{}
	}
	return a
}

func (n *netConn) SetDeadline(t time.Time) error      { return n.setDue(t, true, true) }
func (n *netConn) SetReadDeadline(t time.Time) error  { return n.setDue(t, true, false) }
func (n *netConn) SetWriteDeadline(t time.Time) error { return n.setDue(t, false, true) }

func (n *netConn) setDue(t time.Time, read, write bool) error {
	due := int64(0)
	if !t.IsZero() {
		due = max(1, t.Add(time.Millisecond-1).UnixMilli())
	}
	c := n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.settings().pull:
		return n.failed("set", errNotPulled)
	case c.end.over():
		return n.failed("set", errClosing)
	}
	in := c.cold.inbox
	if read {
		in.readDue = due
		in.wake()
	}
	if write {
		in.writeDue = due
		c.slow().Wake()
	}
	if c.nc != nil {
		c.nc.Notify() // the loop sets the timer
	}
	return nil
}
