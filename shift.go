package myriad

import "github.com/myriad-go/myriad/internal/driver"

// This file is how a loop outlives the goroutines that it runs on. A callback may end its goroutine
// (runtime.Goexit), and an inline task may keep it (inline.go); another one goes on.

// A shift is one goroutine's time as a loop's owner.
type shift struct {
	exiting bool // a callback is ending the goroutine
}

// employ has a new goroutine own the loop: it does first, and then what a loop does.
func (l *Loop) employ(first func()) {
	l.engine.sys.Go(func() {
		driver.Unlabel() // a guest that hands the loop over may have labels
		s := new(shift)
		defer func() {
			if s.exiting {
				l.employ(l.resume)
			}
		}()
		l.owner.Store(driver.Goroutine()) // before an inline task runs
		l.own()
		l.shift = s
		first()
		l.run()
	})
}

// exit notes that a callback is ending the loop's goroutine: what the functions above it had still to do is not done.
func (l *Loop) exit() string {
	l.shift.exiting = true
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

// work is what a turn has taken up. It is not on the stack: a handler may end the goroutine (runtime.Goexit), and
// another one goes on from here.
type work struct {
	revisits     batch[*Conn]
	dirty        *Conn // a list by Conn.next
	intake       batch[arrival]
	funcs, after batch[func()]
	told         int // the conns in the table below it know that the loop is stopping
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

// refill takes *list up and leaves the room of the last one in its place, unless something is left of that.
func (b *batch[T]) refill(list *[]T) {
	if b.empty() {
		b.list, *list, b.next = *list, b.list[:0], 0
	}
}
