package workers

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
)

// The pool holds Workers + Queue tasks, whether they come one by one, at once, or while workers are
// on their way: a task for which a worker is free takes no place of the queue.
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
					synctest.Wait() // workers have begun as many as Base lets them
					if got := try(p, func() { <-release }, 10); got != 0 {
						t.Errorf("the pool accepted %d more", got)
					}
				})
			})
		}
	}
}

// Workers that are idle and warm make no difference: their tasks are on their way, too.
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

// Widen moves the bound by as many tasks. When it takes places in use away, nothing is accepted
// until they are free again.
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
