package myriad

import (
	"errors"
	"fmt"
	"os"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is how listeners go on in another process, so that no peer is refused meanwhile:
// package handover.

// An inherited listener waits for the Listen that asks for it.
type inherited struct {
	network, addr string
	inner         driver.Listener
}

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

// Inherit has the next Listen with this network and address accept from a listener of another
// process, of which f is a duplicate (Listener.File). f stays the caller's. Such a listener waits
// until EndInheritance. It fails with ErrUnsupported where the driver cannot. Any goroutine.
func (e *Engine) Inherit(network, addr string, f *os.File) error {
	if e.has.Moves == nil || e.has.Moves.Listener == nil {
		return fmt.Errorf("myriad: Inherit: %w: the driver %s cannot take listeners over", ErrUnsupported, e.sys.Name())
	}
	inner, err := e.has.Moves.Listener(f)
	if err != nil {
		return fmt.Errorf("myriad: Inherit %s %s: %w", network, addr, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inherited = append(e.inherited, inherited{network, addr, inner})
	return nil
}

// takeInherited is the first listener that was inherited for this address, or nil.
func (e *Engine) takeInherited(network, addr string) driver.Listener {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, in := range e.inherited {
		if in.network == network && in.addr == addr {
			e.inherited = append(e.inherited[:i], e.inherited[i+1:]...)
			return in.inner
		}
	}
	return nil
}

// EndInheritance has listeners accept that Listen has made of inherited ones, and closes those that
// no Listen has asked for: their addresses are returned as "network address". Any goroutine but a
// loop's.
func (e *Engine) EndInheritance() (unclaimed []string, err error) {
	for _, ln := range e.Listeners() {
		if ln.waits.Swap(false) {
			ln.Resume()
		}
	}
	e.mu.Lock()
	rest := e.inherited
	e.inherited = nil
	e.mu.Unlock()
	for _, in := range rest {
		unclaimed = append(unclaimed, in.network+" "+in.addr)
		err = errors.Join(err, in.inner.Close())
	}
	return unclaimed, err
}

// Disinherit closes what was inherited: another process goes on to accept there. Listeners that
// were made of it are closed, too. Any goroutine but a loop's.
func (e *Engine) Disinherit() {
	for _, ln := range e.Listeners() {
		if ln.waits.Load() {
			_ = ln.Close()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, in := range e.inherited {
		_ = in.inner.Close()
	}
	e.inherited = nil
}
