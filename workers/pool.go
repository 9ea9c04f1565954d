package workers

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is returned for a task submitted after Close.
var ErrClosed = errors.New("workers: closed")

// Defaults of Config.
const (
	DefaultWorkers = 16384
	DefaultQueue   = 65536
	DefaultIdle    = 10 * time.Second

	mostWorkers      = 1 << 30 // leaves room for Widen to add
	mostQueue        = 1 << 29 // so that Workers + Queue fit into an int of 32 bits
	basePerProcessor = 32
	admitFraction    = 8 // workers admit the line when 1/8 of the queue is free
)

// A Config configures a pool. The zero value works. New panics on a negative number.
type Config struct {
	// Workers is how many tasks may run at once. While that many are blocked, further tasks wait in
	// the queue. If tasks wait for other tasks of the same pool, Workers must be larger than the
	// number of such waiting tasks. Values above 2^30 count as 2^30. 0: 16384.
	Workers int

	// Queue is how many tasks may wait while Workers tasks run. A task for which a worker has been
	// called counts as running, so the pool always accepts Workers + Queue tasks. At that limit
	// TryGo and TryGoAll refuse, and Go and GoTimeout wait. Waiting calls are admitted together
	// when an eighth of the queue is free, or after 1 ms. Values above 2^29 count as 2^29. 0:
	// 65536.
	Queue int

	// Base bounds the workers that are not stuck in a task. Above it, the pool starts workers only
	// to replace stuck ones. Up to Base tasks may block at once before other tasks have to wait for
	// the next tick. 0: 32 per processor (GOMAXPROCS at New).
	Base int

	// Idle is how long an idle worker waits for a task before it ends. It may wait up to half as
	// long again. At least 2 ms. 0: 10 s.
	Idle time.Duration

	// OnPanic is called when a task panics, on the task's goroutine. The worker continues
	// afterwards, even if OnPanic calls runtime.Goexit. OnPanic must not panic. nil: the pool logs
	// the panic and its stack as an error to Logger.
	OnPanic func(v any, stack []byte)

	// Logger gets panics if OnPanic is nil. nil: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Workers < 0 || c.Queue < 0 || c.Base < 0 || c.Idle < 0 {
		panic(fmt.Sprintf("workers: Config{Workers: %d, Queue: %d, Base: %d, Idle: %v}: use 0 for the default, not "+
			"a negative number",
			c.Workers, c.Queue, c.Base, c.Idle))
	}
	c.Workers = min(or(c.Workers, DefaultWorkers), mostWorkers)
	c.Queue = min(or(c.Queue, DefaultQueue), mostQueue)
	c.Idle = or(c.Idle, DefaultIdle)
	c.Base = min(or(c.Base, basePerProcessor*runtime.GOMAXPROCS(0)), c.Workers)
	return c
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// A Pool runs tasks on a bounded number of goroutines. Any goroutine may call its methods, also its
// own tasks. It starts no goroutine before the first task. Its workers start without runtime/pprof
// labels. Labels that a task sets stay on its worker, so use pprof.Do, which removes them.
type Pool struct {
	config  Config
	admitAt int           // workers admit the line when this many places are free
	kick    chan struct{} // wakes the monitor
	done    chan struct{} // closed when the pool has drained and every goroutine is ending

	mu     sync.Mutex // guards everything below, and the workers' state
	tasks  ring[func()]
	waits  waits
	line   line        // calls that wait for room; new calls queue behind them
	closed atomic.Bool // set under the lock; may be read without it where a stale value is harmless

	workers int       // running or starting goroutines; each is fresh, stuck, idle or about to end
	fresh   []*worker // workers that run or were called, without stuck ones
	stuck   int       // workers that the monitor found in one task for a tick or longer
	idle    []*worker // workers that wait to be woken, longest wait first
	called  int       // those of fresh that were woken or started but have not looked for a task yet

	monitoring bool   // the monitor's goroutine runs
	ticking    bool   // the monitor looks within a tick, or has been kicked
	epoch      uint32 // number of the monitor's rounds of retiring

	running, peak          int
	finished, panics, left uint64
}

// New returns a pool. Close ends it.
func New(config Config) *Pool {
	config = config.withDefaults()
	return &Pool{
		config:  config,
		admitAt: max(1, config.Queue/admitFraction),
		kick:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		waits:   waits{start: time.Now(), last: -quick},
	}
}

// spins is how often a goroutine yields before it queues for the lock. A sync.Mutex with thousands
// of waiters switches goroutines at each unlock. A lock that is held for 50 ns is nearly always
// free at the next try.
const spins = 8

func (p *Pool) lock() {
	for range spins {
		if p.mu.TryLock() {
			return
		}
		runtime.Gosched()
	}
	p.mu.Lock()
}

// Stats are a pool's counters, all of the same moment.
type Stats struct {
	Workers int // goroutines: idle, running a task, or between two
	Peak    int // the maximum of Workers so far
	Running int // running tasks
	Stuck   int // running tasks that the monitor found older than a tick (1 ms) while others waited
	Idle    int // goroutines that wait for a task
	Queued  int // tasks that have not started
	Waiting int // calls of Go and GoTimeout, and keys and Queues, that wait for room in the queue

	// WaitedSeconds is the sum of the times that started tasks were queued, and LongestWait their
	// maximum. The mean is WaitedSeconds / (Done + Running). Above a million tasks per second, both
	// are estimated from one task in sixteen.
	WaitedSeconds float64
	LongestWait   time.Duration
	// OldestWait is how long the task has been queued that is queued longest; 0: none is. It grows
	// while the pool cannot keep up. It is estimated in the same way.
	OldestWait time.Duration

	Done   uint64 // tasks that ended in any way
	Panics uint64 // tasks that panicked
	Exits  uint64 // tasks that ended their goroutine with runtime.Goexit
}

// Stats returns the counters, all of the same moment.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Workers: p.workers, Peak: p.peak, Running: p.running, Stuck: p.stuck, Idle: len(p.idle),
		Queued: p.tasks.n, Waiting: p.line.n,
		WaitedSeconds: p.waits.seconds, LongestWait: p.waits.longest,
		OldestWait: p.waits.oldest(),
		Done:       p.finished, Panics: p.panics, Exits: p.left,
	}
}
