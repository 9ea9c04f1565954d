package myriad

import (
	"errors"
	"fmt"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is how listeners go on in another process, so that no peer is refused meanwhile:
// package handover. The old process lends them (Listener.Lend), and the new one inherits them.

// Listeners are those of the engine that have not been closed, in the order of their loops. Any
// goroutine but a loop's.
func (e *Engine) Listeners() []*Listener {
	byLoop := make([][]*Listener, len(e.loops))
	e.onLoops(func(l *Loop) {
		for _, ln := range l.listeners {
			if !ln.closed.Load() {
				byLoop[l.index] = append(byLoop[l.index], ln)
			}
		}
	})
	var all []*Listener
	for _, some := range byLoop {
		all = append(all, some...)
	}
	return all
}

// Asked is what Listen was called with.
func (ln *Listener) Asked() (network, addr string) { return ln.network, ln.asked }

// Lend makes a duplicate for a process that is to accept in place of this one. The caller closes
// the duplicate. From then on the listener does not accept: Pause and Resume change nothing. GoOn
// ends that, and Moved ends the listener. paused is true if the program has called Pause; the other
// process then pauses, too. Lend fails with ErrUnsupported where the driver cannot share listeners.
// Any goroutine.
func (ln *Listener) Lend() (share driver.Listener, paused bool, err error) {
	m := ln.engine.has.Moves
	if m == nil || m.ShareListener == nil {
		return nil, false, fmt.Errorf("myriad: Lend %v: %w: the driver %s cannot share listeners", ln.Addr(),
			ErrUnsupported, ln.engine.sys.Name())
	}
	if share, err = m.ShareListener(ln.inner); err != nil {
		return nil, false, err
	}
	ln.halt(&ln.lent, true)
	return share, ln.paused.Load(), nil
}

// GoOn accepts again after Lend: the other process does not, and its duplicate is as good as
// closed. Any goroutine; never blocks.
func (ln *Listener) GoOn() {
	ln.inner.Unshare()
	ln.halt(&ln.lent, false)
}

// Moved is Close after Lend: the other process accepts. The peer that the listener keeps waiting is
// not in the kernel's backlog any more, so it comes in here, whatever the loops and AcceptRate say.
// If there is no room by Config.MaxConns it waits for that, until Shutdown. Any goroutine; never
// blocks.
func (ln *Listener) Moved() error {
	if ln.closed.Swap(true) {
		return ErrClosed
	}
	ln.inner.Refuse() // leaves the address to the other process
	ln.lent.Store(true)
	ln.loop.Post(ln.leave)
	return nil
}

// leave runs on the loop, for Moved.
func (ln *Listener) leave() {
	l := ln.loop
	if l.listeners[ln.id.Slot()] != ln {
		return
	}
	ln.obey()
	ln.leaves = true
	switch {
	case l.stopping:
		ln.stop()
	case ln.hand == nil:
		ln.handIsEmpty()
	case ln.waits == forRoom: // roomReserved goes on
	case ln.waits == forLoop:
		if l.engine.admission.door.leave(&ln.claim) { // else loopFound goes on
			l.wheel.Clear(ln.id.Slot())
			ln.comeInAnyway()
		}
	default:
		l.wheel.Clear(ln.id.Slot())
		ln.send()
	}
}

// peersInHand is how many listeners of the loop have not given all peers to loops that they have
// accepted before Moved. On the loop.
func (l *Loop) peersInHand() (n int) {
	for _, ln := range l.listeners {
		if ln.leaves {
			n++
		}
	}
	return n
}

// An inheritance is what Inherit has got of one process, and what has been made of it. All but
// engine is guarded by engine.mu.
type inheritance struct {
	engine  *Engine
	waiting []*inherited // for the Listen that asks for it
	claimed []*Listener  // that Listen has made of others
	outcome inheritanceOutcome
}

type inheritanceOutcome uint8

const (
	undecided inheritanceOutcome = iota
	accepts                      // EndInheritance
	dropped                      // Disinherit
)

// An inherited listener waits for the Listen that asks for it.
type inherited struct {
	of            *inheritance
	network, addr string
	paused        bool
	inner         driver.Listener
}

// Inherit keeps share for the next Listen with this network and address, which then accepts from
// it. share is a duplicate of another process's listener (Listener.Lend), and belongs to the engine
// now. Such a listener waits until EndInheritance, and then for Resume if it is paused. Any
// goroutine.
func (e *Engine) Inherit(network, addr string, paused bool, share driver.Listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inheritance == nil {
		e.inheritance = &inheritance{engine: e}
	}
	of := e.inheritance
	of.waiting = append(of.waiting, &inherited{of, network, addr, paused, share})
}

// takeInherited is the first listener that was inherited for this address, or nil.
func (e *Engine) takeInherited(network, addr string) (driver.Listener, *inherited) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if of := e.inheritance; of != nil {
		for i, in := range of.waiting {
			if in.network == network && in.addr == addr {
				of.waiting = append(of.waiting[:i], of.waiting[i+1:]...)
				return in.inner, in
			}
		}
	}
	return nil, nil
}

// claim has ln share the outcome, which may have been decided since takeInherited.
func (of *inheritance) claim(ln *Listener) error {
	of.engine.mu.Lock()
	outcome := of.outcome
	if outcome == undecided {
		of.claimed = append(of.claimed, ln)
	}
	of.engine.mu.Unlock()
	switch outcome {
	case accepts:
		ln.GoOn()
	case dropped:
		return errors.Join(fmt.Errorf("myriad: Listen on %v: the other process goes on to accept: %w",
			ln.Addr(), ErrClosed), ln.Close())
	}
	return nil
}

// decide ends the engine's inheritance, and is what was in it.
func (e *Engine) decide(outcome inheritanceOutcome) (waiting []*inherited, claimed []*Listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.inheritance
	if of == nil {
		return nil, nil
	}
	e.inheritance = nil
	of.outcome = outcome
	return of.waiting, of.claimed
}

// EndInheritance has listeners accept that Listen has made of inherited ones, also those that a
// Listen beside it is about to make. It closes those that no Listen has asked for: their addresses
// are returned as "network address". Any goroutine.
func (e *Engine) EndInheritance() (unclaimed []string, err error) {
	waiting, claimed := e.decide(accepts)
	for _, ln := range claimed {
		ln.GoOn()
	}
	for _, in := range waiting {
		unclaimed = append(unclaimed, in.network+" "+in.addr)
		in.inner.Unshare() // with it the address ends
		err = errors.Join(err, in.inner.Close())
	}
	return unclaimed, err
}

// Disinherit closes what was inherited: another process goes on to accept there. Listeners that
// were made of it are closed, too, and a Listen beside it fails. Any goroutine.
func (e *Engine) Disinherit() {
	waiting, claimed := e.decide(dropped)
	for _, ln := range claimed {
		_ = ln.Close()
	}
	for _, in := range waiting {
		_ = in.inner.Close()
	}
}
