package myriad

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/bridge"
	"github.com/myriad-go/myriad/internal/driver"
)

// This file brings connections into their loops: those that listeners accept, and adopted ones.

// admission is what brings connections into an engine's loops, within its limits. A socket enters a
// loop in three steps, of whatever kind it is. Room is reserved for it: a place in the quota, and
// for an adopted one in an intake. It is sent to a loop's intake. That loop attaches it. A dialled
// one is made by its loop, so only its place in the quota is reserved.
type admission struct {
	engine     *Engine
	turn       atomic.Uint32 // which loop gets the next connection
	listenTurn atomic.Uint32 // and which the next listener

	quota    quota
	pace     pace
	anteroom anteroom // where AdoptWait waits
	locals   driver.SharedAddrs
	spare    spare
	hits     limitHits

	full, fast, failing notice // what is logged of MaxConns, AcceptRate and failing accepts
}

// nextLoop is the loop that gets the next connection.
func (a *admission) nextLoop() *Loop {
	return a.engine.loops[a.turn.Add(1)%uint32(len(a.engine.loops))]
}

// loopWithRoom returns the next loop in the round, or the first one after it that has room. It
// fails with ErrBusy if none does, and with errShutDown if all have ended.
func (a *admission) loopWithRoom() (*Loop, error) {
	failure := errShutDown
	first := a.turn.Add(1)
	for i := range uint32(len(a.engine.loops)) {
		l := a.engine.loops[(first+i)%uint32(len(a.engine.loops))]
		err := l.intake.reserve()
		if err == nil {
			return l, nil
		}
		if err == ErrBusy {
			failure = err
		}
	}
	return nil, failure
}

// tryReserve finds a loop for one more connection, and counts it.
func (a *admission) tryReserve() (*Loop, error) {
	if !a.quota.reserve() {
		a.hits.tooMany.Add(1)
		return nil, ErrTooMany
	}
	l, err := a.loopWithRoom()
	if err != nil {
		a.quota.release()
	}
	return l, err
}

// reserve is tryReserve, which counts that all loops are busy.
func (a *admission) reserve() (*Loop, error) {
	l, err := a.tryReserve()
	if err == ErrBusy {
		a.engine.loops[0].stats.busy.Add(1) // all of them are, and it is one call
	}
	return l, err
}

// reserveWaiting waits while all loops are busy.
func (a *admission) reserveWaiting() (*Loop, error) {
	for {
		l, err := a.tryReserve()
		if err != ErrBusy {
			return l, err
		}
		p := a.engine.sys.NewParker()
		a.anteroom.enter(p)
		// A loop may have made room before it could see p. If so, p is left for the next call.
		if l, err = a.tryReserve(); err != ErrBusy {
			return l, err
		}
		p.Park()
	}
}

func (a *admission) adopt(nc net.Conn, unread []byte, h Handler, reserve func() (*Loop, error)) (*Conn, error) {
	switch nc := nc.(type) {
	case *Conn, bound:
		return nil, errors.Join(fmt.Errorf("myriad: Adopt of a %T: %w (it is in an engine already: use "+
			"Conn.SetHandler)", nc, ErrUnsupported), nc.Close())
	case *net.UnixConn:
		if local := nc.LocalAddr(); local != nil && local.Network() != "unix" {
			return nil, errors.Join(fmt.Errorf("myriad: Adopt of a %s connection: %w (it is no stream: use the "+
				"network \"unix\")", local.Network(), ErrUnsupported), nc.Close())
		}
	}
	l, err := reserve()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("myriad: Adopt: %w", err), nc.Close())
	}
	nc, layer, h := lift(nc, h)
	c, sock, err := a.importConn(l, nc, h)
	if err != nil {
		l.intake.release()
		a.quota.release()
		return nil, fmt.Errorf("myriad: Adopt: %w", err)
	}
	arrives := arrival{sock: sock, conn: c, unread: append([]byte(nil), unread...), lifted: layer != nil}
	if layer != nil {
		c.ownCold().setLayer(layer)
	}
	b := c.bridged()
	if b != nil {
		b.Start(c.Abort, c.isShort)
	}
	if !l.intake.send(arrives, true) {
		a.quota.release()
		if err = errors.Join(fmt.Errorf("myriad: Adopt: %w", errShutDown), sock.Close()); b != nil {
			b.End(true)
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

// importConn makes a conn of what the system, or else a bridge, makes of nc. Any goroutine.
func (a *admission) importConn(l *Loop, nc net.Conn, h Handler) (*Conn, driver.Socket, error) {
	local, peer := driver.AskAddr(nc.LocalAddr), nc.RemoteAddr
	nc, told := driver.Unannounced(nc)
	var b *bridge.Bridge
	sock, err := a.engine.sys.Import(nc)
	if errors.Is(err, driver.ErrUnsupported) {
		sock, b, err = a.engine.bridges.New(nc)
	}
	if err != nil {
		return nil, nil, err
	}
	c := newConn(l, h)
	c.local = a.locals.Share(local)
	if b != nil {
		c.ownCold().bridge = b // it asks nc for its peer where that may block
		if !told {
			return c, sock, nil
		}
		c.ownCold().peer = driver.AskAddr(peer)
	}
	switch c.remote = driver.AddrOf(driver.AskAddr(peer)); {
	case told:
		c.remote = c.remote.AsAnnounced()
	case c.remote == (driver.Addr{}):
		c.ownCold().peer = driver.AskAddr(peer)
	}
	return c, sock, nil
}

// An arrival is a connection on its way into a loop.
type arrival struct {
	sock     driver.Socket
	listener *Listener // nil: adopted
	conn     *Conn     // nil: accepted
	unread   []byte
	lifted   bool // the conn has its layer already, and unread is what the layer has decoded
}

// maxIntake bounds the conns that wait to be attached to one loop; the accepting loop keeps what is
// above it.
const maxIntake = 1024

// keptIntake is for how many of them a loop keeps room between two turns, so that new connections
// leave no garbage.
const keptIntake = 128

// An intake is where connections come into a loop. Other goroutines put them there.
type intake struct {
	loop     *Loop
	coming   []arrival // guarded by mailbox.mu; at most maxIntake
	reserved int       // guarded by mailbox.mu: room that Adopt has reserved
	taken    batch[arrival]
}

// empty reports whether nothing is on its way in. The mailbox's mu is held.
func (in *intake) empty() bool { return len(in.coming) == 0 && in.taken.empty() }

// reserve keeps room in the loop's intake for one send.
func (in *intake) reserve() error {
	l := in.loop
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	switch {
	case l.mail.closed:
		return ErrClosed
	case len(in.coming)+in.reserved >= maxIntake:
		return ErrBusy
	}
	in.reserved++
	return nil
}

// release gives back what reserve has kept.
func (in *intake) release() {
	in.loop.mail.mu.Lock()
	defer in.loop.mail.mu.Unlock()
	in.reserved--
}

// send puts a into the loop's intake, or reports that it is full or closed. Reserved room is used
// if the caller has it.
func (in *intake) send(a arrival, reserved bool) bool {
	l := in.loop
	l.mail.mu.Lock()
	if reserved {
		in.reserved--
	}
	ok := !l.mail.closed && len(in.coming)+in.reserved < maxIntake
	if ok {
		in.coming = append(in.coming, a)
	}
	l.mail.mu.Unlock()
	if ok {
		l.post(workMail)
	}
	return ok
}

// attachAll attaches what the loop has taken up, which has made room for others.
func (in *intake) attachAll() {
	if !in.taken.empty() {
		in.loop.engine.admission.anteroom.call()
	}
	for a, ok := in.taken.take(); ok; a, ok = in.taken.take() {
		in.attach(&a)
	}
}

// attach attaches a connection and opens its handler. On the loop.
func (in *intake) attach(a *arrival) {
	l := in.loop
	c := a.conn
	if c == nil {
		c = newConn(l, a.listener.handler)
		c.remote = a.sock.Remote()
		c.local = in.localOf(a)
	}
	id, err := l.drv.Attach(a.sock)
	if err != nil {
		if a.conn == nil {
			l.engine.admission.logAcceptFailure(l, err)
		}
		in.refuse(a.conn, err)
		return
	}
	l.enter(c, id, open)
	l.calls.current.Store(c)
	l.calls.opened(c)
	l.calls.switchHandlers()
	if len(a.unread) > 0 && !c.closeAsked() {
		in.deliverUnread(c, a)
	}
	if a.lifted && !c.closeAsked() {
		l.calls.decode(c, nil)
		l.calls.switchHandlers()
	}
	l.calls.done(c)
	if l.stopping {
		l.dismiss(c)
	}
}

// deliverUnread gives bytes that were read before the engine had the connection the way that others
// take.
func (in *intake) deliverUnread(c *Conn, a *arrival) {
	l := in.loop
	p := a.unread[:len(a.unread):len(a.unread)]
	if c.layer() != nil && !a.lifted {
		l.calls.decode(c, p)
		l.calls.switchHandlers()
		return
	}
	l.settler.deliver(c, p)
}

func (in *intake) localOf(a *arrival) net.Addr {
	if a.listener.shared != nil {
		return a.listener.shared
	}
	return in.loop.locals.Of(a.sock.Local())
}

// refuse is for a connection that cannot be attached, and whose socket is closed: of an adopted one
// (c) the handler is told.
func (in *intake) refuse(c *Conn, err error) {
	defer in.loop.engine.admission.quota.release()
	if c == nil {
		return
	}
	c.advance(closed) // its callbacks are called, but it may do nothing
	defer in.refused(c, err)
	in.loop.calls.opened(c)
}

func (in *intake) refused(c *Conn, err error) {
	c.bury()
	if x := c.cold.Load(); x != nil && x.bridge != nil {
		x.bridge.End(true)
	}
	in.loop.calls.lastCall(c, err)
}

func (a *admission) logAcceptFailure(l *Loop, err error) {
	if n := a.failing.due(l.now); n > 0 {
		a.engine.cfg.Logger.Warn("myriad: cannot accept; trying again shortly", "loop", l.index, "pause", acceptPause,
			"err",
			err,
			"times", n, "shed", a.hits.shed.Load())
	}
}
