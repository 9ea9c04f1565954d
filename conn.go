package myriad

import (
	"fmt"
	"iter"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/bridge"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/wheel"
)

// A Conn is a connection that belongs to one loop. It has net.Conn's methods and a stable identity.
// The doc of each method says where it may be called: on any goroutine, or only by code that runs
// on the conn's loop (its handler's methods, Loop.Do).
type Conn struct {
	loop    *Loop
	id      driver.ID // zero until attached; owned by the loop
	handler Handler   // owned by the loop
	local   net.Addr  // shared with the loop's other conns
	remote  driver.Addr
	queued  atomic.Int64 // bytes accepted and not yet taken by the kernel

	// cold is what few conns need. It is made under mu and taken back by the loop under mu; its
	// fields are the loop's except where they say otherwise.
	cold atomic.Pointer[cold]

	mu     sync.Mutex
	out    *buf.Chain // guarded by mu: accepted, not yet given to the driver
	next   *Conn      // guarded by being linked: the loop's list of dirty conns
	due    int64      // guarded by mu: SetDeadline's request, in loop milliseconds
	limit  int32      // guarded by mu: high mark in bytes
	asked  request    // guarded by mu
	can    abilities  // owned by the loop
	status status     // owned by the loop
}

// cold is the part of a conn that is allocated on demand, and given back when it is empty again.
type cold struct {
	held     buf.Chain // received while paused, or while detaching
	endHeld  bool      // the peer's FIN came while bytes were held
	reason   error     // guarded by Conn.mu: Abort's argument, or Wire.Fail's
	lingered int       // bytes discarded while lingering
	flushed  int64     // bytes that were still to be sent when the linger timer was last set

	layering
	fileQueue
	detach detachment
	bridge *bridge.Bridge // of an adopted conn without a descriptor; set before the conn is shared
	// of an adopted conn, if it does not fit into remote, or has a bridge and SetAddrs was called
	peer   net.Addr
	frozen *frozenConn // of a frozen conn
}

// request says what other goroutines (or the handler itself) have asked of the loop.
type request uint16

const (
	linked    request = 1 << iota // in the loop's list of dirty conns
	wantFIN                       // CloseWrite
	wantClose                     // Close or Cut
	wantAbort                     // Abort
	wantRoom                      // ErrFull was given, Drained is pending
	// and that with less than half of the limit queued: Drained waits for an empty queue
	wantEmpty
	wantNotify   // Notify
	wantDeadline // SetDeadline
	gone         // Closed has been reported, or the conn was detached, or its connection hibernates
	short        // Cut: what has been written is not the whole
	shown        // set by Loop.Conns: its callers may keep the conn
	offering     // its output is on its way to the driver, with that of other conns
)

// A state is where a conn is in its life. Only Conn.advance changes it, as the table states allows.
// If a conn is not closed in order, cold.reason says why.
type state uint8

const (
	arriving  state = iota // not with a driver yet
	dialing                // Dial is under way: no callback is called yet
	open                   // what each side has ended by itself is in status
	detaching              // Detach waits for what is queued to be sent; input is held
	frozen                 // no driver has it, and no callback is called: see Engine.Freeze
	draining               // Close has begun: output is flushed, input discarded; only Closed is called
	lingering              // all is flushed, our FIN included: the conn waits for the peer's
	closed                 // the driver has been told to close, abort or detach, or has ended the conn itself
)

// states is the table of states: what Conn.State calls each, and what may follow it.
var states = [...]struct {
	name string
	next uint8 // a bit for each
}{
	arriving:  {"open", 1<<dialing | 1<<open | 1<<frozen | 1<<closed}, // frozen: by another engine
	dialing:   {"dialing", 1<<open | 1<<closed},
	open:      {"open", 1<<detaching | 1<<frozen | 1<<draining | 1<<closed},
	detaching: {"detaching", 1<<open | 1<<draining | 1<<closed}, // open: the driver cannot give it away
	frozen:    {"frozen", 1<<open | 1<<closed},
	draining:  {"closing", 1<<lingering | 1<<closed},
	lingering: {"lingering", 1 << closed},
	closed:    {"closed", 1 << arriving}, // a Conn of a connection that hibernates serves another one
}

// status is a conn's state in the lowest bits, and flags. The loop owns it.
type status uint8

const stateBits status = 7

const (
	paused    status = (stateBits + 1) << iota // by the handler
	peerEnded                                  // the peer's FIN has been seen
	finSent                                    // ours is with the driver
	served                                     // has had its share of this turn's encoding, and is to be revisited
	newcomer                                   // came while its loop was late, and is new
)

func newConn(l *Loop, h Handler) *Conn {
	l.engine.bind(h)
	return &Conn{loop: l, handler: h, can: abilitiesOf(h), limit: l.engine.writeLimit()}
}

func (c *Conn) is(s status) bool { return c.status&s != 0 }
func (c *Conn) state() state     { return state(c.status & stateBits) }

// advance moves a conn on to a state, and does what that begins with. It does nothing, and returns
// false, if the table does not let that state follow the present one.
func (c *Conn) advance(to state) bool {
	if states[c.state()].next&(1<<to) == 0 {
		return false
	}
	c.status = c.status&^stateBits | status(to)
	switch to {
	case draining:
		c.beginDraining()
	case lingering:
		// from now on, however long this turn has lasted
		c.loop.wheel.Set(c.id.Slot(), wheel.Millis(c.loop.elapsed()+c.lingerTime()))
	}
	return true
}

// makeCold gives the conn its cold part. mu is held.
func (c *Conn) makeCold() *cold {
	x := c.cold.Load()
	if x == nil {
		x = new(cold)
		c.cold.Store(x)
	}
	return x
}

// ownCold is makeCold for callers on the loop that do not hold mu.
func (c *Conn) ownCold() *cold {
	if x := c.cold.Load(); x != nil {
		return x
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.makeCold()
}

// trim gives the cold part back when nothing is in it any more. On the loop, at the end of settle:
// no caller holds a pointer to it.
func (c *Conn) trim(x *cold) {
	if x.layer != nil || x.held.Len() > 0 || x.detach != nil || x.bridge != nil ||
		x.peer != nil || x.frozen != nil ||
		x.lingered > 0 || x.flushed > 0 || x.sending || x.endHeld {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(x.files) == 0 && x.reason == nil {
		c.cold.Store(nil)
	}
}

// closeAsked reports whether Closed is the only callback that may still be called.
func (c *Conn) closeAsked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked&(wantClose|wantAbort|gone) != 0
}

// hasHeld reports whether there is something to deliver that was held back.
func (c *Conn) hasHeld(x *cold) bool {
	return (x.held.Len() > 0 || x.endHeld) && c.state() == open && !c.is(paused)
}

func (c *Conn) layer() Layer {
	if x := c.cold.Load(); x != nil {
		return x.layer
	}
	return nil
}

// truncation is why the peer's stream has no end of its own; nil: it has one, or has not ended.
func (c *Conn) truncation() error {
	if x := c.cold.Load(); x != nil {
		return x.cut
	}
	return nil
}

func (c *Conn) bridged() *bridge.Bridge {
	if x := c.cold.Load(); x != nil {
		return x.bridge
	}
	return nil
}

// attempt is what a conn has for a handler while it dials.
func (c *Conn) attempt() *attempt { return c.handler.(*attempt) }

// Loop is the loop the conn belongs to. Any goroutine.
func (c *Conn) Loop() *Loop { return c.loop }

// Handler is the conn's current handler, for a visit of Loop.Conns that looks for conns of its own
// kind. On the loop only.
func (c *Conn) Handler() Handler {
	if d, dials := c.handler.(*attempt); dials {
		return d.Handler
	}
	return c.handler
}

// Age is how long the conn has been attached to its loop, or has been dialling, to a tenth of a
// second; 0 before and after that. On the loop only.
func (c *Conn) Age() time.Duration {
	l, slot := c.loop, c.id.Slot()
	if l.conn(slot) != c {
		return 0
	}
	return time.Duration(ageOf(*l.born.Row(slot), l.now)) * time.Millisecond
}

// State describes the conn in a word or two. If several are true, the last of this list is
// returned. On the loop only.
//
//   - "dialing", "open"
//   - "paused": by Pause
//   - "peer ended": the peer's FIN has been seen
//   - "write ended": by CloseWrite
//   - "detaching": by Detach
//   - "frozen": by Engine.Freeze
//   - "closing": Close flushes what is queued
//   - "lingering": Close waits for the peer's end
//   - "closed"
func (c *Conn) State() string {
	switch {
	case c.state() != open:
		return states[c.state()].name
	case c.is(finSent):
		return "write ended"
	case c.is(peerEnded):
		return "peer ended"
	case c.is(paused):
		return "paused"
	}
	return "open"
}

// show records that c was given to a caller, which may keep it.
func (c *Conn) show() {
	c.mu.Lock()
	c.asked |= shown
	c.mu.Unlock()
}

// Read always fails with ErrOnLoop: bytes come to the handler. Stream gives a net.Conn that can be
// read.
func (c *Conn) Read([]byte) (int, error) { return 0, ErrOnLoop }

// LocalAddr is the address at this end, or what SetAddrs has put in its place. Any goroutine.
func (c *Conn) LocalAddr() net.Addr {
	local := c.local
	if a, ok := local.(driver.OwnAddr); ok {
		local = a.Net()
	}
	if local == nil {
		return driver.UnixAddr.Net()
	}
	return local
}

// RemoteAddr is the peer's address, or what SetAddrs has put in its place. It is "@" on a unix
// socket, also if the peer's own has a name. For an adopted net.Conn without a descriptor it is
// that conn's own RemoteAddr, which is called before its first byte is delivered. Any goroutine.
func (c *Conn) RemoteAddr() net.Addr {
	switch x := c.cold.Load(); {
	case x == nil:
	case x.peer != nil:
		return x.peer
	case x.bridge != nil:
		if peer := x.bridge.Remote(); peer != nil {
			return peer
		}
	}
	if a := c.remote.Net(); a != nil {
		return a
	}
	return driver.UnixAddr.Net()
}

// AppendRemoteAddr appends RemoteAddr().String() to dst without the address in between. Any
// goroutine.
func (c *Conn) AppendRemoteAddr(dst []byte) []byte {
	if x := c.cold.Load(); x != nil && (x.bridge != nil || x.peer != nil) {
		return append(dst, c.RemoteAddr().String()...)
	}
	return c.remote.AppendTo(dst)
}

// Charge counts time that another goroutine has computed for the conn as if the conn's callbacks
// had taken it, as that of a handshake. It is for work that the conn began with. While the loop is
// late, newcomers come as they cost (docs/adr/0033); else it has no effect. Time in which the
// goroutine has waited is not to be counted. On the loop only.
func (c *Conn) Charge(d time.Duration) {
	if n := &c.loop.newcomers; n.on && c.is(newcomer) {
		n.charged += d
	}
}

// SetAddrs replaces what LocalAddr and RemoteAddr say, for a protocol in which a proxy sends the
// addresses of its client (package proxyproto). An address that is not valid stays as it is. The
// net.Conn that Detach gives has the new addresses, too. On the loop only, before other goroutines
// ask for an address.
func (c *Conn) SetAddrs(local, remote netip.AddrPort) {
	if local.IsValid() {
		c.local = c.loop.locals.Of(driver.AddrOfPort(local))
	}
	if !remote.IsValid() {
		return
	}
	c.remote = driver.AddrOfPort(remote).AsAnnounced()
	if x := c.cold.Load(); x != nil && (x.bridge != nil || x.peer != nil) {
		x.peer = c.remote.Net()
	}
}

// Notify has the handler's Notified called on the loop, soon, and once for all calls made before
// that. It cannot fail and allocates nothing. Any goroutine.
func (c *Conn) Notify() {
	c.mu.Lock()
	if c.asked&gone != 0 {
		c.mu.Unlock()
		return
	}
	c.asked |= wantNotify
	wake := c.loop.settler.link(c)
	c.mu.Unlock()
	if wake {
		c.loop.post(workDirty)
	}
}

// SetHandler changes the protocol of the conn, when this callback ends. Then h.Opened is called,
// h.Received with rest if there is any, and h.Received with newer bytes as they come. If the peer
// had ended its side before, h.Ended is called, too. The old handler is not called again. rest must
// stay unchanged until then. What the old handler has set (a pause, the timer) stays as it is. A
// second call in the same callback replaces the first. On the loop only.
func (c *Conn) SetHandler(h Handler, rest []byte) {
	c.loop.engine.bind(h)
	s := handlerSwitch{c, h, rest}
	for i := range c.loop.calls.switches {
		if c.loop.calls.switches[i].c == c {
			c.loop.calls.switches[i] = s
			return
		}
	}
	c.loop.calls.switches = append(c.loop.calls.switches, s)
}

// WireFor is the access of l, which must be the conn's layer, for what it does outside of its
// methods: a handshake on another goroutine. Any goroutine.
func (c *Conn) WireFor(l Layer) Wire {
	if c.layer() != l {
		panic("myriad: WireFor of what is not the conn's layer")
	}
	return Wire{c, false}
}

// Layer is what SetLayer has set, or nil. Any goroutine, once the handler has been opened.
func (c *Conn) Layer() Layer { return c.layer() }

// SetLayer puts l between the socket and the handler, in Opened: that of the first handler, or of
// one that SetHandler has set on a conn without a layer. What was received before, and not
// delivered, goes through l: the rest that SetHandler was given, too. What other goroutines have
// written to an adopted conn by then is encoded. If l does not take it, or if it contains a file,
// the conn is aborted. On the loop only.
func (c *Conn) SetLayer(l Layer) { c.ownCold().encodeFromNowOn(c, l) }

// Pause stops Received and Ended. Bytes under way are kept, at most one read buffer of them, until
// Resume. A paused conn still reports resets. On the loop only.
func (c *Conn) Pause() {
	if !c.is(paused) && c.state() < draining {
		c.status |= paused
		c.loop.drv.Pause(c.id)
	}
}

// Resume lets Received go on, when this callback ends. On the loop only.
func (c *Conn) Resume() {
	if !c.is(paused) || c.state() >= draining {
		return
	}
	c.status &^= paused
	switch x := c.cold.Load(); {
	case c.state() == detaching: // it is on its way out, and receives no more
	case x != nil && (x.held.Len() > 0 || x.endHeld):
		c.loop.settler.revisit(c)
	default:
		c.loop.drv.Resume(c.id)
	}
}

// RunInline has t run on the loop when the events of this poll cycle have been handled. Events of
// the conn are still delivered meanwhile: its protocol must expect them while the task runs. If
// InlineTask.Returned calls RunInline for the same conn, that task comes next, and what both write
// is sent together. After 16 such tasks, or 100 µs, tasks of other conns come first. On the loop
// only, inside a callback of the conn.
func (c *Conn) RunInline(t InlineTask) {
	c.loop.tasks.list = append(c.loop.tasks.list, connTask{c, t})
	c.loop.due |= workTasks
}

// Hibernate gives c back while its connection is silent, which then costs 32 bytes beside its
// places in the loop's tables. Its timer stays set. It reports false, and does nothing, unless the
// conn is at rest. Nothing is queued, held back or requested; it has no layer, and is not paused.
// Neither side has ended or is closing. It was not adopted without a descriptor. The running
// callback is not its own, and the engine does not shut down. w must be comparable, as pointers
// are, and be the same for many connections.
//
// Afterwards c is no longer the connection: its methods behave as after Closed, which is not
// called. alone says that no code but its handler holds c. Then c may become another connection
// with the same Waker and local address. One that Loop.Conns has visited never does. On the loop
// only.
func (c *Conn) Hibernate(w Waker, alone bool) bool { return c.HibernateAs(w, 0, alone) }

// HibernateAs is Hibernate with a tag: what the Waker has to know of this connection besides, such
// as what its protocol waits for. HibernatedAs returns it in Wake. On the loop only.
func (c *Conn) HibernateAs(w Waker, tag uint8, alone bool) bool {
	return c.loop.hibernation.add(c, w, tag, alone)
}

// HibernatedAs is the tag with which the connection has hibernated. In Waker.Wake only.
func (c *Conn) HibernatedAs() uint8 { return c.loop.hibernation.records.Row(c.id.Slot()).tag }

// SetDeadline sets the conn's one timer, as SetTimer does, to a point in time; the zero time
// switches it off. Any goroutine; it takes effect when the loop comes to it. It fails with
// ErrClosed after the end of the connection.
func (c *Conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	if c.asked&gone != 0 {
		c.mu.Unlock()
		return ErrClosed
	}
	c.due = c.loop.millis(t)
	c.asked |= wantDeadline
	wake := c.loop.settler.link(c)
	c.mu.Unlock()
	if wake {
		c.loop.post(workDirty)
	}
	return nil
}

// SetReadDeadline is SetDeadline: a conn has one timer.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline is SetDeadline: a conn has one timer.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetTimer arranges a call of Expired after d; if d is negative, in this turn or the next one. A
// new call replaces the earlier one, and 0 switches it off. It is kept in milliseconds and never
// early against the loop's clock. On the loop only.
func (c *Conn) SetTimer(d time.Duration) {
	if c.state() >= frozen {
		if c.state() == frozen {
			c.cold.Load().frozen.setTimer(c.loop.now, d)
		}
		return // the timer of others bounds their close
	}
	if d == 0 {
		c.loop.wheel.Clear(c.id.Slot())
		return
	}
	c.loop.wheel.Set(c.id.Slot(), c.loop.now+wheel.Millis(max(d, 0)))
}

// Timers are several timers of one connection, such as a keep-alive, an idle limit and the limit
// for an answer. They use the conn's own timer, so a handler with Timers must not call SetTimer.
// Its method Expired calls Timers.Expired to learn which of them are due. A timer is named by a
// small number, mostly a constant. The zero value has no timer set. On the loop only.
//
// The memory is eight bytes for each number up to the highest that was set. Setting one looks at
// all of them, so that a handful is what they are for.
type Timers struct {
	at []int64 // when each is due, in milliseconds of the loop's clock; 0: it is not set
}

// Set has the timer with this number expire after d, in this turn or the next one if d is negative.
// It replaces the earlier time of that timer; 0 switches it off. As with SetTimer, times are kept
// in milliseconds and are never early by the loop's clock. A conn that closes has no timers left.
func (t *Timers) Set(c *Conn, number uint8, d time.Duration) {
	var at int64
	if d != 0 {
		at = max(1, c.loop.now+wheel.Millis(max(d, 0)))
	}
	for len(t.at) <= int(number) {
		t.at = append(t.at, 0)
	}
	t.at[number] = at
	t.arm(c)
}

// Expired gives the number of each timer that is due, the soonest first, to be asked in the
// handler's Expired. A timer is switched off before its number is given, so that the body of the
// loop may set it again. What is due still when the body breaks off expires again in the next turn.
func (t *Timers) Expired(c *Conn) iter.Seq[uint8] {
	return func(yield func(uint8) bool) {
		defer t.arm(c)
		for now := c.loop.now; ; {
			next := t.next()
			if next < 0 || t.at[next] > now {
				return
			}
			t.at[next] = 0
			if !yield(uint8(next)) {
				return
			}
		}
	}
}

// next is the timer that is due first, or -1.
func (t *Timers) next() int {
	first := -1
	for i, at := range t.at {
		if at != 0 && (first < 0 || at < t.at[first]) {
			first = i
		}
	}
	return first
}

// first is when the timer is due that is due first, or -1.
func (t *Timers) first() int64 {
	if next := t.next(); next >= 0 {
		return t.at[next]
	}
	return -1
}

// arm sets the conn's own timer to the first of t.
func (t *Timers) arm(c *Conn) {
	if c.state() >= frozen {
		if c.state() == frozen {
			c.cold.Load().frozen.due = max(0, t.first())
		}
		return // the timer of others bounds their close
	}
	if next := t.next(); next >= 0 {
		c.loop.wheel.Set(c.id.Slot(), t.at[next])
		return
	}
	c.loop.wheel.Clear(c.id.Slot())
}

// SyscallConn gives access to the connection's descriptor, for what sockets can be asked and told:
// SO_PEERCRED, TCP_INFO, TCP_KEEPIDLE and the like. It fails with ErrUnsupported where the driver
// has no descriptor, or the conn was adopted and its net.Conn has none. Any goroutine.
//
// Control runs its function on the conn's loop, so that the descriptor stays open meanwhile; the
// function must not block. Off the loop it waits for that. In a callback of another loop, where it
// must not wait, it fails with ErrOnLoop, and with ErrClosed after the end of the connection. Read
// and Write fail: bytes come to the handler and leave by the conn's methods.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if b := c.bridged(); b != nil {
		return b.SyscallConn()
	}
	if c.loop.can.Control == nil {
		return nil, fmt.Errorf("myriad: SyscallConn: %w: the driver has no descriptor to show", ErrUnsupported)
	}
	return rawConn{c}, nil
}

// control is Control on the loop.
func (c *Conn) control(f func(fd uintptr)) error {
	if c.state() == closed || c.state() == dialing || c.closeAsked() {
		return ErrClosed
	}
	if err := c.loop.can.Control(c.id, f); err != nil {
		return fmt.Errorf("myriad: Control: %w", err)
	}
	return nil
}

// A rawConn is a Conn as a syscall.RawConn.
type rawConn struct{ c *Conn }

// Control implements syscall.RawConn.
func (r rawConn) Control(f func(fd uintptr)) error {
	l := r.c.loop
	if l.owner.Has(driver.Goroutine()) && OnLoop() {
		return r.c.control(f)
	}
	if !l.engine.HandOff() {
		return ErrOnLoop
	}
	var (
		err    error
		done   atomic.Bool // err is written before it
		waiter = l.engine.sys.NewParker()
	)
	if busy := l.Do(func() {
		defer func() {
			done.Store(true)
			waiter.Unpark()
		}()
		err = r.c.control(f)
	}); busy != nil {
		return busy
	}
	for !done.Load() {
		waiter.Park()
	}
	return err
}

// Read implements syscall.RawConn.
func (rawConn) Read(func(fd uintptr) bool) error {
	return fmt.Errorf("myriad: RawConn.Read: %w: bytes come to the handler", ErrUnsupported)
}

// Write implements syscall.RawConn.
func (rawConn) Write(func(fd uintptr) bool) error {
	return fmt.Errorf("myriad: RawConn.Write: %w: use Conn.Write", ErrUnsupported)
}

var _ syscall.Conn = (*Conn)(nil)
