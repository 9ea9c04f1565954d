package hub

import (
	"context"
	"sync"
	"sync/atomic"
)

// A gate counts the publications that run, until it is shut, when the node drains. Its methods may
// be called by any goroutine; only wait waits. The zero gate is open.
type gate struct {
	running atomic.Int64
	isShut  atomic.Bool

	mu      sync.Mutex
	waiters []chan struct{} // closed when none has run after the gate was shut
}

// enter lets a publication run, which ends with leave, unless the gate is shut.
func (g *gate) enter() bool {
	g.running.Add(1)
	if g.isShut.Load() {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.running.Add(-1) > 0 || !g.isShut.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiters {
		close(w)
	}
	g.waiters = nil
}

func (g *gate) shut() { g.isShut.Store(true) }

// wait returns when no publication runs any more, or with ctx's error. It is called after shut.
func (g *gate) wait(ctx context.Context) error {
	idle := make(chan struct{})
	g.mu.Lock()
	if g.running.Load() == 0 { // leave, which takes the lock after that, would close none
		g.mu.Unlock()
		return nil
	}
	g.waiters = append(g.waiters, idle)
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drain makes the hub refuse publications and clients. It returns when the running publications
// are queued for all subscribers, or with ctx's error.
func (g *gate) Drain(ctx context.Context) error {
	g.shut()
	return g.wait(ctx)
}

// IsDraining reports whether Drain or Shutdown was called.
func (g *gate) IsDraining() bool { return g.isShut.Load() }
