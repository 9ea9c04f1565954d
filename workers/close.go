package workers

import (
	"context"
	"fmt"
)

// Close refuses new tasks, lets those accepted run, ends all goroutines and returns when that is
// done. Calls of Go that still wait for room get ErrClosed. If ctx ends first, Close returns its
// cause and the draining goes on; call it again to wait further. A task must not wait for the Close
// of its own pool: that would be waiting for itself.
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

// shut closes the pool's entrance, once, and returns the idle workers, which are to end.
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
