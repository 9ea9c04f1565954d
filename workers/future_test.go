package workers

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFutureResults(t *testing.T) {
	p := newPool(t, Config{OnPanic: func(any, []byte) { t.Error("a panic that became an error was reported too") }})
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		f     func(context.Context) (int, error)
		value int
		err   error
	}{
		"value":       {func(context.Context) (int, error) { return 7, nil }, 7, nil},
		"error":       {func(context.Context) (int, error) { return 0, boom }, 0, boom},
		"both":        {func(context.Context) (int, error) { return 3, io.ErrUnexpectedEOF }, 3, io.ErrUnexpectedEOF},
		"panic error": {func(context.Context) (int, error) { panic(boom) }, 0, boom},
		"exit":        {func(context.Context) (int, error) { runtime.Goexit(); return 1, nil }, 0, ErrExited},
	} {
		for range 2 { // Wait returns the result more than once
			if v, err := Submit(t.Context(), p, tt.f).Wait(t.Context()); v != tt.value || !errors.Is(err, tt.err) {
				t.Errorf("%s: %v, %v; want %v, %v", name, v, err, tt.value, tt.err)
			}
		}
	}
}

func TestFutureOfAPanicHasItsStack(t *testing.T) {
	p := newPool(t, Config{})
	_, err := Submit(t.Context(), p,
		func(context.Context) (string, error) { failingTask(); return "", nil }).Wait(t.Context())
	var panicked *PanicError
	if !errors.As(err, &panicked) || panicked.Value != "no such table" || panicked.Unwrap() != nil ||
		!strings.Contains(string(panicked.Stack), "failingTask") || !strings.Contains(err.Error(), "no such table") {
		t.Errorf("%v: %+v", err, panicked)
	}
	_, err = Submit(t.Context(), p, func(context.Context) (string, error) { return "", err }).Wait(t.Context())
	if !errors.As(err, &panicked) {
		t.Errorf("passed on: %v", err)
	}
	if s := p.Stats(); s.Panics != 1 || s.Exits != 0 {
		t.Errorf("%+v, want one panic", s)
	}
}

func TestFutureNotAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		never := func(context.Context) (int, error) { t.Error("ran"); return 0, nil }
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.ErrClosedPipe)
		defer cancel()
		u := Submit(ctx, p, never)
		<-u.Done()
		if _, err := u.Wait(t.Context()); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("no room: %v", err)
		}
		close(release)
		closeAndCheck(t, p)
		if _, err := Submit(t.Context(), p, never).Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// At a limit TrySubmit refuses at once. What it accepts has a result, however long it waits in the
// queue.
func TestTrySubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Workers: 2, Queue: 3})
		release, start := make(chan struct{}), time.Now()
		var accepted []*Future[int]
		for i := range 10 {
			u, ok := TrySubmit(t.Context(), p, func(context.Context) (int, error) { <-release; return i, nil })
			if ok != (i < 5) || ok == (u == nil) {
				t.Errorf("task %d of 5 that fit: %v, %v", i, u, ok)
			}
			if ok {
				accepted = append(accepted, u)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("TrySubmit waited %v", took)
		}
		time.Sleep(time.Second)
		close(release)
		for i, u := range accepted {
			if v, err := u.Wait(t.Context()); v != i || err != nil {
				t.Errorf("task %d: %v, %v", i, v, err)
			}
		}
		broken, _ := TrySubmit(t.Context(), p, func(context.Context) (int, error) { panic("no") })
		if _, err := broken.Wait(t.Context()); err == nil || p.Stats().Panics != 1 {
			t.Errorf("%v, %+v", err, p.Stats())
		}
		closeAndCheck(t, p)
		if u, ok := TrySubmit(t.Context(), p, func(context.Context) (int, error) { return 0, nil }); ok || u != nil {
			t.Errorf("a closed pool: %v, %v", u, ok)
		}
	})
}

// The context is that of the job, also where nothing waits for a place.
func TestTrySubmitKeepsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Workers: 1})
		type key struct{}
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "ann"))
		runs, _ := TrySubmit(ctx, p, func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return ctx.Value(key{}), nil
		})
		waits, _ := TrySubmit(ctx, p, func(context.Context) (any, error) { t.Error("ran"); return nil, nil })
		synctest.Wait()
		cancel(io.ErrNoProgress)
		if v, err := runs.Wait(t.Context()); v != "ann" || err != nil {
			t.Errorf("it runs: %v, %v", v, err)
		}
		if _, err := waits.Wait(t.Context()); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("its context ended in the queue: %v", err)
		}
	})
}

// The time bounds the wait for a place. A job that has one is not cancelled by it, in the queue or
// as it runs.
func TestSubmitTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		never := func(context.Context) (int, error) { t.Error("ran"); return 0, nil }
		for _, d := range []time.Duration{time.Second, 0, -1} {
			start := time.Now()
			u := SubmitTimeout(t.Context(), p, never, d)
			if took := time.Since(start); took != max(d, 0) {
				t.Errorf("%v: returned after %v", d, took)
			}
			select {
			case <-u.Done():
			default:
				t.Fatalf("%v: no result of a refusal", d)
			}
			if _, err := u.Wait(t.Context()); !errors.Is(err, ErrTimeout) {
				t.Errorf("%v: %v", d, err)
			}
		}
		ended, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.ErrClosedPipe)
		defer cancel()
		if _, err := SubmitTimeout(ended, p, never, time.Minute).Wait(t.Context()); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the job's context ended in the wait: %v", err)
		}
		close(release)
		synctest.Wait()
		second := func(ctx context.Context) (int, error) { time.Sleep(time.Second); return 7, ctx.Err() }
		for range 3 { // one runs, two wait in the queue
			u := SubmitTimeout(t.Context(), p, second, time.Nanosecond)
			defer func() {
				if v, err := u.Wait(t.Context()); v != 7 || err != nil {
					t.Errorf("accepted: %v, %v", v, err)
				}
			}()
		}
		synctest.Wait()
		closeAndCheck(t, p)
		if _, err := SubmitTimeout(t.Context(), p, never, time.Second).Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// An own executor may run a function before Go returns. What one does against its contract harms no
// future.
func TestOwnExecutors(t *testing.T) {
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		x    own
		runs int
		err  error
	}{
		"inline":            {own{times: 1}, 1, nil},
		"twice":             {own{times: 2}, 1, nil},
		"refuses":           {own{err: boom}, 0, boom},
		"runs and refuses":  {own{times: 1, err: boom}, 1, nil},
		"panics are caught": {own{times: 1, panics: true}, 1, &PanicError{}},
	} {
		runs := 0
		u := Submit(t.Context(), tt.x, func(context.Context) (int, error) {
			if runs++; tt.x.panics {
				panic("no")
			}
			return 7, nil
		})
		v, err := u.Wait(t.Context())
		if _, panicked := tt.err.(*PanicError); panicked && err != nil {
			err = tt.err
		}
		if runs != tt.runs || err != tt.err || (err == nil) != (v == 7) {
			t.Errorf("%s: ran %d times, %v, %v", name, runs, v, err)
		}
	}
}

// own calls what it gets so many times, and then returns err.
type own struct {
	times  int
	err    error
	panics bool
}

func (x own) Go(_ context.Context, f func()) error {
	for range x.times {
		f()
	}
	return x.err
}

func (x own) TryGo(f func()) bool { return x.Go(context.Background(), f) == nil }

// Wait ends with its own context, and does not affect the task.
func TestFutureWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{})
		u := Submit(t.Context(), p, func(ctx context.Context) (int, error) {
			time.Sleep(time.Minute)
			return 1, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := u.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after a second: %v", err)
		}
		if v, err := u.Wait(t.Context()); v != 1 || err != nil {
			t.Errorf("after a minute: %v, %v", v, err)
		}
		if v, err := u.Wait(ctx); v != 1 || err != nil {
			t.Errorf("with a result and an ended context: %v, %v", v, err)
		}
	})
}

func TestFutureCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		p2 := newPool(t, Config{Workers: 1})
		p2.TryGo(func() { <-release })
		waits := Submit(t.Context(), p2, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
		waits.Cancel()
		if _, err := waits.Wait(t.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in the queue: %v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		late := Submit(ctx, p2, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
		cancel(io.ErrNoProgress)
		close(release)
		if _, err := late.Wait(t.Context()); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("its context ended in the queue: %v", err)
		}
		runs := Submit(t.Context(), p2, func(ctx context.Context) (int, error) { <-ctx.Done(); return 5, io.EOF })
		synctest.Wait()
		runs.Cancel()
		if v, err := runs.Wait(t.Context()); v != 5 || err != io.EOF {
			t.Errorf("cancelled while it ran: %v, %v", v, err)
		}
		runs.Cancel()
		closeAndCheck(t, p)
		if s := p2.Stats(); s.Panics != 0 || s.Done != 4 {
			t.Errorf("%+v", s)
		}
	})
}

// If the task starts before Cancel, Cancel ends the task's context, and the task sets the result.
func TestCancelAfterTheBeginning(t *testing.T) {
	u := &Future[int]{done: make(chan struct{}), ctx: t.Context(), f: func(context.Context) (int,
		error) {
		return 1, nil
	}}
	ctx, _ := u.begin()
	u.Cancel()
	if u.settled || ctx.Err() == nil {
		t.Errorf("settled %v, context %v", u.settled, ctx.Err())
	}
	u.end(1, nil)
	u.Cancel()
	if v, err := u.Wait(t.Context()); v != 1 || err != nil {
		t.Errorf("%v, %v", v, err)
	}
}

// A finished future must not be referenced by a context that lives as long as the program.
func TestFutureLeavesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var inner context.Context
		u := Submit(ctx, p, func(ctx context.Context) (int, error) { inner = ctx; return 1, nil })
		<-u.Done()
		if inner.Err() == nil {
			t.Error("the context of an ended task has not ended")
		}
		if u.ctx != nil || u.f != nil || u.cancel != nil {
			t.Error("a settled future keeps more than its result")
		}
	})
}
