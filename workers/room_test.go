package workers

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
)

// The pool accepts Workers + Queue tasks, one by one, all at once, or while called workers have not
// started. A task for which a worker is free takes no place in the queue.
func TestPoolHoldsWorkersAndQueue(t *testing.T) {
	tryEach := func(p *Pool, f func(), n int) (accepted int) {
		for range n {
			if p.TryGo(f) {
				accepted++
			}
		}
		return accepted
	}
	tryAll := func(p *Pool, f func(), n int) int {
		fs := make([]func(), n)
		for i := range fs {
			fs[i] = f
		}
		return p.TryGoAll(fs)
	}
	for _, c := range []Config{
		{Workers: 100, Queue: 1}, {Workers: 1, Queue: 1}, {Workers: 1, Queue: 100}, {Workers: 100, Queue: 1, Base: 2},
	} {
		for name, try := range map[string]func(*Pool, func(), int) int{"TryGo": tryEach, "TryGoAll": tryAll} {
			t.Run(fmt.Sprintf("%s/%d+%d/base=%d", name, c.Workers, c.Queue, c.Base), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPool(t, c)
					release := make(chan struct{})
					defer close(release)
					want := c.Workers + c.Queue
					if got := try(p, func() { <-release }, want+50); got != want {
						t.Errorf("the pool accepted %d tasks at once, want Workers + Queue = %d", got, want)
					}
					synctest.Wait() // Base tasks have started
					if got := try(p, func() { <-release }, 10); got != 0 {
						t.Errorf("the pool accepted %d more", got)
					}
				})
			})
		}
	}
}

// Idle workers make no difference: a task for an idle worker takes no place in the queue.
func TestIdleWorkersTakeNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Workers: 50, Queue: 1, Base: 50})
		for range 3 {
			release := make(chan struct{})
			for i := range 51 {
				if !p.TryGo(func() { <-release }) {
					t.Fatalf("task %d of 51 was refused; %+v", i, p.Stats())
				}
			}
			if p.TryGo(nothing) {
				t.Error("task 52 was accepted")
			}
			close(release)
			synctest.Wait()
		}
	})
}

// Widen moves the limit by n tasks. If it removes places in use, the pool accepts nothing until it
// is below the new limit.
func TestWidenMovesTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Workers: 2, Queue: 3})
		step := make(chan struct{})
		defer close(step)
		wait := func() { <-step }
		accept := func(want int) {
			t.Helper()
			got := 0
			for p.TryGo(wait) {
				got++
			}
			if synctest.Wait(); got != want {
				t.Errorf("the pool accepted %d tasks, want %d; %+v", got, want, p.Stats())
			}
		}
		accept(5)
		p.Widen(2)
		accept(2)
		p.Widen(-2)
		synctest.Wait()
		accept(0) // 4 run, 3 wait
		step <- struct{}{}
		step <- struct{}{}
		synctest.Wait()
		accept(0) // 2 run, 3 wait: the surplus workers have ended
		step <- struct{}{}
		synctest.Wait()
		accept(1)
	})
}

func TestLargestQueueDoesNotOverflow(t *testing.T) {
	p := newPool(t, Config{Workers: math.MaxInt, Queue: math.MaxInt})
	if !p.TryGo(nothing) {
		t.Error("a pool without load refused a task")
	}
}
