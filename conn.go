package myriad

import (
	"fmt"
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
	layer     Layer
	held      buf.Chain // received while paused, or while detaching
	files     []fileRun // guarded by Conn.mu: what WriteFile has queued, in order
	detach    func(nc net.Conn, unread []byte, err error)
	buffered  BufferedLayer // the layer, if it is one
	unencoded int64         // guarded by Conn.mu: bytes that the layer has taken and not encoded, part of queued
	reason    error         // guarded by Conn.mu: Abort's argument, or Wire.Fail's
	lingered  int           // bytes discarded while lingering
	flushed   int64         // bytes that were still to be sent when the linger timer was last set
	dial      *dialing      // while connecting
	bridge    *bridge       // of an adopted conn without a descriptor; set before the conn is shared
	// of an adopted conn, if it does not fit into remote, or has a bridge and SetAddrs was called
	peer     net.Addr
	ahead    int64 // bytes that the driver sends before the file it has
	fileLeft int64 // bytes of that file
	sending  bool  // it has one
	endHeld  bool  // the peer's FIN came while bytes were held
	fin      bool  // it has come, and the layer judges by itself what it means
	cut      error // it came before the end of the layer's stream

	layerEnded bool // guarded by Conn.mu: Layer.CloseWrite was called
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

// status is where the conn stands, as its loop knows it.
type status uint8

const (
	paused     status = 1 << iota // by the handler
	peerEnded                     // the peer's FIN has been seen
	finSent                       // ours is with the driver
	closing                       // Close has begun: only Closed is called
	lingering                     // flushed, FIN sent, discarding input
	ending                        // the driver has been told to close, abort or detach
	connecting                    // Dial is under way: no callback is called yet
	served                        // has had its share of this turn's encoding, and is on the list of revisits
)

func newConn(l *Loop, h Handler) *Conn {
	l.engine.bind(h)
	return &Conn{loop: l, handler: h, can: abilitiesOf(h), limit: l.engine.writeLimit()}
}

// writeLimit is the high mark of conns without one of their own.
func (e *Engine) writeLimit() int32 { return int32(min(e.cfg.WriteLimit, maxWriteLimit)) }

func (c *Conn) is(s status) bool { return c.status&s != 0 }

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

// trim gives the extra part back when nothing is in it any more. On the loop, at the end of settle:
// no caller holds a pointer to it.
func (c *Conn) trim() {
	x := c.extra.Load()
	if x == nil || x.layer != nil || x.held.Len() > 0 || x.detach != nil || x.dial != nil || x.bridge != nil ||
		x.peer != nil ||
		x.lingered > 0 || x.flushed > 0 || x.sending || x.endHeld {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(x.files) == 0 && x.reason == nil {
		c.extra.Store(nil)
	}
}

// truncation is why the peer's stream has no end of its own; nil: it has one, or has not ended.
func (c *Conn) truncation() error {
	if x := c.extra.Load(); x != nil {
		return x.cut
	}
	return nil
}

func (c *Conn) layer() Layer {
	if x := c.extra.Load(); x != nil {
		return x.layer
	}
	return nil
}

// Loop is the loop the conn belongs to. Any goroutine.
func (c *Conn) Loop() *Loop { return c.loop }

// LocalAddr is the address at this end, or what SetAddrs has put in its place. Any goroutine.
func (c *Conn) LocalAddr() net.Addr {
	if c.local == nil {
		return driver.UnixAddr.Net()
	}
	return c.local
}

// RemoteAddr is the peer's address, or what SetAddrs has put in its place. It is "@" on a unix
// socket, also if the peer's own has a name. For an adopted net.Conn without a descriptor it is
// that conn's own RemoteAddr, which is called before its first byte is delivered. Any goroutine.
func (c *Conn) RemoteAddr() net.Addr {
	switch x := c.extra.Load(); {
	case x == nil:
	case x.peer != nil:
		return x.peer
	case x.bridge != nil:
		if peer := x.bridge.remote(); peer != nil {
			return peer
		}
	}
	if a := c.remote.Net(); a != nil {
		return a
	}
	return driver.UnixAddr.Net()
}

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

// SetLayer puts l between the socket and the handler, in Opened: that of the first handler, or of
// one that SetHandler has set on a conn without a layer. What was received before, and not
// delivered, goes through l: the rest that SetHandler was given, too. What other goroutines have
// written to an adopted conn by then is encoded. If l does not take it, or if it contains a file,
// the conn is aborted. On the loop only.
func (c *Conn) SetLayer(l Layer) {
	c.mu.Lock()
	x := c.more()
	x.setLayer(l)
	early, files := c.out, len(x.files)
	c.out = nil
	err := error(nil)
	if early != nil {
		c.queued.Add(-int64(early.Len()))
		p := early.AppendTo(nil)
		err = c.encode(func(w Wire) error { _, err := l.Write(w, p); return err })
		early.Put()
	}
	c.mu.Unlock()
	if err == nil && files > 0 {
		err = ErrUnsupported
	}
	if err != nil {
		c.Abort(fmt.Errorf("myriad: SetLayer after a write that it cannot encode: %w", err))
	}
}

func (x *extra) setLayer(l Layer) {
	x.layer = l
	x.buffered, _ = l.(BufferedLayer)
}

// SetTimer arranges a call of Expired after d; if d is negative, in this turn or the next one. A
// new call replaces the earlier one, and 0 switches it off. It is kept in milliseconds and never
// early against the loop's clock. On the loop only.
func (c *Conn) SetTimer(d time.Duration) {
	if c.is(closing | ending) {
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
	if !c.is(paused | closing | ending) {
		c.status |= paused
		c.loop.drv.Pause(c.id)
	}
}

// Resume lets Received go on, when this callback ends. On the loop only.
func (c *Conn) Resume() {
	if !c.is(paused) || c.is(closing|ending) {
		return
	}
	c.status &^= paused
	switch x := c.extra.Load(); {
	case x != nil && x.detach != nil: // it is on its way out, and receives no more
	case x != nil && (x.held.Len() > 0 || x.endHeld):
		c.loop.revisit(c)
	default:
		c.loop.drv.Resume(c.id)
	}
}

// maxWriteLimit bounds WriteLimit, SetWriteLimit and MaxWrite.
const maxWriteLimit = 1 << 30

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
