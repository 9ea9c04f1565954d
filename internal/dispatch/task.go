package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
)

// A Task is one call of user code. It is implemented by a pointer to a struct that embeds a State.
type Task interface {
	myriad.InlineTask // by State
	state() *State

	// Do runs the user's code, and reports whether it returned rather than panicked: only then its
	// time teaches. On any goroutine; before what would wait it calls State.HandOff.
	Do() (returned bool)
	// Next is called after Do, off the loop. It returns the task of the same key that follows, or
	// nil: then the key is idle, or its protocol dispatches what follows on the loop.
	Next() Task
	// Kept is called after Do instead of Next, on the loop as a callback of the connection, if the
	// task ran inline and the loop was not handed off.
	Kept()
}

// A State is what a Dispatcher knows of a task. The zero value is ready. It may be used again for
// another task after Next or Kept has been called, unless Spent is true.
type State struct {
	task    Task
	local   *Local
	record  *Record // nil: nothing is learned from the task
	run     func()  // work, for the pool
	handoff myriad.Handoff
	took    time.Duration
	timed   bool
	taught  bool        // took says something
	spent   bool        // see Spent
	excused atomic.Bool // see Excuse
}

func (s *State) state() *State { return s }

// set makes the State that of t. On the loop, while the key is idle.
func (s *State) set(l *Local, t Task, r *Record) {
	s.task, s.local, s.record = t, l, r
	s.handoff, s.timed, s.spent = myriad.Handoff{}, false, false
	s.excused.Store(false)
}

// Clear empties the State for another task, but for what costs an allocation to make.
func (s *State) Clear() {
	run := s.run
	*s = State{run: run}
}

// HandOff has the loop continue on another goroutine if the task runs inline, so that the caller
// may wait. It returns false if the caller must not wait. Any goroutine that works for the task.
func (s *State) HandOff() bool { return s.handoff.HandOff() }

// HasLoop reports whether the task runs inline and the loop still waits for it. Any goroutine.
func (s *State) HasLoop() bool { return s.handoff.Inline() }

// Spent reports whether the loop was handed off while the task ran. Then the engine may still refer
// to the State, and it must not be used for a task of another key. It is known in Next and after
// it.
func (s *State) Spent() bool { return s.spent }

// Excuse says that the task does not count any more: what it does is not this server's work. One
// that runs inline must have called HandOff before, and is not away any more. Any goroutine that
// works for the task, once.
func (s *State) Excuse() {
	if s.excused.Store(true); s.handoff != (myriad.Handoff{}) {
		s.local.d.away.add(-1)
	}
}

// Excused reports whether Excuse has been called.
func (s *State) Excused() bool { return s.excused.Load() }

// Run implements myriad.InlineTask.
func (s *State) Run(h myriad.Handoff) {
	s.handoff = h
	s.do(s.task)
}

// Overtaken implements myriad.InlineTask.
func (s *State) Overtaken(overstayed bool) {
	l := s.local
	l.d.away.add(1)
	if s.record == nil {
		return
	}
	s.record.Strike()
	if overstayed {
		l.resting = l.loop.Now().Add(restAfter)
	}
}

// Returned implements myriad.InlineTask.
func (s *State) Returned(kept bool) {
	t, d := s.task, s.local.d
	if kept {
		if s.timed && s.taught {
			s.record.MadeInline(s.took)
		}
		t.Kept()
		return
	}
	s.spent = true
	if !s.excused.Load() {
		d.away.add(-1)
	}
	d.goOn(t.Next())
}

// do calls the task's Do, and times it if that is to be learned from.
func (s *State) do(t Task) {
	if s.taught = false; !s.timed {
		t.Do()
		return
	}
	system := s.local.system
	began := system.Now()
	returned := t.Do()
	s.took, s.taught = system.Now().Sub(began), returned
}

// work runs the task, and those that follow, on a goroutine of the pool.
func (s *State) work() {
	t, d := s.task, s.local.d
	defer func() {
		if t != nil { // its Do has panicked, or ended this goroutine
			d.goOn(t.Next())
		}
	}()
	for {
		s := t.state()
		s.do(t)
		if s.timed && s.taught {
			s.record.Made(s.took)
		}
		done := t
		t = nil
		if t = done.Next(); t == nil {
			return
		}
		if t == done { // and so not prepared by Follow
			s.timed = s.record != nil && !s.record.Inline()
		}
	}
}

// runs is work as the pool takes it.
func (s *State) runs() func() {
	if s.run == nil {
		s.run = s.work
	}
	return s.run
}
