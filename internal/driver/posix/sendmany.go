//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"golang.org/x/sys/unix"
)

// This file sends to many connections at once. Nearly all that a message to thousands of them costs
// is the kernel's work for each, which processors can share that have nothing else to do.

const (
	// leastShared is how many writes a helper is woken for. Fewer are done before it has come.
	leastShared = 12
	// mostHelpers is how many a driver has: no more would have something to do for the batches of a
	// loop, which have 32 writes at most.
	mostHelpers = 2
	// patience is how often the owner looks whether the last writes of its helpers are done, before
	// it lets other goroutines have its thread.
	patience = 20_000
)

// A sharer makes the system calls of one batch after another: the driver's owner, which waits until
// all are made, and goroutines beside it.
type sharer struct {
	helpers int
	running sync.WaitGroup // helpers
	wake    chan struct{}  // a token for each helper that has something to do; nil: none was started
	job     atomic.Pointer[job]
	writes  []write
	places  []int // writes[i] is of the batch's element places[i]
}

// A job is one batch. A helper that comes late finds nothing left in it, so the writes can be used
// for the next one.
type job struct {
	writes []write
	taken  atomic.Int64 // how many were begun
	left   atomic.Int64 // how many are not done
	done   chan struct{}
}

// A write is one connection's.
type write struct {
	fd    int
	chain *buf.Chain
	left  int
	errno unix.Errno
}

// SendMany is Send for each of the batch: see driver.Capabilities.
func (d *Driver) SendMany(batch []driver.Outgoing) {
	w := &d.sharer
	for i := range batch {
		o := &batch[i]
		s := d.conn(o.ID)
		if s == nil || s.errno != 0 || s.out != nil {
			o.Queued = d.Send(o.ID, o.Chain)
			continue
		}
		w.writes = append(w.writes, write{fd: int(s.fd), chain: o.Chain})
		w.places = append(w.places, i)
	}
	w.run(&d.gather)
	for i, at := range w.places {
		o := &batch[at]
		o.Queued = d.sent(o.ID, d.conn(o.ID), o.Chain, w.writes[i].left, w.writes[i].errno)
	}
	clear(w.writes)
	w.writes, w.places = w.writes[:0], w.places[:0]
}

// run makes all the writes.
func (w *sharer) run(g *gather) {
	if w.helpers == 0 || len(w.writes) < leastShared {
		for i := range w.writes {
			w.writes[i].do(g)
		}
		return
	}
	w.start()
	j := &job{writes: w.writes, done: make(chan struct{}, 1)}
	j.left.Store(int64(len(j.writes)))
	w.job.Store(j)
	for range min(w.helpers, len(j.writes)/leastShared) {
		select {
		case w.wake <- struct{}{}:
		default: // they have yet to come for the batch before
		}
	}
	if !j.work(g) {
		j.await()
	}
	w.job.Store(nil)
}

// start starts the helpers, once.
func (w *sharer) start() {
	if w.wake != nil {
		return
	}
	w.wake = make(chan struct{}, w.helpers)
	for range w.helpers {
		w.running.Add(1)
		go w.help()
	}
}

// stop ends the helpers.
func (w *sharer) stop() {
	if w.wake != nil {
		close(w.wake)
		w.running.Wait()
		w.wake, w.helpers = nil, 0
	}
}

func (w *sharer) help() {
	defer w.running.Done()
	var g gather
	for range w.wake {
		if j := w.job.Load(); j != nil && j.work(&g) {
			j.done <- struct{}{}
		}
	}
}

// work makes writes until all were begun. It reports whether the last one to be done was among
// them.
func (j *job) work(g *gather) (last bool) {
	for {
		i := j.taken.Add(1) - 1
		if i >= int64(len(j.writes)) {
			return last
		}
		j.writes[i].do(g)
		last = j.left.Add(-1) == 0
	}
}

// await waits for the writes that helpers have begun.
func (j *job) await() {
	for range patience {
		if j.left.Load() == 0 {
			return
		}
	}
	<-j.done
}

func (w *write) do(g *gather) { w.left, w.errno = g.write(w.fd, w.chain) }

// helpersOf is how many goroutines may share the writes of a driver whose options allow so many.
func helpersOf(o driver.Options) int {
	return max(0, min(o.Helpers, runtime.GOMAXPROCS(0)-1, mostHelpers))
}
