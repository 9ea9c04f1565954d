package myriad

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

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

// Shutdown stops listening. It calls every handler that is a Stopper, and closes the conns of all
// others with Conn.Close, which flushes what is queued. It ends the loops when the last conn has
// gone. When ctx ends first, the remaining connections are aborted and the context's error is
// returned. Shutdown waits for these ends only while they go on, and for a second at most. A loop
// whose callback blocks aborts its connections when that callback returns. A second call waits like
// the first. Not from a loop.
func (e *Engine) Shutdown(ctx context.Context) error {
	defer e.spare.close()
	for _, l := range e.loops {
		l.Post(func() { l.stop(nil) })
	}
	err := e.wait(ctx)
	if err != nil {
		for _, l := range e.loops {
			l.Post(func() { l.stop(err) })
		}
		e.abortBridges()
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
	e.anteroom.call()
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
