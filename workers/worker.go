package workers

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
)

// yieldEvery is how many tasks a worker runs before it yields the processor to other goroutines. A
// worker with work never parks, so without yields the other goroutines would wait for the end of
// its time slice of 10 ms.
const yieldEvery = 64

// A worker is a goroutine of the pool. The pool's lock guards its fields, except constant ones.
type worker struct {
	pool *Pool
	wake chan struct{} // capacity 1: the pool sends once after it took the worker off the idle list

	begun  uint64 // number of tasks so far
	seen   uint64 // begun at the monitor's last look
	index  int    // in pool.fresh
	parked uint32 // epoch in which it went idle
	state  workerState
	called bool // counted in pool.called
	busy   bool // runs a task
	born   bool // its goroutine has been started
}

type workerState uint8

const (
	stateFresh workerState = iota
	stateStuck
	stateIdle
	stateRetired // has to end
)

// rouse wakes or starts a worker that call or enlist has chosen. The caller does not hold the lock.
// w may be nil.
func (w *worker) rouse() {
	switch {
	case w == nil:
	case w.born:
		w.wake <- struct{}{}
	default:
		w.born = true
		go w.live()
	}
}

// live runs on the worker's goroutine.
func (w *worker) live() {
	unlabel() // removes the labels of the goroutine that submitted a task
	for w.serve() {
	}
}

// unlabel removes inherited runtime/pprof labels from the current goroutine.
func unlabel() { pprof.SetGoroutineLabels(context.Background()) }

// serve runs tasks until the worker has to end. It returns true after a panic, and is then called
// again. So a task that does not panic needs no defer.
func (w *worker) serve() (again bool) {
	ended := false
	defer func() {
		if !ended {
			again = w.interrupted(recover())
		}
	}()
	for {
		f := w.next()
		if f == nil {
			ended = true
			return false
		}
		f()
	}
}

// interrupted runs if a task did not return. It panicked with v, or, if v is nil, it called
// runtime.Goexit, which ends this goroutine; then a new goroutine continues the worker.
func (w *worker) interrupted(v any) (again bool) {
	p := w.pool
	p.mu.Lock()
	if v == nil {
		p.left++
	} else {
		p.panics++
	}
	p.mu.Unlock()
	if v == nil {
		go w.live()
		return false
	}
	defer func() {
		if !again { // OnPanic called runtime.Goexit
			go w.live()
		}
	}()
	p.report(v, debug.Stack())
	return true
}

func (p *Pool) report(v any, stack []byte) {
	if p.config.OnPanic != nil {
		p.config.OnPanic(v, stack)
		return
	}
	log := p.config.Logger
	if log == nil {
		log = slog.Default()
	}
	log.Error("workers: a task panicked", "panic", v, "stack", string(stack))
}

// next counts the previous task as ended, waits for the next one and returns it. It returns nil if
// the worker has to end.
func (w *worker) next() func() {
	p := w.pool
	if w.begun%yieldEvery == yieldEvery-1 {
		runtime.Gosched()
	}
	p.lock()
	p.arrive(w)
	p.end(w)
	if p.workers > p.config.Workers {
		p.remove(w)
		other := p.call()
		p.mu.Unlock()
		other.rouse()
		return nil
	}
	for p.tasks.n == 0 || w.state == stateRetired {
		if p.closed.Load() || w.state == stateRetired {
			p.remove(w)
			p.mu.Unlock()
			return nil
		}
		p.park(w)
		p.mu.Unlock()
		<-w.wake
		p.lock()
		p.arrive(w)
	}
	f := p.begin(w)
	// each woken worker wakes one more while there is work, so a batch needs only one wake-up
	other := p.call()
	p.mu.Unlock()
	other.rouse()
	return f
}

func (p *Pool) begin(w *worker) func() {
	p.waits.pop()
	f := p.tasks.pop()
	w.begun++
	w.busy = true
	p.running++
	if p.line.n > 0 && p.free() >= p.admitAt {
		p.admit()
	}
	return f
}

func (p *Pool) end(w *worker) {
	if !w.busy {
		return
	}
	w.busy = false
	p.running--
	p.finished++
	if w.state == stateStuck {
		p.stuck--
		p.join(w)
	}
}

// arrive records that a called worker now looks for a task. While a called worker has not arrived,
// no other is called.
func (p *Pool) arrive(w *worker) {
	if w.called {
		w.called = false
		p.called--
	}
}

func (p *Pool) join(w *worker) {
	w.state, w.index = stateFresh, len(p.fresh)
	p.fresh = append(p.fresh, w)
}

func (p *Pool) drop(w *worker) {
	last := len(p.fresh) - 1
	p.fresh[w.index] = p.fresh[last]
	p.fresh[w.index].index = w.index
	p.fresh[last] = nil
	p.fresh = p.fresh[:last]
}

func (p *Pool) park(w *worker) {
	p.drop(w)
	w.state, w.parked = stateIdle, p.epoch
	p.idle = append(p.idle, w)
}

// remove removes a worker whose goroutine ends. The last worker wakes the monitor, which then ends
// too.
func (p *Pool) remove(w *worker) {
	if w.state == stateFresh {
		p.drop(w)
	}
	p.workers--
	if p.workers == 0 {
		p.kickMonitor()
	}
}
