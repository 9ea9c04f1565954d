package websocket

import (
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/workers"
)

// This file has callbacks run by internal/dispatch, with DispatchAuto and DispatchPool. The key
// that orders them is the connection: its backlog is the task, and runs the first of its events.

const (
	// poolQueue is the queue of a pool that Options make for themselves. A backlog waits in it at
	// most once, so the number of connections bounds it.
	poolQueue = 1 << 24
	// keptEvents is how much room an idle backlog keeps.
	keptEvents = 2 * maxBacklog
)

// dispatching is how the callbacks of o run.
func (s *settings) dispatching(o *Options) dispatch.Config {
	c := dispatch.Config{Mode: dispatch.Mode(o.Dispatch), Workers: workers.Config{Queue: poolQueue, Logger: s.log}}
	if o.Workers != nil {
		c.Pool = o.Workers
	}
	return c
}

// dispatch runs the event here or has the dispatcher run it, and reports whether enough wait now.
// On the loop.
func (c *Conn) dispatch(ev event) (full bool) {
	if c.settings().inline {
		c.callInline(ev)
		return false
	}
	c.mu.Lock()
	b := c.backlog
	if b == nil {
		b = c.settings().backlogOf(c)
		c.backlog = b
	}
	b.push(ev)
	full = ev.kind == received && b.full()
	b.paused = b.paused || full
	idle := !b.running
	b.running = true
	c.mu.Unlock()
	if idle {
		b.start()
	}
	return full
}

// start has the first event run, inline or on the pool. On the loop, in a callback of the
// connection.
func (b *backlog) start() {
	l := b.c.settings().tasks.On(b.c.nc.Loop())
	if !l.TryInline(b.c.nc, b, &l.Record) {
		l.ToPool(b)
	}
}

// Do implements dispatch.Task. The backlog is running, so it stays where it is, and not empty.
func (b *backlog) Do() (returned bool) {
	c := b.c
	c.mu.Lock()
	ev, resume := b.pop()
	c.mu.Unlock()
	if resume {
		c.nc.Notify()
	}
	return c.callInline(ev)
}

// Next implements dispatch.Task.
func (b *backlog) Next() dispatch.Task {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !b.empty() {
		return b
	}
	b.running = false
	c.forget()
	return nil
}

// Kept implements dispatch.Task.
func (b *backlog) Kept() {
	if b.Next() != nil {
		b.start()
	}
}

func (s *settings) backlogOf(c *Conn) *backlog {
	b, _ := s.spare.Get().(*backlog)
	if b == nil {
		b = new(backlog)
	}
	b.c = c
	return b
}

// forget gives the backlog back when it is idle, and what strip has left for it. It is called under
// mu.
func (c *Conn) forget() {
	b := c.backlog
	if b == nil || b.running || b.paused || !b.empty() {
		return
	}
	c.backlog = nil
	if c.is(closed) && c.cold != nil && !c.settings().pull { // no message waits to be inflated
		c.cold.windows = nil
		c.dropCold()
	}
	if b.Spent() || cap(b.events) > keptEvents {
		return
	}
	b.State.Clear()
	b.c, b.queue = nil, queue{events: b.events[:0]}
	c.settings().spare.Put(b)
}
