package workers

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Many producers submit in every way, tasks end in every way, contexts end, and the pool is closed
// meanwhile. An accepted task runs exactly once, a refused one never, and the number of running
// tasks stays within the limit.
func TestEveryAcceptedTaskRunsOnce(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 5))
		c := &chaos{t: t, workers: 1 + r.IntN(12)}
		c.pool = New(Config{
			Workers: c.workers, Queue: 1 + r.IntN(40), Base: 1 + r.IntN(4), Idle: 2 * tick,
			OnPanic: func(any, []byte) { c.panics.Add(1) },
		})
		c.run(seed, r.IntN(2) == 0)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

type chaos struct {
	t       *testing.T
	pool    *Pool
	workers int

	running, accepted, ran, panics, wantPanics, exits atomic.Int64
}

func (c *chaos) run(seed uint64, closeEarly bool) {
	var producers sync.WaitGroup
	for id := range uint64(4) {
		producers.Go(func() {
			r := rand.New(rand.NewPCG(seed, id))
			for range 150 {
				c.submit(r)
			}
		})
	}
	if closeEarly {
		ctx, cancel := context.WithTimeout(c.t.Context(), tick)
		if err := c.pool.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			c.t.Error(err)
		}
		cancel()
	}
	producers.Wait()
	closeAndCheck(c.t, c.pool)
	s := c.pool.Stats()
	if c.ran.Load() != c.accepted.Load() || int64(s.Done) != c.accepted.Load() {
		c.t.Errorf("%d accepted, %d ran, %d counted", c.accepted.Load(), c.ran.Load(), s.Done)
	}
	if c.panics.Load() != c.wantPanics.Load() || int64(s.Panics) != c.wantPanics.Load() ||
		int64(s.Exits) != c.exits.Load() {
		c.t.Errorf("%d panics reported, %d counted, want %d; %d exits counted, want %d",
			c.panics.Load(), s.Panics, c.wantPanics.Load(), s.Exits, c.exits.Load())
	}
}

func (c *chaos) submit(r *rand.Rand) {
	switch r.IntN(4) {
	case 0:
		f, once := c.task(r)
		c.settle(once, c.pool.TryGo(f))
	case 1:
		fs, onces := make([]func(), r.IntN(20)), make([]*atomic.Int32, 20)
		for i := range fs {
			fs[i], onces[i] = c.task(r)
		}
		n := c.pool.TryGoAll(fs)
		for i := range fs {
			c.settle(onces[i], i < n)
		}
	case 2:
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Duration(r.IntN(3000))*time.Microsecond)
		f, once := c.task(r)
		err := c.pool.Go(ctx, f)
		cancel()
		if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
			c.t.Errorf("Go: %v", err)
		}
		c.settle(once, err == nil)
	case 3:
		f, once := c.task(r)
		c.settle(once, c.pool.Go(c.t.Context(), f) == nil)
	}
}

const refused = 100

// settle records whether the pool accepted a task. If a refused task has run or runs later, the
// test fails.
func (c *chaos) settle(once *atomic.Int32, accepted bool) {
	if accepted {
		c.accepted.Add(1)
	} else if once.Add(refused) != refused {
		c.t.Error("a refused task has run")
	}
}

func (c *chaos) task(r *rand.Rand) (f func(), once *atomic.Int32) {
	once = new(atomic.Int32)
	kind, nap := r.IntN(20), time.Duration(r.IntN(2500))*time.Microsecond
	return func() {
		if now := c.running.Add(1); now > int64(c.workers) {
			c.t.Errorf("%d tasks at once, want at most %d", now, c.workers)
		}
		if once.Add(1) != 1 {
			c.t.Error("a task ran twice, or was refused and ran")
		}
		c.ran.Add(1)
		defer c.running.Add(-1)
		switch kind {
		case 0:
			c.wantPanics.Add(1)
			panic("chaos")
		case 1:
			c.exits.Add(1)
			runtime.Goexit()
		case 2, 3:
			time.Sleep(nap)
		case 4:
			inner, once := c.task(rand.New(rand.NewPCG(uint64(nap), 1)))
			c.settle(once, c.pool.TryGo(inner))
		}
	}, once
}
