package std

import (
	"net"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// leave begins the end of a connection. Its goroutines are interrupted, and the last of them to
// exit closes it, or prepares it for its new owner; the last event follows that. An owner that
// closes a breaking connection gets no error. On the owner's goroutine.
func (c *conn) leave(how leaving, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.leaving == breaking && how == detaching:
		return // ends in Closed with the error
	case c.leaving == breaking && how != breaking:
		c.leaving, c.err = how, nil
		return
	case c.leaving != staying:
		return
	}
	c.leaving, c.err = how, err
	if !c.writing {
		c.dropOutput()
	}
	if c.stop != nil {
		c.stop()
	}
	c.interrupt()
	c.turn.Signal()
	if c.running == 0 {
		c.spawn(func() {}) // which is the last
	}
}

// interrupt makes the goroutines return from the network. mu is held.
func (c *conn) interrupt() {
	var err error
	switch {
	case c.nc == nil:
	case c.leaving == detaching: // what is being written is FIN at most
		err = c.nc.SetReadDeadline(longAgo)
	default:
		err = c.nc.SetDeadline(longAgo)
	}
	if err != nil && c.leaving != detaching {
		nc := c.nc
		c.spawn(func() { nc.Close() }) // a foreign conn without deadlines
	}
}

// exit is the end of one of the conn's goroutines.
func (c *conn) exit() {
	c.mu.Lock()
	c.running--
	last := c.running == 0 && c.leaving != staying
	how := c.leaving
	if c.broken != nil || c.sendFail != nil {
		if how == detaching {
			c.err = firstOf(c.sendFail, c.broken)
			how = breaking
		}
	}
	c.mu.Unlock()
	if !last {
		return
	}
	c.release(how)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
	c.list()
}

// release lets go of the socket. No goroutine uses it any more.
func (c *conn) release(how leaving) {
	switch {
	case c.nc == nil:
	case how == detaching:
		_ = c.nc.SetDeadline(time.Time{})
	default:
		if how == aborting {
			resetOnClose(c.nc)
		}
		if c.short || how == aborting {
			driver.CloseBelow(c.nc)
		}
		c.nc.Close()
	}
}

// reportLast emits the last event. done is set, so that the conn is the owner's alone, and its slot
// free.
func (c *conn) reportLast(how leaving, ev driver.Events) {
	c.over = true
	c.d.polled++
	ahead := c.data
	if c.lent != nil {
		ahead = append([]byte(nil), c.data...)
	}
	c.data = nil
	c.giveBack()
	c.d.members.remove(c.id) // before the event, which may not return
	switch {
	case c.dialing && how == breaking:
		ev.DialFailed(c.id, c.err)
	case how == detaching && c.err == nil:
		ev.Detached(c.id, &Socket{nc: c.nc, ahead: ahead})
	default:
		ev.Closed(c.id, c.err)
	}
}

// resetOnClose lets the peer of an aborted connection see a reset where there is a TCP connection
// below.
func resetOnClose(nc net.Conn) {
	if outer, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = outer.NetConn()
	}
	if tcp, ok := nc.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
