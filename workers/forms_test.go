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

// Several producers use plain tasks, keys, futures and a queue on one pool. Tasks end in every way,
// contexts end, futures are cancelled, and the pool is closed meanwhile. Every accepted task runs
// exactly once, and a refused one never. A job is tried until it succeeds or is given up. A key's
// tasks run in order, one at a time. No limit is exceeded, and every future ends. TestMain checks
// for leaked goroutines.
func TestEveryFormKeepsItsPromise(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 6))
		m := newMedley(t, r)
		m.run(seed, r.IntN(2) == 0)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

const (
	medleyKeys      = 5
	medleyProducers = 4
)

type medley struct {
	chaos
	keyed *Keyed[int]
	queue *Queue[*medleyJob]
	keys  [medleyKeys]struct {
		inside atomic.Int32
		last   [medleyProducers]int // the number of each producer's last task; the key's order guards it
	}
	handlers, batch, limit, retries int
	handling                        atomic.Int32
	jobs                            atomic.Int64 // accepted
	futures                         sync.WaitGroup
}

type medleyJob struct {
	tries, wanted int // the try that succeeds; above retries, the job must be given up
	over          bool
}

func newMedley(t *testing.T, r *rand.Rand) *medley {
	m := &medley{handlers: 1 + r.IntN(3), batch: 1 + r.IntN(5), limit: 1 + r.IntN(30), retries: r.IntN(3)}
	m.t, m.workers = t, 1+r.IntN(8)
	m.pool = New(Config{
		Workers: m.workers, Queue: 1 + r.IntN(30), Base: 1 + r.IntN(3), Idle: 2 * tick,
		OnPanic: func(any, []byte) { m.panics.Add(1) },
	})
	m.keyed = NewKeyed[int](m.pool, KeyedConfig{Backlog: 1 + r.IntN(6)})
	m.queue = NewQueue(QueueConfig[*medleyJob]{
		Pool: m.pool, Handle: m.handle, Handlers: m.handlers, Limit: m.limit, Batch: m.batch,
		Age: time.Duration(r.IntN(2)) * tick, Retries: m.retries, Backoff: tick / 2,
		DeadLetter: m.bury,
	})
	return m
}

func (m *medley) run(seed uint64, closeEarly bool) {
	var producers sync.WaitGroup
	for id := range medleyProducers {
		producers.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(id)))
			for n := range 80 {
				m.submitAny(r, id, n+1)
			}
		})
	}
	if closeEarly {
		m.closeBoth(tick)
	}
	producers.Wait()
	m.closeBoth(time.Minute)
	m.futures.Wait()
	closeQueue(m.t, m.queue)
	closeAndCheck(m.t, m.pool)
	checkNoKeys(m.t, m.keyed)
	if m.ran.Load() != m.accepted.Load() {
		m.t.Errorf("%d tasks accepted, %d ran", m.accepted.Load(), m.ran.Load())
	}
	if s := m.queue.Stats(); int64(s.Done+s.Dead) != m.jobs.Load() {
		m.t.Errorf("%d jobs accepted, %+v", m.jobs.Load(), s)
	}
	if m.panics.Load() != m.wantPanics.Load() {
		m.t.Errorf("%d panics reported, want %d", m.panics.Load(), m.wantPanics.Load())
	}
}

// closeBoth closes the queue before the pool, as required.
func (m *medley) closeBoth(patience time.Duration) {
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	for _, err := range []error{m.queue.Close(ctx), m.pool.Close(ctx)} {
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			m.t.Error(err)
		}
	}
}

func (m *medley) submitAny(r *rand.Rand, producer, n int) {
	switch r.IntN(8) {
	case 0:
		m.submit(r) // plain tasks
	case 1:
		f, once := m.task(r)
		err := m.pool.GoTimeout(f, time.Duration(r.IntN(2000))*time.Microsecond)
		if err != nil && err != ErrTimeout && err != ErrClosed {
			m.t.Errorf("GoTimeout: %v", err)
		}
		m.settle(once, err == nil)
	case 2, 3, 4:
		m.submitKeyed(r, producer, n)
	case 5, 6:
		m.submitFuture(r)
	case 7:
		m.submitJobs(r)
	}
	if s := m.pool.Stats(); s.Workers > m.workers || !m.pool.closed.Load() &&
		s.Queued+s.Running > m.workers+m.pool.config.Queue {
		m.t.Errorf("%+v is beyond %d workers or as many tasks and %d queued", s, m.workers, m.pool.config.Queue)
	}
	if s := m.queue.Stats(); s.Held > m.limit || s.Handlers > m.handlers {
		m.t.Errorf("%+v is beyond %d held or %d handlers", s, m.limit, m.handlers)
	}
}

func (m *medley) submitKeyed(r *rand.Rand, producer, n int) {
	key := r.IntN(medleyKeys)
	inner, once := m.task(r)
	f := func() {
		k := &m.keys[key]
		if k.inside.Add(1) != 1 {
			m.t.Error("two tasks of a key ran concurrently")
		}
		defer k.inside.Add(-1)
		if k.last[producer] >= n {
			m.t.Errorf("a key's task %d ran after %d", n, k.last[producer])
		}
		k.last[producer] = n
		inner()
	}
	if r.IntN(2) == 0 {
		m.settle(once, m.keyed.TryGo(key, f))
		return
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Duration(r.IntN(3000))*time.Microsecond)
	defer cancel()
	err := m.keyed.Go(ctx, key, f)
	if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
		m.t.Errorf("Keyed.Go: %v", err)
	}
	m.settle(once, err == nil)
}

// submitFuture checks that a future's outcome matches whether its function ran, and that the
// function has ended before the future is done.
func (m *medley) submitFuture(r *rand.Rand) {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Duration(r.IntN(4000))*time.Microsecond)
	var x Executor = m.pool
	if r.IntN(2) == 0 {
		x = m.keyed.Key(medleyKeys + r.IntN(3))
	}
	kind, nap := r.IntN(5), time.Duration(r.IntN(1500))*time.Microsecond
	var ran atomic.Int32
	u := Submit(ctx, x, func(ctx context.Context) (int, error) {
		if ran.Add(1) != 1 {
			m.t.Error("a future's function ran twice")
		}
		switch kind {
		case 0:
			panic("future")
		case 1:
			runtime.Goexit()
		case 2:
			<-ctx.Done()
			return 1, nil
		case 3:
			time.Sleep(nap)
		}
		return 1, nil
	})
	if r.IntN(3) == 0 {
		u.Cancel()
	}
	m.futures.Go(func() {
		defer cancel()
		v, err := u.Wait(context.Background())
		var panicked *PanicError
		failed := errors.As(err, &panicked) && kind == 0 || errors.Is(err, ErrExited) && kind == 1
		refused := errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) ||
			errors.Is(err, context.DeadlineExceeded)
		if did := ran.Load() == 1; did && (err == nil) != (kind > 1) || did != (err == nil && v == 1 || failed) ||
			!did && !refused {
			m.t.Errorf("kind %d: %d, %v, ran %v", kind, v, err, did)
		}
	})
}

func (m *medley) submitJobs(r *rand.Rand) {
	jobs := make([]*medleyJob, 1+r.IntN(3))
	for i := range jobs {
		jobs[i] = &medleyJob{wanted: 1 + r.IntN(m.retries+2)}
	}
	if r.IntN(2) == 0 {
		if m.queue.TryPut(jobs...) {
			m.jobs.Add(int64(len(jobs)))
		}
		return
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Duration(r.IntN(3000))*time.Microsecond)
	defer cancel()
	if m.queue.Put(ctx, jobs[0]) == nil {
		m.jobs.Add(1)
	}
}

// handle fails while a job of the batch has not reached the try that it wants. The queue's lock
// synchronizes two tries.
func (m *medley) handle(ctx context.Context, batch []*medleyJob) error {
	if n := m.handling.Add(1); int(n) > m.handlers {
		m.t.Errorf("%d handlers at once, want at most %d", n, m.handlers)
	}
	defer m.handling.Add(-1)
	if len(batch) == 0 || len(batch) > m.batch {
		m.t.Errorf("a batch of %d, want 1 to %d", len(batch), m.batch)
	}
	ready := true
	for _, j := range batch {
		j.tries++
		ready = ready && j.tries >= j.wanted
		if j.over || j.tries > m.retries+1 {
			m.t.Errorf("a job is tried for the %d. time of %d, over %v", j.tries, m.retries+1, j.over)
		}
	}
	switch {
	case !ready && batch[0].wanted%3 == 0:
		panic("job")
	case !ready && batch[0].wanted%3 == 1:
		runtime.Goexit()
	case !ready:
		return errors.New("not yet")
	}
	m.bury(batch, nil)
	return nil
}

func (m *medley) bury(batch []*medleyJob, _ error) {
	for _, j := range batch {
		if j.over {
			m.t.Error("a job is over twice")
		}
		j.over = true
	}
}
