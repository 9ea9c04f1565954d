// Package handoff passes a loop from one goroutine to another (docs/adr/0010). An inline task may
// keep the goroutine, or a callback may end it (runtime.Goexit). The goroutine of a driver that is
// bound to a thread must not be replaced. There the loop goes on in a deferred function of the
// goroutine that ends. model_test.go explores every order of steps.
package handoff

import (
	"errors"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Loop is what an Owner runs, and what it needs of its world.
type Loop struct {
	Sys      driver.System
	Bound    bool                  // the driver is bound to its thread
	Own      func()                // tells the driver that the calling goroutine has it now; nil: it does not ask
	Run      func()                // the loop, for as long as it belongs to the goroutine that calls it
	Overtake func(overstayed bool) // how the next goroutine begins after a handoff
	Fail     func(err error)       // ends the loop, and its connections with err
}

// An Owner is what a loop knows of the goroutines that it runs on. Its methods are the loop's, but
// for Has and those of Token.
type Owner struct {
	loop      Loop
	monitor   *Monitor
	current   *shift        // the time of the goroutine that the loop belongs to
	exits     int           // callbacks that ended the goroutine of a thread-bound driver
	goroutine atomic.Uint64 // the number of the goroutine that the loop belongs to
	token     atomic.Uint64 // odd while an inline task has the loop's goroutine
	thread    atomic.Int64  // that inline tasks run on; 0: not known
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

// Init says what the Owner owns, and which Monitor looks after its tasks. No goroutine owns the
// loop before the first Start.
func (o *Owner) Init(l Loop, m *Monitor) {
	o.loop, o.monitor, o.current = l, m, new(shift)
	if m != nil {
		m.owners = append(m.owners, o)
	}
}

// Start has a new goroutine own the loop: it does first, and then what a loop does. If the driver
// is bound to a thread, the goroutine keeps its thread, which ends with it.
func (o *Owner) Start(first func()) {
	o.loop.Sys.Go(func() {
		driver.Unlabel() // an inline task that hands the loop off may have labels
		if o.loop.Bound {
			runtime.LockOSThread()
		}
		o.runFrom(first)
	})
}

// runFrom has the calling goroutine own the loop until the loop or the goroutine ends.
func (o *Owner) runFrom(first func()) {
	s := new(shift)
	defer func() {
		if s.next != nil {
			o.replace(s.next)
		}
	}()
	o.goroutine.Store(driver.Goroutine()) // before an inline task runs
	if o.loop.Own != nil {
		o.loop.Own()
	}
	o.current = s
	first()
	o.loop.Run()
}

// replace goes on with the loop after a callback has ended the goroutine, which runs its deferred
// functions now.
func (o *Owner) replace(next func()) {
	if !o.loop.Bound {
		o.Start(next)
		return
	}
	if o.exits++; o.exits > mostExits {
		o.loop.Fail(errExits)
	}
	o.runFrom(next)
}

// Exit notes that a callback is ending the loop's goroutine. Another one goes on with next: what
// the functions above the callback had still to do is not done.
func (o *Owner) Exit(next func()) { o.current.next = next }

// Exiting reports whether a callback is ending the loop's goroutine already.
func (o *Owner) Exiting() bool { return o.current.next != nil }

// Has reports whether the loop belongs to the goroutine with this number. Any goroutine.
func (o *Owner) Has(goroutine uint64) bool { return o.goroutine.Load() == goroutine }

// NoteThread tells the monitor which thread n inline tasks will run on.
func (o *Owner) NoteThread(n int) {
	switch t := o.monitor.threads; {
	case t == nil:
	case n >= crowd:
		o.thread.Store(int64(t.Thread()))
	case o.thread.Load() != 0:
		o.thread.Store(0)
	}
}

// Begin gives the loop's goroutine to an inline task, until the Token's End or HandOff. In between
// only the token of the Owner may be touched.
func (o *Owner) Begin() Token {
	t := Token{o, o.token.Load() + 1}
	o.token.Store(t.word)
	if o.monitor.state.Load() != monitorAwake {
		o.monitor.rouse()
	}
	return t
}

// TaskOn is the Token of the inline task that runs on a goroutine. It is the zero one if there is
// none, or the loop was handed off. Any goroutine.
func (o *Owner) TaskOn(goroutine uint64) Token {
	word := o.token.Load()
	// the owner has not changed since, so the word is its task's
	if word%2 != 0 && goroutine != 0 && o.Has(goroutine) {
		return Token{o, word}
	}
	return Token{}
}

// A Token is an inline task's hold on the goroutine of its loop. The zero Token holds none.
type Token struct {
	owner *Owner
	word  uint64
}

// HandOff lets the loop continue on another goroutine, so that the task may wait. It does nothing
// if the task no longer has the loop. It returns false if the task must not wait, because the
// driver is bound to the loop's thread. Any goroutine.
func (t Token) HandOff() bool {
	switch {
	case t.owner == nil:
	case t.owner.loop.Bound:
		return t.owner.token.Load() != t.word
	default:
		t.owner.handOff(t.word, false)
	}
	return true
}

// Held reports whether the task still has its loop. Any goroutine.
func (t Token) Held() bool { return t.owner != nil && t.owner.token.Load() == t.word }

// End gives the goroutine back to the loop when the task has returned. False: the loop was handed
// off meanwhile, and is not the caller's.
func (t Token) End() bool { return t.owner.token.CompareAndSwap(t.word, t.word+1) }

// handOff starts another goroutine for a loop whose inline task has this word. If the task no
// longer has the loop, it does nothing. Any goroutine.
func (o *Owner) handOff(word uint64, overstayed bool) {
	if o.token.CompareAndSwap(word, word+1) {
		o.Start(func() { o.loop.Overtake(overstayed) })
	}
}

// Entry is where the code of a function begins.
func Entry(f any) uintptr { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Entry() }

// Innermost is that of the two entries whose function the calling goroutine runs, the innermost if
// it runs both, and 0 if none. It compares entries of functions, because names would cost several
// times as much. Any goroutine.
func Innermost(one, other uintptr) uintptr {
	var pcs [32]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		for _, pc := range pcs[:n] {
			// pc is a return address; of inlined calls Entry is that of the function around them
			if f := runtime.FuncForPC(pc - 1); f != nil && (f.Entry() == one || f.Entry() == other) {
				return f.Entry()
			}
		}
		if n < len(pcs) {
			return 0
		}
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

// A Monitor hands off loops whose inline tasks overstay. It is one goroutine for an engine, from
// the first task to the end of the last loop, and parked while there are no tasks.
type Monitor struct {
	sys     driver.System
	threads driver.Threads // nil: the system does not know them
	owners  []*Owner
	state   atomic.Uint32 // one of the following
	parker  driver.Parker
	seen    []sight // by loop
}

// NewMonitor is the Monitor of one engine. Owners name it in Init, all of them before the first
// task.
func NewMonitor(sys driver.System) *Monitor {
	return &Monitor{sys: sys, threads: sys.Facilities().Threads, parker: sys.NewParker()}
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
func (m *Monitor) rouse() {
	switch {
	case m.state.CompareAndSwap(monitorParked, monitorAwake):
		m.parker.Unpark()
	case m.state.CompareAndSwap(monitorUnborn, monitorAwake):
		m.sys.Go(m.run)
	}
}

// End is called when the last loop has ended.
func (m *Monitor) End() {
	m.state.Store(monitorOver)
	m.parker.Unpark()
}

func (m *Monitor) run() {
	m.seen = make([]sight, len(m.owners))
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
func (m *Monitor) look() (active bool) {
	for i, o := range m.owners {
		if o.loop.Bound {
			continue
		}
		token, last := o.token.Load(), &m.seen[i]
		switch {
		case token != last.token:
			*last = sight{token: token}
			if thread := o.thread.Load(); token%2 != 0 && thread != 0 {
				last.ran = m.threads.Ran(int(thread))
			}
			active = true
		case token%2 != 0:
			if !m.starved(o, last) {
				o.handOff(token, true)
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
func (m *Monitor) starved(o *Owner, last *sight) bool {
	thread := int(o.thread.Load())
	if thread == 0 || last.doubts == mostDoubts {
		return false
	}
	last.doubts++
	before := last.ran
	last.ran = m.threads.Ran(thread)
	return before >= 0 && last.ran-before < overstayTick/4 && m.threads.Ready(thread)
}

// park waits for an inline task. It looks for one a last time when the owners of loops can see that
// it is about to park. If one of them has roused it already, park still takes the permit, or the
// next tick would be short.
func (m *Monitor) park() bool {
	if !m.state.CompareAndSwap(monitorAwake, monitorParked) {
		return false
	}
	if m.news() && m.state.CompareAndSwap(monitorParked, monitorAwake) {
		return true
	}
	m.parker.Park()
	return true
}

func (m *Monitor) news() bool {
	for i, o := range m.owners {
		if !o.loop.Bound && o.token.Load() != m.seen[i].token {
			return true
		}
	}
	return false
}
