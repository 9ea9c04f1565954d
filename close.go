package myriad

import (
	"cmp"
	"time"
)

// This file is how a conn ends: in order, by linger, by abort. All of it runs on the loop.

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

// QueuedTotal is how many bytes the conn has yet to give to the kernel, the rest of WriteFile's
// files included. On the loop only.
func (c *Conn) QueuedTotal() int64 { return c.unsent() }

// unsent is how many bytes a closing conn has yet to get rid of, files included.
func (c *Conn) unsent() int64 {
	n := c.queued.Load()
	x := c.extra.Load()
	if x == nil {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return n + x.fileBytes()
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

func (l *Loop) lastCall(c *Conn, err error) {
	l.callClosed(c, err)
	l.switchHandlers() // it may have changed what other conns speak
}

func (l *Loop) callClosed(c *Conn, err error) {
	call := l.calls(c)
	defer l.returned(c, &call)
	c.handler.Closed(c, err)
	call.returned = true
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
