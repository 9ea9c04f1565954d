package dispatch

import (
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

const (
	// restAfter is for how long everything runs on the pool after a task has overstayed: what made
	// it slow often makes others slow.
	restAfter = 10 * time.Millisecond
	// keptTasks is how much room for tasks a Local keeps from one poll cycle to the next.
	keptTasks = 1024
)

// A Local is a Dispatcher's state on one loop, and owned by that loop: its methods are called on
// it.
type Local struct {
	// Record is for protocols that tell no kinds of tasks apart.
	Record Record

	d       *Dispatcher
	loop    *myriad.Loop
	system  driver.System
	bound   bool      // the loop, to its thread
	other   *Local    // of a loop with the same index, of another engine
	resting time.Time // until then everything runs on the pool; zero: no
	submits func()    // submit, for the loop

	// The tasks of this poll cycle for the pool, and what it is to run. A worker that is woken for
	// each of them is quicker than the loop that brings the next one, and sleeps again.
	tasks []Task
	runs  []func()
}

// A Conn is what tasks belong to: a *myriad.Conn, or one of the streams of one.
type Conn interface {
	Queued() int
	RunInline(t myriad.InlineTask)
}

// TryInline has t run inline, if it may, as a task of c and after the events of this poll cycle. It
// returns false if t is to run on the pool, for which ToPool has to be called. r is what is known
// of t's kind. If it is nil, t runs on the pool in mode Auto. In a callback of c, while t's key is
// idle.
func (l *Local) TryInline(c Conn, t Task, r *Record) bool {
	s := t.state()
	s.set(l, t, r)
	switch l.d.config.Mode {
	case Pool:
		return false
	case Auto:
		if r == nil || l.bound || l.rests() {
			return false
		}
		var inline bool
		if inline, s.timed = r.Call(); !inline {
			return false
		}
	}
	if most := l.d.config.MaxQueued; most > 0 && c.Queued() > most || l.d.away.full() {
		return false
	}
	c.RunInline(t)
	return true
}

// ToPool gives t to the pool at the end of this poll cycle. If TryInline was not called for t,
// nothing is learned from it. While t's key is idle.
func (l *Local) ToPool(t Task) {
	s := t.state()
	s.task, s.local = t, l
	if len(l.tasks) == 0 {
		l.loop.Later(l.submits)
	}
	l.tasks = append(l.tasks, t)
	l.runs = append(l.runs, s.runs())
}

// Follow prepares a task that is to run on the pool because Next will return it. r is as for
// TryInline.
func (l *Local) Follow(t Task, r *Record) {
	s := t.state()
	s.set(l, t, r)
	s.timed = r != nil && l.d.config.Mode == Auto && !l.rests() && !r.Inline()
}

// IsLast reports whether t is the last task for the pool in this poll cycle.
func (l *Local) IsLast(t Task) bool {
	n := len(l.tasks)
	return n > 0 && l.tasks[n-1] == t
}

func (l *Local) rests() bool {
	if l.resting.IsZero() {
		return false
	}
	if l.loop.Now().Before(l.resting) {
		return true
	}
	l.resting = time.Time{}
	return false
}

// submit gives the tasks of this poll cycle to the pool.
func (l *Local) submit() {
	n := l.d.PoolOf(l.system).TryGoAll(l.runs)
	for _, t := range l.tasks[n:] {
		if l.d.config.NoRoom != nil {
			l.d.config.NoRoom(t)
		} else {
			l.d.goOn(t)
		}
	}
	if cap(l.tasks) > keptTasks {
		l.tasks, l.runs = nil, nil
		return
	}
	clear(l.tasks)
	clear(l.runs)
	l.tasks, l.runs = l.tasks[:0], l.runs[:0]
}
