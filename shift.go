package myriad

import (
	"errors"
	"runtime"

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
	l.owner.Store(driver.Goroutine()) // before an inline task runs
	l.own()
	l.shift = s
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
	if l.exits++; l.exits > mostExits && l.failure == nil {
		l.stopFor(errExits)
	}
	l.runFrom(next)
}

// exit notes that a callback is ending the loop's goroutine: what the functions above it had still
// to do is not done.
func (l *Loop) exit() string {
	l.shift.next = l.resume
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

// work is what a turn has taken up. It is not on the stack: a handler may end the goroutine
// (runtime.Goexit), and another one goes on from here.
type work struct {
	revisits     batch[*Conn]
	dirty        batch[dirtyConn]
	intake       batch[arrival]
	funcs, after batch[func()]
	told         int // the conns in the table below it know that the loop is stopping
}

// A dirtyConn is one that was given work, with its slot, because many of them are sorted by slot.
type dirtyConn struct {
	slot uint32
	conn *Conn
}

// A batch is a list that is taken up piece by piece.
type batch[T any] struct {
	list []T
	next int
}

// take returns the next piece. False: it was the last, and the list's room can be used again.
func (b *batch[T]) take() (piece T, ok bool) {
	var none T
	if b.next == len(b.list) {
		b.list, b.next = b.list[:0], 0
		return none, false
	}
	piece, b.list[b.next] = b.list[b.next], none
	b.next++
	return piece, true
}

func (b *batch[T]) empty() bool { return b.next == len(b.list) }

// refill takes *list up and leaves the room of the last one in its place, unless something is left
// of that.
func (b *batch[T]) refill(list *[]T) {
	if b.empty() {
		b.list, *list, b.next = *list, b.list[:0], 0
	}
}
