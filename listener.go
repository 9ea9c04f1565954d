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

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is what accepts connections, and what a listener does with peers while the engine is at
// a limit (docs/adr/0008). All of it but Listener's public methods runs on the listener's loop.

// A Listener accepts connections for one handler.
type Listener struct {
	engine  *Engine
	loop    *Loop
	id      driver.ID // owned by the loop
	inner   driver.Listener
	handler Handler
	shared  net.Addr // the local address of all its conns, unless it listens on a wildcard
	closed  atomic.Bool

	accepting // owned by the loop
}

// listeners are those of a loop, by slot.
type listeners map[uint32]*Listener

// Listen binds addr ("tcp", "tcp4", "tcp6", "unix") and serves every connection with h, whose
// Opened may exchange itself for a handler of the conn's own. One loop accepts and hands
// connections to all loops in turn. At Config.MaxConns or AcceptRate, or without descriptors, it
// keeps peers waiting and goes on by itself; listeners take turns then. On an engine that has been
// shut down it fails with an error that is ErrClosed. Any goroutine but a loop's.
func (e *Engine) Listen(network, addr string, h Handler) (*Listener, error) {
	inner, err := e.sys.Listen(context.Background(), network, addr)
	if err != nil {
		return nil, fmt.Errorf("myriad: Listen: %w", err)
	}
	ln := &Listener{engine: e, inner: inner, handler: h}
	if a := driver.AddrOf(inner.Addr()); !a.Unspecified() {
		ln.shared = inner.Addr()
	}
	ln.loop = e.loops[(e.listenTurn.Add(1)-1)%uint32(len(e.loops))]
	started := e.sys.NewParker()
	if ln.loop.Post(func() { err = ln.start(); started.Unpark() }) {
		started.Park()
	} else {
		err = errShutDown
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("myriad: Listen on %v: %w", inner.Addr(), err), inner.Close())
	}
	return ln, nil
}

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
	ln.loop.Post(func() { ln.loop.closeListener(ln) })
	return nil
}

// ended runs on the loop when the driver has let go of the listener.
func (ln *Listener) ended() {
	ln.loop.dropHand(ln)
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
	// noticePeriod is how often one kind of overload is logged at most.
	noticePeriod = 10 * time.Second
)

// accepting is what a listener's loop knows of it. A listener with a peer in hand does not accept.
type accepting struct {
	hand     driver.Socket // accepted, and kept waiting: for room, or with room for its time
	room     bool          // the quota counts it
	failing  int64         // loop time since which accepting has failed; 0: it has not
	shedding bool          // the spare descriptor is used to close new connections
	mayShed  int           // peers, until the pause ends
	halted   bool          // by Listener.Pause
}

// Pause stops accepting until Resume: peers wait in the kernel's backlog, and connections that were
// accepted live on. Any goroutine; it takes effect when the loop comes to it, and never blocks.
func (ln *Listener) Pause() { ln.halt(true) }

// Resume goes on accepting after Pause. Any goroutine; never blocks.
func (ln *Listener) Resume() { ln.halt(false) }

func (ln *Listener) halt(on bool) {
	l := ln.loop
	l.Post(func() {
		switch {
		case l.listeners[ln.id.Slot()] != ln || ln.halted == on:
			return
		case on:
			l.drv.StopAccept(ln.id)
		}
		if ln.halted = on; ln.hand == nil { // else accepting goes on when the peer in hand is in
			l.resumeAccept(ln)
		}
	})
}

func (l *Loop) resumeAccept(ln *Listener) {
	if !ln.halted {
		l.drv.ResumeAccept(ln.id)
	}
}

// accepted is the driver's news of a peer.
func (l *Loop) accepted(ln *Listener, sock driver.Socket) {
	if ln.shedding {
		l.shed(ln, sock)
		return
	}
	e := l.engine
	l.stats.accepts.Add(1)
	if ln.failing != 0 {
		ln.failing = 0
		e.spare.keep()
	}
	ln.hand = sock
	if ln.room = e.quota.waiting.Load() == 0 && e.quota.take(); ln.room {
		l.letInTime(ln)
		return
	}
	l.drv.StopAccept(ln.id)
	e.hits.conns.Add(1)
	if n := e.full.due(l.now); n > 0 {
		e.cfg.Logger.Warn("myriad: Config.MaxConns connections are open; peers wait to be accepted", "limit",
			e.quota.most, "times", n)
	}
	e.quota.wait(ln)
}

// admitHand is called when the quota has taken room for the peer in hand.
func (ln *Listener) admitHand() {
	l := ln.loop
	if ln.hand == nil { // it was dropped meanwhile
		l.engine.quota.give()
		return
	}
	ln.room = true
	l.resumeAccept(ln) // before its handler is called, which may not return
	l.letInTime(ln)
}

// letInTime lets the peer in hand in, for which there is room, unless Config.AcceptRate has it
// wait.
func (l *Loop) letInTime(ln *Listener) {
	e := l.engine
	wait := e.pace.reserve(l.now)
	if wait == 0 {
		l.letIn(ln)
		return
	}
	l.drv.StopAccept(ln.id)
	l.wheel.Set(ln.id.Slot(), l.now+wait)
	e.hits.rate.Add(1)
	if n := e.fast.due(l.now); n > 0 {
		e.cfg.Logger.Warn("myriad: peers come faster than Config.AcceptRate; they wait to be accepted", "limit",
			e.cfg.AcceptRate, "times", n)
	}
}

func (l *Loop) letIn(ln *Listener) {
	sock := ln.hand
	ln.hand, ln.room = nil, false
	l.engine.place(l, arrival{sock: sock, listener: ln})
}

// acceptFailed has a listener rest. Its peers are left in the backlog, for descriptors are most
// often back soon; when that has lasted, some are shed in each pause, so that they can try
// elsewhere.
func (l *Loop) acceptFailed(ln *Listener, err error) {
	e := l.engine
	l.stats.acceptErrors.Add(1)
	noFiles := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
	if noFiles {
		e.hits.files.Add(1)
	}
	e.logAcceptFailure(l, err)
	if ln.failing == 0 {
		ln.failing = max(1, l.now)
	}
	l.rest(ln)
	if ln.shedding { // another part of the process was quicker to take the descriptor
		l.endShedding(ln)
		return
	}
	if noFiles && l.now-ln.failing >= shedAfter.Milliseconds() && e.spare.free() {
		ln.shedding, ln.mayShed = true, shedBatch
		l.resumeAccept(ln)
	}
}

func (e *Engine) logAcceptFailure(l *Loop, err error) {
	if n := e.failing.due(l.now); n > 0 {
		e.cfg.Logger.Warn("myriad: cannot accept; trying again shortly", "loop", l.index, "pause", acceptPause, "err",
			err,
			"times", n, "shed", e.hits.shed.Load())
	}
}

// shed closes a peer that cannot be served.
func (l *Loop) shed(ln *Listener, sock driver.Socket) {
	l.engine.hits.shed.Add(1) // before the peer knows it
	_ = sock.Close()
	if ln.mayShed--; ln.mayShed == 0 {
		l.drv.StopAccept(ln.id) // until the pause ends
	}
}

func (l *Loop) endShedding(ln *Listener) {
	l.drv.StopAccept(ln.id)
	ln.shedding = false
	l.engine.spare.back()
}

// rested is the listener's timer. A listener that has shed connections rests afterwards, so that
// other listeners get the spare. While another listener has it, a true accept would take the
// descriptor that it has freed.
func (l *Loop) rested(ln *Listener) {
	switch {
	case ln.hand != nil && !ln.room: // it waits for the quota
		return
	case ln.hand != nil:
		l.resumeAccept(ln) // before its handler is called, which may not return
		l.letIn(ln)
		return
	case ln.shedding:
		l.endShedding(ln)
		l.rest(ln)
		return
	case ln.failing != 0 && l.engine.spare.away():
		l.rest(ln)
		return
	}
	l.resumeAccept(ln)
}

func (l *Loop) rest(ln *Listener) { l.wheel.Set(ln.id.Slot(), l.now+ceilMillis(acceptPause)) }

// closeListener ends accepting.
func (l *Loop) closeListener(ln *Listener) {
	l.dropHand(ln)
	l.drv.CloseListener(ln.id)
}

// dropHand closes the peer that a listener keeps waiting, as its backlog's are, and gives back what
// it has lent.
func (l *Loop) dropHand(ln *Listener) {
	if ln.shedding {
		ln.shedding = false
		l.engine.spare.back()
	}
	if ln.hand == nil {
		return
	}
	_ = ln.hand.Close()
	ln.hand = nil
	if ln.room {
		l.engine.quota.give()
	} else {
		l.engine.quota.leave(ln)
	}
}
