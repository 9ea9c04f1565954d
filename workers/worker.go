package workers

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
)

// yieldEvery is how many tasks a worker runs before it lets other goroutines of the process have
// the processor. A worker with work never parks, so without it everything else would wait for the
// runtime's time slice of 10 ms.
const yieldEvery = 64

// A worker is a goroutine of the pool. Its fields are guarded by the pool's lock, except those that
// never change.
type worker struct {
	pool *Pool
	wake chan struct{} // of one: the pool sends once after it took the worker off the idle list

	begun  uint64 // tasks so far
	seen   uint64 // begun when the monitor looked last
	index  int    // in pool.fresh
	parked uint32 // the epoch in which it went idle
	state  workerState
	called bool // counted in pool.called
	busy   bool // in a task
	born   bool // its goroutine was started
}

type workerState uint8

const (
	stateFresh workerState = iota
	stateStuck
	stateIdle
	stateRetired // told to end
)

// rouse lets a worker that call or enlist chose run. It is called without the lock, and does
// nothing for nil.
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

// live is the worker's goroutine.
func (w *worker) live() {
	unlabel() // those of the goroutine that happened to submit a task
	for w.serve() {
	}
}

// unlabel takes the labels of runtime/pprof off a goroutine that has inherited them.
func unlabel() { pprof.SetGoroutineLabels(context.Background()) }

// serve runs tasks until the worker is told to end. It returns true if a panic came in between, to
// be called again: so the usual task pays for no defer.
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

// interrupted runs when a task did not return: it panicked with v, or called runtime.Goexit (v is
// nil) and nothing can keep this goroutine alive. Then another one takes the worker over.
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
		if !again { // OnPanic has ended this goroutine too
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

// next ends the task before, if there was one, and returns the one to run now. It waits for it; nil
// tells the worker to end.
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
	// the chain: one wake for a batch, and each woken worker wakes one more while there is work for
	// it
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

// arrive ends a worker's way to work, whether it finds some or not: while somebody is on the way
// nobody else is called.
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

// remove forgets a worker whose goroutine ends now. The last one tells the monitor, which ends too.
func (p *Pool) remove(w *worker) {
	if w.state == stateFresh {
		p.drop(w)
	}
	p.workers--
	if p.workers == 0 {
		p.kickMonitor()
	}
}
