package workers

import (
	"context"
	"fmt"
)

// Close refuses new tasks, runs the accepted ones, and returns when all goroutines have ended.
// Calls of Go that wait for room return ErrClosed. If ctx ends first, Close returns its cause while
// the pool continues to drain; call Close again to wait further. A task that waits for the Close of
// its own pool deadlocks.
func (p *Pool) Close(ctx context.Context) error {
	for _, w := range p.shut() {
		w.rouse()
	}
	select {
	case <-p.done:
		return nil
	default:
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		s := p.Stats()
		return fmt.Errorf("workers: still draining, %d tasks running and %d queued: %w", s.Running, s.Queued,
			context.Cause(ctx))
	}
}

// shut makes the pool refuse tasks, and returns the idle workers, which must end.
func (p *Pool) shut() (idle []*worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return nil
	}
	p.closed.Store(true)
	p.line.close()
	if !p.monitoring {
		close(p.done)
		return nil
	}
	idle, p.idle = p.idle, nil
	for _, w := range idle {
		w.state = stateRetired
	}
	return idle
}
