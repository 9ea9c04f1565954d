package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Defaults of QueueConfig.
const (
	DefaultLimit      = 65536
	DefaultBackoff    = 100 * time.Millisecond
	DefaultMaxBackoff = 30 * time.Second
)

// ErrNoRetry, wrapped in an error that Handle returns, says that a retry is useless.
var ErrNoRetry = errors.New("workers: do not retry")

// QueueConfig configures a Queue. Pool and Handle are required; the other fields may be zero.
// NewQueue panics if Pool or Handle is nil, and on negative numbers.
type QueueConfig[T any] struct {
	// Pool runs Handle. The caller still owns it, and must close the queue before the pool. If the
	// pool is full, the queue waits for room and loses nothing. If the pool is closed before the
	// queue, the queue continues on goroutines of its own.
	Pool *Pool

	// Handle does the jobs of a batch: 1 to Batch jobs, in the order in which they were accepted.
	// It may keep the slice, but must not write to it. After an error, a panic or runtime.Goexit,
	// the whole batch is retried, so a job must tolerate being done twice. ctx ends when the
	// context of a Close ends.
	Handle func(ctx context.Context, batch []T) error

	// Handlers is how many batches may be handled at once. 0: 1, which also keeps the order of jobs
	// that need no retry.
	Handlers int

	// Limit is how many jobs may be accepted and not done: waiting, being handled, or waiting for a
	// retry. At the limit TryPut refuses and Put waits. 0: 65536.
	Limit int

	// Batch is how many jobs one call of Handle may get, at most Limit. 0: 1.
	Batch int
	// Age is how long a job waits for its batch to fill. 0: it does not wait; a batch has the jobs
	// that are queued when a handler is free.
	Age time.Duration

	// Retries is how often a failed batch is retried. 0: never.
	Retries int
	// Backoff is the wait before the first retry. It doubles before each further one, up to
	// MaxBackoff. Other batches are handled meanwhile. 0: 100 ms, and 30 s.
	Backoff, MaxBackoff time.Duration

	// DeadLetter is called with jobs that are given up, and the last error. Jobs are given up if
	// all tries have failed, if the error is ErrNoRetry, or if the context of a Close has ended.
	// They count as not done until DeadLetter returns. It must not panic. nil: the queue logs the
	// error and the number of jobs to Logger, and drops the jobs.
	DeadLetter func(jobs []T, err error)

	// Logger gets jobs that are given up if DeadLetter is nil, and DeadLetter's panics. nil:
	// slog.Default().
	Logger *slog.Logger
}

func (c QueueConfig[T]) withDefaults() QueueConfig[T] {
	if c.Pool == nil || c.Handle == nil {
		panic("workers: QueueConfig without Pool or Handle")
	}
	if c.Handlers < 0 || c.Limit < 0 || c.Batch < 0 || c.Age < 0 || c.Retries < 0 || c.Backoff < 0 || c.MaxBackoff < 0 {
		panic(fmt.Sprintf("workers: QueueConfig{Handlers: %d, Limit: %d, Batch: %d, Age: %v, Retries: %d, Backoff: "+
			"%v, MaxBackoff: %v}: "+
			"use 0 for the default, not a negative number", c.Handlers, c.Limit, c.Batch, c.Age, c.Retries, c.Backoff,
			c.MaxBackoff))
	}
	c.Handlers = or(c.Handlers, 1)
	c.Limit = or(c.Limit, DefaultLimit)
	c.Batch = min(or(c.Batch, 1), c.Limit)
	c.Backoff = or(c.Backoff, DefaultBackoff)
	c.MaxBackoff = max(or(c.MaxBackoff, DefaultMaxBackoff), c.Backoff)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// A Queue accepts jobs and does them later: in batches, with a bounded number of handlers, and with
// retries. It tries each accepted job until the job succeeds or DeadLetter gets it. A job that
// succeeded is not done again. The queue is in memory: if a job must survive the process, store it
// before you acknowledge it, or acknowledge it in Handle. Any goroutine may call the methods.
// Handle may call them too, but must not wait in Put or Close.
type Queue[T any] struct {
	config QueueConfig[T]
	ctx    context.Context // of Handle
	hurry  context.CancelFunc
	done   chan struct{} // closed when Close has drained

	mu       sync.Mutex
	jobs     ring[job[T]]              // accepted, not in a batch yet
	again    ring[*batch[T]]           // failed, to be retried now
	backing  map[*batch[T]]*time.Timer // failed, to be retried later
	line     line                      // calls of Put that wait for room
	closed   bool
	handlers int         // on the pool: each handles a batch or looks for one
	called   int         // handlers that have not looked for a batch yet
	age      *time.Timer // set while jobs wait for their batch to fill
	aging    bool        // age is set
	ripe     bool        // the oldest job has reached Age

	held                  int // jobs accepted and not done
	finished, dead, tries uint64
	failures              uint64
}

type job[T any] struct {
	v  T
	at time.Time // when it was accepted; zero unless Age is set
}

// NewQueue returns a queue. It has no goroutine, and a timer only while jobs wait for a time. Close
// ends it.
func NewQueue[T any](c QueueConfig[T]) *Queue[T] {
	q := &Queue[T]{config: c.withDefaults(), done: make(chan struct{}), backing: map[*batch[T]]*time.Timer{}}
	q.ctx, q.hurry = context.WithCancel(context.Background())
	return q
}

// Put accepts a job. At the limit it waits for room until ctx ends; waiting calls are accepted in
// order. So handlers slow producers down to their own rate. A nil error means that the job was
// accepted. With ErrClosed or the context's cause it was not.
func (q *Queue[T]) Put(ctx context.Context, v T) error {
	if ctx.Err() != nil {
		return noRoom(ctx)
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	if q.room() == 0 {
		t := q.line.join(func() { q.accept(v) })
		q.mu.Unlock()
		return q.line.wait(ctx, &q.mu, t)
	}
	q.accept(v)
	q.release(q.call())
	return nil
}

// TryPut accepts all jobs or none, and reports whether it accepted them. It accepts none if there
// is no room for all, if calls of Put wait, or if the queue is closed. It never blocks. It never
// accepts more than Limit jobs.
func (q *Queue[T]) TryPut(vs ...T) bool {
	q.mu.Lock()
	if q.closed || q.room() < len(vs) {
		q.mu.Unlock()
		return false
	}
	for _, v := range vs {
		q.accept(v)
	}
	q.release(q.call())
	return true
}

// Close refuses new jobs, and handles the accepted ones without waiting for batches to fill or for
// backoffs. It returns when they are done. Waiting calls of Put return ErrClosed. If ctx ends
// first, Close returns its cause, the context of Handle ends, and batches that fail from then on go
// to DeadLetter. Call Close again to wait further.
func (q *Queue[T]) Close(ctx context.Context) error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.line.close()
		q.hasten()
	}
	q.settled()
	q.release(q.call())
	select {
	case <-q.done:
		return nil
	default:
	}
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		q.hurry()
		return fmt.Errorf("workers: queue still draining, %d jobs not done: %w", q.Stats().Held, context.Cause(ctx))
	}
}

// QueueStats are a queue's counters, all of the same moment.
type QueueStats struct {
	Held     int // jobs accepted and not done, at most Limit
	Queued   int // jobs that have not been tried yet
	Backing  int // failed batches that wait for their backoff
	Handlers int // batches being handled or about to be
	Waiting  int // calls of Put that wait for room

	Done     uint64 // jobs that succeeded
	Dead     uint64 // jobs given up
	Tries    uint64 // calls of Handle
	Failures uint64 // calls of Handle that failed
}

// Stats returns the counters, all of the same moment.
func (q *Queue[T]) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QueueStats{
		Held: q.held, Queued: q.jobs.n, Backing: len(q.backing), Handlers: q.handlers, Waiting: q.line.n,
		Done: q.finished, Dead: q.dead, Tries: q.tries, Failures: q.failures,
	}
}

// The functions below run under the lock.

func (q *Queue[T]) room() int {
	if q.line.n > 0 {
		return 0
	}
	return q.config.Limit - q.held
}

func (q *Queue[T]) accept(v T) {
	j := job[T]{v: v}
	if q.config.Age > 0 {
		j.at = time.Now()
	}
	q.jobs.push(j)
	q.held++
}

// free makes room for n jobs, and accepts waiting calls of Put.
func (q *Queue[T]) free(n int) {
	q.held -= n
	for q.line.n > 0 && q.held < q.config.Limit {
		t := q.line.first
		t.f()
		q.line.decide(t, nil)
	}
	if q.held == 0 {
		q.jobs.trim()
	}
}

// settled closes done when a closed queue has drained.
func (q *Queue[T]) settled() {
	if q.closed && q.held == 0 && q.handlers == 0 {
		select {
		case <-q.done:
		default:
			q.hurry() // ends the context, which no handler uses now
			q.stopAging()
			close(q.done)
		}
	}
}
