package myriad

import (
	"cmp"
	"net"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is how a conn ends: in order, by linger, by abort, or by Detach, which takes its
// connection out of the engine. All of it runs on the loop.

// lingerProgress is how many bytes a closing conn must get rid of in each LingerTimeout.
const lingerProgress = 4 << 10

// advance moves a conn on to a phase, and does what the phase begins with. It does nothing if the
// conn has come as far already.
func (l *Loop) advance(c *Conn, to phase) {
	if to <= c.phase() {
		return
	}
	c.status = c.status&^phaseBits | status(to)
	switch to {
	case draining:
		l.beginDraining(c)
	case closing:
		// from now on, however long this turn has lasted
		l.wheel.Set(c.id.Slot(), ceilMillis(l.elapsed()+l.lingerTime(c)))
	}
}

// pursueEnd goes on with an end that was asked for, as far as what is queued lets it.
func (l *Loop) pursueEnd(c *Conn, asked request) {
	if asked&wantClose != 0 {
		l.advance(c, draining)
	}
	ends := asked&(wantFIN|wantClose) != 0
	detaching := c.detaching() && asked&wantClose == 0
	if !ends && !detaching || c.hasUnencoded() {
		return
	}
	if ends {
		l.endLayer(c)
	}
	flushed := c.queued.Load() == 0
	switch {
	case flushed && ends && !detaching && c.inputDone():
		if asked&short != 0 {
			l.endOutput(c, asked)
		}
		l.close(c)
		return
	case ends:
		l.endOutput(c, asked)
	}
	switch {
	case !flushed:
	case detaching:
		l.tryDetach(c)
	case c.phase() == draining:
		l.advance(c, closing)
	}
}

// close has the driver close a conn that has nothing left to send.
func (l *Loop) close(c *Conn) {
	l.advance(c, closed)
	l.drv.Close(c.id)
}

// endOutput sends our FIN, once.
func (l *Loop) endOutput(c *Conn, asked request) {
	if c.is(finSent) {
		return
	}
	c.status |= finSent
	if l.can.Cut != nil && asked&short != 0 {
		l.can.Cut(c.id)
		return
	}
	l.drv.CloseWrite(c.id)
}

// inputDone reports whether the peer has ended its side and the handler has heard all there was, or
// will not.
func (c *Conn) inputDone() bool {
	x := c.extra.Load()
	switch {
	case c.phase() != open:
		return c.is(peerEnded) || x != nil && x.fin
	case x == nil:
		return c.is(peerEnded)
	}
	return c.is(peerEnded) && x.held.Len() == 0 && !x.endHeld
}

// beginDraining stops delivery. Input is read only to be discarded: unread bytes would turn the
// close into a reset, which would destroy the last answer on its way.
func (l *Loop) beginDraining(c *Conn) {
	l.wheel.Set(c.id.Slot(), l.now+ceilMillis(l.engine.cfg.LingerTimeout))
	if x := c.extra.Load(); x != nil {
		x.held.Release()
	}
	if n := c.unsent(); n > 0 {
		c.ownExtra().flushed = n
	}
	l.drv.Resume(c.id)
}

// quietLinger is how long a close waits for a peer that sends nothing, or more than LingerBytes. It
// is enough for bytes on their way to arrive, and for the last answer to be read.
const quietLinger = 500 * time.Millisecond

// lingerTime is how long a conn that has flushed waits for its peer's FIN.
func (l *Loop) lingerTime(c *Conn) time.Duration {
	if x := c.extra.Load(); x != nil && x.lingered > 0 && x.lingered <= l.engine.cfg.LingerBytes {
		return l.engine.cfg.LingerTimeout
	}
	return min(quietLinger, l.engine.cfg.LingerTimeout)
}

// discard counts the input of a closing conn. Above the limit the rest is left to the kernel, whose
// buffers fill until the peer pauses and can read the last answer: a close would reset it. Its FIN
// is not seen any more, so it is not waited for as long.
func (l *Loop) discard(c *Conn, n int) {
	x := c.ownExtra()
	first := x.lingered == 0
	x.lingered += n
	tooMuch := x.lingered > l.engine.cfg.LingerBytes
	switch {
	case c.phase() == closed:
		return
	case tooMuch:
		l.drv.Pause(c.id)
	}
	if c.phase() == closing && (first || tooMuch) {
		l.wheel.Set(c.id.Slot(), l.now+ceilMillis(l.lingerTime(c)))
	}
}

// lingerExpired ends the wait of a closing conn: for its peer's FIN, or, if output is not moving,
// for its flush.
func (l *Loop) lingerExpired(c *Conn) {
	x, unsent := c.ownExtra(), c.unsent()
	switch {
	case c.phase() == closed:
	case c.phase() == closing:
		l.close(c)
	case x.flushed-unsent >= lingerProgress:
		x.flushed = unsent
		l.wheel.Set(c.id.Slot(), l.now+ceilMillis(l.engine.cfg.LingerTimeout))
	default:
		c.Abort(ErrSlow)
	}
}

func (l *Loop) abort(c *Conn) {
	l.advance(c, closed)
	c.abortBridge()
	l.drv.Abort(c.id)
}

// ended is the end: the driver has let go of the conn.
func (l *Loop) ended(c *Conn, err error) {
	l.current.Store(nil)
	l.remove(c)
	layer := c.layer()
	undelivered := c.queued.Load() > 0
	asked, reason := c.bury()
	switch {
	case asked&wantAbort != 0:
		err = reason
	case asked&wantClose != 0 && (!undelivered || reason != nil):
		err = cmp.Or(reason, c.truncation()) // nil, unless the layer has failed or lacks its end
	case err != nil && layer != nil:
		defer func() { l.tellClosed(c, asked, err) }() // also if the layer ends the goroutine
		err = l.meaning(c, err)
		return
	case err == nil:
		err = c.truncation()
	}
	l.tellClosed(c, asked, err)
}

// bury marks the conn as gone and drops what it still holds.
func (c *Conn) bury() (asked request, reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked = c.asked
	c.asked |= gone
	c.loop.advance(c, closed)
	c.loop.stats.dropped.Add(uint64(c.withDriver()))
	if c.out != nil {
		c.out.Put()
		c.out = nil
	}
	c.queued.Store(0)
	if x := c.extra.Load(); x != nil {
		reason = x.reason
		x.held.Release()
		x.drop()
	}
	return asked, reason
}

// withDriver is how many bytes the driver has not sent yet. mu is held.
func (c *Conn) withDriver() int64 {
	n := c.queued.Load()
	if c.out != nil {
		n -= int64(c.out.Len())
	}
	if x := c.extra.Load(); x != nil {
		n += x.fileLeft - x.unencoded
	}
	return n
}

// tellClosed tells all calls that wait for the conn that it has ended.
func (l *Loop) tellClosed(c *Conn, asked request, err error) {
	x := c.extra.Load()
	if c.is(connecting) {
		c.dialing().finish(orClosed(err)) // a failed Dial calls no handler
		return
	}
	if x != nil && x.bridge != nil {
		x.bridge.end(asked&wantAbort != 0 || err != nil)
	}
	defer l.lastCall(c, err) // also if the one before does not return
	if x != nil && x.detach != nil {
		l.callDetached(c, nil, nil, orClosed(err))
	}
}

func orClosed(err error) error {
	if err == nil {
		return ErrClosed
	}
	return err
}

// A detachment is the function that Detach was given.
type detachment func(nc net.Conn, unread []byte, err error)

// Detach takes the connection out of the engine. What is queued is sent first, and receiving stops
// at once. Then done is called on the loop with a net.Conn and the bytes that were received but not
// delivered. The net.Conn is a *net.TCPConn for TCP without a layer. For what was adopted without a
// descriptor, and behind SetAddrs, it is one that has the connection below it in its method
// NetConn.
//
// Until then the handler is not called for bytes and ends. It is called for all else, so that its
// timer bounds the wait. Afterwards it is not called again. If the connection breaks first, or no
// net.Conn can be made of it, done gets the error and Closed follows. If the driver cannot give the
// connection away, done gets the error and the conn goes on. done is never called from inside
// Detach. On the loop only.
func (c *Conn) Detach(done func(nc net.Conn, unread []byte, err error)) {
	x := c.ownExtra()
	switch {
	case c.phase() != open || c.closeAsked():
		c.loop.Later(func() { done(nil, nil, ErrClosed) })
	case x.detach != nil:
		c.loop.Later(func() { done(nil, nil, ErrBusy) })
	default:
		x.detach = done
		c.loop.drv.Pause(c.id)
		c.loop.revisit(c)
	}
}

// detaching reports whether Detach waits for what is queued to be sent.
func (c *Conn) detaching() bool {
	x := c.extra.Load()
	return x != nil && x.detach != nil
}

// tryDetach takes a conn that is flushed out of the driver, which may refuse.
func (l *Loop) tryDetach(c *Conn) {
	err := l.drv.Detach(c.id)
	if err == nil {
		l.advance(c, closed)
		return
	}
	l.revisit(c) // for what was held meanwhile
	l.callDetached(c, nil, nil, err)
	if !c.is(paused) {
		l.drv.Resume(c.id)
	}
	l.switchHandlers()
}

// detached hands the connection over.
func (l *Loop) detached(c *Conn, sock driver.Socket) {
	l.current.Store(nil)
	l.remove(c)
	x := c.extra.Load()
	unread := x.held.AppendTo(nil)
	c.bury()
	var nc net.Conn
	var err error
	defer func() { l.handedOver(c, nc, unread, err) }() // also if the layer ends the goroutine
	nc, unread, err = l.outside(c, sock, unread)
}

// handedOver calls Detach's function. Without a net.Conn it is closed.
func (l *Loop) handedOver(c *Conn, nc net.Conn, unread []byte, err error) {
	if nc != nil {
		l.callDetached(c, nc, unread, nil)
		l.switchHandlers()
		return
	}
	x := c.extra.Load()
	err = cmp.Or(err, x.reason)
	if x.bridge != nil {
		x.bridge.end(true)
	}
	defer l.lastCall(c, err)
	l.callDetached(c, nil, nil, err)
}

// outside makes a net.Conn of what leaves the engine.
func (l *Loop) outside(c *Conn, sock driver.Socket, unread []byte) (net.Conn, []byte, error) {
	nc, err := sock.Conn()
	if err != nil {
		return nil, nil, err
	}
	layer := c.layer()
	if layer == nil { // else what the driver has read ahead is not decoded
		below, ahead := driver.SplitAhead(nc)
		nc, unread = below, append(unread, ahead...)
	}
	if b := c.bridged(); b != nil {
		nc = &bridgedConn{nc, b}
	}
	if c.remote.IsAnnounced() {
		nc = announce(nc, c.LocalAddr(), c.RemoteAddr())
	}
	if layer == nil {
		return nc, unread, nil
	}
	return c.peel(layer, nc, unread)
}

// peel asks the layer for its view. raw is closed if it panics, or ends the goroutine: then
// extra.reason says so.
func (c *Conn) peel(layer Layer, raw net.Conn, unread []byte) (nc net.Conn, rest []byte, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if v == nil {
			v = c.loop.exit()
		}
		raw.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		nc, rest, err = nil, nil, c.layerFailed(v)
		c.extra.Load().reason = err
	}()
	nc, rest = layer.Detach(raw, unread)
	returned = true
	return nc, rest, nil
}

func (l *Loop) callDetached(c *Conn, nc net.Conn, unread []byte, err error) {
	x := c.extra.Load()
	done := x.detach
	x.detach = nil
	call := l.calls(c)
	defer l.returned(c, &call)
	done(nc, unread, err)
	call.returned = true
}
