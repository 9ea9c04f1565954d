package workers

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// full returns a pool with one worker and a full queue of two. The worker is in a task until
// release is closed.
func full(t *testing.T) (p *Pool, release chan struct{}) {
	p, release = New(Config{Workers: 1, Queue: 2}), make(chan struct{})
	p.TryGo(func() { <-release })
	synctest.Wait()
	if n := p.TryGoAll([]func(){nothing, nothing, nothing}); n != 2 {
		t.Fatalf("a queue of 2 accepted %d", n)
	}
	return p, release
}

func TestFullQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		if p.TryGo(nothing) || p.TryGoAll([]func(){nothing}) != 0 {
			t.Error("a full queue accepted a task")
		}
		close(release)
		closeAndCheck(t, p)
		if s := p.Stats(); s.Done != 3 {
			t.Errorf("%d tasks done, want the 3 accepted", s.Done)
		}
	})
}

func TestGoWaitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		var order []int // written by the only worker, read after Close
		for i := range 20 {
			go func() {
				if err := p.Go(t.Context(), func() { order = append(order, i) }); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		if s := p.Stats(); s.Waiting != 20 || s.Queued != 2 {
			t.Fatalf("%+v, want 20 waiting", s)
		}
		close(release)
		synctest.Wait()
		closeAndCheck(t, p)
		if len(order) != 20 || !slices.IsSorted(order) {
			t.Errorf("ran in the order %v, want that of the calls", order)
		}
	})
}

func TestGoGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too slow"))
		defer cancel()
		start := time.Now()
		err := p.Go(ctx, func() { t.Error("a refused task ran") })
		if err == nil || !strings.Contains(err.Error(), "too slow") || time.Since(start) != time.Second {
			t.Errorf("%v after %v, want the context's cause after 1 s", err, time.Since(start))
		}
		if s := p.Stats(); s.Waiting != 0 {
			t.Errorf("%d still wait", s.Waiting)
		}
		close(release)
		closeAndCheck(t, p)
	})
}

func TestGoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		for _, d := range []time.Duration{-1, 0, time.Second} {
			start := time.Now()
			err := p.GoTimeout(func() { t.Error("a refused task ran") }, d)
			if err != ErrTimeout || time.Since(start) != max(d, 0) {
				t.Errorf("timeout %v: %v after %v", d, err, time.Since(start))
			}
		}
		if s := p.Stats(); s.Waiting != 0 {
			t.Errorf("%d still wait", s.Waiting)
		}
		time.AfterFunc(time.Second, func() { close(release) })
		if err := p.GoTimeout(nothing, time.Minute); err != nil {
			t.Errorf("with room after a second: %v", err)
		}
		if err := p.GoTimeout(nothing, 0); err != nil {
			t.Errorf("with room: %v", err)
		}
		closeAndCheck(t, p)
		if err := p.GoTimeout(nothing, time.Minute); err != ErrClosed {
			t.Errorf("after Close: %v", err)
		}
		if s := p.Stats(); s.Done != 5 {
			t.Errorf("%d tasks done, want the 5 accepted", s.Done)
		}
	})
}

// Waiting calls are admitted together when an eighth of the queue is free, and no later call
// overtakes them.
func TestWaitersAreAdmittedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Workers: 1, Queue: 80})
		step := make(chan struct{})
		for range 81 {
			p.TryGo(func() { <-step })
			synctest.Wait()
		}
		var accepted int // read when the goroutine cannot run
		go func() {
			for p.Go(t.Context(), func() { <-step }) == nil && accepted < 14 {
				accepted++
			}
		}()
		synctest.Wait()
		for range 9 {
			// no tick passes: fake time stops while this goroutine can run
			step <- struct{}{}
		}
		synctest.Wait()
		if s := p.Stats(); accepted != 0 || s.Queued != 71 || s.Waiting != 1 || p.TryGo(nothing) {
			t.Errorf("after 9 of 80: %d accepted, %+v", accepted, s)
		}
		step <- struct{}{}
		synctest.Wait()
		if s := p.Stats(); accepted != 10 || s.Queued != 80 || s.Waiting != 1 {
			t.Errorf("after 10 of 80: %d accepted, %+v", accepted, s)
		}
		step <- struct{}{}
		time.Sleep(2 * tick)
		if s := p.Stats(); accepted != 11 || s.Queued != 80 {
			t.Errorf("with one free for a tick: %d accepted, %+v", accepted, s)
		}
		close(step)
	})
}

// A posted task is never refused, waits without a goroutine, and runs even if the pool is closed
// meanwhile.
func TestPostedTasksRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		ran := 0
		for range 3 {
			if err := p.post(func() { ran++ }); err != nil {
				t.Fatal(err)
			}
		}
		if s := p.Stats(); s.Queued != 2 || s.Waiting != 3 {
			t.Errorf("%+v, want 3 to wait for room in a queue of 2", s)
		}
		go func() { time.Sleep(time.Second); close(release) }()
		closeAndCheck(t, p)
		if err := p.post(nothing); err != ErrClosed || ran != 3 {
			t.Errorf("%v after Close, %d of 3 ran", err, ran)
		}
	})
}

// A task may resume as another task, even if its pool is closed or the task exits its goroutine.
func TestResumeWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Workers: 1, Queue: 1})
		left := 20
		var f func()
		f = func() {
			if left--; left == 0 {
				return
			}
			time.Sleep(time.Second)
			defer p.resume(f)
			if left%3 == 0 {
				runtime.Goexit()
			}
		}
		p.TryGo(f)
		time.Sleep(3500 * time.Millisecond)
		closeAndCheck(t, p)
		if s := p.Stats(); left != 0 || s.Done != 20 || s.Exits != 6 {
			t.Errorf("%d left, %+v", left, s)
		}
	})
}

func TestGoWithEndedContextIsRefusedAtOnce(t *testing.T) {
	p := newPool(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Go(ctx, func() { t.Error("ran") }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// The first, a middle or the last ticket may leave the line; the others keep their order.
func TestLineKeepsItsOrder(t *testing.T) {
	for leave := range 5 {
		var l line
		var tickets []*ticket
		for range 5 {
			tickets = append(tickets, l.join(nothing))
		}
		if !l.leave(tickets[leave]) || l.leave(tickets[leave]) || l.n != 4 {
			t.Fatalf("leaving twice counted twice, or not at all")
		}
		for _, want := range slices.Delete(tickets, leave, leave+1) {
			if got := l.first; got != want {
				t.Fatalf("after number %d left the order is wrong", leave)
			}
			l.decide(l.first, nil)
		}
		if l.n != 0 || l.last != nil {
			t.Fatal("the line does not end empty")
		}
	}
}

func TestRingKeepsOrderAsItGrows(t *testing.T) {
	var r ring[func()]
	next, want, got := 0, 0, -1
	for round := range 400 {
		for range round % 37 {
			n := next
			r.push(func() { got = n })
			next++
		}
		for range min(r.n, round%31) {
			if r.pop()(); got != want {
				t.Fatalf("popped %d, want %d", got, want)
			}
			want++
		}
	}
	for r.n > 0 {
		r.pop()
		want++
	}
	if want != next {
		t.Fatalf("popped %d of %d", want, next)
	}
	r.slots = make([]func(), 2*keptRing)
	if r.trim(); len(r.slots) != 0 {
		t.Fatal("an empty ring keeps the memory of a burst")
	}
}

func TestMisusePanics(t *testing.T) {
	p := newPool(t, Config{})
	for want, f := range map[string]func(){
		"workers: Config{Workers: -1": func() { New(Config{Workers: -1}) },
		"Queue: -2":                   func() { New(Config{Queue: -2}) },
		"Idle: -1ns":                  func() { New(Config{Idle: -1}) },
		"Base: -1":                    func() { New(Config{Base: -1}) },
		"workers: the task is nil":    func() { p.TryGo(nil) },
		"workers: the task is nil ":   func() { p.Go(t.Context(), nil) },
		"workers: the task is nil  ":  func() { p.TryGoAll([]func(){nothing, nil}) },
		"workers: the task is nil   ": func() { p.GoTimeout(nil, 0) },
	} {
		func() {
			defer func() {
				if v, _ := recover().(string); !strings.Contains(v, strings.TrimSpace(want)) {
					t.Errorf("panic value %q, want one that says %q", v, want)
				}
			}()
			f()
		}()
	}
	if s := p.Stats(); s.Queued+int(s.Done) != 0 {
		t.Errorf("%+v: a part of a batch with a nil task was accepted", s)
	}
}
