package workers

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// An Executor runs functions, each of them once. A Pool is one, and so is a key of a Keyed. A
// program may implement others, for example to bound what one customer may have in a pool. Any
// goroutine may call the methods.
type Executor interface {
	// Go submits f, and waits for a place until ctx ends. With nil, f runs exactly once, on any
	// goroutine, also if ctx ends later; it may run before Go returns. With an error, f never runs.
	Go(ctx context.Context, f func()) error
	// TryGo is Go without a wait: it reports at once whether f was accepted.
	TryGo(f func()) bool
}

// A Future is the result of a function that another goroutine runs. Any goroutine may call its
// methods. It needs no call of Wait, and holds no goroutine and no timer.
type Future[T any] struct {
	done chan struct{}

	mu      sync.Mutex
	ctx     context.Context
	f       func(context.Context) (T, error) // nil once it runs
	cancel  context.CancelFunc               // nil unless f runs
	settled bool
	value   T
	err     error
}

// Submit submits f to the executor and returns its future. If there is no place, it waits for one.
// If the executor does not accept f, the future has already failed: with ErrClosed, or with the
// context's cause.
//
// ctx is the context of the whole job, and not only of the wait for a place: f's context ends with
// ctx and with Cancel. If ctx ends before f starts, f does not run, although the executor has
// accepted it, and the future fails with the context's cause. So jobs of clients that have left
// cost nothing. To bound the wait alone, use SubmitTimeout or TrySubmit.
//
// A panic of f becomes a *PanicError. The pool counts it, but does not call Config.OnPanic.
// runtime.Goexit becomes ErrExited. An executor that is neither a Pool nor a Key of this package
// does not learn of a panic.
func Submit[T any](ctx context.Context, x Executor, f func(context.Context) (T, error)) *Future[T] {
	u := newFuture(ctx, f)
	if err := x.Go(ctx, u.task(x)); err != nil {
		u.refuse(err)
	}
	return u
}

// SubmitTimeout is Submit with a bound of its own for the wait. If no place is free within d, the
// future has already failed with ErrTimeout. Once f is accepted, d has no effect. If d is not
// positive, SubmitTimeout does not wait; the future then fails with ErrTimeout for a closed pool,
// too.
func SubmitTimeout[T any](ctx context.Context, x Executor, f func(context.Context) (T, error),
	d time.Duration) *Future[T] {
	u := newFuture(ctx, f)
	task := u.task(x)
	if x.TryGo(task) {
		return u
	}
	if d <= 0 {
		u.refuse(ErrTimeout)
		return u
	}
	wait, cancel := context.WithTimeoutCause(ctx, d, ErrTimeout)
	defer cancel()
	if err := x.Go(wait, task); err != nil {
		u.refuse(err)
	}
	return u
}

// TrySubmit is Submit without a wait. If the executor does not accept f at once, it returns nil and
// false: an HTTP handler then answers 503. ctx is the context of the job, as for Submit.
func TrySubmit[T any](ctx context.Context, x Executor, f func(context.Context) (T, error)) (*Future[T], bool) {
	u := newFuture(ctx, f)
	if !x.TryGo(u.task(x)) {
		return nil, false
	}
	return u, true
}

func newFuture[T any](ctx context.Context, f func(context.Context) (T, error)) *Future[T] {
	if f == nil {
		panic("workers: the task is nil")
	}
	return &Future[T]{done: make(chan struct{}), ctx: ctx, f: f}
}

// task returns the function that the executor runs.
func (u *Future[T]) task(x Executor) func() {
	caught := func() {}
	if own, ok := x.(interface{ caught() }); ok {
		caught = own.caught
	}
	return func() { u.run(caught) }
}

// refuse fails a future that the executor has not accepted.
func (u *Future[T]) refuse(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.f != nil { // else the executor runs f although it has refused it
		u.fail(err)
	}
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

// run is the task in the executor. It does nothing if the future was cancelled.
func (u *Future[T]) run(caught func()) {
	ctx, f := u.begin()
	if f == nil {
		return
	}
	var value T
	outcome(func() (err error) {
		value, err = f(ctx)
		return err
	}, caught, func(err error) { u.end(value, err) })
}

func (u *Future[T]) begin() (context.Context, func(context.Context) (T, error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := u.f
	if f == nil { // settled, or an executor runs it again
		return nil, nil
	}
	if u.ctx.Err() != nil {
		u.fail(fmt.Errorf("workers: the context ended before the task started: %w", context.Cause(u.ctx)))
		return nil, nil
	}
	ctx, cancel := context.WithCancel(u.ctx)
	u.f, u.cancel = nil, cancel
	return ctx, f
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
