package websocket

import (
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
)

// This file is DispatchAuto: callbacks that are known to be quick run as inline tasks (docs/adr/0010), one at a time for a
// connection and in order, as on the pool.

const (
	// maxHabits is how many loops have a habit of their own; those beyond share them.
	maxHabits = 16
	// restAfter is for how long everything runs on the pool after a callback has overstayed.
	restAfter = 10 * time.Millisecond
)

// A habit is what is known of the callbacks of one Options on one loop.
type habit struct {
	dispatch.Record
	rests atomic.Int64 // until this time of the loop's, in milliseconds
}

func (c *Conn) habit() *habit {
	s := c.settings
	if !s.auto {
		return nil
	}
	return s.habitOf(c.nc.Loop().Index())
}

// habitOf makes a habit when the first callback of a loop is to run: Options may be those of a single connection.
func (s *settings) habitOf(loop int) *habit {
	slot := &s.habits[loop%maxHabits]
	if h := slot.Load(); h != nil {
		return h
	}
	slot.CompareAndSwap(nil, new(habit))
	return slot.Load()
}

// start has a backlog that is not empty drained, here or on the pool. On the loop, in a callback of the connection.
func (c *Conn) start(b *backlog) {
	if h := c.habit(); h != nil && c.now() >= h.rests.Load() {
		var inline bool
		if inline, b.timed = h.Call(); inline {
			c.nc.RunInline((*task)(c))
			return
		}
	}
	c.settings.crew.gather(b)
}

// A task is a Conn whose next callback runs on its loop.
type task Conn

// Run implements myriad.InlineTask. The backlog is running, so it stays where it is, and not empty.
func (g *task) Run(myriad.Handoff) {
	c := (*Conn)(g)
	c.mu.Lock()
	b := c.backlog
	ev, resume := b.pop()
	timed := b.timed
	c.mu.Unlock()
	if resume {
		c.nc.Notify()
	}
	if !timed {
		c.callInline(ev)
		return
	}
	took := c.callTimed(ev)
	c.mu.Lock()
	b.took = took
	c.mu.Unlock()
}

func (c *Conn) callTimed(ev event) time.Duration {
	system := c.nc.Loop().Engine().System()
	began := system.Now()
	c.callInline(ev)
	return system.Now().Sub(began)
}

// Overtaken implements myriad.InlineTask. On the loop.
func (g *task) Overtaken(overstayed bool) {
	c := (*Conn)(g)
	h := c.habit()
	h.Strike()
	if overstayed {
		h.rests.Store(c.now() + restAfter.Milliseconds())
	}
}

// Returned implements myriad.InlineTask: it goes on with what waits, on the pool if the loop is another goroutine's now.
func (g *task) Returned(kept bool) {
	c := (*Conn)(g)
	c.mu.Lock()
	b := c.backlog
	timed, took := b.timed, b.took
	done := b.empty()
	if done {
		b.running = false
		c.forget(b)
	}
	c.mu.Unlock()
	if timed && kept {
		c.habit().MadeInline(took)
	}
	switch {
	case done:
	case kept:
		c.start(b)
	default:
		c.settings.crew.run(b)
	}
}

// made tells the habit how long a callback took on the pool.
func (c *Conn) made(ev event) {
	h := c.habit()
	if h == nil || h.Inline() {
		c.call(ev)
		return
	}
	system := c.nc.Loop().Engine().System()
	began := system.Now()
	c.call(ev)
	h.Made(system.Now().Sub(began))
}
