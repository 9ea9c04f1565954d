package myriad

import (
	"errors"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is how a loop passes from one goroutine to another: because an inline task keeps the
// goroutine (docs/adr/0010; handoff_model_test.go explores it), or because a callback has ended it
// (runtime.Goexit). The goroutine of a driver that is bound to a thread must not be replaced: there
// the loop goes on in a deferred function of the goroutine that ends.

// A Handoff is how an inline task gives up its loop before it waits. The zero Handoff belongs to no
// loop: HandOff returns true.
type Handoff struct {
	loop  *Loop
	token uint64
}

// HandOff lets the loop continue on another goroutine, so that the caller may wait. The second
// call, and a call after the task has returned, do nothing. It returns false if the task must not
// wait, because the driver is bound to the loop's thread. Any goroutine.
func (h Handoff) HandOff() bool {
	switch {
	case h.loop == nil:
	case h.loop.can.ThreadBound:
		return h.loop.inline.token.Load() != h.token
	default:
		h.loop.handOff(h.token, false)
	}
	return true
}

// Inline reports whether the task still has its loop. If so, it began a few milliseconds ago at
// most. Any goroutine.
func (h Handoff) Inline() bool { return h.loop != nil && h.loop.inline.token.Load() == h.token }

// shifts is what a loop knows of its goroutines.
type shifts struct {
	current *shift
	exits   int           // callbacks that ended the goroutine of a thread-bound driver
	owner   atomic.Uint64 // the number of the goroutine that the loop belongs to
}

// A shift is one goroutine's time as a loop's owner.
type shift struct {
	next func() // what the loop goes on with; nil unless a callback is ending the goroutine
}

// mostExits is how many callbacks may end the goroutine of a loop whose driver is bound to a
// thread. Each keeps its part of the stack until the loop ends, and makes the next one slower,
// because the runtime walks all of it. One more, and the loop fails.
const mostExits = 100

var errExits = errors.New("myriad: too many callbacks ended their goroutine (runtime.Goexit): " +
	"the driver is bound to its thread, so another goroutine cannot go on")

// employ has a new goroutine own the loop: it does first, and then what a loop does. If the driver
// is bound to a thread, the goroutine keeps its thread, which ends with it.
func (l *Loop) employ(first func()) {
	l.engine.sys.Go(func() {
		driver.Unlabel() // an inline task that hands the loop off may have labels
		if l.can.ThreadBound {
			runtime.LockOSThread()
		}
		l.runFrom(first)
	})
}

// runFrom has the calling goroutine own the loop until the loop or the goroutine ends.
func (l *Loop) runFrom(first func()) {
	s := new(shift)
	defer func() {
		if s.next != nil {
			l.replace(s.next)
		}
	}()
	l.shifts.owner.Store(driver.Goroutine()) // before an inline task runs
	l.own()
	l.shifts.current = s
	first()
	l.run()
}

// replace goes on with the loop after a callback has ended the goroutine, which runs its deferred
// functions now.
func (l *Loop) replace(next func()) {
	if !l.can.ThreadBound {
		l.employ(next)
		return
	}
	if l.shifts.exits++; l.shifts.exits > mostExits && l.failure == nil {
		l.stopFor(errExits)
	}
	l.runFrom(next)
}

// unwinding reports whether a callback is ending the loop's goroutine already.
func (l *Loop) unwinding() bool { return l.shifts.current.next != nil }

// exit notes that a callback is ending the loop's goroutine: what the functions above it had still
// to do is not done.
func (l *Loop) exit() string {
	l.shifts.current.next = l.resume
	return "it ended its goroutine (runtime.Goexit)"
}

// resume goes on where the goroutine before was ended.
func (l *Loop) resume() {
	l.slept = true
	l.readClock()
	l.current.Store(nil)
	l.switchHandlers()
	if l.failure == nil {
		l.turn(0)
	}
}

// loopBody is at the bottom of the stack of each loop's goroutine, and taskHost below the code of
// an inline task. That code may wait: another goroutine then continues with the loop.
var (
	loopBody = entryOf((*Loop).run)
	taskHost = entryOf((*Loop).runTask)
)

func entryOf(f any) uintptr { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Entry() }

// OnLoop reports whether the calling goroutine runs a callback of a loop, of any engine: whether it
// must not wait. It looks through the stack, which takes microseconds, so it is for callers that
// are about to wait anyway. Any goroutine.
func OnLoop() bool { return whereabouts() == loopBody }

// HandOff is Handoff.HandOff for callers that were given no Handoff: if the calling goroutine runs
// an inline task of one of the engine's loops, that loop continues on another goroutine. It returns
// false if the caller must not wait, because it runs a callback of any engine's loop, or an inline
// task on a driver that is bound to a thread. It looks through the stack, as OnLoop does. Any
// goroutine.
func (e *Engine) HandOff() bool {
	switch whereabouts() {
	case loopBody:
		return false
	case taskHost:
		return e.handoffOf(driver.Goroutine()).HandOff()
	}
	return true
}

// handoffOf finds the Handoff of the inline task that runs on a goroutine. It is the zero one if
// the loop was handed off already, or is another engine's.
func (e *Engine) handoffOf(id uint64) Handoff {
	for _, l := range e.loops {
		token := l.inline.token.Load()
		// the owner has not changed since, so the token is its task's
		if token%2 != 0 && id != 0 && l.shifts.owner.Load() == id {
			return Handoff{l, token}
		}
	}
	return Handoff{}
}

// whereabouts is loopBody, taskHost, or 0 on a goroutine that is no loop's. It compares entries of
// functions, because names would cost several times as much.
func whereabouts() uintptr {
	var pcs [32]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		for _, pc := range pcs[:n] {
			// pc is a return address; of inlined calls Entry is that of the function around them
			if f := runtime.FuncForPC(pc - 1); f != nil && (f.Entry() == taskHost || f.Entry() == loopBody) {
				return f.Entry()
			}
		}
		if n < len(pcs) {
			return 0
		}
	}
}

// own tells a driver that checks its callers which goroutine it belongs to now.
func (l *Loop) own() {
	if l.can.Own != nil {
		l.can.Own()
	}
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
