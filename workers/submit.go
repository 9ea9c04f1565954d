package workers

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrTimeout is returned by GoTimeout if there was no room in time.
var ErrTimeout = errors.New("workers: no room within the timeout")

// Go hands f to the pool. If the queue is full it waits for room until ctx ends, first come first
// served. A nil error means that f is accepted and will run, whatever happens to ctx; with
// ErrClosed or the context's cause it will not.
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

// GoTimeout is Go with a time instead of a context. If the queue has no room within d it fails with
// ErrTimeout, at once if d is not positive.
func (p *Pool) GoTimeout(f func(), d time.Duration) error {
	mustTask(f)
	t, err := p.offer(f)
	if t == nil {
		return err
	}
	return p.line.waitFor(&p.mu, t, d)
}

// offer accepts f, refuses it with an error, or returns its place in the line.
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

// TryGo hands f to the pool if it is open, the queue has room and nobody waits for it, and says
// whether it did. It never blocks.
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

// TryGoAll hands as many of fs to the pool as there is room for, in order, with one lock and at
// most one wake, and returns how many: fs[:n] will run, fs[n:] will not. It never blocks.
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

// post hands f to the pool without waiting: if the queue is full f takes a place in the line, with
// no goroutine to it. It is for the package's own structures, of which each has a bounded number of
// fs there.
func (p *Pool) post(f func()) error {
	p.lock()
	if p.closed.Load() {
		p.mu.Unlock()
		return ErrClosed
	}
	p.put(f)
	return nil
}

// resume is post for a task of the pool in its last instruction. A closed pool takes it too: the
// worker that runs the task looks at the queue once more before it ends, and the queue does not get
// empty while something is posted.
func (p *Pool) resume(f func()) {
	p.lock()
	p.put(f)
}

// put is called with the lock, and unlocks.
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

// room is how many more tasks the pool accepts now: 0 while calls wait in the line, because they
// come first.
func (p *Pool) room() int {
	if p.line.n > 0 {
		return 0
	}
	return max(0, p.free())
}

// free is how many more tasks fit. Of the tasks that have not begun, as many as Workers minus those
// that run are on their way to a worker; only the others take places of Queue. It is below 0 after
// a Widen that took away places in use.
func (p *Pool) free() int {
	return p.config.Queue - p.tasks.n + max(0, p.config.Workers-p.running)
}

// admit accepts tasks of the line while there is room. Workers call it when admitAt places are
// free: admitted one by one, each waiting goroutine would be woken for one task and wait again with
// its next. The monitor calls it within a tick in any case, because tasks may block until that
// goroutine goes on.
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
