package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A recorder has a Handle that records its batches, and fails as the test requires.
type recorder struct {
	start time.Time
	takes time.Duration
	fail  func(try int) error // called with the number of the try, from 1; nil: never fails

	mu      sync.Mutex
	batches [][]int
	at      []time.Duration
	running int
	most    int
	dead    []int
	deadErr error
}

func newRecorder() *recorder { return &recorder{start: time.Now()} }

func (r *recorder) handle(ctx context.Context, batch []int) error {
	r.mu.Lock()
	r.batches = append(r.batches, batch)
	r.at = append(r.at, time.Since(r.start))
	try := len(r.batches)
	r.running++
	r.most = max(r.most, r.running)
	r.mu.Unlock()
	if r.takes > 0 {
		time.Sleep(r.takes)
	}
	r.mu.Lock()
	r.running--
	r.mu.Unlock()
	if r.fail != nil {
		return r.fail(try)
	}
	return nil
}

func (r *recorder) bury(jobs []int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead, r.deadErr = append(r.dead, jobs...), err
}

func (r *recorder) want(t *testing.T, batches ...[]int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.EqualFunc(r.batches, batches, slices.Equal) {
		t.Errorf("handled %v, want %v", r.batches, batches)
	}
}

func newQueue(t *testing.T, r *recorder, c QueueConfig[int]) *Queue[int] {
	t.Helper()
	if c.Pool == nil {
		c.Pool = newPool(t, Config{})
	}
	c.Handle, c.DeadLetter = r.handle, r.bury
	q := NewQueue(c)
	t.Cleanup(func() { closeQueue(t, q) })
	return q
}

// closeQueue drains the queue and checks that its counters agree.
func closeQueue[T any](t *testing.T, q *Queue[T]) {
	t.Helper()
	if err := q.Close(context.Background()); err != nil {
		t.Error(err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.age != nil && q.age.Stop() {
		t.Error("a closed queue has a timer")
	}
	if q.held != 0 || q.handlers != 0 || q.called != 0 || q.jobs.n != 0 || q.again.n != 0 || len(q.backing) != 0 ||
		q.line.n != 0 || q.ctx.Err() == nil {
		t.Errorf("after Close: held %d, handlers %d, called %d, queued %d, again %d, backing %d, waiting %d, "+
			"context %v",
			q.held, q.handlers, q.called, q.jobs.n, q.again.n, len(q.backing), q.line.n, q.ctx.Err())
	}
}

func put(t *testing.T, q *Queue[int], jobs ...int) {
	t.Helper()
	for _, n := range jobs {
		if err := q.Put(t.Context(), n); err != nil {
			t.Error(err)
		}
	}
}

func TestBatchesByCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.takes = time.Second
		q := newQueue(t, r, QueueConfig[int]{Batch: 3})
		put(t, q, 1)
		synctest.Wait()
		put(t, q, 2, 3, 4, 5, 6, 7, 8)
		time.Sleep(time.Minute)
		r.want(t, []int{1}, []int{2, 3, 4}, []int{5, 6, 7}, []int{8})
		if s := q.Stats(); r.most != 1 || s != (QueueStats{Done: 8, Tries: 4}) {
			t.Errorf("%d handlers at once, %+v", r.most, s)
		}
	})
}

func TestBatchesByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		q := newQueue(t, r, QueueConfig[int]{Batch: 3, Age: time.Second})
		put(t, q, 1)
		time.Sleep(900 * time.Millisecond)
		put(t, q, 2) // joins the batch of job 1, handled at 1 s
		time.Sleep(600 * time.Millisecond)
		put(t, q, 3) // at 1.5 s
		time.Sleep(500 * time.Millisecond)
		put(t, q, 4, 5) // a full batch is handled at once, at 2 s
		time.Sleep(100 * time.Millisecond)
		put(t, q, 6) // at 2.1 s; the timer for 3 fires too early for 6
		time.Sleep(time.Minute)
		r.want(t, []int{1, 2}, []int{3, 4, 5}, []int{6})
		if want := []time.Duration{1000, 2000, 3100}; !slices.EqualFunc(r.at, want,
			func(a, b time.Duration) bool { return a == b*time.Millisecond }) {
			t.Errorf("handled at %v, want %v ms", r.at, want)
		}
	})
}

func TestHandlersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.takes = time.Second
		q := newQueue(t, r, QueueConfig[int]{Handlers: 4})
		for n := range 20 {
			put(t, q, n)
		}
		synctest.Wait()
		if s := q.Stats(); s.Handlers != 4 || s.Queued != 16 || s.Held != 20 {
			t.Errorf("%+v, want 4 of 20 handled", s)
		}
		time.Sleep(5500 * time.Millisecond)
		if s := q.Stats(); r.most != 4 || s.Done != 20 {
			t.Errorf("%d at once, %+v, want 20 s of work done in 5 by 4", r.most, s)
		}
	})
}

func TestLimitHoldsProducersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.takes = time.Second
		q := newQueue(t, r, QueueConfig[int]{Limit: 4, Batch: 10})
		if q.TryPut(1, 2, 3, 4, 5) || !q.TryPut(1, 2) || q.TryPut(3, 4, 5) || !q.TryPut(3, 4) || q.TryPut(5) {
			t.Error("the limit is not 4, or TryPut accepted a part of the jobs")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := q.Put(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Put: %v", err)
		}
		put(t, q, 5) // accepted after a second, when the first batch is done
		if now := time.Since(r.start); now != time.Second {
			t.Errorf("accepted after %v", now)
		}
		if err := q.Put(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Put with an ended context: %v", err)
		}
		time.Sleep(time.Minute)
		r.want(t, []int{1, 2, 3, 4}, []int{5})
	})
}

// Jobs that are being handled or wait for a retry count against the limit, too.
func TestLimitCountsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.fail = func(int) error { return errors.New("down") }
		q := newQueue(t, r, QueueConfig[int]{Limit: 3, Retries: 1, Backoff: time.Second, Handlers: 3})
		put(t, q, 1, 2, 3)
		time.Sleep(time.Millisecond)
		if s := q.Stats(); s.Backing != 3 || s.Held != 3 || q.TryPut(4) {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Second)
		if s := q.Stats(); s.Dead != 3 || s.Held != 0 || !q.TryPut(4) {
			t.Errorf("%+v", s)
		}
	})
}

func TestRetriesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		r := newRecorder()
		r.fail = func(int) error { return boom }
		q := newQueue(t, r, QueueConfig[int]{Batch: 2, Retries: 4, Backoff: time.Second, MaxBackoff: 3 * time.Second})
		q.TryPut(1, 2)
		time.Sleep(time.Minute)
		r.want(t, []int{1, 2}, []int{1, 2}, []int{1, 2}, []int{1, 2}, []int{1, 2})
		if want := []time.Duration{0, 1, 3, 6, 9}; !slices.EqualFunc(r.at, want,
			func(a, b time.Duration) bool { return a == b*time.Second }) {
			t.Errorf("tried at %v, want %v s", r.at, want)
		}
		if s := q.Stats(); !slices.Equal(r.dead, []int{1, 2}) || r.deadErr != boom ||
			s != (QueueStats{Dead: 2, Tries: 5, Failures: 5}) {
			t.Errorf("dead %v with %v, %+v", r.dead, r.deadErr, s)
		}
	})
}

func TestRetrySucceedsWhileOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.fail = func(try int) error {
			switch try {
			case 1:
				panic("once")
			case 2:
				runtime.Goexit()
			}
			return nil
		}
		q := newQueue(t, r, QueueConfig[int]{Retries: 2})
		for n := range 3 {
			put(t, q, n+1)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		r.want(t, []int{1}, []int{2}, []int{3}, []int{1}, []int{2})
		if s, p := q.Stats(), q.config.Pool.Stats(); s != (QueueStats{Done: 3, Tries: 5, Failures: 2}) ||
			p.Panics != 1 || p.Exits != 1 {
			t.Errorf("%+v, %+v", s, p)
		}
	})
}

func TestNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.fail = func(int) error { return fmt.Errorf("malformed: %w", ErrNoRetry) }
		q := newQueue(t, r, QueueConfig[int]{Retries: 9})
		put(t, q, 1)
		time.Sleep(time.Minute)
		if s := q.Stats(); s.Tries != 1 || !slices.Equal(r.dead, []int{1}) {
			t.Errorf("%+v, dead %v", s, r.dead)
		}
	})
}

// Close does not wait for backoffs or for batches to fill. Every accepted job is handled or passed
// to DeadLetter.
func TestCloseDrainsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.fail = func(try int) error {
			if try <= 2 {
				return errors.New("later")
			}
			return nil
		}
		q := newQueue(t, r, QueueConfig[int]{Batch: 2, Age: time.Hour, Retries: 2, Backoff: time.Hour})
		put(t, q, 1, 2)
		synctest.Wait()
		put(t, q, 3)
		synctest.Wait()
		if s := q.Stats(); s.Backing != 1 || s.Queued != 1 {
			t.Errorf("%+v", s)
		}
		closeQueue(t, q)
		r.want(t, []int{1, 2}, []int{1, 2}, []int{1, 2}, []int{3})
		if s := q.Stats(); time.Since(r.start) != 0 || s.Done != 3 || s.Dead != 0 {
			t.Errorf("%+v after %v", s, time.Since(r.start))
		}
		if q.TryPut(4) || q.Put(t.Context(), 4) != ErrClosed {
			t.Error("a closed queue accepted a job")
		}
	})
}

func TestCloseRunsOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dead []int
		var deadErr error
		q := NewQueue(QueueConfig[int]{
			Pool: newPool(t, Config{}), Limit: 3, Retries: 100, Backoff: time.Hour,
			Handle: func(ctx context.Context, _ []int) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
			DeadLetter: func(jobs []int, err error) { dead, deadErr = append(dead, jobs...), err },
		})
		put(t, q, 1, 2, 3)
		late := make(chan error)
		go func() { late <- q.Put(context.Background(), 4) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Close(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "3 jobs not done") {
			t.Errorf("Close: %v", err)
		}
		if err := <-late; err != ErrClosed {
			t.Errorf("the waiting Put: %v", err)
		}
		closeQueue(t, q)
		if !slices.Equal(dead, []int{1, 2, 3}) || !errors.Is(deadErr, context.Canceled) {
			t.Errorf("dead %v with %v: a job was lost", dead, deadErr)
		}
		if s := q.Stats(); s.Tries != 3 {
			t.Errorf("%+v: after the context's end, each is tried once", s)
		}
	})
}

// A called handler finds that another has taken its batch. Close waits for it, too.
func TestCloseWaitsForAHandlerWithoutWork(t *testing.T) {
	q := NewQueue(QueueConfig[int]{Pool: newPool(t, Config{}), Handle: newRecorder().handle})
	q.mu.Lock()
	q.handlers, q.called = 1, 1
	q.mu.Unlock()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Close(ended); err == nil {
		t.Error("Close did not wait")
	}
	if q.take() != nil {
		t.Error("a handler got a batch although there was none")
	}
	closeQueue(t, q)
}

func TestOneHandlerForOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		q := newQueue(t, newRecorder(), QueueConfig[int]{Pool: p, Handlers: 8, Batch: 3})
		for i, want := range []int{1, 1, 1, 2, 2, 2, 3} {
			put(t, q, i)
			if s := q.Stats(); s.Handlers != want {
				t.Errorf("%d handlers for %d jobs, want %d", s.Handlers, i+1, want)
			}
		}
		close(release)
		closeQueue(t, q)
		closeAndCheck(t, p)
	})
}

func TestJobsGivenUpAreLogged(t *testing.T) {
	var out bytes.Buffer
	p := newPool(t, Config{})
	c := QueueConfig[int]{
		Pool: p, Handle: func(context.Context, []int) error { return errors.New("no disk") },
		Logger: slog.New(slog.NewTextHandler(&out, nil)),
	}
	q := NewQueue(c)
	put(t, q, 1)
	closeQueue(t, q)
	c.DeadLetter = func([]int, error) { panic("no grave") }
	q = NewQueue(c)
	put(t, q, 1)
	closeQueue(t, q)
	if s := out.String(); !strings.Contains(s, "no disk") || !strings.Contains(s, "no grave") || q.Stats().Dead != 1 ||
		p.Stats().Panics != 1 {
		t.Errorf("logged %q; %+v", s, q.Stats())
	}
}

// On a full pool a queue waits, and on a pool that was closed too early it uses its own goroutines.
// Neither loses a job.
func TestQueueOnABusyAndAClosedPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := full(t)
		r := newRecorder()
		q := newQueue(t, r, QueueConfig[int]{Pool: p, Handlers: 2})
		put(t, q, 1, 2, 3)
		if s := p.Stats(); s.Waiting != 2 || q.Stats().Queued != 3 {
			t.Errorf("%+v, %+v, want two handlers to wait for room", s, q.Stats())
		}
		close(release)
		closeAndCheck(t, p)
		put(t, q, 4, 5)
		closeQueue(t, q)
		if s := q.Stats(); s.Done != 5 || r.most > 2 {
			t.Errorf("%+v, %d at once", s, r.most)
		}
	})
}

func TestQueueMisusePanics(t *testing.T) {
	p := newPool(t, Config{})
	handle := func(context.Context, []int) error { return nil }
	for want, f := range map[string]func(){
		"without Pool":         func() { NewQueue(QueueConfig[int]{Handle: handle}) },
		"without Pool or Hand": func() { NewQueue(QueueConfig[int]{Pool: p}) },
		"Limit: -1":            func() { NewQueue(QueueConfig[int]{Pool: p, Handle: handle, Limit: -1}) },
		"Backoff: -1ns":        func() { NewQueue(QueueConfig[int]{Pool: p, Handle: handle, Backoff: -1}) },
		"Backlog: -1":          func() { NewKeyed[int](p, KeyedConfig{Backlog: -1}) },
		"task is nil":          func() { NewKeyed[int](p, KeyedConfig{}).TryGo(1, nil) },
		"task is nil ":         func() { Submit[int](t.Context(), p, nil) },
	} {
		func() {
			defer func() {
				if v, _ := recover().(string); !strings.Contains(v, strings.TrimSpace(want)) {
					t.Errorf("panic value %q, want one that says %q", v, want)
				}
			}()
			f()
		}()
	}
}
