package workers

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrTimeout is returned by GoTimeout if the queue had no room in time.
var ErrTimeout = errors.New("workers: no room within the timeout")

// Go submits f. If the queue is full, Go waits for room until ctx ends; waiting calls are accepted
// in order. A nil error means that f was accepted and will run, even if ctx ends. With ErrClosed or
// the context's cause, f will not run.
func (p *Pool) Go(ctx context.Context, f func()) error {
	mustTask(f)
	if ctx.Err() != nil {
		return noRoom(ctx)
	}
	t, err := p.offer(f)
	if t == nil {
		return err
	}
	return p.line.wait(ctx, &p.mu, t)
}

// GoTimeout is Go with a timeout instead of a context. If the queue has no room within d, it
// returns ErrTimeout; at once if d is not positive.
func (p *Pool) GoTimeout(f func(), d time.Duration) error {
	mustTask(f)
	t, err := p.offer(f)
	if t == nil {
		return err
	}
	return p.line.waitFor(&p.mu, t, d)
}

// offer accepts f, refuses it with an error, or returns its ticket in the line.
func (p *Pool) offer(f func()) (*ticket, error) {
	p.lock()
	if p.closed.Load() {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if p.room() == 0 {
		t := p.line.join(f)
		p.mu.Unlock()
		return t, nil
	}
	p.push(f)
	w := p.call()
	p.mu.Unlock()
	w.rouse()
	return nil, nil
}

// TryGo submits f and reports whether it was accepted. It refuses if the pool is closed, if the
// queue is full, or if calls wait for room. It never blocks.
func (p *Pool) TryGo(f func()) bool {
	mustTask(f)
	p.lock()
	if p.closed.Load() || p.room() == 0 {
		p.mu.Unlock()
		return false
	}
	p.push(f)
	w := p.call()
	p.mu.Unlock()
	w.rouse()
	return true
}

// TryGoAll submits as many of fs as there is room for, in order, with one lock and at most one
// wake-up. It returns their number n: fs[:n] will run, fs[n:] will not. It never blocks.
func (p *Pool) TryGoAll(fs []func()) int {
	for _, f := range fs {
		mustTask(f)
	}
	p.lock()
	if p.closed.Load() {
		p.mu.Unlock()
		return 0
	}
	n := min(len(fs), p.room())
	for _, f := range fs[:n] {
		p.push(f)
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

// post submits f without waiting: if the queue is full, f waits in the line without a goroutine.
// Only this package's types use it, each with a bounded number of entries.
func (p *Pool) post(f func()) error {
	p.lock()
	if p.closed.Load() {
		p.mu.Unlock()
		return ErrClosed
	}
	p.put(f)
	return nil
}

// resume is post for the end of a running task. A closed pool accepts f, too: the worker that runs
// the task looks at the queue once more before it ends, and the queue does not become empty while
// the line has posted entries.
func (p *Pool) resume(f func()) {
	p.lock()
	p.put(f)
}

// put queues f. The caller holds the lock, and put unlocks.
func (p *Pool) put(f func()) {
	if p.room() > 0 {
		p.push(f)
	} else {
		p.line.post(f)
	}
	w := p.call()
	p.mu.Unlock()
	w.rouse()
}

func (p *Pool) push(f func()) {
	p.waits.push()
	p.tasks.push(f)
}

// room returns how many more tasks the pool accepts now. It is 0 while calls wait in the line,
// because they come first.
func (p *Pool) room() int {
	if p.line.n > 0 {
		return 0
	}
	return max(0, p.free())
}

// free returns how many more tasks fit. Of the tasks that have not started, Workers minus the
// running ones need no place in the queue, because workers take them at once. free is negative
// after a Widen that removed places in use.
func (p *Pool) free() int {
	return p.config.Queue - p.tasks.n + max(0, p.config.Workers-p.running)
}

// admit accepts tasks of the line while there is room. Workers call it when admitAt places are
// free: if it admitted tasks singly, each waiting goroutine would be woken for one task and then
// wait again. The monitor also calls it within a tick, because running tasks may wait for such a
// goroutine.
func (p *Pool) admit() {
	for p.line.n > 0 && p.free() > 0 {
		t := p.line.first
		p.push(t.f)
		p.line.decide(t, nil)
	}
}

func noRoom(ctx context.Context) error {
	return fmt.Errorf("workers: task not accepted before its context ended: %w", context.Cause(ctx))
}
