package myriad

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/wheel"
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
	hand     driver.Socket // accepted, and kept waiting: for room, or with room for its time
	room     bool          // the quota counts it
	claim    claim         // in the quota's queue while there is no room
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
			ln.resume()
		}
	})
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
	ln.hand = sock
	if ln.room = e.admission.quota.waiting.Load() == 0 && e.admission.quota.reserve(); ln.room {
		ln.sendInTime()
		return
	}
	l.drv.StopAccept(ln.id)
	e.admission.hits.conns.Add(1)
	if n := e.admission.full.due(l.now); n > 0 {
		e.cfg.Logger.Warn("myriad: Config.MaxConns connections are open; peers wait to be accepted", "limit",
			e.admission.quota.most, "times", n)
	}
	ln.claim.granted = func() bool { return l.Post(ln.roomReserved) }
	e.admission.quota.queueUp(&ln.claim)
}

// roomReserved is called when the quota has taken room for the peer in hand.
func (ln *Listener) roomReserved() {
	l := ln.loop
	if ln.hand == nil { // it was dropped meanwhile
		l.engine.admission.quota.release()
		return
	}
	ln.room = true
	ln.resume() // before its handler is called, which may not return
	ln.sendInTime()
}

// sendInTime is send, unless Config.AcceptRate has the peer wait.
func (ln *Listener) sendInTime() {
	l := ln.loop
	e := l.engine
	wait := e.admission.pace.delay(l.now)
	if wait == 0 {
		ln.send()
		return
	}
	l.drv.StopAccept(ln.id)
	l.wheel.Set(ln.id.Slot(), l.now+wait)
	e.admission.hits.rate.Add(1)
	if n := e.admission.fast.due(l.now); n > 0 {
		e.cfg.Logger.Warn("myriad: peers come faster than Config.AcceptRate; they wait to be accepted", "limit",
			e.cfg.AcceptRate, "times", n)
	}
}

// send gives the peer in hand, for which there is room, to the next loop in turn. If the intake of
// that one is full the listener's own loop has it.
func (ln *Listener) send() {
	a := arrival{sock: ln.hand, listener: ln}
	ln.hand, ln.room = nil, false
	if to := ln.engine.admission.nextLoop(); to == ln.loop || !to.intake.send(a, false) {
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
	case ln.hand != nil && !ln.room: // it waits for the quota
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
	if ln.room {
		l.engine.admission.quota.release()
	} else {
		l.engine.admission.quota.unqueue(&ln.claim)
	}
}
