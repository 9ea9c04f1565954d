package myriad

import (
	"cmp"
	"net"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/wheel"
)

// This file is how a conn ends: in order, by linger, by abort, or by Detach, which takes its
// connection out of the engine. All of it runs on the loop.

// lingerProgress is how many bytes a closing conn must get rid of in each LingerTimeout.
const lingerProgress = 4 << 10

// pursueEnd goes on with an end that was asked for, as far as what is queued lets it.
func (c *Conn) pursueEnd(asked request) {
	if asked&wantClose != 0 {
		c.advance(draining)
	}
	ends := asked&(wantFIN|wantClose) != 0
	leaves := c.state() == detaching
	x := c.cold.Load()
	if x != nil && x.unsent(c) {
		return
	}
	if ends && x != nil && x.layer != nil {
		x.endLayer(c)
	}
	flushed := c.queued.Load() == 0
	inputDone := c.is(peerEnded) // and the handler has been called for all there was, or will not be
	switch {
	case x == nil:
	case c.state() >= draining:
		inputDone = inputDone || x.fin
	default:
		inputDone = inputDone && x.held.Len() == 0 && !x.endHeld
	}
	switch {
	case flushed && ends && !leaves && inputDone:
		if asked&short != 0 {
			c.endOutput(asked)
		}
		c.closeNow()
		return
	case ends:
		c.endOutput(asked)
	}
	switch {
	case !flushed:
	case leaves:
		c.tryDetach()
	case c.state() == draining:
		c.advance(lingering)
	}
}

// closeNow has the driver close a conn that has nothing left to send.
func (c *Conn) closeNow() {
	c.advance(closed)
	c.loop.drv.Close(c.id)
}

// endOutput sends our FIN, once.
func (c *Conn) endOutput(asked request) {
	l := c.loop
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

// beginDraining stops delivery. Input is read only to be discarded: unread bytes would turn the
// close into a reset, which would destroy the last answer on its way.
func (c *Conn) beginDraining() {
	c.loop.wheel.Set(c.id.Slot(), c.loop.now+wheel.Millis(c.loop.engine.cfg.LingerTimeout))
	if x := c.cold.Load(); x != nil {
		x.held.Release()
	}
	if n := c.unsent(); n > 0 {
		c.ownCold().flushed = n
	}
	c.loop.drv.Resume(c.id)
}

// quietLinger is how long a close waits for a peer that sends nothing, or more than LingerBytes. It
// is enough for bytes on their way to arrive, and for the last answer to be read.
const quietLinger = 500 * time.Millisecond

// lingerTime is how long a conn that has flushed waits for its peer's FIN.
func (c *Conn) lingerTime() time.Duration {
	l := c.loop
	if x := c.cold.Load(); x != nil && x.lingered > 0 && x.lingered <= l.engine.cfg.LingerBytes {
		return l.engine.cfg.LingerTimeout
	}
	return min(quietLinger, l.engine.cfg.LingerTimeout)
}

// discard counts the input of a closing conn. Above the limit the rest is left to the kernel, whose
// buffers fill until the peer pauses and can read the last answer: a close would reset it. Its FIN
// is not seen any more, so it is not waited for as long.
func (c *Conn) discard(n int) {
	l := c.loop
	x := c.ownCold()
	first := x.lingered == 0
	x.lingered += n
	tooMuch := x.lingered > l.engine.cfg.LingerBytes
	switch {
	case c.state() == closed:
		return
	case tooMuch:
		l.drv.Pause(c.id)
	}
	if c.state() == lingering && (first || tooMuch) {
		l.wheel.Set(c.id.Slot(), l.now+wheel.Millis(c.lingerTime()))
	}
}

// lingerExpired ends the wait of a closing conn: for its peer's FIN, or, if output is not moving,
// for its flush.
func (c *Conn) lingerExpired() {
	x, unsent := c.ownCold(), c.unsent()
	switch {
	case c.state() == closed:
	case c.state() == lingering:
		c.closeNow()
	case x.flushed-unsent >= lingerProgress:
		x.flushed = unsent
		c.loop.wheel.Set(c.id.Slot(), c.loop.now+wheel.Millis(c.loop.engine.cfg.LingerTimeout))
	default:
		c.Abort(ErrSlow)
	}
}

func (c *Conn) abortNow() {
	c.advance(closed)
	c.abortBridge()
	c.loop.drv.Abort(c.id)
}

// driverClosed is the end: the driver has let go of the conn.
func (c *Conn) driverClosed(err error) {
	l := c.loop
	l.calls.current.Store(nil)
	l.remove(c)
	if c.state() == frozen {
		c.cold.Load().frozen.ended()
	}
	layer := c.layer()
	undelivered := c.queued.Load() > 0
	asked, reason := c.bury()
	if layer != nil {
		l.calls.layerGone(c)
	}
	switch {
	case asked&wantAbort != 0:
		err = reason
	case asked&wantClose != 0 && (!undelivered || reason != nil):
		err = cmp.Or(reason, c.truncation()) // nil, unless the layer has failed or lacks its end
	case err != nil && layer != nil:
		defer func() { c.tellClosed(asked, err) }() // also if the layer ends the goroutine
		err = l.calls.meaning(c, err)
		return
	case err == nil:
		err = c.truncation()
	}
	c.tellClosed(asked, err)
}

// bury marks the conn as gone and drops what it still holds.
func (c *Conn) bury() (asked request, reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked = c.asked
	c.asked |= gone
	c.advance(closed)
	c.loop.stats.dropped += uint64(c.withDriver())
	if c.out != nil {
		c.out.Put()
		c.out = nil
	}
	c.queued.Store(0)
	if x := c.cold.Load(); x != nil {
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
	if x := c.cold.Load(); x != nil {
		n += x.fileLeft - x.unencoded
	}
	return n
}

// tellClosed tells all calls that wait for the conn that it has ended.
func (c *Conn) tellClosed(asked request, err error) {
	l := c.loop
	x := c.cold.Load()
	if a, dials := c.handler.(*attempt); dials {
		a.finish(orClosed(err)) // a failed Dial calls no handler
		return
	}
	if x != nil && x.bridge != nil {
		x.bridge.End(asked&wantAbort != 0 || err != nil)
	}
	defer l.calls.lastCall(c, err) // also if the one before does not return
	if x != nil && x.detach != nil {
		l.calls.detached(c, nil, nil, orClosed(err))
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
	x := c.ownCold()
	switch {
	case c.state() >= draining || c.closeAsked():
		c.loop.Later(func() { done(nil, nil, ErrClosed) })
	case c.state() != open:
		c.loop.Later(func() { done(nil, nil, ErrBusy) })
	default:
		x.detach = done
		c.advance(detaching)
		c.loop.drv.Pause(c.id)
		c.loop.settler.revisit(c)
	}
}

// tryDetach takes a conn that is flushed out of the driver, which may refuse.
func (c *Conn) tryDetach() {
	l := c.loop
	err := l.drv.Detach(c.id)
	if err == nil {
		c.advance(closed)
		return
	}
	c.advance(open)
	c.loop.settler.revisit(c) // for what was held meanwhile
	l.calls.detached(c, nil, nil, err)
	if !c.is(paused) {
		l.drv.Resume(c.id)
	}
	l.calls.switchHandlers()
}

// driverDetached is the end by Detach: the driver has given the connection away.
func (c *Conn) driverDetached(sock driver.Socket) {
	c.loop.calls.current.Store(nil)
	c.loop.remove(c)
	x := c.cold.Load()
	unread := x.held.AppendTo(nil)
	c.bury()
	var nc net.Conn
	var err error
	defer func() { c.handedOver(nc, unread, err) }() // also if the layer ends the goroutine
	nc, unread, err = c.outside(sock, unread)
}

// handedOver calls Detach's function. Without a net.Conn it is closed.
func (c *Conn) handedOver(nc net.Conn, unread []byte, err error) {
	l := c.loop
	if nc != nil {
		l.calls.detached(c, nc, unread, nil)
		l.calls.switchHandlers()
		return
	}
	x := c.cold.Load()
	err = cmp.Or(err, x.reason)
	if x.bridge != nil {
		x.bridge.End(true)
	}
	defer l.calls.lastCall(c, err)
	if x.layer != nil {
		l.calls.layerGone(c)
	}
	l.calls.detached(c, nil, nil, err)
}

// outside makes a net.Conn of what leaves the engine.
func (c *Conn) outside(sock driver.Socket, unread []byte) (net.Conn, []byte, error) {
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
		nc = b.Detached(nc)
	}
	if c.remote.IsAnnounced() {
		nc = driver.Announce(nc, c.LocalAddr(), c.RemoteAddr())
	}
	if layer == nil {
		return nc, unread, nil
	}
	return c.loop.calls.peel(c, layer, nc, unread)
}

// abortBridge has the bridge of an adopted conn, if there is one, end by a reset.
func (c *Conn) abortBridge() {
	if b := c.bridged(); b != nil {
		b.Abort()
	}
}
