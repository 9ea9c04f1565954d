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

// ErrNoRetry in what Handle returns, as with fmt.Errorf("…: %w", ErrNoRetry), says that trying
// again is useless.
var ErrNoRetry = errors.New("workers: not to be tried again")

// QueueConfig says how a Queue works. Pool and Handle must be there, everything else may be zero.
// NewQueue panics if they are not, and on negative numbers.
type QueueConfig[T any] struct {
	// Pool is what Handle runs on. It stays its owner's, who closes the queue first. A queue waits
	// for room in the pool without losing anything; on a pool that is closed all the same it goes
	// on with goroutines of its own.
	Pool *Pool

	// Handle does the jobs of a batch, between 1 and Batch of them in the order in which they were
	// accepted. It may keep the slice and must not write to it. An error, a panic or runtime.Goexit
	// means that all of them are to be tried again, so what has been done in part must bear to be
	// done once more. ctx ends when a Close has run out of time.
	Handle func(ctx context.Context, batch []T) error

	// Handlers is the most batches that are handled at once. 0: 1, which also keeps the order of
	// jobs that need no retry.
	Handlers int

	// Limit is the most jobs that are accepted and not done: those that wait, are handled, or wait
	// to be tried again. At the limit TryPut refuses and Put waits. 0: 65536.
	Limit int

	// Batch is the most jobs of one call of Handle, at most Limit. 0: 1.
	Batch int
	// Age is how long a job waits for its batch to fill, while fewer than Batch are there. 0: it
	// does not wait; a batch is what has come in by the time a handler is free.
	Age time.Duration

	// Retries is how often a batch that failed is tried again. 0: not at all.
	Retries int
	// Backoff is the wait before the first retry, twice as long before each further one up to
	// MaxBackoff. Other batches are handled meanwhile. 0: 100 ms, and 30 s.
	Backoff, MaxBackoff time.Duration

	// DeadLetter gets the jobs that are given up, because all tries have failed, the error is
	// ErrNoRetry, or a Close has run out of time, with the last error. They count as not done until
	// it returns. It must not panic. nil: the error and how many jobs it was are logged to Logger,
	// and the jobs are dropped.
	DeadLetter func(jobs []T, err error)

	// Logger hears of jobs given up if DeadLetter is nil, and of its panics. nil: slog.Default().
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

// A Queue accepts jobs now and has them done later: in batches, by a bounded number of handlers,
// tried again when they fail. What it has accepted is handled, until that succeeds or DeadLetter
// gets it; a job that succeeded is not handled again. It lives in memory: what must survive the
// process has to be written down before it is acknowledged, or be acknowledged by Handle. Its
// methods are safe for use by any goroutine, Handle's included, except that Handle must not wait
// for room or for Close.
type Queue[T any] struct {
	config QueueConfig[T]
	ctx    context.Context // Handle's
	hurry  context.CancelFunc
	done   chan struct{} // closed when Close has drained

	mu       sync.Mutex
	jobs     ring[job[T]]              // accepted, not yet in a batch
	again    ring[*batch[T]]           // failed, and to be tried now
	backing  map[*batch[T]]*time.Timer // failed, and to be tried later
	line     line                      // calls of Put that wait for room
	closed   bool
	handlers int         // on the pool: each handles a batch, or is about to look for one
	called   int         // those of them that have not looked yet
	age      *time.Timer // set while jobs wait for their batch to fill
	aging    bool        // it will fire
	ripe     bool        // the oldest job has its age

	held                  int // jobs accepted and not done
	finished, dead, tries uint64
	failures              uint64
}

type job[T any] struct {
	v  T
	at time.Time // when it came; zero unless Age is set
}

// NewQueue returns a queue. It has no goroutine, and a timer only while jobs wait for time to pass.
// Close ends it.
func NewQueue[T any](c QueueConfig[T]) *Queue[T] {
	q := &Queue[T]{config: c.withDefaults(), done: make(chan struct{}), backing: map[*batch[T]]*time.Timer{}}
	q.ctx, q.hurry = context.WithCancel(context.Background())
	return q
}

// Put accepts a job. At the limit it waits for room until ctx ends, first come first served: this
// is how producers are slowed down to what handlers get done. A nil error means that the job is
// accepted; with ErrClosed or the context's cause it is not.
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

// TryPut accepts all of the jobs, or none if there is no room for all, somebody waits for room, or
// the queue is closed, and says which. It never blocks. More jobs than Limit are never accepted
// together.
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

// Close refuses new jobs, has those accepted handled without waiting for batches to fill or
// backoffs to pass, and returns when that is done; calls of Put that still wait get ErrClosed. If
// ctx ends first, Close returns its cause, the context of running and further calls of Handle ends,
// and what they fail at goes to DeadLetter; call Close again to wait further.
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

// QueueStats are a queue's counters at one moment.
type QueueStats struct {
	Held     int // jobs accepted and not done, of which at most Limit
	Queued   int // jobs of these that have not been tried yet
	Backing  int // batches that failed and wait for their backoff to pass
	Handlers int // batches that are handled, or about to be
	Waiting  int // calls of Put that wait for room

	Done     uint64 // jobs handled with success
	Dead     uint64 // jobs given up
	Tries    uint64 // calls of Handle
	Failures uint64 // calls of these that failed
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

// What follows runs under the lock.

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

// free makes room for n jobs, and gives it to those who wait.
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

// settled tells Close of the end, once.
func (q *Queue[T]) settled() {
	if q.closed && q.held == 0 && q.handlers == 0 {
		select {
		case <-q.done:
		default:
			q.hurry() // nobody uses the context any more
			q.stopAging()
			close(q.done)
		}
	}
}
