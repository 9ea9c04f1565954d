package myriad

import "time"

// This file gives access to the conns of a loop for code that does not serve them: a status page, a
// sweeper.

// Conns calls visit for the conns in n places of the loop's table, from place from on, and returns
// the place to go on with, 0 at the table's end. Walking in slices, one for each Loop.Do, delays no
// other connection of the loop: a thousand empty places take about a microsecond. A conn keeps its
// place for life, so none is met twice; those that come or go between two slices may be missed, and
// those that hibernate are. visit may do what a handler may. On the loop only.
func (l *Loop) Conns(from, n int, visit func(c *Conn)) (next int) {
	for i := max(0, from); n > 0 && i < l.conns.Len(); i++ {
		if c := l.conn(uint32(i)); c != nil {
			c.show()
			visit(c)
		}
		if n--; n == 0 && i+1 < l.conns.Len() {
			return i + 1
		}
	}
	return 0
}

// show records that c was given to a caller, which may keep it.
func (c *Conn) show() {
	c.mu.Lock()
	c.asked |= shown
	c.mu.Unlock()
}

// Handler is the conn's current handler, for a visit of Loop.Conns that looks for conns of its own
// kind. On the loop only.
func (c *Conn) Handler() Handler {
	if d, dials := c.handler.(*dialing); dials {
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
	return time.Duration(l.now-int64(*l.born.Row(slot))*ageUnit) * time.Millisecond
}

// State describes the conn in a word or two: "dialing", "open", "paused", "peer ended" (its FIN was
// seen), "write ended" (CloseWrite), "detaching", "closing" (Close flushes), "lingering" (Close
// waits for the peer), "closed". Of several the last in this list. On the loop only.
func (c *Conn) State() string {
	x := c.extra.Load()
	switch {
	case c.phase() == closed:
		return "closed"
	case c.phase() == closing:
		return "lingering"
	case c.phase() == draining:
		return "closing"
	case x != nil && x.detach != nil:
		return "detaching"
	case c.is(finSent):
		return "write ended"
	case c.is(peerEnded):
		return "peer ended"
	case c.is(paused):
		return "paused"
	case c.is(connecting):
		return "dialing"
	}
	return "open"
}
