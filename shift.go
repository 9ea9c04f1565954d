package myriad

import (
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is how a loop outlives the goroutines that it runs on. A callback may end its goroutine
// (runtime.Goexit), and an inline task may keep it (inline.go); another one goes on. The goroutine
// of a driver that is bound to a thread must not be replaced: there the loop goes on in a deferred
// function of the goroutine that ends.

// mostExits is how many callbacks may end the goroutine of a loop whose driver is bound to a
// thread. Each keeps its part of the stack until the loop ends, and makes the next one slower,
// because the runtime walks all of it. One more, and the loop fails.
const mostExits = 100

var errExits = errors.New("myriad: too many callbacks ended their goroutine (runtime.Goexit): " +
	"the driver is bound to its thread, so another goroutine cannot go on")

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
