package workers

import (
	"errors"
	"time"
)

// A batch is jobs that are handled together, and retried together.
type batch[T any] struct {
	jobs  []T
	tries int
}

// call decides whether to start one more handler, which release then starts. A handler that takes a
// batch and finds more due calls the next one, as the pool's workers do. The caller holds the lock.
func (q *Queue[T]) call() bool {
	if q.handlers >= q.config.Handlers || q.due() <= q.called {
		q.watchAge()
		return false
	}
	q.handlers++
	q.called++
	return true
}

// release unlocks, and starts the handler for which call decided.
func (q *Queue[T]) release(called bool) {
	q.mu.Unlock()
	if called && q.config.Pool.post(q.work) != nil {
		go q.work()
	}
}

// due returns how many batches can be handled now.
func (q *Queue[T]) due() int {
	n := q.again.n + q.jobs.n/q.config.Batch
	if rest := q.jobs.n % q.config.Batch; rest > 0 && (q.ripe || q.closed || q.config.Age == 0) {
		n++
	}
	return n
}

// watchAge sets the timer if jobs wait for their batch to fill. The timer fires at the oldest job's
// age. If that job is no longer queued, the timer is set again for the oldest one.
func (q *Queue[T]) watchAge() {
	if q.config.Age == 0 || q.jobs.n == 0 || q.ripe || q.aging || q.closed {
		return
	}
	q.aging = true
	wait := time.Until(q.jobs.first().at.Add(q.config.Age))
	if q.age == nil {
		q.age = time.AfterFunc(wait, q.ripen)
	} else {
		q.age.Reset(wait)
	}
}

// ripen is the timer's function.
func (q *Queue[T]) ripen() {
	q.mu.Lock()
	q.aging = false
	q.ripe = q.ripe || q.jobs.n > 0 && time.Since(q.jobs.first().at) >= q.config.Age
	q.release(q.call())
}

func (q *Queue[T]) stopAging() {
	if q.age != nil {
		q.age.Stop()
	}
}

// work handles one batch on the pool, also if Handle panics or exits.
func (q *Queue[T]) work() {
	b := q.take()
	if b == nil {
		return
	}
	handle := func() error { return q.config.Handle(q.ctx, b.jobs) }
	outcome(handle, q.config.Pool.caught, func(err error) { q.judge(b, err) })
}

// take returns the batch to handle now; retries come before new batches. It returns nil if other
// handlers have taken all.
func (q *Queue[T]) take() *batch[T] {
	q.mu.Lock()
	q.called--
	var b *batch[T]
	switch {
	case q.due() == 0:
		q.leave()
		return nil
	case q.again.n > 0:
		b = q.again.pop()
	default:
		b = &batch[T]{jobs: make([]T, min(q.jobs.n, q.config.Batch))}
		for i := range b.jobs {
			b.jobs[i] = q.jobs.pop().v
		}
		q.ripe = false
	}
	b.tries++
	q.tries++
	q.release(q.call())
	return b
}

// judge records the outcome of a batch: done, to be retried, or given up.
func (q *Queue[T]) judge(b *batch[T], err error) {
	q.mu.Lock()
	if err == nil {
		q.finished += uint64(len(b.jobs))
		q.free(len(b.jobs))
		q.leave()
		return
	}
	q.failures++
	if b.tries > q.config.Retries || errors.Is(err, ErrNoRetry) || q.ctx.Err() != nil {
		q.mu.Unlock()
		q.giveUp(b, err)
		return
	}
	if q.closed {
		q.again.push(b)
	} else {
		q.backing[b] = time.AfterFunc(q.backoff(b.tries), func() { q.retry(b) })
	}
	q.leave()
}

// giveUp passes a batch to DeadLetter. It runs without the lock, because DeadLetter may be slow.
func (q *Queue[T]) giveUp(b *batch[T], err error) {
	bury := func() error {
		if q.config.DeadLetter != nil {
			q.config.DeadLetter(b.jobs, err)
		} else {
			q.config.Logger.Error("workers: jobs are dropped", "jobs", len(b.jobs), "tries", b.tries, "error", err)
		}
		return nil
	}
	outcome(bury, q.config.Pool.caught, func(failed error) {
		if failed != nil {
			q.config.Logger.Error("workers: DeadLetter failed", "jobs", len(b.jobs), "error", failed)
		}
		q.mu.Lock()
		q.dead += uint64(len(b.jobs))
		q.free(len(b.jobs))
		q.leave()
	})
}

// leave counts a handler out, and unlocks.
func (q *Queue[T]) leave() {
	q.handlers--
	q.settled()
	q.release(q.call())
}

// backoff returns the wait after that many tries.
func (q *Queue[T]) backoff(tries int) time.Duration {
	wait := q.config.Backoff
	for range tries - 1 {
		if wait > q.config.MaxBackoff/2 {
			return q.config.MaxBackoff
		}
		wait *= 2
	}
	return wait
}

// retry is the function of a batch's timer.
func (q *Queue[T]) retry(b *batch[T]) {
	q.mu.Lock()
	if _, ok := q.backing[b]; ok {
		delete(q.backing, b)
		q.again.push(b)
	}
	q.release(q.call())
}

// hasten ends all backoffs. A timer that has already fired no longer finds its batch.
func (q *Queue[T]) hasten() {
	for b, timer := range q.backing {
		timer.Stop()
		q.again.push(b)
	}
	clear(q.backing)
}
