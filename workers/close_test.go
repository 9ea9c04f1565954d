package workers

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCloseOfUnusedPool(t *testing.T) {
	before := runtime.NumGoroutine()
	p := New(Config{})
	// the runtime's count may be wrong while goroutines end
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(tick) {
		if time.Now().After(end) {
			t.Fatalf("New started %d goroutines", runtime.NumGoroutine()-before)
		}
	}
	for range 2 {
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if p.TryGo(nothing) || p.TryGoAll([]func(){nothing}) != 0 || !errors.Is(p.Go(t.Context(), nothing), ErrClosed) {
		t.Error("a closed pool accepted a task")
	}
}

func TestCloseDrainsAndRefusesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Workers: 2, Queue: 50})
		var done atomic.Int32
		for range 50 {
			p.TryGo(func() { time.Sleep(time.Second); done.Add(1) })
		}
		synctest.Wait()
		for p.TryGo(func() { done.Add(1) }) {
		}
		refused := make(chan error, 1)
		go func() { refused <- p.Go(t.Context(), func() { t.Error("a refused task ran") }) }()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "2 tasks running") {
			t.Errorf("got %v, want DeadlineExceeded and what is left", err)
		}
		if err := <-refused; err != ErrClosed {
			t.Errorf("the waiting Go got %v, want ErrClosed", err)
		}
		closeAndCheck(t, p)
		if n := done.Load(); n != 52 {
			t.Errorf("%d tasks done, want all 52 accepted", n)
		}
	})
}

func TestPanicIsReportedAndSurvived(t *testing.T) {
	type report struct {
		v     any
		stack string
	}
	reports := make(chan report, 1)
	p := newPool(t, Config{Workers: 1, OnPanic: func(v any, stack []byte) { reports <- report{v, string(stack)} }})
	p.TryGo(failingTask)
	if r := <-reports; r.v != "no such table" || !strings.Contains(r.stack, "failingTask") {
		t.Errorf("reported %v with stack\n%s", r.v, r.stack)
	}
	after := make(chan Stats)
	p.TryGo(func() { after <- p.Stats() })
	if s := <-after; s.Panics != 1 || s.Done != 1 || s.Peak != 1 {
		t.Errorf("%+v, want one panic and the same worker", s)
	}
}

func failingTask() { panic("no such table") }

// An OnPanic that ends its goroutine, as t.FailNow does, does not reduce the number of workers, and
// Close does not wait for an ended worker.
func TestOnPanicExits(t *testing.T) {
	p := New(Config{Workers: 1, OnPanic: func(any, []byte) { runtime.Goexit() }})
	for range 3 {
		if err := p.Go(t.Context(), func() { panic("on purpose") }); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Panics != 3 || s.Done != 3 || s.Workers != 0 {
		t.Errorf("%d panics, %d tasks done, %d workers left; want 3, 3 and none", s.Panics, s.Done, s.Workers)
	}
}

func TestPanicIsLoggedWithoutOnPanic(t *testing.T) {
	var out bytes.Buffer
	p := New(Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	p.TryGo(failingTask)
	closeAndCheck(t, p)
	if s := out.String(); !strings.Contains(s, "no such table") || !strings.Contains(s, "failingTask") {
		t.Errorf("logged %q", s)
	}
}

func TestGoexitLosesNoWorker(t *testing.T) {
	p := newPool(t, Config{Workers: 1})
	for range 100 {
		p.TryGo(runtime.Goexit)
	}
	after := make(chan Stats)
	p.TryGo(func() { after <- p.Stats() })
	if s := <-after; s.Exits != 100 || s.Done != 100 || s.Workers != 1 || s.Panics != 0 {
		t.Errorf("%+v, want 100 exits and still one worker", s)
	}
}
