package workers

import (
	"context"
	"math/rand/v2"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/myriad-go/myriad/internal/leaktest"
)

// The barrier opens when all tasks run at once: with a pool that does not grow, the test never
// ends. Time is fake, so the measured milliseconds are the policy's delays, on any machine.
func TestBlockedTasksAllRunWithinTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		p := newPool(t, Config{Base: 8})
		start := time.Now()
		var inside sync.WaitGroup
		inside.Add(n)
		batch := make([]func(), n)
		for i := range batch {
			batch[i] = func() {
				inside.Done()
				inside.Wait()
			}
		}
		if took := p.TryGoAll(batch); took != n {
			t.Fatalf("took %d of %d", took, n)
		}
		inside.Wait()
		if waited := time.Since(start); waited > 6*tick {
			t.Errorf("it took %v until %d blocked tasks ran at once, want at most six ticks", waited, n)
		}
		if s := p.Stats(); s.Peak != n {
			t.Errorf("%d workers for %d blocked tasks", s.Peak, n)
		}
	})
}

// The number of workers multiplies at first, and then grows at a steady rate.
func TestGrowthHasAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 6000
		p := newPool(t, Config{Base: 8})
		release := make(chan struct{})
		for range n {
			p.TryGo(func() { <-release })
		}
		ticks := 0
		for before := 0; before < n; ticks++ {
			time.Sleep(tick)
			synctest.Wait()
			now := p.Stats().Workers
			if now-before > startPerLook+p.config.Base {
				t.Errorf("tick %d: from %d to %d workers", ticks, before, now)
			}
			before = now
		}
		if ticks > 6+n/startPerLook {
			t.Errorf("it took %d ticks until %d blocked tasks ran", ticks, n)
		}
		close(release)
	})
}

// If one task of ten sleeps, the other nine never wait for the monitor's tick.
func TestQuickTasksDoNotWaitForSleepingTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{})
		r, late := rand.New(rand.NewPCG(1, 2)), 0
		for range 5000 {
			came, sleeps := time.Now(), r.IntN(10) == 0
			p.TryGo(func() {
				if time.Since(came) > 0 { // no fake time passes while a worker can be called
					late++
				}
				if sleeps {
					time.Sleep(5 * tick)
				}
			})
			synctest.Wait() // late needs no lock: tasks of one moment end before the next, except sleeping ones
			time.Sleep(tick / 20)
		}
		if late > 0 {
			t.Errorf("%d of 5000 tasks waited, want none", late)
		}
		if peak := p.Stats().Peak; peak > 30 {
			t.Errorf("%d workers for about ten sleeping tasks at a time", peak)
		}
	})
}

// In fake time quick tasks are quick on any machine: no tick passes while they run.
func TestBurstOfQuickTasksStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Base: 8})
		var done atomic.Int32
		for range 16_000 {
			if !p.TryGo(func() { done.Add(1) }) {
				t.Fatal("refused")
			}
		}
		synctest.Wait()
		if s := p.Stats(); done.Load() != 16_000 || s.Done != 16_000 || s.Peak > 8 {
			t.Errorf("%d done, Stats %+v, want 16,000 done by at most 8 workers", done.Load(), s)
		}
	})
}

// With the real clock, quick tasks look stuck on a busy machine, and a look may then start 1,024
// workers. The bound allows a few such looks. If each task called a worker, there would be more
// than ten thousand.
func TestBurstStaysSmallInRealTime(t *testing.T) {
	p := newPool(t, Config{})
	var all sync.WaitGroup
	all.Add(16_000)
	for range 16_000 {
		p.TryGo(all.Done)
	}
	all.Wait()
	if s := p.Stats(); s.Peak > 8*startPerLook {
		t.Errorf("16,000 quick tasks started %d workers", s.Peak)
	}
}

// The monitor sleeps between the rounds, and must be woken for each.
func TestEachRoundOfBlockedTasksGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Base: 2, Idle: time.Second})
		for _, pause := range []time.Duration{10 * tick, 10 * tick, 5 * time.Second, 10 * tick, 0} {
			var inside sync.WaitGroup
			inside.Add(40)
			for range 40 {
				p.TryGo(func() { inside.Done(); inside.Wait() })
			}
			inside.Wait()
			time.Sleep(pause)
		}
	})
}

func TestOneWakeForABatch(t *testing.T) {
	p := newPool(t, Config{Base: 8})
	p.mu.Lock()
	for range 8 {
		p.push(nothing)
	}
	first, second := p.call(), p.call()
	p.mu.Unlock()
	if first == nil || second != nil {
		t.Errorf("woke %v and then %v, want only the first, which then wakes the next", first, second)
	}
	first.rouse()
	second.rouse()
}

// If the monitor is kicked right after a tick, two looks are close together. They must not count
// tasks of 0.9 ms as stuck.
func TestStuckMeansAFullTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Base: 2})
		nap := func(d time.Duration) func() { return func() { time.Sleep(d) } }
		p.TryGoAll([]func(){nap(tick * 4 / 10), nap(tick * 4 / 10), nap(tick * 4 / 10)})
		time.Sleep(tick * 9 / 10)
		p.TryGoAll([]func(){nap(tick * 9 / 10), nap(tick * 9 / 10)})
		time.Sleep(tick * 2 / 10)
		p.TryGo(nothing)
		time.Sleep(5 * tick)
		if s := p.Stats(); s.Done != 6 || s.Peak != 2 {
			t.Errorf("%+v, want 6 tasks done by 2 workers", s)
		}
	})
}

// A worker that was called but has not started, because the processors are busy, is not stuck.
// Otherwise each tick would call another worker in its place.
func TestCalledWorkerIsNotStuck(t *testing.T) {
	p := newPool(t, Config{Base: 1})
	p.mu.Lock()
	p.push(nothing)
	w := p.call()
	for range 3 {
		if n := p.markStuck(); n != 0 || p.stuck != 0 || w.state != stateFresh {
			t.Errorf("%d workers are stuck, want none before the first has begun", n)
		}
	}
	p.mu.Unlock()
	w.rouse()
}

// Each called worker takes one task, so no other worker is called for the same task.
func TestNoWorkerIsStartedForATaskThatHasOne(t *testing.T) {
	p := newPool(t, Config{Base: 8})
	p.mu.Lock()
	p.push(nothing)
	w := p.call()
	p.mu.Unlock()
	p.startUpTo(5)
	if s := p.Stats(); s.Workers != 1 {
		t.Errorf("%d workers for one task", s.Workers)
	}
	w.rouse()
}

func TestQuickTasksPassStuckOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Base: 4})
		release := make(chan struct{})
		for range 100 {
			p.TryGo(func() { <-release })
		}
		time.Sleep(20 * tick)
		if s := p.Stats(); s.Running != 100 || s.Queued != 0 {
			t.Fatalf("%+v, want 100 blocked tasks to run", s)
		}
		for range 5000 {
			p.TryGo(func() {})
		}
		synctest.Wait()
		time.Sleep(2 * tick)
		if s := p.Stats(); s.Done != 5000 || s.Peak > 110 {
			t.Errorf("%+v, want 5,000 quick tasks done by few more workers than are blocked", s)
		}
		close(release)
		synctest.Wait()
		if s := p.Stats(); s.Stuck != 0 || s.Running != 0 || s.Idle != s.Workers {
			t.Errorf("%+v after all returned, want them idle", s)
		}
	})
}

func TestTasksThatWaitForTasks(t *testing.T) {
	p := newPool(t, Config{Workers: 301, Base: 2})
	var nest func(depth int, done func())
	nest = func(depth int, done func()) {
		defer done()
		if depth == 0 {
			return
		}
		inner := make(chan struct{})
		if err := p.Go(t.Context(), func() { nest(depth-1, func() { close(inner) }) }); err != nil {
			t.Error(err)
			return
		}
		<-inner
	}
	all := make(chan struct{})
	if err := p.Go(t.Context(), func() { nest(300, func() { close(all) }) }); err != nil {
		t.Fatal(err)
	}
	<-all
}

func TestNeverMoreThanWorkers(t *testing.T) {
	p := New(Config{Workers: 7, Base: 3})
	var running, most atomic.Int32
	gate := make(chan struct{})
	for range 500 {
		p.TryGo(func() {
			now := running.Add(1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			<-gate
			running.Add(-1)
		})
	}
	for running.Load() < 7 { // seven workers fit into the limit
		time.Sleep(tick)
	}
	close(gate)
	closeAndCheck(t, p)
	if n, peak := most.Load(), p.Stats().Peak; n != 7 || peak != 7 {
		t.Errorf("%d tasks at once on %d workers, want 7", n, peak)
	}
}

func TestIdleWorkersRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Base: 8, Idle: 10 * time.Second})
		for range 50 {
			p.TryGo(func() { time.Sleep(100 * tick) })
		}
		time.Sleep(9 * time.Second)
		if s := p.Stats(); s.Workers != 50 || s.Idle != 50 {
			t.Fatalf("%+v before the idle time has passed, want 50 warm workers", s)
		}
		time.Sleep(7 * time.Second)
		synctest.Wait()
		p.mu.Lock()
		left, monitoring := p.workers, p.monitoring
		p.mu.Unlock()
		if left != 0 || monitoring {
			t.Fatalf("%d workers left, monitor %v: an idle pool has no goroutine", left, monitoring)
		}
		ran := false
		p.TryGo(func() { ran = true })
		synctest.Wait()
		if !ran {
			t.Fatal("the pool did not start a worker again")
		}
	})
}

// Single tasks, one after the other, always run on the same warm worker, and the other workers
// retire.
func TestWarmestWorkerIsUsedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, Config{Base: 8, Idle: time.Second})
		for range 20 {
			p.TryGo(func() { time.Sleep(10 * tick) })
		}
		for range 100 {
			time.Sleep(50 * tick)
			p.TryGo(func() {})
		}
		synctest.Wait()
		if s := p.Stats(); s.Workers != 1 || s.Done != 120 {
			t.Errorf("%+v, want one worker after 5 s of lone tasks", s)
		}
	})
}

// Workers do not inherit the runtime/pprof labels of a goroutine that submits a task.
func TestWorkersHaveNoLabels(t *testing.T) {
	const name = "of-the-submitter"
	count, stop := leaktest.CountLabelled(name)
	defer stop()
	p := newPool(t, Config{Base: 1})
	pprof.Do(t.Context(), pprof.Labels(name, "yes"), func(context.Context) {
		var begun sync.WaitGroup
		release := make(chan struct{})
		for range 20 { // the monitor's goroutine starts most workers
			begun.Add(1)
			p.TryGo(func() { begun.Done(); <-release })
		}
		begun.Wait()
		if n := count(); n != 1 {
			t.Errorf("%d goroutines have the submitter's label, which only it has set", n)
		}
		close(release)
	})
}
