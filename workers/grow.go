package workers

import "time"

// How many goroutines there are, and why.
//
// Context. A pool cannot know whether a task will take a microsecond or block for a second. With a
// goroutine for each waiting task, a burst of 16,000 quick ones starts 16,000 goroutines for work
// that two could do. With a fixed number, as many blocked tasks stop everything, and tasks that
// wait for tasks deadlock. Users of other pools complain of both.
//
// Decision. A worker is stuck when it has been in one task for a tick (1 ms). It may be blocked or
// computing: neither takes further tasks. The pool strives for Base workers that are not stuck
// while tasks wait, and for no more.
//
//   - A submission wakes one idle worker, the one that went idle last and whose stack is warm, or
//     starts one if fewer than Base are fresh; nothing if another one is on its way already. A
//     worker that takes a task and sees more does the same. So a batch costs its submitter one
//     wake, and workers come no faster than processors are free to run them.
//   - When Base are fresh and tasks still wait, the monitor is kicked. It looks once each tick for
//     as long as tasks wait, and costs nothing otherwise. Those that it finds in the same task as a
//     tick before are stuck and no longer count against Base. If fewer than Base are left, it
//     starts what is missing, or four for each newly stuck one if that is more: when all of a batch
//     block, a thousand of them run within five ticks, where replacing one by one would take a
//     hundred. It never starts more than tasks wait and nobody is on the way to, and at most 1,024
//     in a look.
//   - A stuck worker that comes back is fresh again. What is idle for long ends, the longest idle
//     first.
//
// Base is far more than the processors, because of steady loads in which some tasks block: as soon
// as Base of them do so within a tick, all others wait for it. It may be, because a worker that was
// called but has no processor yet calls nobody: a burst of quick tasks has as many workers as there
// are processors for, whatever Base is.
//
// Consequences. Tasks that block for less than a tick run at most Base at a time: 1 ms is the price
// of telling them from quick ones. On a machine that is busy with other things quick tasks look
// stuck now and then, and a few workers more than needed come; they retire. Tasks whose wait is
// over but for whom no processor is free look stuck too: without the 1,024, a burst that keeps the
// processors busy would turn the whole queue into goroutines, which only makes them wait longer.
// Long computations get goroutines too, up to Workers: the processors are shared among them.
const (
	tick          = time.Millisecond
	startPerStuck = 4
	startPerLook  = 1024

	retireRounds = 2 // rounds in a time of Idle
)

// call sees to it that somebody takes the queued tasks. It runs under the lock after each change to
// the queue; the caller unlocks and then rouses the worker that it returns.
func (p *Pool) call() *worker {
	if p.tasks.n == 0 || p.called > 0 {
		return nil // whoever is on the way calls the next one
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

// Widen lets n more tasks run at once than Config.Workers says, or again fewer if n is negative:
// for a task that goes on for long without being one of those that the limit is for. Surplus
// goroutines end when they come for their next task.
func (p *Pool) Widen(n int) {
	p.lock()
	p.config.Workers += n
	w := p.call()
	p.mu.Unlock()
	w.rouse()
}

// enlist takes the last idle worker, or makes one. It returns nil if there are as many as may be.
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
	default: // it has not seen the last one yet
	}
}

// monitor is a goroutine that lives while there are workers. It sleeps until it is kicked or
// workers are to retire.
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

// over says that the monitor is to end: nobody is left, and nothing to do for anybody.
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

// look finds the stuck workers and replaces them. It says whether to look again a tick later.
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

// startUpTo takes the lock for each worker anew, so that a thousand of them do not keep submitters
// waiting.
func (p *Pool) startUpTo(n int) {
	for range n {
		p.lock()
		if p.tasks.n <= p.called { // those on their way take one each
			p.mu.Unlock()
			return
		}
		w := p.enlist()
		if w != nil {
			w.seen = w.begun + 1 // by the next look it has been in its next task for a tick
		}
		p.mu.Unlock()
		if w == nil {
			return
		}
		w.rouse()
	}
}

// retire ends the workers that have been idle for all of the last rounds. The list is in the order
// in which they went idle.
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
