package myriad

import (
	"errors"
	"fmt"
	"net"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file brings connections into their loops: those that listeners accept, and adopted ones.

// maxIntake bounds the conns that wait to be attached to one loop; the accepting loop keeps what is
// above it.
const maxIntake = 1024

// keptIntake is for how many of them a loop keeps room between two turns, so that new connections
// leave no garbage.
const keptIntake = 128

// An arrival is a connection on its way into a loop.
type arrival struct {
	sock     driver.Socket
	listener *Listener // nil: adopted
	conn     *Conn     // nil: accepted
	unread   []byte
	lifted   bool // the conn has its layer already, and unread is what the layer has decoded
}

// An intake is where connections come into a loop. Other goroutines put them there.
type intake struct {
	coming   []arrival // guarded by mailbox.mu; at most maxIntake
	promised int       // guarded by mailbox.mu: room that Adopt has been promised
	taken    batch[arrival]
}

// takeUp has the loop own what has come. The mailbox's mu is held.
func (in *intake) takeUp() {
	if cap(in.taken.list) > keptIntake {
		in.taken.list = nil
	}
	in.taken.refill(&in.coming)
}

// empty reports whether nothing is on its way in. The mailbox's mu is held.
func (in *intake) empty() bool { return len(in.coming) == 0 && in.taken.empty() }

// place gives an accepted connection to the next loop in turn.
func (e *Engine) place(from *Loop, a arrival) {
	to := e.nextLoop()
	if to == from || !to.take(a, false) {
		from.admit(&a)
	}
}

// take puts a into the loop's intake, or reports that it is full or closed. Promised room is used
// if the caller has it.
func (l *Loop) take(a arrival, promised bool) bool {
	l.mail.mu.Lock()
	if promised {
		l.intake.promised--
	}
	ok := !l.mail.closed && len(l.intake.coming)+l.intake.promised < maxIntake
	if ok {
		l.intake.coming = append(l.intake.coming, a)
	}
	l.mail.mu.Unlock()
	l.wakeIf(ok)
	return ok
}

// promise keeps room in the loop's intake for one take.
func (l *Loop) promise() error {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	switch {
	case l.mail.closed:
		return ErrClosed
	case len(l.intake.coming)+l.intake.promised >= maxIntake:
		return ErrBusy
	}
	l.intake.promised++
	return nil
}

// unpromise gives back what promise has kept.
func (l *Loop) unpromise() {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	l.intake.promised--
}

// loopWithRoom returns the next loop in the round, or the first one after it that has room. It
// fails with ErrBusy if none does, and with errShutDown if all have ended.
func (e *Engine) loopWithRoom() (*Loop, error) {
	failure := errShutDown
	first := e.turn.Add(1)
	for i := range uint32(len(e.loops)) {
		l := e.loops[(first+i)%uint32(len(e.loops))]
		err := l.promise()
		if err == nil {
			return l, nil
		}
		if err == ErrBusy {
			failure = err
		}
	}
	return nil, failure
}

// admitAll attaches what the loop has taken up, which has made room for others.
func (l *Loop) admitAll() {
	l.engine.anteroom.call()
	for a, ok := l.intake.taken.take(); ok; a, ok = l.intake.taken.take() {
		l.admit(&a)
	}
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
		if a.conn == nil {
			l.engine.logAcceptFailure(l, err)
		}
		l.refuse(a.conn, err)
		return
	}
	l.enter(c, id)
	l.current.Store(c)
	l.callOpened(c)
	l.switchHandlers()
	if len(a.unread) > 0 && !c.closeAsked() {
		l.deliverUnread(c, a)
	}
	if a.lifted && !c.closeAsked() {
		l.decode(c, nil)
		l.switchHandlers()
	}
	l.leave(c)
	if l.stopping {
		l.dismiss(c)
	}
}

// deliverUnread gives bytes that were read before the engine had the connection the way that others
// take.
func (l *Loop) deliverUnread(c *Conn, a *arrival) {
	p := a.unread[:len(a.unread):len(a.unread)]
	if c.layer() != nil && !a.lifted {
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
