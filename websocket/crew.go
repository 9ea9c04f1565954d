package websocket

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/workers"
)

// crewQueue is the queue of a pool that Options make for themselves: a backlog waits in it at most once, so it is
// bounded by the number of connections.
const crewQueue = 1 << 24

// executor is what runs callbacks: a *workers.Pool, or the simulator.
type executor interface {
	Go(ctx context.Context, f func()) error
	TryGo(f func()) bool
	TryGoAll(fs []func()) int
}

// A crew runs the backlogs of all connections of one Options.
type crew struct {
	own     *workers.Pool // Options.Workers
	once    sync.Once
	pool    executor
	spare   sync.Pool                // of *backlog
	batches atomic.Pointer[[]*batch] // one for each loop that has had connections; replaced under mu

	mu      sync.Mutex
	waiting []*backlog // those that the pool had no room for; each at most once
	feeding bool
}

func (w *crew) backlogOf(c *Conn) *backlog {
	b, _ := w.spare.Get().(*backlog)
	if b == nil {
		b = new(backlog)
		b.run = b.drain
	}
	b.c = c
	return b
}

// keptEvents is how much room an idle backlog keeps.
const keptEvents = 2 * maxBacklog

func (w *crew) recycle(b *backlog) {
	if cap(b.events) > keptEvents {
		return
	}
	*b = backlog{run: b.run, events: b.events[:0]}
	w.spare.Put(b)
}

// run has b drained. It never blocks: what the pool has no room for is brought to it by one goroutine that waits.
func (w *crew) run(b *backlog) {
	if w.executor(b).TryGo(b.run) {
		return
	}
	w.mu.Lock()
	w.waiting = append(w.waiting, b)
	start := !w.feeding
	w.feeding = true
	w.mu.Unlock()
	if start {
		b.c.nc.Loop().Engine().System().Go(w.feed)
	}
}

// executor chooses what runs callbacks when the first one is to run.
func (w *crew) executor(b *backlog) executor {
	w.once.Do(func() { w.choose(b) })
	return w.pool
}

func (w *crew) choose(b *backlog) {
	switch x := b.c.nc.Loop().Engine().System().Executor(); {
	case x != nil:
		w.pool = x
	case w.own != nil:
		w.pool = w.own
	default:
		w.pool = workers.New(workers.Config{Queue: crewQueue, Logger: b.c.settings.log})
	}
}

// feed waits for room in the pool. If the pool has been closed, it runs what is left itself: callbacks are never lost.
func (w *crew) feed() {
	for b := w.nextWaiting(); b != nil; b = w.nextWaiting() {
		if w.pool.Go(context.Background(), b.run) != nil {
			b.run()
		}
	}
}

func (w *crew) nextWaiting() *backlog {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.waiting, w.feeding = nil, false
		return nil
	}
	b := w.waiting[0]
	w.waiting[0] = nil
	w.waiting = w.waiting[1:]
	return b
}
