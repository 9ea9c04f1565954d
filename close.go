package myriad

import (
	"net"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is how a conn ends: in order, by linger, by abort, by detaching. All of it runs on the loop.

// lingerProgress is how many bytes a closing conn must get rid of in each LingerTimeout.
const lingerProgress = 4 << 10

// advance goes on with an end that was asked for, as far as what is queued lets it.
func (l *Loop) advance(c *Conn, asked request) {
	if asked&wantClose != 0 && !c.is(closing) {
		l.beginClose(c)
	}
	if c.hasFiles() {
		return
	}
	flushed := c.queued.Load() == 0
	switch {
	case asked&(wantFIN|wantClose) == 0:
		if flushed {
			l.advanceDetach(c)
		}
	case flushed && c.is(peerEnded):
		c.status |= closing | ending
		l.drv.Close(c.id)
	default:
		if !c.is(finSent) {
			c.status |= finSent
			l.drv.CloseWrite(c.id)
		}
		if flushed && c.is(closing) {
			c.status |= lingering
		}
	}
}

func (c *Conn) hasFiles() bool {
	x := c.extra.Load()
	if x == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return x.sending || len(x.files) > 0
}

// beginClose makes the conn deaf: input is read only to be discarded, so that unread bytes do not turn the close into a reset
// that would destroy the last answer on its way.
func (l *Loop) beginClose(c *Conn) {
	c.status |= closing
	l.wheel.Set(c.id.Slot(), l.now+ceilMillis(l.engine.cfg.LingerTimeout))
	x := c.extra.Load()
	if x != nil {
		x.held.Release()
		x.flushed = c.queued.Load()
	}
	l.drv.Resume(c.id)
}

// discard counts the input of a closing conn. A peer that goes on sending is cut off.
func (l *Loop) discard(c *Conn, n int) {
	x := c.ownExtra()
	if x.lingered += n; x.lingered > l.engine.cfg.LingerBytes && c.is(lingering) && !c.is(ending) {
		c.status |= ending
		l.drv.Close(c.id)
	}
}

// lingerExpired ends the wait of a closing conn: for its peer's FIN, or, if output is not moving, for its flush.
func (l *Loop) lingerExpired(c *Conn) {
	queued := c.queued.Load()
	x := c.ownExtra()
	if x.sending {
		queued += x.fileLeft
	}
	switch {
	case c.is(ending):
	case c.is(lingering):
		c.status |= ending
		l.drv.Close(c.id)
	case x.flushed == 0 || x.flushed-queued >= lingerProgress:
		x.flushed = queued
		l.wheel.Set(c.id.Slot(), l.now+ceilMillis(l.engine.cfg.LingerTimeout))
	default:
		c.Abort(ErrSlow)
	}
}

func (l *Loop) abort(c *Conn) {
	c.status |= closing | ending
	l.drv.Abort(c.id)
}

// closed is the end: the driver has let go of the conn.
func (l *Loop) closed(c *Conn, err error) {
	l.remove(c)
	layer, x := c.layer(), c.extra.Load()
	undelivered := c.queued.Load() > 0
	asked, reason := c.bury()
	switch {
	case asked&wantAbort != 0:
		err = reason
	case asked&wantClose != 0 && !undelivered:
		err = nil
	case err != nil && layer != nil:
		err = layer.Closed(err)
	}
	if c.is(connecting) {
		x.dial.finish(orClosed(err)) // a failed Dial calls no handler
		return
	}
	if x != nil && x.detach != nil {
		x.detach(nil, nil, orClosed(err))
	}
	l.callClosed(c, err)
}

func orClosed(err error) error {
	if err == nil {
		return ErrClosed
	}
	return err
}

func (l *Loop) callClosed(c *Conn, err error) {
	defer l.recovered(c)
	c.handler.Closed(c, err)
}

// bury marks the conn as gone and drops what it still holds.
func (c *Conn) bury() (asked request, reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked = c.asked
	c.asked |= gone
	c.status |= closing | ending
	if c.out != nil {
		c.out.Put()
		c.out = nil
	}
	c.queued.Store(0)
	if x := c.extra.Load(); x != nil {
		reason = x.reason
		x.held.Release()
		for _, run := range x.files {
			run.f.Close()
		}
		x.files = nil
	}
	return asked, reason
}

// remove takes the conn out of the loop's table.
func (l *Loop) remove(c *Conn) {
	slot := c.id.Slot()
	l.conns[slot] = nil
	l.wheel.Clear(slot)
	l.live--
	l.stats.conns.Add(-1)
}

// Detach takes the connection out of the engine: what is queued is sent first, receiving stops at once, and then done is called
// on the loop with an ordinary net.Conn and the bytes that have been received but not delivered. The handler
// hears nothing more. If the connection breaks first, or the driver cannot give it away, done gets the error; in the first
// case Closed follows, in the second the conn goes on. On the loop only.
func (c *Conn) Detach(done func(nc net.Conn, unread []byte, err error)) {
	x := c.ownExtra()
	switch {
	case c.is(closing|ending) || c.closeAsked():
		done(nil, nil, ErrClosed)
	case x.detach != nil:
		done(nil, nil, ErrBusy)
	default:
		x.detach = done
		c.loop.drv.Pause(c.id)
		c.loop.revisit(c)
	}
}

func (l *Loop) advanceDetach(c *Conn) {
	x := c.extra.Load()
	if x == nil || x.detach == nil {
		return
	}
	err := l.drv.Detach(c.id)
	if err == nil {
		c.status |= closing | ending
		return
	}
	done := x.detach
	x.detach = nil
	if !c.is(paused) {
		l.drv.Resume(c.id)
		l.revisit(c)
	}
	done(nil, nil, err)
}

// detached hands the connection over.
func (l *Loop) detached(c *Conn, sock driver.Socket) {
	l.remove(c)
	x, layer := c.extra.Load(), c.layer()
	var unread []byte
	if x.held.Len() > 0 {
		unread = x.held.AppendTo(nil)
	}
	c.bury()
	nc, err := sock.Conn()
	if err == nil && layer != nil {
		nc, unread = layer.Detach(nc, unread)
	}
	defer l.recovered(c)
	if err != nil {
		x.detach(nil, nil, err)
		return
	}
	x.detach(nc, unread, nil)
}
