package myriad

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/bridge"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/wheel"
)

// This file brings connections into their loops: those that listeners accept, and adopted ones. A
// connection comes in by three steps. Room is reserved for it, its socket is sent to a loop, and
// the loop attaches it. At a limit of the engine, listeners keep peers waiting (docs/adr/0008).

// Listen binds addr ("tcp", "tcp4", "tcp6", "unix") and serves every connection with h, whose
// Opened may exchange itself for a handler of the conn's own. One loop accepts and hands
// connections to all loops in turn. At Config.MaxConns or AcceptRate, without descriptors, or while
// loops are late, it keeps peers waiting and goes on by itself; listeners take turns then. On an
// engine that has been shut down it fails with an error that is ErrClosed. Any goroutine but a
// loop's.
func (e *Engine) Listen(network, addr string, h Handler) (*Listener, error) {
	if inner, from := e.takeInherited(network, addr); inner != nil {
		return e.listenOn(inner, network, addr, h, from)
	}
	inner, err := e.sys.Listen(context.Background(), network, addr)
	if err != nil {
		return nil, fmt.Errorf("myriad: Listen: %w", err)
	}
	return e.listenOn(inner, network, addr, h, nil)
}

// listenOn accepts from inner. It waits for the outcome of from, unless that is nil.
func (e *Engine) listenOn(inner driver.Listener, network, addr string, h Handler, from *inherited) (*Listener, error) {
	ln := &Listener{engine: e, inner: inner, handler: h, network: network, asked: addr}
	if from != nil {
		ln.lent.Store(true)
		ln.paused.Store(from.paused)
	}
	if a := driver.AddrOf(inner.Addr()); !a.Unspecified() {
		ln.shared = inner.Addr()
	}
	ln.loop = e.loops[(e.admission.listenTurn.Add(1)-1)%uint32(len(e.loops))]
	started := e.sys.NewParker()
	var err error
	if ln.loop.Post(func() { err = ln.start(); started.Unpark() }) {
		started.Park()
	} else {
		err = errShutDown
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("myriad: Listen on %v: %w", inner.Addr(), err), inner.Close())
	}
	if from != nil {
		err = from.of.claim(ln)
	}
	return ln, err
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
	return e.admission.adopt(nc, unread, h, e.admission.reserve)
}

// AdoptWait is Adopt for goroutines that accept. While the intake of every loop is full it waits,
// and meanwhile further peers wait in the listener's backlog. Any goroutine but a loop's, which
// would wait for itself.
func (e *Engine) AdoptWait(nc net.Conn, unread []byte, h Handler) (*Conn, error) {
	return e.admission.adopt(nc, unread, h, e.admission.reserveWaiting)
}

// A Listener accepts connections for one handler.
type Listener struct {
	engine  *Engine
	loop    *Loop
	id      driver.ID // owned by the loop
	inner   driver.Listener
	handler Handler
	network string // what Listen was asked for
	asked   string
	shared  net.Addr // the local address of all its conns, unless it listens on a wildcard
	closed  atomic.Bool
	paused  atomic.Bool // by Pause
	lent    atomic.Bool // another process accepts, or may

	accepting // owned by the loop
}

// listeners are those of a loop, by slot.
type listeners map[uint32]*Listener

// start runs on the loop.
func (ln *Listener) start() error {
	if ln.loop.stopping {
		return errShutDown
	}
	id, err := ln.loop.drv.Listen(ln.inner)
	if err != nil {
		return err
	}
	ln.id = id
	ln.loop.listeners[id.Slot()] = ln
	ln.obey()
	return nil
}

// Addr is the bound address. Any goroutine.
func (ln *Listener) Addr() net.Addr { return ln.inner.Addr() }

// File duplicates the listening descriptor, for another process to accept from; the address stays
// in use after Close then. It fails with ErrUnsupported where the driver has none. Any goroutine.
func (ln *Listener) File() (*os.File, error) { return ln.inner.File() }

// Close stops listening at once: peers that wait to be accepted are refused, and the address may be
// bound again, unless File was called: then they are left to the duplicate. Connections that were
// accepted live on. A second Close returns ErrClosed. Any goroutine; never blocks.
func (ln *Listener) Close() error {
	if ln.closed.Swap(true) {
		return ErrClosed
	}
	ln.inner.Refuse()
	ln.loop.Post(func() { ln.stop() })
	return nil
}

// ended runs on the loop when the driver has let go of the listener.
func (ln *Listener) ended() {
	ln.dropHand()
	_ = ln.inner.Close()
}

const (
	// acceptPause is how long a listener rests after it could not accept, most often for want of
	// descriptors.
	acceptPause = 50 * time.Millisecond
	// shedAfter is how long peers are left in the backlog for want of descriptors, before they are
	// accepted only to be closed.
	shedAfter = 2 * time.Second
	// shedBatch is how many peers a listener closes in one acceptPause at most.
	shedBatch = 64
)

// accepting is what a listener's loop knows of it. A listener with a peer in hand does not accept.
type accepting struct {
	hand     driver.Socket // accepted, and kept waiting
	waits    waitsFor      // what for
	claim    claim         // in the queue of the quota, or of the door
	failing  int64         // loop time since which accepting has failed; 0: it has not
	shedding bool          // the spare descriptor is used to close new connections
	mayShed  int           // peers, until the pause ends
	halted   bool          // it is paused or lent
	leaves   bool          // it closes when it has no peer in hand
}

// A waitsFor says what the peer in hand still lacks. It gets these in order: room, a loop, its
// turn. At one of them it has those listed before it.
type waitsFor uint8

const (
	forRoom    waitsFor = iota // among Config.MaxConns
	forLoop                    // that has time for a newcomer
	forItsTurn                 // by Config.AcceptRate
)

// Pause stops accepting until Resume: peers wait in the kernel's backlog, and connections that were
// accepted live on. Any goroutine; it takes effect when the loop comes to it, and never blocks.
func (ln *Listener) Pause() { ln.halt(&ln.paused, true) }

// Resume goes on accepting after Pause. Any goroutine; never blocks.
func (ln *Listener) Resume() { ln.halt(&ln.paused, false) }

func (ln *Listener) halt(why *atomic.Bool, on bool) {
	why.Store(on)
	ln.loop.Post(ln.obey)
}

// obey does what paused and lent say. On the loop.
func (ln *Listener) obey() {
	l := ln.loop
	on := ln.paused.Load() || ln.lent.Load()
	switch {
	case l.listeners[ln.id.Slot()] != ln || ln.halted == on:
		return
	case on:
		l.drv.StopAccept(ln.id)
	}
	if ln.halted = on; ln.hand == nil { // else accepting goes on when the peer in hand is in
		ln.resume()
	}
}

func (ln *Listener) resume() {
	if !ln.halted {
		ln.loop.drv.ResumeAccept(ln.id)
	}
}

// accepted is the driver's news of a peer.
func (ln *Listener) accepted(sock driver.Socket) {
	l := ln.loop
	if ln.shedding {
		ln.shed(sock)
		return
	}
	e := l.engine
	l.stats.accepts.Add(1)
	if ln.failing != 0 {
		ln.failing = 0
		e.admission.spare.keep()
	}
	l.newcomers.accepted()
	ln.hand, ln.waits = sock, forRoom
	if e.admission.quota.waiting.Load() == 0 && e.admission.quota.reserve() {
		ln.findLoop()
		return
	}
	l.drv.StopAccept(ln.id)
	e.admission.hits.conns.Add(1)
	if n := e.admission.full.due(l.now); n > 0 {
		e.cfg.Logger.Warn("myriad: Config.MaxConns connections are open; peers wait to be accepted", "limit",
			e.admission.quota.most, "times", n)
	}
	ln.claim = claim{loop: l, since: l.now, granted: func() bool { return l.Post(ln.roomReserved) }}
	e.admission.quota.queueUp(&ln.claim)
}

// roomReserved is called when the quota has taken room for the peer in hand.
func (ln *Listener) roomReserved() {
	l := ln.loop
	if ln.hand == nil { // it was dropped meanwhile
		l.engine.admission.quota.release()
		return
	}
	ln.resume() // before its handler is called, which may not return
	ln.findLoop()
}

// findLoop is for the peer in hand, for which there is room. It waits while the loops are late, and
// have no time for newcomers.
func (ln *Listener) findLoop() {
	l := ln.loop
	if ln.leaves {
		ln.comeInAnyway()
		return
	}
	door := &l.engine.admission.door
	if door.waiting.Load() == 0 {
		if to := door.reserve(l); to != nil {
			ln.claim.to = to
			ln.comeIn()
			return
		}
	}
	l.drv.StopAccept(ln.id)
	l.engine.admission.hits.late.Add(1)
	if n := l.engine.admission.late.due(l.now); n > 0 {
		l.engine.cfg.Logger.Warn("myriad: the loops are late; newcomers wait to be accepted", "late", l.engine.Late(),
			"times", n)
	}
	ln.waits = forLoop
	ln.claim = claim{loop: l, since: l.now, granted: func() bool { return l.Post(ln.loopFound) }}
	ln.waitForTrickle()
	door.queueUp(&ln.claim, l.now)
}

// waitForTrickle sets the time when the peer in hand may come in whatever the loops say.
func (ln *Listener) waitForTrickle() {
	l := ln.loop
	l.wheel.Set(ln.id.Slot(), l.now+wheel.Millis(l.newcomers.patience()))
}

// loopFound is called when a loop has time for the peer in hand.
func (ln *Listener) loopFound() {
	l := ln.loop
	if ln.hand == nil { // it was dropped meanwhile
		ln.claim.to.newcomers.giveBack()
		return
	}
	l.wheel.Clear(ln.id.Slot())
	ln.resume() // before its handler is called, which may not return
	ln.comeIn()
}

// comeIn is for the peer in hand, for which a loop has time. While newcomers wait some give up. To
// serve them would take the time of those that have not, until these give up, too. So a peer that
// has ended its side by now is closed unserved. That it was accepted is paid by newcomers.
func (ln *Listener) comeIn() {
	to := ln.claim.to
	s, ok := ln.hand.(driver.Leaver)
	if !to.newcomers.limited.Load() || !ok || !s.HasLeft() {
		ln.sendInTime()
		return
	}
	to.newcomers.giveBack()
	ln.loop.newcomers.hadLeft()
	a := &ln.loop.engine.admission
	a.hits.left.Add(1)
	_ = ln.hand.Close()
	ln.hand = nil
	a.quota.release()
	ln.handIsEmpty()
}

// comeInAnyway is comeIn although no loop has time: the listener leaves.
func (ln *Listener) comeInAnyway() {
	ln.claim.to = ln.loop
	ln.loop.newcomers.takeAnyway()
	ln.comeIn()
}

// handIsEmpty is called when the peer in hand has gone. A listener that leaves takes what its
// driver has accepted, too.
func (ln *Listener) handIsEmpty() {
	if !ln.leaves {
		return
	}
	if take := ln.loop.can.TakeAccepted; take != nil {
		if sock := take(ln.id); sock != nil {
			ln.accepted(sock)
			return
		}
	}
	ln.stop()
}

// sendInTime is send, unless Config.AcceptRate has the peer wait.
func (ln *Listener) sendInTime() {
	l := ln.loop
	e := l.engine
	wait := e.admission.pace.delay(l.now)
	if wait == 0 || ln.leaves {
		ln.send()
		return
	}
	ln.waits = forItsTurn
	l.drv.StopAccept(ln.id)
	l.wheel.Set(ln.id.Slot(), l.now+wait)
	e.admission.hits.rate.Add(1)
	if n := e.admission.fast.due(l.now); n > 0 {
		e.cfg.Logger.Warn("myriad: peers come faster than Config.AcceptRate; they wait to be accepted", "limit",
			e.cfg.AcceptRate, "times", n)
	}
}

// send gives the peer in hand, for which there is room, to the loop that has time for it. If the
// intake of that one is full the listener's own loop has it.
func (ln *Listener) send() {
	a := arrival{sock: ln.hand, listener: ln}
	to := ln.claim.to
	ln.hand = nil
	ln.handIsEmpty() // before the handler is called, which may not return
	if to == ln.loop || !to.intake.send(a, false) {
		ln.loop.intake.attach(&a)
	}
}

// failed has a listener rest. Its peers are left in the backlog, for descriptors are most
// often back soon; when that has lasted, some are shed in each pause, so that they can try
// elsewhere.
func (ln *Listener) failed(err error) {
	l := ln.loop
	e := l.engine
	l.stats.acceptErrors.Add(1)
	noFiles := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
	if noFiles {
		e.admission.hits.files.Add(1)
	}
	e.admission.logAcceptFailure(l, err)
	if ln.failing == 0 {
		ln.failing = max(1, l.now)
	}
	ln.rest()
	if ln.shedding { // another part of the process was quicker to take the descriptor
		ln.endShedding()
		return
	}
	if noFiles && l.now-ln.failing >= shedAfter.Milliseconds() && e.admission.spare.free() {
		ln.shedding, ln.mayShed = true, shedBatch
		ln.resume()
	}
}

// shed closes a peer that cannot be served.
func (ln *Listener) shed(sock driver.Socket) {
	ln.loop.engine.admission.hits.shed.Add(1) // before the peer knows it
	_ = sock.Close()
	if ln.mayShed--; ln.mayShed == 0 {
		ln.loop.drv.StopAccept(ln.id) // until the pause ends
	}
}

func (ln *Listener) endShedding() {
	ln.loop.drv.StopAccept(ln.id)
	ln.shedding = false
	ln.loop.engine.admission.spare.back()
}

// rested is the listener's timer. A listener that has shed connections rests afterwards, so that
// other listeners get the spare. While another listener has it, a true accept would take the
// descriptor that it has freed.
func (ln *Listener) rested() {
	switch {
	case ln.hand != nil && ln.waits == forRoom:
		return
	case ln.hand != nil && ln.waits == forLoop:
		ln.waitForTrickle()
		ln.engine.admission.door.trickleIn(ln.loop.now)
		return
	case ln.hand != nil:
		ln.resume() // before its handler is called, which may not return
		ln.send()
		return
	case ln.shedding:
		ln.endShedding()
		ln.rest()
		return
	case ln.failing != 0 && ln.loop.engine.admission.spare.away():
		ln.rest()
		return
	}
	ln.resume()
}

func (ln *Listener) rest() { ln.loop.wheel.Set(ln.id.Slot(), ln.loop.now+wheel.Millis(acceptPause)) }

// stop ends accepting.
func (ln *Listener) stop() {
	ln.leaves = false
	ln.dropHand()
	ln.loop.drv.CloseListener(ln.id)
}

// dropHand closes the peer that a listener keeps waiting, as its backlog's are, and gives back what
// it has lent.
func (ln *Listener) dropHand() {
	l := ln.loop
	if ln.shedding {
		ln.shedding = false
		l.engine.admission.spare.back()
	}
	if ln.hand == nil {
		return
	}
	_ = ln.hand.Close()
	ln.hand = nil
	a := &l.engine.admission
	switch ln.waits {
	case forRoom:
		a.quota.leave(&ln.claim) // or roomReserved gives it back
		return
	case forLoop:
		a.door.leave(&ln.claim) // or loopFound gives it back
	case forItsTurn:
		ln.claim.to.newcomers.giveBack()
	}
	a.quota.release()
}

// admission is what brings connections into an engine's loops, within its limits. A socket enters a
// loop in three steps, of whatever kind it is. Room is reserved for it: a place in the quota, and
// for an adopted one in an intake. It is sent to a loop's intake. That loop attaches it. A dialled
// one is made by its loop, so only its place in the quota is reserved.
type admission struct {
	engine     *Engine
	turn       atomic.Uint32 // which loop gets the next connection
	listenTurn atomic.Uint32 // and which the next listener

	quota    quota
	door     door
	pace     pace
	anteroom anteroom // where AdoptWait waits
	locals   driver.SharedAddrs
	spare    spare
	hits     limitHits

	full, fast, late, failing notice // what is logged of MaxConns, AcceptRate, late loops and failing accepts
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

// waiting is how many connections are on their way in. On the loop.
func (in *intake) waiting() int {
	in.loop.mail.mu.Lock()
	defer in.loop.mail.mu.Unlock()
	return len(in.coming) + len(in.taken.list) - in.taken.next
}

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
	in.loop.newcomers.skip()
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
	if a.listener != nil {
		l.newcomers.attached(c)
	} else {
		l.newcomers.skip()
	}
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
