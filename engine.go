package myriad

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/bridge"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/handoff"
)

// An Engine runs event loops. Its methods may be called from any goroutine.
type Engine struct {
	cfg   Config
	sys   driver.System
	has   driver.Facilities // of sys
	loops []*Loop
	start time.Time

	running   atomic.Int32 // loops and bridges that have not ended
	admission admission
	bridges   *bridge.Bridges  // to adopted connections without a descriptor
	monitor   *handoff.Monitor // of inline tasks
	lighten   func()           // gives the ballast back; nil: there is none

	mu          sync.Mutex
	waiters     []driver.Parker // of Shutdown
	inheritance *inheritance    // that is not decided yet
	shared      map[any]any
	queues      []func() (time.Duration, bool) // see WatchQueue
	pruned      int                            // how many there were when those that had gone were last left out

	lookups lookups // of DialFunc
}

// Start opens an engine and runs its loops; Shutdown ends them. It fails with ErrUnsupported if the
// platform does not have the driver that Config.Driver names, with an error for a negative setting
// or Loops above 255, and with the system's error.
func Start(c Config) (*Engine, error) {
	cfg, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, sys: cfg.System, has: cfg.System.Facilities(), start: cfg.System.Now(),
		monitor: handoff.NewMonitor(cfg.System), admission: admission{quota: quota{most: int64(cfg.MaxConns)}}}
	e.admission.engine, e.admission.door.engine = e, e
	e.bridges = bridge.NewBridges(e.sys, cfg.Logger, cfg.LingerTimeout, func() { e.running.Add(1) }, e.ended)
	if cfg.AcceptRate > 0 {
		e.admission.pace.interval = int64(time.Second) / int64(cfg.AcceptRate)
	}
	for i := range cfg.Loops {
		l, err := newLoop(e, i)
		if err != nil {
			for _, l := range e.loops {
				_ = l.drv.Shutdown()
			}
			return nil, err
		}
		e.loops = append(e.loops, l)
	}
	e.admission.spare.open = e.has.Spare
	e.admission.spare.keep()
	if e.has.Ballast != nil {
		e.lighten = e.has.Ballast()
	}
	e.running.Store(int32(len(e.loops)))
	for _, l := range e.loops {
		l.owner.Start(l.begin)
	}
	return e, nil
}

var standard struct {
	once   sync.Once
	engine *Engine
	err    error
}

// Default is an engine with the zero Config, started when it is first asked for and never stopped.
// It serves web.Server and websocket when they are given none, and is the only global. To checks
// for leaks its goroutines look like some: the guide "Operate and test a program of your own" has
// the options that they need.
func Default() (*Engine, error) {
	standard.once.Do(func() { standard.engine, standard.err = Start(Config{}) })
	return standard.engine, standard.err
}

// System is the world the engine lives in, for the packages of this module: where they wait and
// run, they do it by its means, so that a simulation can order them.
func (e *Engine) System() driver.System { return e.sys }

// Logger is Config.Logger, or what stands in for it. Any goroutine.
func (e *Engine) Logger() *slog.Logger { return e.cfg.Logger }

// Shared returns the one value of key in this engine. The first call makes it by create. Packages
// above use it instead of global variables. key is of a type of that package. create must not call
// Shared. Any goroutine.
func (e *Engine) Shared(key any, create func() any) any {
	e.mu.Lock()
	defer e.mu.Unlock()
	v, ok := e.shared[key]
	if !ok {
		if e.shared == nil {
			e.shared = map[any]any{}
		}
		v = create()
		e.shared[key] = v
	}
	return v
}

// Loops are the engine's loops, by their Index; they are the same until its end. Any goroutine.
func (e *Engine) Loops() []*Loop { return append([]*Loop(nil), e.loops...) }

// HandOff is Handoff.HandOff for callers that were given no Handoff: if the calling goroutine runs
// an inline task of one of the engine's loops, that loop continues on another goroutine. It returns
// false if the caller must not wait, because it runs a callback of any engine's loop, or an inline
// task on a driver that is bound to a thread. It looks through the stack, as OnLoop does. Any
// goroutine.
func (e *Engine) HandOff() bool {
	switch whereabouts() {
	case loopBody:
		return false
	case taskHost:
		return e.handoffOf(driver.Goroutine()).HandOff()
	}
	return true
}

// handoffOf finds the Handoff of the inline task that runs on a goroutine. It is the zero one if
// the loop was handed off already, or is another engine's.
func (e *Engine) handoffOf(goroutine uint64) Handoff {
	for _, l := range e.loops {
		if token := l.owner.TaskOn(goroutine); token != (handoff.Token{}) {
			return Handoff{token}
		}
	}
	return Handoff{}
}

// What is bound waits by the means of the engine that it is given to, as Stream's handler and
// net.Conn do.
type bound interface{ bind(sys driver.System) }

// bind binds h, or what h names as its successor: it may negotiate first (Heir).
func (e *Engine) bind(h Handler) {
	if first, ok := h.(interface{ Heir() Handler }); ok {
		h = first.Heir()
	}
	if b, ok := h.(bound); ok {
		b.bind(e.sys)
	}
}

// writeLimit is the high mark of conns without one of their own.
func (e *Engine) writeLimit() int32 { return int32(min(e.cfg.WriteLimit, maxWriteLimit)) }

// Shutdown stops listening. It calls every handler that is a Stopper, and closes the conns of all
// others with Conn.Close, which flushes what is queued. It ends the loops when the last conn has
// gone. When ctx ends first, the remaining connections are aborted and the context's error is
// returned. Shutdown waits for these ends only while they go on, and for a second at most. A loop
// whose callback blocks aborts its connections when that callback returns. A second call waits like
// the first. Not from a loop.
func (e *Engine) Shutdown(ctx context.Context) error {
	defer e.admission.spare.close()
	for _, l := range e.loops {
		l.Post(func() { l.stop(nil) })
	}
	err := e.wait(ctx)
	if err != nil {
		for _, l := range e.loops {
			l.Post(func() { l.stop(err) })
		}
		e.bridges.Abort()
		e.waitForAborts()
	}
	return err
}

// wait returns when all loops have ended or ctx has.
func (e *Engine) wait(ctx context.Context) error {
	p := e.waiter()
	defer e.forget(p)
	stop := context.AfterFunc(ctx, p.Unpark)
	defer stop()
	for e.running.Load() > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.Park()
	}
	return nil
}

const (
	// abortStall is for how long no connection and no loop ends until Shutdown takes it that a
	// callback blocks a loop.
	abortStall = 250 * time.Millisecond
	// abortTime is how long Shutdown waits at most for connections that have been aborted.
	abortTime = time.Second
)

// waitForAborts returns when all loops have ended, or when the rest seems to wait for a callback.
func (e *Engine) waitForAborts() {
	p := e.waiter()
	defer e.forget(p)
	began := e.sys.Now()
	moved, left := began, e.unfinished()
	for left > 0 {
		p.ParkFor(abortStall)
		now, n := e.sys.Now(), e.unfinished()
		switch {
		case now.Sub(began) >= abortTime:
			return
		case n != left:
			moved, left = now, n
		case now.Sub(moved) >= abortStall:
			return
		}
	}
}

// unfinished is how many connections, loops and bridges have not ended.
func (e *Engine) unfinished() int64 {
	n := int64(e.running.Load())
	for _, l := range e.loops {
		n += l.stats.conns.Load()
	}
	return n
}

// waiter makes a Parker that is unparked whenever a loop or a bridge ends.
func (e *Engine) waiter() driver.Parker {
	p := e.sys.NewParker()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiters = append(e.waiters, p)
	return p
}

func (e *Engine) forget(waiter driver.Parker) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiters = slices.DeleteFunc(e.waiters, func(p driver.Parker) bool { return p == waiter })
}

func (e *Engine) loopEnded(l *Loop) {
	_ = l.drv.Shutdown()
	e.admission.anteroom.call()
	for _, ln := range l.listeners { // of a driver that has failed
		ln.ended()
	}
	e.ended()
}

// ended counts a loop or a bridge that has come to its end.
func (e *Engine) ended() {
	if e.running.Add(-1) == 0 {
		e.monitor.End()
		if e.lighten != nil {
			e.lighten()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.waiters {
		p.Unpark()
	}
}

// Figures are what a package that serves connections of an engine counts, by name, for package
// debug.
type Figures struct {
	Title  string
	Counts []Count
}

// A Count is one line of Figures.
type Count struct {
	Name  string
	Count int64
}

// Figures returns the figures of all values of Shared that have a method Figures, in order of their
// titles. That method must not block, nor call Shared. Any goroutine.
func (e *Engine) Figures() []Figures {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Figures
	for _, v := range e.shared {
		if f, ok := v.(interface{ Figures() Figures }); ok {
			all = append(all, f.Figures())
		}
	}
	slices.SortFunc(all, func(a, b Figures) int { return cmp.Compare(a.Title, b.Title) })
	return all
}

// Limits reads the counters. Any goroutine; it stops nothing, so that they are of about the same
// time.
func (e *Engine) Limits() Limits {
	return Limits{
		MaxConns: int(e.admission.quota.most), Open: int(e.admission.quota.open.Load()),
		AtMaxConns: e.admission.hits.conns.Load(), AtAcceptRate: e.admission.hits.rate.Load(),
		AtLateness: e.admission.hits.late.Load(),
		Left:       e.admission.hits.left.Load(),
		NoFiles:    e.admission.hits.files.Load(),
		Shed:       e.admission.hits.shed.Load(), TooMany: e.admission.hits.tooMany.Load(),
	}
}

// Stats reads the counters. Any goroutine; it holds no loop up, and does not wait for one that is
// stuck.
func (e *Engine) Stats() Stats {
	var s Stats
	now := e.sys.Now().Sub(e.start)
	for _, l := range e.loops {
		one := l.snapshot(now)
		s.Loops = append(s.Loops, one)
		s.add(&one)
		if l.newcomers.limited.Load() {
			s.Newcomers.Loops++
		}
	}
	s.LateTasks = e.oldestTask()
	waiting, since := e.admission.door.oldest()
	s.Newcomers.Waited, s.Newcomers.Waiting = e.admission.hits.late.Load(), waiting
	if waiting > 0 {
		s.Newcomers.Longest = max(0, now-time.Duration(since)*time.Millisecond)
	}
	return s
}

// WatchQueue has Stats.LateTasks say how long work has waited that runs off the loops, such as the
// tasks of a pool. oldest returns for how long the oldest piece has. If it returns false, the queue
// has gone, and is forgotten. oldest must neither block nor call the engine. Any goroutine.
func (e *Engine) WatchQueue(oldest func() (time.Duration, bool)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queues) > 2*e.pruned {
		e.latestQueue()
		e.pruned = max(len(e.queues), 8)
	}
	e.queues = append(e.queues, oldest)
}

func (e *Engine) oldestTask() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.latestQueue()
}

// latestQueue returns the longest wait, and forgets queues that have gone. mu is held.
func (e *Engine) latestQueue() (late time.Duration) {
	e.queues = slices.DeleteFunc(e.queues, func(oldest func() (time.Duration, bool)) bool {
		waited, there := oldest()
		late = max(late, waited)
		return !there
	})
	return late
}

// Late is how late the engine's loops are with what they serve, the latest of them. It is how long
// bytes may have waited in a socket, output for the kernel, or a timer for its call. A loop that
// keeps up is as late as its turns take, mostly well below a millisecond. Any goroutine; it takes
// some nanoseconds for each loop.
func (e *Engine) Late() time.Duration {
	late, now := time.Duration(0), e.sys.Now().Sub(e.start)
	for _, l := range e.loops {
		late = max(late, l.late(now))
	}
	return late
}
