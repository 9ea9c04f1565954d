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

// ErrClosed is returned for a task that came after Close.
var ErrClosed = errors.New("workers: closed")

// Defaults of Config.
const (
	DefaultWorkers = 16384
	DefaultQueue   = 65536
	DefaultIdle    = 10 * time.Second

	mostWorkers      = 1 << 30 // so that Widen has room to count
	mostQueue        = 1 << 29 // so that Workers + Queue fit into an int of 32 bits
	basePerProcessor = 32
	admitFraction    = 8 // 1/8 of the queue is free when workers admit the line
)

// A Config says how large a pool may get. Its zero value works. New panics on a negative number.
type Config struct {
	// Workers is the most tasks that run at once. When that many are blocked, further tasks wait in
	// the queue. A task that waits for another task of the same pool needs Workers to be above the
	// number of tasks that wait so. At most 2^30, for which more is taken. 0: 16384.
	Workers int

	// Queue is the most tasks that wait while Workers tasks run. A task on its way to a worker
	// counts as one that runs: the pool holds Workers + Queue tasks, however they came. At that
	// limit TryGo and TryGoAll refuse, and Go and GoTimeout wait; waiting calls are admitted
	// together when an eighth of the queue is free, or after 1 ms. At most 2^29, for which more is
	// taken. 0: 65536.
	Queue int

	// Base is how many workers that are not stuck in a task the pool keeps at most while tasks
	// wait; above it only stuck ones are replaced. As many tasks as this may block at the same
	// moment without others having to wait for the next tick. 0: 32 for each processor (GOMAXPROCS
	// at New).
	Base int

	// Idle is how long a worker waits for a task before it ends, up to half as long again, at least
	// 2 ms. 0: 10 s.
	Idle time.Duration

	// OnPanic is told when a task panics, on the goroutine of that task; the worker lives on, also
	// if OnPanic calls runtime.Goexit. It must not panic itself. nil: the panic and its stack are
	// logged as an error to Logger.
	OnPanic func(v any, stack []byte)

	// Logger hears of panics if OnPanic is nil. nil: slog.Default().
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

// A Pool is safe for use by any goroutine, its own tasks included. It starts no goroutine before
// the first task. Its workers begin without labels of runtime/pprof. Labels that a task sets stay
// on its worker until the task takes them off: use pprof.Do.
type Pool struct {
	config  Config
	admitAt int           // free places in the queue at which workers admit the line
	kick    chan struct{} // wakes the monitor
	done    chan struct{} // closed when Close has drained and every goroutine is ending

	mu     sync.Mutex // guards everything below, and the workers' state
	tasks  ring[func()]
	waits  waits
	line   line        // those who wait for room; nobody else gets any while there are some
	closed atomic.Bool // set under the lock, and read without it where the next moment is as good

	workers int       // goroutines that live or are being started; each is fresh, stuck or idle, or about to end
	fresh   []*worker // those at work or on their way to it, but for the stuck ones
	stuck   int       // those that the monitor found in one task for a tick or longer
	idle    []*worker // those that wait to be woken, the longest wait first
	called  int       // those of fresh that were woken or started and have not looked for a task yet

	monitoring bool   // the monitor's goroutine lives
	ticking    bool   // it looks again within a tick, or has been kicked to do so
	epoch      uint32 // counts the monitor's rounds of retiring

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

// spins is how often a goroutine lets others run before it queues for the lock. A sync.Mutex for
// which thousands queue is handed on with a switch of goroutines each time; one that is held for 50
// ns is nearly always free at the next look.
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

// Stats are a pool's counters at one moment.
type Stats struct {
	Workers int // goroutines: idle, running a task, or between two
	Peak    int // the most Workers there have been
	Running int // tasks that run
	Stuck   int // tasks of these that have run for a tick of the monitor (1 ms) or longer while others waited
	Idle    int // goroutines that wait for a task
	Queued  int // tasks that have not begun: those that wait, and those on their way to a worker
	Waiting int // calls of Go and GoTimeout, and lanes and queues of this package, that wait for room in the queue

	// How long the tasks that have begun were in the queue, added up and at most. The mean is
	// WaitedSeconds / (Done + Running). While more than a million tasks come in a second, one of
	// sixteen is measured and stands for the others.
	WaitedSeconds float64
	LongestWait   time.Duration

	Done   uint64 // tasks that ended, in whatever way
	Panics uint64 // tasks of these that panicked
	Exits  uint64 // tasks of these that ended their goroutine with runtime.Goexit
}

// Stats returns the counters, all of the same moment.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Workers: p.workers, Peak: p.peak, Running: p.running, Stuck: p.stuck, Idle: len(p.idle),
		Queued: p.tasks.n, Waiting: p.line.n,
		WaitedSeconds: p.waits.seconds, LongestWait: p.waits.longest,
		Done: p.finished, Panics: p.panics, Exits: p.left,
	}
}
