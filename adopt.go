package myriad

import (
	"errors"
	"fmt"
	"net"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file takes a net.Conn into the engine.

// Adopt takes a connection into the engine, with the bytes already read from it. nc is consumed,
// also on error. The returned Conn may be written to at once. A *tls.Conn of tlsloop.NewListener
// becomes a conn with a layer, without goroutines. Any other *tls.Conn has two that copy, and 64
// KiB, while there is something to copy, and none while it is silent (docs/adr/0013). A *tls.Conn
// that allows renegotiation must not be adopted. Every other nc without a descriptor of its own (a
// net.Pipe, a wrapper) has them for life; on the driver std each nc has. A panic in nc costs its
// connection, except on the driver std, which calls nc itself. If LocalAddr or RemoteAddr panics,
// the conn's has no name ("@"). If nc has no CloseWrite, ending our side closes it. Neither a *Conn
// nor Stream's net.Conn can be adopted: they are in an engine already, use Conn.SetHandler. Nor can
// a *net.UnixConn of messages (unixpacket, unixgram): it is no stream, and the kernel drops the
// rest of a message that is not read at once. It fails with ErrTooMany at Config.MaxConns and with
// ErrBusy when the intake of every loop is full. Any goroutine.
func (e *Engine) Adopt(nc net.Conn, unread []byte, h Handler) (*Conn, error) {
	return e.adopt(nc, unread, h, e.reserve)
}

// AdoptWait is Adopt for goroutines that accept. While the intake of every loop is full it waits,
// and meanwhile further peers wait in the listener's backlog. Any goroutine but a loop's, which
// would wait for itself.
func (e *Engine) AdoptWait(nc net.Conn, unread []byte, h Handler) (*Conn, error) {
	return e.adopt(nc, unread, h, e.reserveWaiting)
}

func (e *Engine) adopt(nc net.Conn, unread []byte, h Handler, reserve func() (*Loop, error)) (*Conn, error) {
	switch nc := nc.(type) {
	case *Conn, *streamConn:
		return nil, errors.Join(fmt.Errorf("myriad: Adopt of a %T: %w (it is in an engine already: use "+
			"Conn.SetHandler)", nc, ErrUnsupported), nc.Close())
	case *net.UnixConn:
		if a := nc.LocalAddr(); a != nil && a.Network() != "unix" {
			return nil, errors.Join(fmt.Errorf("myriad: Adopt of a %s connection: %w (it is no stream: use the "+
				"network \"unix\")", a.Network(), ErrUnsupported), nc.Close())
		}
	}
	l, err := reserve()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("myriad: Adopt: %w", err), nc.Close())
	}
	nc, layer, h := lift(nc, h)
	c, sock, err := l.importConn(nc, h)
	if err != nil {
		l.unpromise()
		e.quota.give()
		return nil, fmt.Errorf("myriad: Adopt: %w", err)
	}
	a := arrival{sock: sock, conn: c, unread: append([]byte(nil), unread...), lifted: layer != nil}
	if layer != nil {
		c.ownExtra().setLayer(layer)
	}
	bridge := c.bridged()
	if bridge != nil {
		bridge.start(c)
	}
	if !l.take(a, true) {
		e.quota.give()
		if err = errors.Join(fmt.Errorf("myriad: Adopt: %w", errShutDown), sock.Close()); bridge != nil {
			bridge.end(true)
		}
		return nil, err
	}
	return c, nil
}

// lift takes nc apart if it can go on as a connection with a layer.
func lift(nc net.Conn, h Handler) (net.Conn, Layer, Handler) {
	if outer, ok := nc.(interface{ NetConn() net.Conn }); ok {
		if l, ok := outer.NetConn().(Lifter); ok {
			return l.Lift(nc, h)
		}
	}
	return nc, nil, h
}

// tryReserve finds a loop for one more connection, and counts it.
func (e *Engine) tryReserve() (*Loop, error) {
	if !e.quota.take() {
		e.hits.tooMany.Add(1)
		return nil, ErrTooMany
	}
	l, err := e.loopWithRoom()
	if err != nil {
		e.quota.give()
	}
	return l, err
}

// reserve is tryReserve, which counts that all loops are busy.
func (e *Engine) reserve() (*Loop, error) {
	l, err := e.tryReserve()
	if err == ErrBusy {
		e.loops[0].stats.busy.Add(1) // all of them are, and it is one call
	}
	return l, err
}

// reserveWaiting waits while all loops are busy.
func (e *Engine) reserveWaiting() (*Loop, error) {
	for {
		l, err := e.tryReserve()
		if err != ErrBusy {
			return l, err
		}
		p := e.sys.NewParker()
		e.anteroom.enter(p)
		// A loop may have made room before it could see p. If so, p is left for the next call.
		if l, err = e.tryReserve(); err != ErrBusy {
			return l, err
		}
		p.Park()
	}
}

// importConn makes a conn of what the system, or else a bridge, makes of nc. Any goroutine.
func (l *Loop) importConn(nc net.Conn, h Handler) (*Conn, driver.Socket, error) {
	local, peer := addrFrom(nc.LocalAddr), nc.RemoteAddr
	nc, told := unannounced(nc)
	var b *bridge
	sock, err := l.engine.sys.Import(nc)
	if errors.Is(err, driver.ErrUnsupported) {
		sock, b, err = l.engine.newBridge(nc)
	}
	if err != nil {
		return nil, nil, err
	}
	c := newConn(l, h)
	c.local = l.engine.locals.share(local)
	if b != nil {
		c.ownExtra().bridge = b // it asks nc for its peer where that may block
		if !told {
			return c, sock, nil
		}
		c.ownExtra().peer = addrFrom(peer)
	}
	switch c.remote = driver.AddrOf(addrFrom(peer)); {
	case told:
		c.remote = c.remote.AsAnnounced()
	case c.remote == (driver.Addr{}):
		c.ownExtra().peer = addrFrom(peer)
	}
	return c, sock, nil
}

// addrFrom asks a net.Conn for an address. One that panics has none: wrappers around nothing do,
// which have only what net/http calls.
func addrFrom(ask func() net.Addr) (a net.Addr) {
	defer func() {
		if recover() != nil {
			a = nil
		}
	}()
	return ask()
}

// refuse is for a connection that cannot be attached, and whose socket is closed: of an adopted one
// (c) the handler is told.
func (l *Loop) refuse(c *Conn, err error) {
	defer l.engine.quota.give()
	if c == nil {
		return
	}
	l.advance(c, closed) // its callbacks are called, but it may do nothing
	defer l.refused(c, err)
	l.callOpened(c)
}

func (l *Loop) refused(c *Conn, err error) {
	c.bury()
	if x := c.extra.Load(); x != nil && x.bridge != nil {
		x.bridge.end(true)
	}
	l.lastCall(c, err)
}
