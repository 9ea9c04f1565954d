package workers

import (
	"context"
	"fmt"
	"sync"
)

// An Executor runs futures: a Pool, or one key of a Keyed.
type Executor interface {
	// Go submits f. It waits for room until ctx ends. A nil error means that f will run.
	Go(ctx context.Context, f func()) error
	// caught counts a panic that was turned into an error.
	caught()
}

// A Future is the result of a function that another goroutine runs. Any goroutine may call its
// methods. It needs no call of Wait, and holds no goroutine and no timer.
type Future[T any] struct {
	done chan struct{}

	mu      sync.Mutex
	ctx     context.Context // nil once f runs
	f       func(context.Context) (T, error)
	cancel  context.CancelFunc // nil unless f runs
	settled bool
	value   T
	err     error
}

// Submit submits f to the executor and returns its future. It waits for room until ctx ends. If the
// executor does not accept f, the future has already failed with ErrClosed or the context's cause.
//
// f's context ends with ctx and with Cancel. If it ends before f starts, f does not run, and the
// future fails with the context's cause. A panic of f becomes a *PanicError; the pool counts it,
// but does not call Config.OnPanic. runtime.Goexit becomes ErrExited.
func Submit[T any](ctx context.Context, x Executor, f func(context.Context) (T, error)) *Future[T] {
	if f == nil {
		panic("workers: the task is nil")
	}
	u := &Future[T]{done: make(chan struct{}), ctx: ctx, f: f}
	if err := x.Go(ctx, func() { u.run(x) }); err != nil {
		u.fail(err) // needs no lock: no other goroutine has the future
	}
	return u
}

// Done returns a channel that is closed when there is a result.
func (u *Future[T]) Done() <-chan struct{} { return u.done }

// Wait returns the result. If ctx ends first, it returns ctx's cause; f continues, and Wait can be
// called again.
func (u *Future[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-u.done:
		return u.value, u.err
	default:
	}
	select {
	case <-u.done:
		return u.value, u.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("workers: no result before the context ended: %w", context.Cause(ctx))
	}
}

// Cancel cancels the future. If f has not started, it never runs, and the future fails with
// context.Canceled at once. If f is running, its context ends, and the result is what f returns.
// Cancel does not wait. It does nothing if there is a result.
func (u *Future[T]) Cancel() {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.settled:
	case u.cancel != nil:
		u.cancel()
	default:
		u.fail(fmt.Errorf("workers: %w before the task started", context.Canceled))
	}
}

// run is the task in the pool. It does nothing if the future was cancelled.
func (u *Future[T]) run(x Executor) {
	ctx, f := u.begin()
	if f == nil {
		return
	}
	var value T
	outcome(func() (err error) {
		value, err = f(ctx)
		return err
	}, x.caught, func(err error) { u.end(value, err) })
}

func (u *Future[T]) begin() (context.Context, func(context.Context) (T, error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.settled {
		return nil, nil
	}
	if u.ctx.Err() != nil {
		u.fail(fmt.Errorf("workers: the context ended before the task started: %w", context.Cause(u.ctx)))
		return nil, nil
	}
	ctx, cancel := context.WithCancel(u.ctx)
	u.cancel = cancel
	return ctx, u.f
}

func (u *Future[T]) end(value T, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cancel() // else the parent context would refer to the child until the parent ends
	u.settle(value, err)
}

func (u *Future[T]) fail(err error) {
	var none T
	u.settle(none, err)
}

// settle sets the result, once. The caller holds the lock. It clears all other fields, because the
// program may keep the future for its result.
func (u *Future[T]) settle(value T, err error) {
	u.settled = true
	u.value, u.err = value, err
	u.ctx, u.f, u.cancel = nil, nil, nil
	close(u.done)
}

func (p *Pool) caught() {
	p.mu.Lock()
	p.panics++
	p.mu.Unlock()
}
