package enginetest

import (
	"net"

	"github.com/myriad-go/myriad"
)

// xor changes bytes by their place in the stream, so that an exchange shows.
type xor uint64

func (x *xor) apply(p []byte) []byte {
	q := make([]byte, len(p))
	for i, b := range p {
		q[i] = b ^ byte(*x*31+7)
		*x++
	}
	return q
}

// xorLayer is the toy layer of every engine test: it delivers what it gets in two pieces.
type xorLayer struct{ in, out xor }

func (l *xorLayer) Received(w myriad.Wire, p []byte) {
	q := l.in.apply(p)
	half := len(q) / 2
	if half > 0 {
		w.Deliver(q[:half:half])
	}
	w.Deliver(q[half:])
}

func (l *xorLayer) Write(w myriad.Wire, p []byte) (int, error) {
	if w.Room() < len(p) {
		return 0, myriad.ErrFull
	}
	return w.Write(l.out.apply(p))
}

func (l *xorLayer) CloseWrite(myriad.Wire) error { return nil }
func (l *xorLayer) Closed(err error) error       { return err }

func (l *xorLayer) Detach(raw net.Conn, unread []byte) (net.Conn, []byte) {
	return &xorConn{Conn: raw, in: l.in, out: l.out}, unread
}

// withLayer is a handler that puts a layer below another one.
type withLayer struct {
	h        myriad.Handler
	newLayer func() myriad.Layer
}

func (w withLayer) Opened(c *myriad.Conn) {
	c.SetLayer(w.newLayer())
	c.SetHandler(w.h, nil)
}
func (withLayer) Received(*myriad.Conn, []byte)      { panic("the handler below was not installed") }
func (w withLayer) Closed(c *myriad.Conn, err error) { w.h.Opened(c); w.h.Closed(c, err) }

func withXOR(h myriad.Handler) withLayer {
	return withLayer{h, func() myriad.Layer { return new(xorLayer) }}
}

// xorConn is the peer's side. One goroutine reads and one writes.
type xorConn struct {
	net.Conn
	in, out xor
}

func newXORConn(nc net.Conn) net.Conn { return &xorConn{Conn: nc} }

func (c *xorConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p, c.in.apply(p[:n]))
	return n, err
}

func (c *xorConn) Write(p []byte) (int, error) { return c.Conn.Write(c.out.apply(p)) }

func (c *xorConn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// reset closes a peer so that the other side sees a reset.
func reset(nc net.Conn) {
	if x, ok := nc.(*xorConn); ok {
		nc = x.Conn
	}
	_ = nc.(*net.TCPConn).SetLinger(0)
	nc.Close()
}
