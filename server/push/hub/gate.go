package hub

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/server/push/answer"
)

// A gate counts the publications, and the changes of sessions, that run. It is open at first. While
// it is frozen, new ones wait: see Hub.Freeze. It is shut when the node drains, for publications,
// and has moved when another process goes on with what the hub has. Its methods may be called by
// any goroutine. The zero gate is open.
type gate struct {
	publications running
	changes      running // of sessions, by programs and by hooks
	state        atomic.Uint32

	mu     sync.Mutex    // held to change state
	thawed chan struct{} // closed when the gate is frozen no more; nil unless it is frozen
}

// The states of a gate. The gate leaves only gateOpen and gateFrozen.
const (
	gateOpen uint32 = iota
	gateFrozen
	gateShut
	gateMoved // shut for changes too
)

// running counts calls of one kind, and says when none runs.
type running struct {
	count atomic.Int64

	mu      sync.Mutex
	waiters []chan struct{} // closed when none runs
}

// end undoes an increment of count. state is that of the gate. It is read after the decrement: wait
// counts after the state has changed, so either wait sees the decrement, or end sees the state.
func (r *running) end(state *atomic.Uint32) {
	if r.count.Add(-1) > 0 || state.Load() == gateOpen {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count.Load() > 0 { // the gate was opened and frozen again meanwhile: a call may run
		return
	}
	for _, w := range r.waiters {
		close(w)
	}
	r.waiters = nil
}

// wait returns when none runs, or with ctx's error. The gate is not open.
func (r *running) wait(ctx context.Context) error {
	idle := make(chan struct{})
	r.mu.Lock()
	if r.count.Load() == 0 { // end, which takes the lock after that, would close none
		r.mu.Unlock()
		return nil
	}
	r.waiters = append(r.waiters, idle)
	r.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter lets a publication run, which ends with leave. While the gate is frozen, it waits until ctx
// ends. It returns answer.ErrDraining if the gate is shut.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.publications.count.Add(1)
		if g.state.Load() == gateOpen {
			return nil
		}
		g.leave()
		if state, err := g.settled(ctx); err != nil {
			return err
		} else if state >= gateShut {
			return answer.ErrDraining
		}
	}
}

func (g *gate) leave() { g.publications.end(&g.state) }

// BeginChange lets a change of sessions run, which ends with EndChange: a program's call, or what a
// hook has answered. What a client asks for on its connection is none: a connection on which
// something runs does not move. While the hub is frozen, it waits until ctx ends. It returns
// ErrDraining if another process goes on with the sessions.
//
// Do not call BeginChange within a change: during a freeze the inner call would wait for the freeze
// to end, and the freeze would wait for the outer change.
func (g *gate) BeginChange(ctx context.Context) error {
	for {
		g.changes.count.Add(1)
		if state := g.state.Load(); state == gateOpen || state == gateShut {
			return nil
		}
		g.EndChange()
		if state, err := g.settled(ctx); err != nil {
			return err
		} else if state == gateMoved {
			return answer.ErrDraining
		}
	}
}

// EndChange ends what BeginChange has begun.
func (g *gate) EndChange() { g.changes.end(&g.state) }

// LockThawed locks mu, under which a client's commands run that come by requests of their own. If
// the hub is frozen, it first waits until ctx ends: so no command begins for a client that moves.
// It returns an error, and has not locked mu, if another process goes on with the client.
func (g *gate) LockThawed(ctx context.Context, mu *sync.Mutex) error {
	for {
		mu.Lock()
		if state := g.state.Load(); state == gateOpen || state == gateShut {
			return nil
		}
		mu.Unlock()
		if state, err := g.settled(ctx); err != nil {
			return err
		} else if state == gateMoved {
			return answer.ErrDraining
		}
	}
}

// settled returns the state when that is not gateFrozen, or ctx's error.
func (g *gate) settled(ctx context.Context) (uint32, error) {
	for {
		g.mu.Lock()
		state, thawed := g.state.Load(), g.thawed
		g.mu.Unlock()
		if state != gateFrozen {
			return state, nil
		}
		select {
		case <-thawed:
		case <-ctx.Done():
			return state, ctx.Err()
		}
	}
}

// freeze makes publications and changes wait. It returns when none runs. If ctx ends before, or the
// gate is shut, it returns an error, and has changed nothing.
func (g *gate) freeze(ctx context.Context) error {
	g.mu.Lock()
	if g.state.Load() >= gateShut {
		g.mu.Unlock()
		return answer.ErrDraining
	}
	if g.thawed == nil {
		g.thawed = make(chan struct{})
	}
	g.state.Store(gateFrozen)
	g.mu.Unlock()
	err := g.publications.wait(ctx)
	if err == nil {
		err = g.changes.wait(ctx)
	}
	if err != nil {
		g.leaveFrozen(gateOpen)
	}
	return err
}

// leaveFrozen ends a freeze, and lets go on what waits. It does nothing if the gate is not frozen.
func (g *gate) leaveFrozen(to uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.Load() == gateFrozen {
		g.set(to)
	}
}

// set changes the state. The caller holds mu.
func (g *gate) set(to uint32) {
	g.state.Store(to)
	if g.thawed != nil {
		close(g.thawed)
		g.thawed = nil
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.Load() < gateShut {
		g.set(gateShut)
	}
}

// isFrozen reports whether publications and changes wait.
func (g *gate) isFrozen() bool { return g.state.Load() == gateFrozen }

// Drain makes the hub refuse publications and clients. It returns when the running publications
// are queued for all subscribers, or with ctx's error.
func (g *gate) Drain(ctx context.Context) error {
	g.shut()
	return g.publications.wait(ctx)
}

// IsDraining reports whether Drain or Shutdown was called, or another process goes on.
func (g *gate) IsDraining() bool { return g.state.Load() >= gateShut }

// IsShut is IsDraining for a request, which waits while the gate is frozen, until ctx ends.
func (g *gate) IsShut(ctx context.Context) bool {
	state, err := g.state.Load(), error(nil)
	if state == gateFrozen {
		state, err = g.settled(ctx)
	}
	return state >= gateShut || err != nil
}
