package workers

import (
	"context"
	"fmt"
)

// Go hands f to the pool. If the queue is full it waits for room until ctx ends, first come first served. A nil error means
// that f is accepted and will run, whatever happens to ctx; with ErrClosed or the context's cause it will not.
func (p *Pool) Go(ctx context.Context, f func()) error {
	mustTask(f)
	if ctx.Err() != nil {
		return noRoom(ctx)
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	if p.tasks.n < p.config.Queue {
		p.tasks.push(f)
		w := p.call()
		p.mu.Unlock()
		w.rouse()
		return nil
	}
	t := p.line.join(f)
	p.mu.Unlock()
	return p.wait(ctx, t)
}

func (p *Pool) wait(ctx context.Context, t *ticket) error {
	select {
	case <-t.decided:
		return t.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	waiting := p.line.leave(t)
	p.mu.Unlock()
	if waiting {
		return noRoom(ctx)
	}
	<-t.decided // the decision came first: an accepted task must not be reported as refused
	return t.err
}

func noRoom(ctx context.Context) error {
	return fmt.Errorf("workers: task not accepted before its context ended: %w", context.Cause(ctx))
}

// TryGo hands f to the pool if it is open and the queue has room, and says whether it did. It never blocks.
func (p *Pool) TryGo(f func()) bool {
	mustTask(f)
	p.mu.Lock()
	if p.closed || p.tasks.n >= p.config.Queue {
		p.mu.Unlock()
		return false
	}
	p.tasks.push(f)
	w := p.call()
	p.mu.Unlock()
	w.rouse()
	return true
}

// TryGoAll hands as many of fs to the pool as there is room for, in order, with one lock and at most one wake, and returns
// how many: fs[:n] will run, fs[n:] will not. It never blocks.
func (p *Pool) TryGoAll(fs []func()) int {
	for _, f := range fs {
		mustTask(f)
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return 0
	}
	n := min(len(fs), p.config.Queue-p.tasks.n)
	for _, f := range fs[:n] {
		p.tasks.push(f)
	}
	w := p.call()
	p.mu.Unlock()
	w.rouse()
	return n
}

func mustTask(f func()) {
	if f == nil {
		panic("workers: the task is nil")
	}
}
