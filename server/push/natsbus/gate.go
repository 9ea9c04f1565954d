package natsbus

import (
	"context"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A gate counts the calls of a bus that run. While it is frozen, new ones wait. The zero gate is
// open.
type gate struct {
	mu       sync.Mutex
	running  int
	closed   bool
	restored bool          // Subscribe does not wait
	changed  chan struct{} // closed when the gate is frozen no more; nil unless it is frozen
	idle     chan struct{} // closed when no call runs; nil unless freeze waits for that
	later    []func()      // what is to be called after the freeze
}

// maxLater bounds what waits for the end of a freeze besides calls.
const maxLater = 16 << 10

// enterOr is enter for a call that may not wait. If the gate is frozen, it returns false, and f is
// called after the freeze, unless too many wait.
func (g *gate) enterOr(f func()) (entered bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return false, bus.ErrClosed
	case g.changed == nil:
		g.running++
		return true, nil
	case len(g.later) < maxLater:
		g.later = append(g.later, f)
	}
	return false, nil
}

// enter lets a call run, which ends with leave. While the gate is frozen it waits, until ctx ends.
func (g *gate) enter(ctx context.Context) error { return g.let(ctx, false) }

// enterRestored is enter for a call that need not wait when the bus has what another one has had.
func (g *gate) enterRestored(ctx context.Context) error { return g.let(ctx, true) }

func (g *gate) let(ctx context.Context, ifRestored bool) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		g.mu.Lock()
		changed := g.changed
		switch {
		case g.closed:
			g.mu.Unlock()
			return bus.ErrClosed
		case changed == nil, ifRestored && g.restored:
			g.running++
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// freeze makes calls wait. It returns when none runs. If ctx ends before, it returns an error, and
// has changed nothing.
func (g *gate) freeze(ctx context.Context) error {
	g.mu.Lock()
	switch {
	case g.closed:
		g.mu.Unlock()
		return bus.ErrClosed
	case g.changed != nil:
		g.mu.Unlock()
		return errIsFrozen
	}
	g.changed = make(chan struct{})
	if g.running == 0 {
		g.mu.Unlock()
		return nil
	}
	idle := make(chan struct{})
	g.idle = idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		g.thaw()
		return ctx.Err()
	}
}

// thaw ends a freeze: what waits goes on.
func (g *gate) thaw() {
	g.mu.Lock()
	later := g.later
	g.later = nil
	g.end()
	g.mu.Unlock()
	for _, f := range later {
		f()
	}
}

// end ends a freeze. The caller holds mu.
func (g *gate) end() {
	g.restored, g.idle = false, nil
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// setRestored says that the frozen bus has what another one has had.
func (g *gate) setRestored() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.restored = true
}

// pause returns false if the gate is closed, at once, or within that time.
func (g *gate) pause(d time.Duration) bool {
	g.mu.Lock()
	changed, closed := g.changed, g.closed
	g.mu.Unlock()
	if closed || changed == nil {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-changed:
		return false
	}
}

func (g *gate) isFrozen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed != nil && !g.closed
}

// close refuses all calls, also those that wait.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.end()
}
