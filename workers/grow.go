package workers

import "time"

// The number of workers, and why.
//
// Problem. A pool cannot know whether a task will take a microsecond or block for a second. With a
// goroutine for each waiting task, a burst of 16,000 quick tasks starts 16,000 goroutines for work
// that two could do. With a fixed number of goroutines, that many blocked tasks stop the pool, and
// tasks that wait for other tasks deadlock. Users of other pools complain of both.
//
// Policy. A worker is stuck when it has been in one task for a tick (1 ms). It may block or
// compute: either way it takes no further task. While tasks wait, the pool keeps up to Base workers
// that are not stuck.
//
//   - A submission calls one worker: it wakes the one that went idle last, whose stack is warm, or
//     starts one if fewer than Base are fresh. It calls none while another called worker has not
//     arrived. A worker that takes a task and finds more does the same. So a batch costs its
//     submitter one wake-up, and workers start no faster than processors are free to run them.
//   - When Base workers are fresh and tasks still wait, the submission kicks the monitor. The
//     monitor looks once each tick while tasks wait, and costs nothing otherwise. A worker that it
//     finds in the same task as a tick before is stuck, and no longer counts against Base.
//   - If fewer than Base workers are left, a look starts the missing ones, or four for each newly
//     stuck worker if that is more. So if all tasks of a batch block, a thousand of them run within
//     five ticks; one replacement for each would take a hundred. A look never starts more workers
//     than tasks wait without a called worker, and at most 1,024.
//   - A stuck worker whose task ends is fresh again. Workers that are idle for long end, the
//     longest idle first.
//
// Why Base is far above the number of processors: under a steady load in which some tasks block,
// the other tasks wait as soon as Base of them block within a tick. A high Base does no harm,
// because a called worker without a processor calls no other: a burst of quick tasks gets as many
// workers as there are free processors, for any Base.
//
// Consequences.
//
//   - Of tasks that block for less than a tick, at most Base run at a time. That is the price of
//     telling them from quick tasks.
//   - On a busy machine quick tasks look stuck now and then, and the pool starts a few workers more
//     than needed; they end when idle.
//   - A task whose wait is over but that has no processor looks stuck, too. Without the limit of
//     1,024, a burst that keeps the processors busy would turn the whole queue into goroutines.
//   - Long computations get goroutines up to Workers, which share the processors.
const (
	tick          = time.Millisecond
	startPerStuck = 4
	startPerLook  = 1024

	retireRounds = 2 // rounds in Config.Idle
)

// call chooses a worker for the queued tasks, or kicks the monitor. The caller holds the lock and
// has changed the queue. It then unlocks, and rouses the worker that call returns.
func (p *Pool) call() *worker {
	if p.tasks.n == 0 || p.called > 0 {
		return nil // the worker that was called last calls the next one
	}
	if len(p.fresh) < p.config.Base {
		if w := p.enlist(); w != nil {
			return w
		}
	}
	if !p.ticking {
		p.ticking = true
		p.kickMonitor()
	}
	return nil
}

// Widen adds n to Config.Workers; n may be negative. Call it with 1 while a long task runs that
// should not count against the limit, and with -1 afterwards. Surplus goroutines end before their
// next task.
func (p *Pool) Widen(n int) {
	p.lock()
	p.config.Workers += n
	w := p.call()
	p.mu.Unlock()
	w.rouse()
}

// enlist takes the worker that went idle last, or creates one. It returns nil at the limit of
// Workers.
func (p *Pool) enlist() *worker {
	var w *worker
	if last := len(p.idle) - 1; last >= 0 {
		w = p.idle[last]
		p.idle[last] = nil
		p.idle = p.idle[:last]
	} else if p.workers < p.config.Workers {
		w = &worker{pool: p, wake: make(chan struct{}, 1)}
		p.workers++
		p.peak = max(p.peak, p.workers)
	} else {
		return nil
	}
	p.join(w)
	w.called = true
	p.called++
	if !p.monitoring {
		p.monitoring = true
		go p.monitor()
	}
	return w
}

func (p *Pool) kickMonitor() {
	select {
	case p.kick <- struct{}{}:
	default: // a kick is pending already
	}
}

// monitor is a goroutine that runs while there are workers. It sleeps until it is kicked, or
// workers may retire.
func (p *Pool) monitor() {
	unlabel()
	round := max(p.config.Idle/retireRounds, tick)
	ticks, retires := time.NewTimer(tick), time.NewTimer(round)
	defer ticks.Stop()
	defer retires.Stop()
	var looked time.Time
	for !p.over() {
		select {
		case <-p.kick:
			if time.Since(looked) >= tick {
				looked = time.Now()
				p.look()
			}
			ticks.Reset(tick)
		case <-ticks.C:
			looked = time.Now()
			if p.look() {
				ticks.Reset(tick)
			}
		case <-retires.C:
			p.retire()
			retires.Reset(round)
		}
	}
}

// over reports whether the monitor has to end: there are no workers and no tasks.
func (p *Pool) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workers > 0 || p.tasks.n > 0 {
		return false
	}
	p.monitoring, p.ticking = false, false
	if p.closed.Load() {
		close(p.done)
	}
	return true
}

// look finds stuck workers and replaces them. It returns true if it must run again after a tick.
func (p *Pool) look() (again bool) {
	p.lock()
	newly := p.markStuck()
	p.admit()
	again = p.tasks.n > 0
	p.ticking = again
	queued := p.tasks.n
	missing := p.config.Base - len(p.fresh)
	p.mu.Unlock()
	if missing > 0 {
		p.startUpTo(min(queued, max(missing, min(startPerStuck*newly, startPerLook))))
	}
	return again
}

func (p *Pool) markStuck() (newly int) {
	for i := 0; i < len(p.fresh); {
		w := p.fresh[i]
		if !w.busy || w.seen != w.begun {
			w.seen = w.begun
			i++
			continue
		}
		p.drop(w)
		w.state = stateStuck
		p.stuck++
		newly++
	}
	return newly
}

// startUpTo starts at most n workers. It takes the lock for each worker anew, so that submitters do
// not wait for a thousand of them.
func (p *Pool) startUpTo(n int) {
	for range n {
		p.lock()
		if p.tasks.n <= p.called { // each called worker takes one
			p.mu.Unlock()
			return
		}
		w := p.enlist()
		if w != nil {
			w.seen = w.begun + 1 // so that the next look counts its first task as a tick old
		}
		p.mu.Unlock()
		if w == nil {
			return
		}
		w.rouse()
	}
}

// retire ends the workers that have been idle for the last rounds. p.idle is in the order in which
// they went idle.
func (p *Pool) retire() {
	p.mu.Lock()
	p.epoch++
	n := 0
	for n < len(p.idle) && p.epoch-p.idle[n].parked > retireRounds {
		n++
	}
	gone := append([]*worker(nil), p.idle[:n]...)
	for _, w := range gone {
		w.state = stateRetired
	}
	p.idle = append(p.idle[:0], p.idle[n:]...)
	clear(p.idle[len(p.idle) : len(p.idle)+n])
	p.tasks.trim()
	p.waits.marks.trim()
	p.mu.Unlock()
	for _, w := range gone {
		w.rouse()
	}
}
