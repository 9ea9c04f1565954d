package sim

import (
	"context"
	"errors"

	"github.com/myriad-go/myriad/internal/driver"
)

// ErrClosed is returned by an executor that has been closed.
var ErrClosed = errors.New("sim: executor is closed")

// taskQueue is the world's pool: what waits, in order of arrival, and how many run. A task is
// started by the seed, from anywhere in the queue.
type taskQueue struct {
	waiting []task
	running int
	room    []*waiter // in Go, until there is room; in Close, until all is done
	places  []int     // of startable, reused
}

type task struct {
	f func()
	x *executor
}

// executor is a way into the world's pool, or a pool of its own.
type executor struct {
	w       *World
	left    int // tasks that have not ended
	running int // of those
	closed  bool
}

// Executor runs tasks one at a time, in seeded order, each on a goroutine of its own. At most
// Options.Workers are unfinished and Options.Queue wait: in the whole world, or with
// Options.OwnPools in this Executor. Each call returns an executor that is closed by itself. It
// implements driver.System.
func (w *World) Executor() driver.Executor { return &executor{w: w} }

// Tasks is how many tasks of all Executors have not ended.
func (w *World) Tasks() int {
	return locked(w, func() int { return w.tasks.running + len(w.tasks.waiting) })
}

// chances is how many chances to be next the waiting tasks have beside the other goroutines. Where
// work costs time each task that may start has one, as on a processor that is shared. Else all of
// them together have one.
func (q *taskQueue) chances(w *World) int {
	n := len(q.startable(w))
	if !w.costly {
		n = min(n, 1)
	}
	return n
}

// startable are the places of the waiting tasks that may start.
func (q *taskQueue) startable(w *World) []int {
	q.places = q.places[:0]
	for i, t := range q.waiting {
		running := q.running
		if w.o.OwnPools {
			running = t.x.running
		}
		if running < w.o.Workers {
			q.places = append(q.places, i)
		}
	}
	return q.places
}

// take makes an actor of a waiting task.
func (q *taskQueue) take(w *World) *actor {
	places := q.startable(w)
	i := places[w.rng.IntN(len(places))]
	t := q.waiting[i]
	q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
	q.running++
	t.x.running++
	w.spend(w.o.Costs.Task)
	a := w.spawn("task", t.f)
	a.task = t.x
	w.runnable = w.runnable[:len(w.runnable)-1] // it runs at once
	q.changed(w)
	return a
}

func (q *taskQueue) ended(w *World, x *executor) {
	q.running--
	x.running--
	x.left--
	q.changed(w)
}

func (q *taskQueue) changed(w *World) {
	for _, wt := range q.room {
		w.wake(wt)
	}
	q.room = q.room[:0]
}

func (x *executor) free() int {
	if x.closed {
		return 0
	}
	running, waiting := x.w.tasks.running, len(x.w.tasks.waiting)
	if x.w.o.OwnPools {
		running, waiting = x.running, x.left-x.running
	}
	return max(0, max(0, x.w.o.Workers-running)+max(0, x.w.o.Queue)-waiting)
}

// Go waits for room until ctx ends.
func (x *executor) Go(ctx context.Context, f func()) error {
	w := x.w
	stop := context.AfterFunc(ctx, x.changed)
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for x.free() == 0 {
		if x.closed {
			return ErrClosed
		}
		if err := x.waitForChange(ctx, "Executor.Go"); err != nil {
			return err
		}
	}
	x.add(f)
	return nil
}

func (x *executor) changed() {
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	x.w.tasks.changed(x.w)
}

func (x *executor) waitForChange(ctx context.Context, doing string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	w := x.w
	wt := w.newWaiter(0)
	w.tasks.room = append(w.tasks.room, wt)
	w.wait(wt, doing)
	return nil
}

// TryGo reports false if there is no room.
func (x *executor) TryGo(f func()) bool { return x.TryGoAll([]func(){f}) == 1 }

// TryGoAll takes as many of fs, from the first, as there is room for.
func (x *executor) TryGoAll(fs []func()) int {
	w := x.w
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(fs), x.free())
	for _, f := range fs[:n] {
		x.add(f)
	}
	return n
}

func (x *executor) add(f func()) {
	w := x.w
	w.note("executor", "queue", 0, int64(len(w.tasks.waiting)))
	x.left++
	w.tasks.waiting = append(w.tasks.waiting, task{f, x})
	w.poke()
}

// Close takes no more tasks and waits until those it has are done, or ctx ends.
func (x *executor) Close(ctx context.Context) error {
	w := x.w
	stop := context.AfterFunc(ctx, x.changed)
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	x.closed = true
	w.tasks.changed(w)
	for x.left > 0 {
		if err := x.waitForChange(ctx, "Executor.Close"); err != nil {
			return err
		}
	}
	return nil
}
