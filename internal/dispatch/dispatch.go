package dispatch

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/workers"
)

// A Mode says where tasks run. The packages that serve users call it Dispatch.
type Mode uint8

const (
	Auto   Mode = iota // inline if they are known to be quick, else on the pool
	Pool               // on the pool
	Inline             // inline

	Modes // how many there are
)

// String is the mode in a word.
func (m Mode) String() string {
	if m < Modes {
		return [Modes]string{"auto", "pool", "inline"}[m]
	}
	return "Dispatch(" + strconv.Itoa(int(m)) + ")"
}

// A Config says how a Dispatcher works. Its zero value works.
type Config struct {
	Mode Mode
	// Pool runs what does not run inline. It stays its owner's to close. nil: a pool of the
	// Dispatcher's own, made of Workers. If the engine of the first task has an executor, as a
	// simulated one has, that is used instead of both.
	Pool    driver.Executor
	Workers workers.Config
	// MaxQueued is how many bytes a connection may have queued at most when a task of it starts
	// inline. 0: any number.
	MaxQueued int
	// MaxAway is how many tasks may be away at most when another one starts inline. 0: any number.
	MaxAway int
	// AllBack is called when the last task that was away has ended. Any goroutine. nil: nothing.
	AllBack func()
	// NoRoom is called with each task that the pool has no room for; its key is idle then, and
	// neither Do nor Next is called. On the loop. nil: tasks wait until there is room.
	NoRoom func(t Task)
	// Learned has each Local begin with a Record that is quick. For tests.
	Learned bool
}

// A Dispatcher runs the tasks of one server, on all loops that its connections have. Its methods
// may be called by any goroutine.
type Dispatcher struct {
	config Config
	away   away
	once   sync.Once
	pool   driver.Executor              // set by once
	known  atomic.Pointer[workers.Pool] // pool, if it is one
	locals atomic.Pointer[[]*Local]     // by the loop's index; replaced under mu

	mu      sync.Mutex
	waiting []Task // those that the pool had no room for; of each key at most one
	feeding bool   // a goroutine brings them to it
}

// New makes a Dispatcher. It starts no goroutine.
func New(c Config) *Dispatcher {
	d := &Dispatcher{config: c}
	d.away.most, d.away.none = int64(c.MaxAway), c.AllBack
	return d
}

// PoolOf is what runs tasks for engines of a system.
func (d *Dispatcher) PoolOf(system driver.System) driver.Executor {
	d.once.Do(func() {
		if d.pool = system.Executor(); d.pool == nil {
			d.pool = d.config.Pool
		}
		if d.pool == nil {
			d.pool = workers.New(d.config.Workers)
		}
		if p, ok := d.pool.(*workers.Pool); ok {
			d.known.Store(p)
		}
	})
	return d.pool
}

// UsePool has the Dispatcher use another pool: before the first task, or in tests on the only loop.
func (d *Dispatcher) UsePool(x driver.Executor) {
	d.once.Do(func() {})
	d.pool = x
}

// Widen moves the most tasks that the pool runs at once by n, and reports whether it can: a
// simulator has no such limit.
func (d *Dispatcher) Widen(n int) bool {
	p, ok := d.pool.(interface{ Widen(n int) })
	if ok {
		p.Widen(n)
	}
	return ok
}

// Done is how many tasks have ended on the pool, which may be others' too. It is 0 on a simulator,
// which does not count them. It takes the pool's lock.
func (d *Dispatcher) Done() uint64 {
	if p, ok := d.pool.(interface{ Stats() workers.Stats }); ok {
		return p.Stats().Done
	}
	return 0
}

// Away is how many tasks run on goroutines that were a loop's. It may be below 0 for a moment.
func (d *Dispatcher) Away() int { return int(d.away.n.Load()) }

// Close has the Dispatcher's own pool refuse new tasks. Its goroutines end when the tasks that run
// have ended, for which Close does not wait.
func (d *Dispatcher) Close() {
	if d.config.Pool != nil {
		return
	}
	d.once.Do(func() { d.pool = workers.New(d.config.Workers) }) // tasks that are still to come are refused by it
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.pool.Close(ended) // it returns at once, with the error of its context
}

// away counts the tasks that run on goroutines which were a loop's. One may end before its
// beginning is counted.
type away struct {
	n    atomic.Int64
	most int64  // 0: any number
	none func() // called when there is none any more
}

func (a *away) full() bool { return a.most > 0 && a.n.Load() >= a.most }

func (a *away) add(n int64) {
	if a.n.Add(n) == 0 && a.none != nil {
		a.none()
	}
}

// goOn has the pool run a task whose key was accepted. It never blocks: what the pool has no room
// for is brought to it by one goroutine that waits.
func (d *Dispatcher) goOn(t Task) {
	if t == nil {
		return
	}
	s := t.state()
	system := s.local.system
	if d.PoolOf(system).TryGo(s.runs()) {
		return
	}
	d.mu.Lock()
	d.waiting = append(d.waiting, t)
	start := !d.feeding
	d.feeding = true
	d.mu.Unlock()
	if start {
		system.Go(d.feed)
	}
}

// feed waits for room in the pool. If the pool has been closed, feed runs the tasks that are left.
func (d *Dispatcher) feed() {
	for t := d.nextWaiting(); t != nil; t = d.nextWaiting() {
		run := t.state().runs()
		if d.pool.Go(context.Background(), run) != nil {
			run()
		}
	}
}

func (d *Dispatcher) nextWaiting() Task {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 {
		d.waiting, d.feeding = nil, false
		return nil
	}
	t := d.waiting[0]
	d.waiting[0] = nil
	d.waiting = d.waiting[1:]
	return t
}

// On is the Dispatcher's state on a loop.
func (d *Dispatcher) On(loop *myriad.Loop) *Local {
	if l := d.find(loop); l != nil {
		return l
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.find(loop); l != nil {
		return l
	}
	return d.add(loop)
}

func (d *Dispatcher) find(loop *myriad.Loop) *Local {
	all := d.locals.Load()
	if all == nil || loop.Index() >= len(*all) {
		return nil
	}
	l := (*all)[loop.Index()]
	for l != nil && l.loop != loop {
		l = l.other
	}
	return l
}

// serves reports whether a loop of the engine is among l and those behind it.
func (l *Local) serves(e *myriad.Engine) bool {
	for ; l != nil; l = l.other {
		if l.loop.Engine() == e {
			return true
		}
	}
	return false
}

// watch has an engine know how long tasks wait. It does not keep d.
func (d *Dispatcher) watch(e *myriad.Engine) {
	w := weak.Make(d)
	e.WatchQueue(func() (time.Duration, bool) {
		d := w.Value()
		if d == nil {
			return 0, false
		}
		if p := d.known.Load(); p != nil {
			return p.Stats().OldestWait, true
		}
		return 0, true
	})
}

// add is called under mu.
func (d *Dispatcher) add(loop *myriad.Loop) *Local {
	l := &Local{d: d, loop: loop, bound: loop.ThreadBound(), system: loop.Engine().System()}
	l.submits = l.submit
	if d.config.Learned {
		l.Record.inline.Store(true)
	}
	i := loop.Index()
	var all []*Local
	if before := d.locals.Load(); before != nil {
		all = append(all, *before...)
	}
	if !slices.ContainsFunc(all, func(other *Local) bool { return other.serves(loop.Engine()) }) {
		d.watch(loop.Engine())
	}
	for len(all) <= i {
		all = append(all, nil)
	}
	l.other, all[i] = all[i], l
	d.locals.Store(&all)
	return l
}
