package sim

import (
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// far is later than everything.
var far = Epoch.AddDate(1000, 0, 0)

const (
	stepTime  = 20 * time.Microsecond // a step takes less than this
	aheadTime = 5 * time.Millisecond  // a delivery this near may come before actors that can run
)

// Step lets one thing happen: one goroutine runs until it waits, or one delivery or deadline takes
// place. It reports false if the world is quiet for good: until a goroutine outside does something,
// nothing more can happen.
func (w *World) Step() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.oneStep("Step", driver.Goroutine(), far, timer)
}

// Run goes on until the world is quiet for good. Time jumps over every wait, so a world with a
// timer that is always set anew is never quiet: use Settle or RunFor there. It panics after
// Options.MaxSteps, with the seed and the end of the trace.
func (w *World) Run() { w.runWhile("Run", far, timer, func() bool { return true }) }

// Settle goes on until no actor can run and nothing is under way. Time moves as far as deliveries
// need, and timers that fall due meanwhile fire, but it does not wait for timers.
func (w *World) Settle() { w.runWhile("Settle", far, delivery, func() bool { return true }) }

// RunFor goes on until fake time has moved by d.
func (w *World) RunFor(d time.Duration) {
	until := w.Now().Add(d)
	w.runWhile("RunFor", until, timer, func() bool { return true })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.Before(until) {
		w.now = until
	}
}

// RunUntil goes on until done, which it asks between steps, and reports false if the world falls
// quiet before.
func (w *World) RunUntil(done func() bool) bool {
	reached := false
	w.runWhile("RunUntil", far, timer, func() bool {
		reached = done()
		return !reached
	})
	return reached
}

// runWhile steps while on, which is asked without the lock.
func (w *World) runWhile(name string, until time.Time, k kind, on func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	self := driver.Goroutine()
	for steps := 0; w.unlocked(on); steps++ {
		if steps >= w.o.MaxSteps {
			w.fail("%s is not quiet after %d steps (%v of fake time); %s\nlast steps:\n%s",
				name, steps, w.now.Sub(Epoch), w.describe(), w.trace.tail(tailLines))
		}
		if !w.oneStep(name, self, until, k) {
			return
		}
	}
}

func (w *World) oneStep(name string, self uint64, until time.Time, k kind) bool {
	w.exclusive(name, self)
	defer w.endStep()
	return w.step(until, k)
}

func (w *World) unlocked(f func() bool) bool {
	w.mu.Unlock()
	defer w.mu.Lock()
	return f()
}

// step lets one thing happen, none of it after until. With k == delivery, time does not jump to a
// timer unless a delivery comes behind it. The lock is held, and released while others run.
func (w *World) step(until time.Time, k kind) bool {
	if w.o.Costs != (Costs{}) && !w.now.Before(until) {
		return false // the processor may never be idle
	}
	ready := len(w.runnable) + w.tasks.chances(w)
	next := w.queue.first()
	if ready == 0 {
		if next == nil || next.at.After(until) || k == delivery && next.at.After(w.now) && w.queue.deliveries == 0 {
			return false
		}
		w.happen(next)
		return true
	}
	if next != nil && w.comesFirst(next) && !next.at.After(until) {
		w.happen(next)
		return true
	}
	w.pass(until)
	if i := w.rng.IntN(ready); i < len(w.runnable) {
		a := w.runnable[i]
		last := len(w.runnable) - 1
		w.runnable[i], w.runnable[last] = w.runnable[last], nil
		w.runnable = w.runnable[:last]
		w.run(a)
	} else {
		w.run(w.tasks.take(w))
	}
	return true
}

// comesFirst decides whether e happens before actors that can run.
func (w *World) comesFirst(e *event) bool {
	if !e.at.After(w.now) {
		if w.costly {
			return true // the network is not slower than the processor
		}
		return w.rng.IntN(2) == 0
	}
	return e.kind == delivery && e.at.Sub(w.now) < aheadTime && w.rng.IntN(4) == 0
}

// pass lets a step take its time.
func (w *World) pass(until time.Time) {
	now := w.now.Add(time.Duration(w.rng.Int64N(int64(stepTime))))
	if !now.After(until) {
		w.now = now
	}
}

func (w *World) happen(e *event) {
	w.queue.remove(e)
	if e.at.After(w.now) {
		w.now = e.at
	}
	e.do()
}
