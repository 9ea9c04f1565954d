package myriad

import (
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

const (
	// overstayTick is how often the monitor looks: a guest that it finds twice has been there for one to two of these.
	overstayTick = time.Millisecond
	// idleTicks is after how many looks without news the monitor parks.
	idleTicks = 8
	// mostDoubts is for how many looks at most a guest is left alone because its thread has no processor.
	mostDoubts = 8
	// crowd is from how many guests in a turn the loop says which thread they are on: for fewer it costs more than it saves.
	crowd = 4
)

// A monitor takes loops over whose guests overstay. It is one goroutine for an engine, from the first guest to the last loop,
// and parked while no guests come.
type monitor struct {
	engine  *Engine
	state   atomic.Uint32 // one of the following
	parker  driver.Parker
	seen    []sight        // by loop
	threads driver.Threads // nil: nothing is known of them
}

// A sight is what the monitor has seen of a loop at its last look.
type sight struct {
	word   uint64
	ran    time.Duration // what the guest's thread had had of a processor then
	doubts int           // how often that was why the guest was left alone
}

const (
	monitorUnborn uint32 = iota
	monitorAwake
	monitorParked
	monitorOver // the engine has ended
)

// rouse sees to it that the monitor looks at the words. It is called by owners of loops, after they have stored one.
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

// look takes over what has not moved since the last look, and reports whether there is any guest, or was one.
func (m *monitor) look() (active bool) {
	for i, l := range m.engine.loops {
		if l.bound {
			continue
		}
		word, last := l.lease.Load(), &m.seen[i]
		switch {
		case word != last.word:
			*last = sight{word: word}
			if thread := l.thread.Load(); word%2 != 0 && thread != 0 {
				last.ran = m.threads.Ran(int(thread))
			}
			active = true
		case word%2 != 0:
			if !m.starved(l, last) {
				l.takeOver(word, true)
			}
			active = true
		}
	}
	return active
}

// starved reports whether the guest's thread has waited for a processor since the last look, and for nothing else. Then the guest
// has not had its time, and whoever took the loop over would wait for a processor, too.
func (m *monitor) starved(l *Loop, last *sight) bool {
	thread := int(l.thread.Load())
	if thread == 0 || last.doubts == mostDoubts {
		return false
	}
	last.doubts++
	before := last.ran
	last.ran = m.threads.Ran(thread)
	return before >= 0 && last.ran-before < overstayTick/4 && m.threads.Ready(thread)
}

// noteThread tells the monitor which thread n guests will be on. By the owner of the loop.
func (l *Loop) noteThread(n int) {
	switch t := l.engine.monitor.threads; {
	case t == nil:
	case n >= crowd:
		l.thread.Store(int64(t.Thread()))
	case l.thread.Load() != 0:
		l.thread.Store(0)
	}
}

// park waits for a guest. It looks for one a last time when the owners of loops can see that it is about to; if one of
// those was quicker to rouse it, the permit must be taken all the same, or the next tick would be short.
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
		if !l.bound && l.lease.Load() != m.seen[i].word {
			return true
		}
	}
	return false
}
