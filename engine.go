package myriad

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// An Engine runs event loops. Its methods may be called from any goroutine.
type Engine struct {
	cfg   Config
	sys   driver.System
	has   driver.Facilities // of sys
	loops []*Loop
	start time.Time

	turn       atomic.Uint32 // which gets the next connection
	listenTurn atomic.Uint32
	running    atomic.Int32 // loops and bridges that have not ended

	quota   quota
	pace    pace
	locals  sharedAddrs
	spare   spare
	monitor monitor
	lighten func() // gives the ballast back; nil: there is none
	hits    limitHits

	full, fast, failing notice // what is logged of MaxConns, AcceptRate and failing accepts

	mu      sync.Mutex
	waiters []driver.Parker // of Shutdown
	bridges map[*bridge]struct{}
	watcher driver.Watcher // of bridges; nil while there are none
	shared  map[any]any

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
		quota: quota{most: int64(cfg.MaxConns)}}
	if cfg.AcceptRate > 0 {
		e.pace.interval = int64(time.Second) / int64(cfg.AcceptRate)
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
	e.spare.open = e.has.Spare
	e.spare.keep()
	if e.has.Ballast != nil {
		e.lighten = e.has.Ballast()
	}
	e.running.Store(int32(len(e.loops)))
	e.monitor.engine, e.monitor.parker = e, e.sys.NewParker()
	for _, l := range e.loops {
		l.employ(l.begin)
	}
	return e, nil
}

var standard struct {
	once   sync.Once
	engine *Engine
	err    error
}

// Default is an engine with the zero Config, started when it is first asked for and never stopped.
// It serves web.Server and websocket when they are given none, and is the only global.
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

// Shutdown stops listening. It calls every handler that is a Stopper, and closes the conns of all
// others with Conn.Close, which flushes what is queued. It ends the loops when the last conn has
// gone. When ctx ends first, the remaining connections are aborted and the context's error is
// returned. A second call waits like the first. Not from a loop.
func (e *Engine) Shutdown(ctx context.Context) error {
	defer e.spare.close()
	for _, l := range e.loops {
		l.post(func() { l.stop(nil) })
	}
	err := e.wait(ctx)
	if err != nil {
		for _, l := range e.loops {
			l.post(func() { l.stop(err) })
		}
		e.abortBridges()
		_ = e.wait(context.WithoutCancel(ctx))
	}
	return err
}

// wait returns when all loops have ended or ctx has.
func (e *Engine) wait(ctx context.Context) error {
	p := e.sys.NewParker()
	e.mu.Lock()
	e.waiters = append(e.waiters, p)
	e.mu.Unlock()
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

func (e *Engine) loopEnded(l *Loop) {
	_ = l.drv.Shutdown()
	for _, ln := range l.listeners { // of a driver that has failed
		ln.ended()
	}
	e.ended()
}

// ended counts a loop or a bridge that has come to its end.
func (e *Engine) ended() {
	if e.running.Add(-1) == 0 {
		e.monitor.end()
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

// nextLoop is the loop that gets the next connection.
func (e *Engine) nextLoop() *Loop { return e.loops[e.turn.Add(1)%uint32(len(e.loops))] }

// fail is called by a loop whose driver has failed: no conn of it can be served any more.
func (l *Loop) fail() {
	err := l.failure
	l.stopping = true
	for _, ln := range l.listeners {
		if !ln.closed.Swap(true) {
			ln.inner.Refuse()
		}
		l.dropHand(ln)
	}
	for i := range uint32(l.conns.Len()) {
		if c := l.awake(i); c != nil {
			l.closedAndCounted(c, err)
		}
	}
	for !l.finish() { // callers that wait for an answer are told
		l.takeMail()
		for a, ok := l.work.intake.take(); ok; a, ok = l.work.intake.take() {
			_ = a.sock.Close()
			l.refuse(a.conn, err)
		}
		l.runAll(&l.work.funcs)
	}
}

// stop begins the end of the loop; it runs until its last conn has closed. A later call may turn it
// into an abort, and else does nothing.
func (l *Loop) stop(abort error) {
	if l.stopping && abort == nil {
		return
	}
	l.stopping = true
	l.abortWith = abort
	for _, ln := range l.listeners {
		if !ln.closed.Swap(true) {
			ln.inner.Refuse()
			l.closeListener(ln)
		}
	}
	l.work.told = 0
	l.tellStopping()
}

// tellStopping tells those conns that do not know it yet.
func (l *Loop) tellStopping() {
	for l.stopping && l.work.told < l.conns.Len() {
		c := l.awake(uint32(l.work.told))
		l.work.told++
		switch {
		case c == nil:
		case c.is(connecting):
			c.extra.Load().dial.race.lose(errShutDown)
		default:
			l.dismiss(c)
		}
	}
	l.work.told = math.MaxInt // later callers are told when they come
}

// dismiss ends a conn because its loop is stopping.
func (l *Loop) dismiss(c *Conn) {
	if l.abortWith != nil {
		c.Abort(l.abortWith)
		return
	}
	l.current.Store(c)
	l.callStopping(c)
	l.leave(c)
}

// finish closes the mailbox if nothing has come in meanwhile, and reports whether the loop is done.
func (l *Loop) finish() bool {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	if len(l.mail.intake) > 0 || len(l.mail.funcs) > 0 || !l.work.intake.empty() || !l.work.funcs.empty() {
		return false
	}
	l.mail.closed = true
	return true
}

// post is Do for the engine's own few calls, which must not fail for want of room. It reports
// whether the loop still runs.
func (l *Loop) post(f func()) bool {
	l.mail.mu.Lock()
	ok := !l.mail.closed
	if ok {
		l.mail.funcs = append(l.mail.funcs, f)
	}
	l.mail.mu.Unlock()
	l.wakeIf(ok)
	return ok
}
