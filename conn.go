package myriad

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
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

	// extra is what few conns need. It is made under mu and taken back by the loop under mu; its
	// fields are the loop's except where they say otherwise.
	extra atomic.Pointer[extra]

	mu     sync.Mutex
	out    *buf.Chain // guarded by mu: accepted, not yet given to the driver
	next   *Conn      // guarded by being linked: the loop's list of dirty conns
	due    int64      // guarded by mu: SetDeadline's request, in loop milliseconds
	limit  int32      // guarded by mu: high mark in bytes
	asked  request    // guarded by mu
	can    abilities  // owned by the loop
	status status     // owned by the loop
}

// extra is the part of a conn that is allocated on demand, and given back when it is empty again.
type extra struct {
	held     buf.Chain // received while paused, or while detaching
	endHeld  bool      // the peer's FIN came while bytes were held
	reason   error     // guarded by Conn.mu: Abort's argument, or Wire.Fail's
	lingered int       // bytes discarded while lingering
	flushed  int64     // bytes that were still to be sent when the linger timer was last set

	layering
	fileQueue
	detach detachment
	bridge *bridge // of an adopted conn without a descriptor; set before the conn is shared
	// of an adopted conn, if it does not fit into remote, or has a bridge and SetAddrs was called
	peer net.Addr
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
)

// status is where the conn stands, as its loop knows it: its phase in the lowest two bits, and
// flags.
type status uint8

const phaseBits status = 3

const (
	paused     status = (phaseBits + 1) << iota // by the handler
	peerEnded                                   // the peer's FIN has been seen
	finSent                                     // ours is with the driver
	connecting                                  // Dial is under way: no callback is called yet
	served                                      // has had its share of this turn's encoding, and is to be revisited
)

// A phase is how far a conn has come towards its end. Only Loop.advance changes it, and never back.
// extra.reason says why a conn ends that is not closed in order.
type phase uint8

const (
	open     phase = iota // what each side has ended by itself is in status
	draining              // Close has begun: output is flushed, input discarded; only Closed is called
	closing               // all is flushed, our FIN included: the conn lingers for the peer's
	closed                // the driver has been told to close, abort or detach, or has ended the conn itself
)

func newConn(l *Loop, h Handler) *Conn {
	l.engine.bind(h)
	return &Conn{loop: l, handler: h, can: abilitiesOf(h), limit: l.engine.writeLimit()}
}

// writeLimit is the high mark of conns without one of their own.
func (e *Engine) writeLimit() int32 { return int32(min(e.cfg.WriteLimit, maxWriteLimit)) }

func (c *Conn) is(s status) bool { return c.status&s != 0 }

func (c *Conn) phase() phase { return phase(c.status & phaseBits) }

// more gives the conn its extra part. mu is held.
func (c *Conn) more() *extra {
	x := c.extra.Load()
	if x == nil {
		x = new(extra)
		c.extra.Store(x)
	}
	return x
}

// ownExtra is more for callers on the loop that do not hold mu.
func (c *Conn) ownExtra() *extra {
	if x := c.extra.Load(); x != nil {
		return x
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.more()
}

// Loop is the loop the conn belongs to. Any goroutine.
func (c *Conn) Loop() *Loop { return c.loop }

// Read always fails with ErrOnLoop: bytes come to the handler. Stream gives a net.Conn that can be
// read.
func (c *Conn) Read([]byte) (int, error) { return 0, ErrOnLoop }

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
	wake := c.link()
	c.mu.Unlock()
	c.loop.wakeIf(wake)
	return nil
}

// SetReadDeadline is SetDeadline: a conn has one timer.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline is SetDeadline: a conn has one timer.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

// Notify has the handler's Notified called on the loop, soon, and once for all calls made before
// that. It cannot fail and allocates nothing. Any goroutine.
func (c *Conn) Notify() {
	c.mu.Lock()
	if c.asked&gone != 0 {
		c.mu.Unlock()
		return
	}
	c.asked |= wantNotify
	wake := c.link()
	c.mu.Unlock()
	c.loop.wakeIf(wake)
}

// SetHandler changes the protocol of the conn, when this callback ends. Then h.Opened is called,
// h.Received with rest if there is any, and h.Received with newer bytes as they come. If the peer
// had ended its side before, h.Ended is called, too. The old handler is not called again. rest must
// stay unchanged until then. What the old handler has set (a pause, the timer) stays as it is. A
// second call in the same callback replaces the first. On the loop only.
func (c *Conn) SetHandler(h Handler, rest []byte) {
	c.loop.engine.bind(h)
	s := handlerSwitch{c, h, rest}
	for i := range c.loop.switches {
		if c.loop.switches[i].c == c {
			c.loop.switches[i] = s
			return
		}
	}
	c.loop.switches = append(c.loop.switches, s)
}

// SetTimer arranges a call of Expired after d; if d is negative, in this turn or the next one. A
// new call replaces the earlier one, and 0 switches it off. It is kept in milliseconds and never
// early against the loop's clock. On the loop only.
func (c *Conn) SetTimer(d time.Duration) {
	if c.phase() != open {
		return // the timer now bounds the close
	}
	if d == 0 {
		c.loop.wheel.Clear(c.id.Slot())
		return
	}
	c.loop.wheel.Set(c.id.Slot(), c.loop.now+ceilMillis(max(d, 0)))
}

// Pause stops Received and Ended. Bytes under way are kept, at most one read buffer of them, until
// Resume. A paused conn still reports resets. On the loop only.
func (c *Conn) Pause() {
	if !c.is(paused) && c.phase() == open {
		c.status |= paused
		c.loop.drv.Pause(c.id)
	}
}

// Resume lets Received go on, when this callback ends. On the loop only.
func (c *Conn) Resume() {
	if !c.is(paused) || c.phase() != open {
		return
	}
	c.status &^= paused
	switch x := c.extra.Load(); {
	case c.detaching(): // it is on its way out, and receives no more
	case x != nil && (x.held.Len() > 0 || x.endHeld):
		c.loop.revisit(c)
	default:
		c.loop.drv.Resume(c.id)
	}
}

// SetWriteLimit changes the high mark of the output queue, in bytes, at most 1 GiB; 0 restores
// Config.WriteLimit. Any goroutine.
func (c *Conn) SetWriteLimit(n int) {
	if n <= 0 {
		n = c.loop.engine.cfg.WriteLimit
	}
	c.mu.Lock()
	c.limit = int32(min(n, maxWriteLimit))
	c.mu.Unlock()
}

// Queued is how many bytes have been accepted and not yet taken by the kernel. Any goroutine.
func (c *Conn) Queued() int { return int(c.queued.Load()) }
