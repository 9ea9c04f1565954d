package myriad

import (
	"errors"
	"fmt"
	"net"

	"github.com/myriad-go/myriad/internal/driver"
)

// maxIntake bounds the conns that wait to be attached to one loop; the accepting loop keeps what is above it.
const maxIntake = 1024

// An arrival is a connection on its way into a loop.
type arrival struct {
	sock     driver.Socket
	listener *Listener // nil: adopted
	conn     *Conn     // nil: accepted
	unread   []byte
}

// place gives an accepted connection to the next loop in turn.
func (e *Engine) place(from *Loop, a arrival) {
	to := e.nextLoop()
	if to == from || !to.take(a) {
		from.admit(&a)
	}
}

// take puts a into the loop's intake, or reports that it is full or closed.
func (l *Loop) take(a arrival) bool {
	l.mail.mu.Lock()
	ok := !l.mail.closed && len(l.mail.intake) < maxIntake
	if ok {
		l.mail.intake = append(l.mail.intake, a)
	}
	l.mail.mu.Unlock()
	l.wakeIf(ok)
	return ok
}

// admit attaches a connection and opens its handler. On the loop.
func (l *Loop) admit(a *arrival) {
	c := a.conn
	if c == nil {
		c = newConn(l, a.listener.handler)
		c.remote = a.sock.Remote()
		c.local = l.localOf(a)
	}
	id, err := l.drv.Attach(a.sock)
	if err != nil {
		l.refuse(c, a, err)
		return
	}
	l.enter(c, id)
	l.current.Store(c)
	l.callOpened(c)
	l.switchHandlers()
	if len(a.unread) > 0 && !c.closeAsked() {
		l.deliverUnread(c, a.unread)
	}
	l.leave(c)
	if l.stopping {
		l.dismiss(c)
	}
}

// deliverUnread gives bytes that were read before the engine had the connection the way that others take.
func (l *Loop) deliverUnread(c *Conn, p []byte) {
	p = p[:len(p):len(p)]
	if c.layer() != nil {
		l.decode(c, p)
		l.switchHandlers()
		return
	}
	l.deliver(c, p)
}

func (l *Loop) localOf(a *arrival) net.Addr {
	if a.listener.shared != nil {
		return a.listener.shared
	}
	return l.sharedAddr(a.sock.Local())
}

// enter puts the conn into the loop's table.
func (l *Loop) enter(c *Conn, id driver.ID) {
	slot := int(id.Slot())
	if slot >= len(l.conns) {
		l.conns = append(l.conns, make([]*Conn, slot+1-len(l.conns))...)
	}
	l.conns[slot] = c
	c.id = id
	l.live++
	l.stats.conns.Add(1)
}

// refuse is for a connection that the driver would not take: an accepted one is dropped, an adopted one's handler is told.
func (l *Loop) refuse(c *Conn, a *arrival, err error) {
	if a.conn == nil {
		l.engine.acceptFailed(l, err)
		return
	}
	c.status |= closing | ending // it may hear, but not do, anything
	l.callOpened(c)
	c.bury()
	if x := c.extra.Load(); x != nil && x.bridge != nil {
		x.bridge.end(true)
	}
	l.callClosed(c, err)
	l.switchHandlers()
}

// Adopt takes a connection into the engine, with the bytes already read from it. nc is consumed, also on error. The
// returned Conn may be written to at once. A nc without a descriptor of its own (a *tls.Conn, a net.Pipe) costs two goroutines
// that copy, and 64 KiB; if it has no CloseWrite either, ending our side closes it. Neither a *Conn nor Stream's net.Conn can be
// adopted: they are in an engine already, use Conn.SetHandler. Any goroutine.
func (e *Engine) Adopt(nc net.Conn, unread []byte, h Handler) (*Conn, error) {
	switch nc.(type) {
	case *Conn, *streamConn:
		return nil, errors.Join(fmt.Errorf("myriad: Adopt of a %T: %w", nc, ErrUnsupported), nc.Close())
	}
	c, sock, err := e.take(nc, h)
	if err != nil {
		return nil, fmt.Errorf("myriad: Adopt: %w", err)
	}
	a := arrival{sock: sock, conn: c, unread: append([]byte(nil), unread...)}
	bridge := c.bridged()
	if bridge != nil {
		bridge.start(c)
	}
	if !c.loop.take(a) {
		if err = errors.Join(fmt.Errorf("myriad: Adopt: %w", c.loop.refusal()), sock.Close()); bridge != nil {
			bridge.end(true)
		}
		return nil, err
	}
	return c, nil
}

// take makes a conn of what the system, or else a bridge, makes of nc.
func (e *Engine) take(nc net.Conn, h Handler) (*Conn, driver.Socket, error) {
	local, remote := nc.LocalAddr(), driver.AddrOf(nc.RemoteAddr())
	var b *bridge
	sock, err := e.sys.Import(nc)
	if errors.Is(err, driver.ErrUnsupported) {
		sock, b, err = e.newBridge(nc)
	}
	if err != nil {
		return nil, nil, err
	}
	c := newConn(e.nextLoop(), h)
	c.local, c.remote = local, remote
	if b != nil {
		c.ownExtra().bridge = b
	}
	return c, sock, nil
}

func (c *Conn) bridged() *bridge {
	if x := c.extra.Load(); x != nil {
		return x.bridge
	}
	return nil
}

// refusal says why take refused.
func (l *Loop) refusal() error {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	if l.mail.closed {
		return ErrClosed
	}
	return ErrBusy
}
