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
