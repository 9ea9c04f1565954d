package myriad

import (
	"github.com/myriad-go/myriad/buf"
)

// This file is the way out: from a conn's queue to the driver. All of it runs on the loop.

// flush gives the driver what is queued and carries out what was asked. It returns the requests
// that it found.
func (l *Loop) flush(c *Conn) request {
	c.mu.Lock()
	asked := c.asked
	if asked&gone != 0 || c.phase() == closed {
		c.mu.Unlock()
		return 0
	}
	c.asked &^= wantNotify | wantDeadline
	due := c.due
	if asked&wantAbort != 0 {
		c.mu.Unlock()
		l.abort(c)
		return 0
	}
	out := c.takeOutput()
	x := c.extra.Load()
	further := x != nil && x.waits()
	c.mu.Unlock()
	if asked&wantDeadline != 0 {
		l.setDeadline(c, due)
	}
	l.send(c, out)
	if further {
		l.sendFurther(c, x)
	}
	l.pursueEnd(c, asked)
	return asked
}

// Buffered is how many of the bytes that Queued counts have not been offered to the kernel yet.
// Any goroutine.
func (c *Conn) Buffered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	if c.out != nil {
		n = c.out.Len()
	}
	if x := c.extra.Load(); x != nil {
		n += int(x.unencoded)
	}
	return n
}

// takeOutput takes what may be sent now: everything, or what goes before the first file. mu is
// held.
func (c *Conn) takeOutput() *buf.Chain {
	out, x := c.out, c.extra.Load()
	if out == nil {
		return nil
	}
	if x != nil {
		if front, waits := x.beforeFile(out); waits {
			return front
		}
	}
	c.out = nil
	return out
}

func (l *Loop) setDeadline(c *Conn, due int64) {
	switch {
	case c.phase() != open:
	case due == 0:
		l.wheel.Clear(c.id.Slot())
	default:
		l.wheel.Set(c.id.Slot(), due)
	}
}

func (l *Loop) send(c *Conn, out *buf.Chain) {
	if out == nil {
		return
	}
	n := int64(out.Len())
	queued := l.drv.Send(c.id, out)
	out.Put()
	l.stats.writes.Add(1)
	l.stats.given.Add(uint64(n))
	l.stats.bytesOut.Add(uint64(n - queued))
	c.queued.Add(queued - n)
}
