package websocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver"
)

// What waits in one inbox is bounded: at either limit the connection is not read until below half.
// A message larger than the second limit is taken when nothing else waits.
const (
	maxInbox      = 128
	maxInboxBytes = 256 << 10
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
	unanswered
	leaving // not a callback: the answer to what the peer has sent last
	finished
)

// An inbox is what has come, or happened, and was not taken yet: by callbacks, or with Options.Pull
// by Read. It is guarded by Conn.mu.
type inbox struct {
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

// push reports whether the connection is not to be read any more, because of the messages that
// wait.
func (in *inbox) push(ev event) (full bool) {
	if ev.block != nil {
		ev.p = nil
		in.bytes += ev.block.Len()
	}
	if len(in.events) == cap(in.events) && in.head > 0 {
		n := copy(in.events, in.events[in.head:])
		clear(in.events[n:])
		in.events, in.head = in.events[:n], 0
	}
	in.events = append(in.events, ev)
	full = ev.kind == received && (in.len() >= maxInbox || in.bytes >= maxInboxBytes)
	in.paused = in.paused || full
	return full
}

func (in *inbox) len() int { return len(in.events) - in.head }

// pop takes the first event, and says whether the loop is to be asked to read on.
func (in *inbox) pop() (ev event, resume bool) {
	ev = in.events[in.head]
	in.events[in.head] = event{}
	in.head++
	if ev.block != nil {
		in.bytes -= ev.block.Len()
	}
	if in.len() == 0 {
		in.events, in.head = in.events[:0], 0
	}
	if in.paused && !in.asked && in.len() < maxInbox/2 && in.bytes < maxInboxBytes/2 {
		in.asked, resume = true, true
	}
	return ev, resume
}

// unpause returns what was received behind the message that reached the limit.
func (in *inbox) unpause() (rest *buf.Block, n int) {
	rest, n = in.rest, in.restLen
	in.rest, in.restLen, in.paused, in.asked = nil, 0, false, false
	return rest, n
}

// message hands a message to its callback or to Read, and reports whether enough wait now. On the
// loop.
func (c *Conn) message(m message) (full bool) {
	s := c.reader.rules.settings
	if s.OnMessage == nil && !s.Pull {
		m.release()
		return false
	}
	ev := event{kind: received, op: m.op, packed: m.compressed, block: m.block, p: m.payload}
	if s.inline && !s.Pull {
		c.call(ev)
		return false
	}
	if c.end.muted() {
		m.release()
		return false
	}
	if m.block == nil && len(m.payload) > 0 {
		ev.block = buf.From(m.payload)
	}
	if s.Pull {
		return c.keep(ev)
	}
	return c.dispatch(ev)
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
		s.OnOpen(c)
	case leaving:
		c.end.leave(c, ev.err)
	case drained:
		s.OnDrained(c)
	case finished:
		s.OnClose(c, ev.err)
	case ponged:
		if !c.end.muted() {
			s.OnPong(c, p, time.Duration(ev.micros)*time.Microsecond)
		}
	case unanswered:
		c.noAnswer()
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
		s.OnMessage(c, ev.op, p)
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

// noAnswer calls OnNoAnswer, unless a message before it was the answer.
func (c *Conn) noAnswer() {
	c.mu.Lock()
	late := c.ping.answer == answerLate
	if late {
		c.ping.answer = answerIdle
	}
	if late && c.settings().OnNoAnswer == nil {
		c.end.endWith(c, errNoAnswer)
		c.nc.Abort(errNoAnswer)
	}
	c.mu.Unlock()
	if late && c.settings().OnNoAnswer != nil && !c.end.muted() {
		c.settings().OnNoAnswer(c)
	}
}

// pause stops reading and keeps p, which came behind the message that filled the inbox. On the
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
	in := c.held()
	in.rest, in.restLen = rest, n
}

// held is what waits, of callbacks or of Read. It is called under mu.
func (c *Conn) held() *inbox {
	if c.settings().Pull {
		if c.cold == nil {
			return nil
		}
		return &c.cold.reads.inbox
	}
	if c.callbacks == nil {
		return nil
	}
	return &c.callbacks.inbox
}

// reading reports whether the connection is not paused. On the loop.
func (c *Conn) reading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.held()
	return in == nil || !in.paused
}

// resume reads on if the callbacks have caught up, or if messages are no longer wanted and only the
// peer's close frame is. On the loop.
func (c *Conn) resume() {
	c.mu.Lock()
	in := c.held()
	if in == nil || !in.paused || !in.asked && !c.end.muted() {
		c.mu.Unlock()
		return
	}
	rest, n := in.unpause()
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

const (
	// poolQueue is the queue of a pool that Options make for themselves. The callbacks of a
	// connection wait in it once at most, so the number of connections bounds it.
	poolQueue = 1 << 24
	// keptEvents is how much room an idle inbox of callbacks keeps.
	keptEvents = 2 * maxInbox
)

// The callbacks of a connection that wait for a goroutine, or run on one, are a task of
// internal/dispatch, with DispatchAuto and DispatchPool. It exists while there are any. State is
// the dispatcher's.
type callbacks struct {
	dispatch.State
	c       *Conn
	running bool // the dispatcher has it
	inbox
}

// dispatch runs the event here or has the dispatcher run it, and reports whether enough wait now.
// On the loop.
func (c *Conn) dispatch(ev event) (full bool) {
	if c.settings().inline {
		c.call(ev)
		return false
	}
	c.mu.Lock()
	k := c.callbacks
	if k == nil {
		if k, _ = c.settings().spare.Get().(*callbacks); k == nil {
			k = new(callbacks)
		}
		k.c, c.callbacks = c, k
	}
	full = k.push(ev)
	idle := !k.running
	k.running = true
	c.mu.Unlock()
	if idle {
		k.start()
	}
	return full
}

// start has the first event run, inline or on the pool. On the loop, in a callback of the
// connection.
func (k *callbacks) start() {
	l := k.c.settings().tasks.On(k.c.nc.Loop())
	if !l.TryInline(k.c.nc, k, &l.Record) {
		l.ToPool(k)
	}
}

// Do implements dispatch.Task. The task is running, so it stays where it is, and not empty.
func (k *callbacks) Do() (returned bool) {
	c := k.c
	c.mu.Lock()
	ev, resume := k.pop()
	c.mu.Unlock()
	if resume {
		c.nc.Notify()
	}
	return c.call(ev)
}

// Next implements dispatch.Task.
func (k *callbacks) Next() dispatch.Task {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.len() > 0 {
		return k
	}
	k.running = false
	c.forget()
	return nil
}

// Kept implements dispatch.Task.
func (k *callbacks) Kept() {
	if k.Next() != nil {
		k.start()
	}
}

// forget gives the callbacks back when they are idle, and what strip has left for them. It is
// called under mu.
func (c *Conn) forget() {
	k := c.callbacks
	if k == nil || k.running || k.paused || k.len() > 0 {
		return
	}
	c.callbacks = nil
	if c.end.gone() && c.cold != nil && !c.settings().Pull { // no message waits to be inflated
		c.cold.windows = nil
		c.dropCold()
	}
	if k.Spent() || cap(k.events) > keptEvents {
		return
	}
	k.State.Clear()
	k.c, k.inbox = nil, inbox{events: k.events[:0]}
	c.settings().spare.Put(k)
}

// The reads of a connection with Options.Pull are its messages, for which goroutines wait instead
// of callbacks. They are part of cold, guarded by Conn.mu, and stay when the connection has ended.
type reads struct {
	inbox
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
func (c *Conn) pullBlock(ctx context.Context, expired func(*reads) error) (Op, *buf.Block, error) {
	if !c.settings().Pull {
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
			if c.forgetReader(w); !ev.packed {
				return ev.op, ev.block, nil
			}
			var p []byte
			if ev.block != nil {
				defer ev.block.Release()
				p = ev.block.Bytes()
			}
			b, err := c.unpack(ev.op, p)
			return ev.op, b, err
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
func (c *Conn) pull(w driver.Parker, expired func(*reads) error) (ev event, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.cold.reads
	in.busy = false
	if expired != nil {
		if err = expired(in); err != nil {
			return event{}, false, err
		}
	}
	if in.len() == 0 {
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

// forgetReader takes w off the list, and wakes another reader in its place: the wake that ended its
// wait may have been for a message.
func (c *Conn) forgetReader(w driver.Parker) {
	if w == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.cold.reads
	if i := slices.Index(in.readers, w); i >= 0 {
		in.readers = slices.Delete(in.readers, i, i+1)
	}
	if in.len() > 0 || in.err != nil {
		in.wake()
	}
}

// wake lets all readers look again. Conn.mu is held.
func (in *reads) wake() {
	for _, w := range in.readers {
		w.Unpark()
	}
	in.readers = in.readers[:0]
}

// keep lets a message wait for Read, and reports whether enough wait now. On the loop.
func (c *Conn) keep(ev event) (full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.cold.reads
	if c.end.muted() { // since it was looked at: what waited has been dropped
		if ev.block != nil {
			ev.block.Release()
		}
		return false
	}
	in.wake()
	return in.push(ev)
}

// endInbox notes why the peer sends no more, and reports whether there is something to be read
// before that is answered. It is called under mu.
func (c *Conn) endReads(err error) (unread bool) {
	if !c.settings().Pull {
		return false
	}
	in := c.cold.reads
	if unread = in.len() > 0 || in.busy; unread {
		in.push(event{kind: leaving, err: err})
	}
	if in.err == nil {
		in.err = err
	}
	in.wake()
	return unread
}

// emptyInbox drops what has not been read. It is called under mu.
func (c *Conn) dropUnread() {
	if !c.settings().Pull || c.cold == nil {
		return
	}
	in := c.cold.reads
	for in.len() > 0 {
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
	if c.settings().Pull || c.callbacks != nil {
		kept.windows = r.windows
	}
	if c.settings().Pull {
		if r.reads.err == nil {
			r.reads.err = err
		}
		r.reads.wake()
		kept.reads = r.reads
	}
	*r = kept
	r.life.End(err) // under mu: a context that is asked for meanwhile is this one, or has ended
}

// wakeLate wakes those whose deadline has passed. On the loop.
func (c *Conn) wakeLate() {
	if !c.settings().Pull {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in, now := c.cold.reads, c.now()
	if in.readDue > 0 && now >= in.readDue {
		in.wake()
	}
	if in.writeDue > 0 && now >= in.writeDue {
		c.slow().Wake()
	}
}

// nextDeadline is the earliest of the deadlines that have not passed, or 0. On the loop.
func (c *Conn) nextDeadline(now int64) (due int64) {
	if due = c.lateDue(); due > 0 {
		due = max(due, now+1)
	}
	if !c.settings().Pull {
		return due
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range [...]int64{c.cold.reads.readDue, c.cold.reads.writeDue} {
		if d > now && (due == 0 || d < due) {
			due = d
		}
	}
	return due
}

// unpack inflates a message, or fails the connection. The reader of messages calls it, one call at
// a time.
func (c *Conn) unpack(op Op, p []byte) (*buf.Block, error) {
	rules := c.reader.rules
	var w windows
	kept := &w
	if rules.terms.inTakeover { // messages refer to each other
		c.mu.Lock()
		kept = c.contexts()
		c.mu.Unlock()
	}
	b, err := inflate(p, kept.in, rules.limit)
	if err == nil && op == OpText && !utf8.Valid(b.Bytes()) {
		b.Release()
		err = notUTF8()
	}
	if err != nil {
		v := err.(*violation) // inflate and notUTF8 give nothing else
		c.end.fail(c, v.code, v.text, err)
		return nil, err
	}
	if rules.terms.inTakeover {
		kept.in = slide(kept.in, b.Bytes(), 1<<rules.terms.inBits)
	}
	return b, nil
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
		_, b, err := n.c.pullBlock(context.Background(), func(in *reads) error { return n.late(in.readDue) })
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
	if !n.c.settings().Pull {
		return errNotPulled
	}
	return n.late(n.c.cold.reads.writeDue)
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
	case !c.settings().Pull:
		return n.failed("set", errNotPulled)
	case c.end.over():
		return n.failed("set", errClosing)
	}
	in := c.cold.reads
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
