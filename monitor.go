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
)

// A monitor takes loops over whose guests overstay. It is one goroutine for an engine, from the first guest to the last loop,
// and parked while no guests come.
type monitor struct {
	engine *Engine
	state  atomic.Uint32 // one of the following
	parker driver.Parker
	seen   []uint64 // by loop: the word at the last look
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
	m.seen = make([]uint64, len(m.engine.loops))
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
		word := l.lease.Load()
		switch {
		case word != m.seen[i]:
			m.seen[i] = word
			active = true
		case word%2 != 0:
			l.takeOver(word, true)
			active = true
		}
	}
	return active
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
		if !l.bound && l.lease.Load() != m.seen[i] {
			return true
		}
	}
	return false
}
