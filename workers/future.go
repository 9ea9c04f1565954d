package workers

import (
	"context"
	"fmt"
	"sync"
)

// An Executor is what futures run on: a Pool, or one key of a Keyed.
type Executor interface {
	// Go hands f over, waiting for room until ctx ends. A nil error means that f will run.
	Go(ctx context.Context, f func()) error
	// caught counts a panic that became an error.
	caught()
}

// A Future is the result of a function that another goroutine runs. Its methods are safe for use by
// any goroutine. Nobody has to wait for it, and it holds no goroutine and no timer.
type Future[T any] struct {
	done chan struct{}

	mu      sync.Mutex
	ctx     context.Context // until it runs
	f       func(context.Context) (T, error)
	cancel  context.CancelFunc // while it runs
	settled bool
	value   T
	err     error
}

// Submit hands f to the executor, waiting for room until ctx ends. If it is not accepted the future
// has failed already, with ErrClosed or the context's cause.
//
// f gets a context that ends with ctx and with Cancel. If that is so before its turn comes, f does
// not run and the future fails with the context's cause. A panic of f becomes a *PanicError, and is
// counted but not reported to Config.OnPanic; runtime.Goexit becomes ErrExited.
func Submit[T any](ctx context.Context, x Executor, f func(context.Context) (T, error)) *Future[T] {
	if f == nil {
		panic("workers: the task is nil")
	}
	u := &Future[T]{done: make(chan struct{}), ctx: ctx, f: f}
	if err := x.Go(ctx, func() { u.run(x) }); err != nil {
		u.fail(err) // without the lock: nobody else knows the future
	}
	return u
}

// Done is closed when there is a result.
func (u *Future[T]) Done() <-chan struct{} { return u.done }

// Wait returns the result, or the cause of ctx if that ends first; then f goes on, and Wait can be
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

// Cancel makes a future that has not begun fail with context.Canceled at once, and its f not run.
// If f runs its context ends; the result is what it returns then. Cancel does not wait, and does
// nothing when there is a result.
func (u *Future[T]) Cancel() {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.settled:
	case u.cancel != nil:
		u.cancel()
	default:
		u.fail(fmt.Errorf("workers: %w before the task's turn came", context.Canceled))
	}
}

// run is the task. Of a future that was cancelled nothing is left to do.
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
		u.fail(fmt.Errorf("workers: the context ended before the task's turn came: %w", context.Cause(u.ctx)))
		return nil, nil
	}
	ctx, cancel := context.WithCancel(u.ctx)
	u.cancel = cancel
	return ctx, u.f
}

func (u *Future[T]) end(value T, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cancel() // else the parent context would keep the child for as long as it lives
	u.settle(value, err)
}

func (u *Future[T]) fail(err error) {
	var none T
	u.settle(none, err)
}

// settle runs once, under the lock. The future may be kept for its result, so it lets go of
// everything else.
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
