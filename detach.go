package myriad

import (
	"cmp"
	"net"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file takes a connection out of the engine. All of it runs on the loop.

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
