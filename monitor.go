package myriad

import (
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

const (
	// overstayTick is how often the monitor looks: a task that it finds twice has run for one to
	// two of these.
	overstayTick = time.Millisecond
	// idleTicks is after how many looks without news the monitor parks.
	idleTicks = 8
	// mostDoubts is for how many looks at most a task keeps its loop because its thread has no
	// processor.
	mostDoubts = 8
	// crowd is from how many inline tasks in a poll cycle the loop notes its thread: for fewer it
	// costs more than it saves.
	crowd = 4
)

// A monitor hands off loops whose inline tasks overstay. It is one goroutine for an engine, from
// the first task to the end of the last loop, and parked while there are no tasks.
type monitor struct {
	engine *Engine
	state  atomic.Uint32 // one of the following
	parker driver.Parker
	seen   []sight // by loop
}

// A sight is what the monitor has seen of a loop at its last look.
type sight struct {
	token  uint64
	ran    time.Duration // the processor time of the task's thread then
	doubts int           // how often that was why the task kept its loop
}

const (
	monitorUnborn uint32 = iota
	monitorAwake
	monitorParked
	monitorOver // the engine has ended
)

// rouse makes the monitor look at the tokens. The owner of a loop calls it after it has stored one.
func (m *monitor) rouse() {
	switch {
	case m.state.CompareAndSwap(monitorParked, monitorAwake):
		m.parker.Unpark()
	case m.state.CompareAndSwap(monitorUnborn, monitorAwake):
		m.engine.sys.Go(m.run)
	}
}

// end is called when the last loop has ended.
func (m *monitor) end() {
	m.state.Store(monitorOver)
	m.parker.Unpark()
}

func (m *monitor) run() {
	m.seen = make([]sight, len(m.engine.loops))
	for idle := 0; m.state.Load() != monitorOver; {
		idle++
		if m.look() {
			idle = 0
		}
		if idle < idleTicks {
			m.parker.ParkFor(overstayTick)
		} else if m.park() {
			idle = 0
		}
	}
}

// look hands off each loop whose task ran at the last look as well, and reports whether any task
// runs, or has run since.
func (m *monitor) look() (active bool) {
	for i, l := range m.engine.loops {
		if l.can.ThreadBound {
			continue
		}
		token, last := l.inline.token.Load(), &m.seen[i]
		switch {
		case token != last.token:
			*last = sight{token: token}
			if thread := l.inline.thread.Load(); token%2 != 0 && thread != 0 {
				last.ran = m.engine.has.Threads.Ran(int(thread))
			}
			active = true
		case token%2 != 0:
			if !m.starved(l, last) {
				l.handOff(token, true)
			}
			active = true
		}
	}
	return active
}

// starved reports whether the task's thread has waited for a processor since the last look, and for
// nothing else. Then the task has not had its time, and the goroutine that continued with the loop
// would wait for a processor, too. On a busy machine this saves a sixth of the CPU of a request
// (docs/adr/0010).
func (m *monitor) starved(l *Loop, last *sight) bool {
	thread := int(l.inline.thread.Load())
	if thread == 0 || last.doubts == mostDoubts {
		return false
	}
	last.doubts++
	before := last.ran
	last.ran = m.engine.has.Threads.Ran(thread)
	return before >= 0 && last.ran-before < overstayTick/4 && m.engine.has.Threads.Ready(thread)
}

// noteThread tells the monitor which thread n inline tasks will run on. By the owner of the loop.
func (l *Loop) noteThread(n int) {
	switch t := l.engine.has.Threads; {
	case t == nil:
	case n >= crowd:
		l.inline.thread.Store(int64(t.Thread()))
	case l.inline.thread.Load() != 0:
		l.inline.thread.Store(0)
	}
}

// park waits for an inline task. It looks for one a last time when the owners of loops can see that
// it is about to park. If one of them has roused it already, park still takes the permit, or the
// next tick would be short.
func (m *monitor) park() bool {
	if !m.state.CompareAndSwap(monitorAwake, monitorParked) {
		return false
	}
	if m.news() && m.state.CompareAndSwap(monitorParked, monitorAwake) {
		return true
	}
	m.parker.Park()
	return true
}

func (m *monitor) news() bool {
	for i, l := range m.engine.loops {
		if !l.can.ThreadBound && l.inline.token.Load() != m.seen[i].token {
			return true
		}
	}
	return false
}
