package mux

import (
	"io"
	"math"
	"sync"
	"syscall"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// A Conn is an HTTP/2 connection. It is a myriad.Handler, with all optional methods but Truncated,
// and is meant to be embedded in its owner. Init makes it ready for Opened.
type Conn struct {
	c     *myriad.Conn
	cfg   *Config
	owner Owner
	act   *active
	table string // the decoder's, packed, while act is nil; "": it is empty

	// Timers are all timers of the conn; the owner's numbers begin at FirstTimer. L.
	Timers myriad.Timers

	send, recv int32  // windows of the connection, the peer's for us and ours for the peer
	owed       int32  // consumed, and not yet in a WINDOW_UPDATE
	peerWindow int32  // initial one of streams
	peerMax    uint32 // streams at a time that a server allows
	peerList   uint32 // largest list of fields that the peer accepts
	last       uint32 // highest stream that has been opened
	said       uint32 // stream that our GOAWAY named
	ignored    uint32 // closed streams up to this one may have been reset by us
	count      int32  // streams that are counted
	done       int32  // of these, the streams that have ended and are not released
	budgets    h2.Budgets
	bits       connBits

	mu        sync.Mutex // innermost
	heard     uint32     // L: when the peer has sent something, in ms; with Config.SendPing or probedTwice
	over      bool       // guarded by mu: Closed was called; streams that ask are not kept
	dirty     *Stream    // guarded by mu: streams that have asked for something, in order
	dirtyTail *Stream    // guarded by mu
}

type connBits uint32

const (
	gotPreface   connBits = 1 << iota // also set at a client, which gets none
	gotSettings                       // the peer's first
	acked                             // the peer has acknowledged ours
	owesForget                        // the next field block begins with a size update
	peerConnect                       // the peer offers the extended CONNECT
	draining                          // Shutdown was called
	saidLast                          // our GOAWAY has named the last stream
	peerGoesAway                      // the peer's GOAWAY has come
	failed                            // input is ignored: the connection ends
	inputEnded                        // the peer's FIN has come
	pausedInput                       // control frames wait
	pinged                            // the PING of Shutdown is under way
	dozeArmed                         // dozeTimer is set
	headArmed                         // headTimer is set
	healthPinged                      // a PING of Config.SendPing waits for its answer
	stallArmed                        // stallTimer is set
	lingers                           // drainTimer is set for the last output
	inCallback                        // output leaves when the callback ends
	probing                           // a PING is out, and the peer has sent nothing since
	probedOnce                        // Probe has sent a PING since HEADERS or DATA came
	probedTwice                       // and another one
	paying                            // the PING of cancelled waits for its answer
	heardMore                         // something has come behind SETTINGS since handshakeTimer was set
)

func (c *Conn) is(b connBits) bool { return c.bits&b != 0 }

// drainPing is the data of the PING of Shutdown.
var drainPing = [8]byte{'m', 'y', 'r', 'i', 'a', 'd', 0, 1}

// Init gives a connection its owner.
func (c *Conn) Init(cfg *Config, owner Owner) {
	c.cfg, c.owner = cfg, owner
	c.send, c.recv = h2.InitialWindow, h2.InitialWindow
	c.peerWindow, c.peerMax, c.peerList = h2.InitialWindow, firstStreams, math.MaxUint32
	c.bits = owesForget
}

// Conn is the connection below; nil before Opened.
func (c *Conn) Conn() *myriad.Conn { return c.c }

// Opened implements myriad.Handler. Our SETTINGS come first (RFC 9113 section 3.4).
func (c *Conn) Opened(nc *myriad.Conn) {
	defer c.leave(c.enter())
	c.c = nc
	nc.SetWriteLimit(orDefault(c.cfg.Ahead, sentAhead))
	a := c.wake()
	if c.cfg.Client {
		c.bits |= gotPreface
		a.control = append(a.control, h2.Preface...)
	}
	a.control = h2.AppendSettings(a.control, c.settings()...)
	c.recv = int32(c.cfg.connWindow())
	if by := c.cfg.connWindow() - h2.InitialWindow; by > 0 {
		a.control = h2.AppendWindowUpdate(a.control, 0, by)
	}
	c.Timers.Set(nc, handshakeTimer, handshakeTimeout)
	c.beginBudgets()
	if c.cfg.SendPing > 0 {
		c.heardNow()
		c.Timers.Set(nc, pingTimer, c.cfg.SendPing)
	}
}

// settings are ours.
func (c *Conn) settings() []h2.Setting {
	s := []h2.Setting{
		{ID: h2.InitialWindowSize, Value: uint32(c.cfg.window())},
		{ID: h2.MaxHeaderListSize, Value: uint32(c.cfg.headerList())},
	}
	if n := c.cfg.readFrame(); n != h2.MinFrameSize {
		s = append(s, h2.Setting{ID: h2.MaxFrameSizeSetting, Value: uint32(n)})
	}
	if n := c.cfg.table(); n != hpack.TableSize {
		s = append(s, h2.Setting{ID: h2.HeaderTableSize, Value: uint32(n)})
	}
	if c.cfg.Client {
		return append(s, h2.Setting{ID: h2.EnablePush})
	}
	s = append(s, h2.Setting{ID: h2.MaxConcurrentStreams, Value: uint32(c.cfg.streams())},
		h2.Setting{ID: h2.NoRFC7540Priorities, Value: 1})
	if c.cfg.Connect {
		s = append(s, h2.Setting{ID: h2.EnableConnectProtocol, Value: 1})
	}
	return s
}

// Ended implements myriad.Ender: the peer sends no more. Requests that are complete have
// endedTimeout to be answered. Most peers have closed the connection, which looks the same from
// here, and could not open another window.
func (c *Conn) Ended(*myriad.Conn) {
	defer c.leave(c.enter())
	c.bits |= inputEnded
	for _, s := range c.open() {
		if !s.is(remoteDone) {
			c.close(s, h2.Cancel, c.endedBy(io.ErrUnexpectedEOF))
		}
	}
	c.wake().dropPartial()
	c.Timers.Set(c.c, handshakeTimer, endedTimeout)
}

// Drained implements myriad.Drainer.
func (c *Conn) Drained(*myriad.Conn) { c.leave(c.enter()) }

// Notified implements myriad.Notified: streams have asked for something.
func (c *Conn) Notified(*myriad.Conn) {
	defer c.leave(c.enter())
	c.visit()
}

// Expired implements myriad.Timed for a connection whose owner has no timers.
func (c *Conn) Expired(nc *myriad.Conn) {
	for number := range c.Timers.Expired(nc) {
		c.TimerExpired(number)
	}
}

// TimerExpired does what is due by a timer below FirstTimer.
func (c *Conn) TimerExpired(number uint8) {
	defer c.leave(c.enter())
	switch number {
	case handshakeTimer: // section 6.5.3
		if c.is(inputEnded) {
			_ = c.c.Close()
			return
		}
		if c.is(gotSettings) && c.is(heardMore) { // the ACK waits behind what a slow uplink carries
			c.bits &^= heardMore
			c.Timers.Set(c.c, handshakeTimer, handshakeTimeout)
			return
		}
		c.fail(h2.SettingsTimeout, "the preface or the acknowledgement of SETTINGS did not come in time", nil)
	case drainTimer:
		if c.is(lingers) {
			c.lookAtLast()
		} else {
			c.sayLast()
		}
	case headTimer:
		c.bits &^= headArmed
		c.fail(h2.EnhanceYourCalm, "a field block did not come in time", nil)
	case pingTimer:
		c.checkSilence()
	case stallTimer:
		c.checkStall()
	case dozeTimer:
		c.bits &^= dozeArmed
		if c.count == 0 && !c.busy() && c.act != nil && !c.is(stallArmed|probing) {
			c.doze()
		}
	}
}

// Stopping implements myriad.Stopper.
func (c *Conn) Stopping(*myriad.Conn) { c.Shutdown() }

// Closed implements myriad.Handler.
func (c *Conn) Closed(_ *myriad.Conn, err error) {
	outermost := c.enter()
	c.bits |= failed
	cause := c.endedBy(err)
	for _, s := range c.open() {
		c.close(s, h2.Cancel, cause)
	}
	c.visit()
	c.mu.Lock()
	c.over, c.dirty, c.dirtyTail = true, nil, nil
	c.mu.Unlock()
	if c.act != nil {
		c.act.free()
		c.act = nil
	}
	c.table = ""
	c.owner.Gone(err)
	if outermost {
		c.bits &^= inCallback
	}
}

// endedBy is why streams end with the connection, which has ended with err: a server that has said
// GOAWAY may close or reset it.
func (c *Conn) endedBy(err error) error {
	_, system := err.(syscall.Errno)
	switch {
	case (err == nil || err == io.ErrUnexpectedEOF || system) && c.act != nil && c.act.away != nil:
		return c.act.away
	case err == nil:
		return io.ErrUnexpectedEOF
	}
	return err
}

// Shutdown lets the streams end that the peer has opened, takes no more, and closes the connection
// then. A server first says so, and names the last stream when the peer knows it, so that no
// request under way is lost (section 6.8). L.
func (c *Conn) Shutdown() {
	if c.is(draining | failed) {
		return
	}
	defer c.leave(c.enter())
	c.bits |= draining
	a := c.wake()
	if c.cfg.Client || !c.is(gotSettings) {
		c.sayLast()
	} else {
		c.bits |= pinged
		a.control = h2.AppendGoAway(a.control, 1<<31-1, h2.NoError, "")
		a.control = h2.AppendPing(a.control, drainPing, false)
		c.Timers.Set(c.c, drainTimer, drainTimeout)
	}
}

// sayLast names the last stream that is answered.
func (c *Conn) sayLast() {
	if c.is(saidLast | failed) {
		return
	}
	defer c.leave(c.enter())
	c.bits |= saidLast
	c.bits &^= pinged
	c.Timers.Set(c.c, drainTimer, 0)
	c.said = c.last
	if c.cfg.Client {
		c.said = 0 // of the server's streams
	}
	a := c.wake()
	a.control = h2.AppendGoAway(a.control, c.said, h2.NoError, "")
}

// Abort ends the connection and all its streams with a code. L.
func (c *Conn) Abort(code h2.Code, reason string) {
	defer c.leave(c.enter())
	c.fail(code, reason, nil)
}

// fail ends the connection: GOAWAY says why, what was encoded before it still leaves.
func (c *Conn) fail(code h2.Code, reason string, cause error) {
	if c.is(failed) {
		return
	}
	c.bits |= failed
	if cause == nil {
		cause = &h2.Error{Code: code, Reason: reason}
	}
	c.countError("conn_", code)
	if code != h2.NoError {
		c.report(0, code, reason)
	}
	if n := c.cfg.Counters; n != nil {
		n.ConnErrors.Add(1)
		if code == h2.EnhanceYourCalm {
			n.Calmed.Add(1)
		}
	}
	last := c.last
	switch { // section 6.8: the number must not rise again
	case c.cfg.Client:
		last = 0
	case c.is(saidLast):
		last = c.said
	}
	a := c.wake()
	a.control = h2.AppendGoAway(a.control, last, code, reason)
	if owner, ok := c.owner.(FailureOwner); ok {
		owner.Failed()
	}
	for _, s := range c.open() {
		c.close(s, code, cause)
	}
}

// enter begins a callback, and leave ends it if it is not part of another one.
func (c *Conn) enter() (outermost bool) {
	outermost = !c.is(inCallback)
	c.bits |= inCallback
	return outermost
}

// leave writes the output. A connection without work closes, or may doze.
func (c *Conn) leave(outermost bool) {
	if !outermost {
		return
	}
	c.flush()
	c.timeWrites()
	c.bits &^= inCallback
	over := c.is(inputEnded | saidLast) // what is incomplete is of no interest any more
	switch {
	case c.is(failed):
		_ = c.c.Close()
	case c.count > 0:
	case c.sending():
		if over && !c.is(lingers) {
			c.linger()
		}
	case over || c.is(peerGoesAway) && !c.receiving():
		_ = c.c.Close()
	case c.receiving():
	case c.act != nil && !c.is(dozeArmed):
		c.bits |= dozeArmed
		c.Timers.Set(c.c, dozeTimer, dozeAfter)
	}
}

// linger bounds how long the last output may wait for a peer that does not read.
func (c *Conn) linger() {
	c.bits |= lingers
	c.act.left = c.gone()
	c.Timers.Set(c.c, drainTimer, lastTimeout)
}

// lookAtLast closes the connection if no output has left since linger; what has been encoded is
// dropped.
func (c *Conn) lookAtLast() {
	c.bits &^= lingers
	if c.count == 0 && c.act != nil && int32(c.gone()-c.act.left) <= 0 {
		c.countStall()
		_ = c.c.Close()
	}
}

// Streams is how many streams are open, or ended and not released. L.
func (c *Conn) Streams() int { return int(c.count) }

// PeerConnect reports whether the peer offers the extended CONNECT. L.
func (c *Conn) PeerConnect() bool { return c.is(peerConnect) }

// PeerHeaderList is the largest list of fields in bytes that the peer accepts, as h2.ListSize
// counts it; math.MaxUint32 if it has not said. A larger head or trailer fails its stream. L.
func (c *Conn) PeerHeaderList() int64 { return int64(c.peerList) }

// Ready reports whether the peer's SETTINGS have come. L.
func (c *Conn) Ready() bool { return c.is(gotSettings) }
