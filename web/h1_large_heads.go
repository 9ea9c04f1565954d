package web

import "slices"

// This file has large heads come one after the other. MaxHeaderBytes is for each connection:
// thousands of heads of a megabyte that grow side by side would take gigabytes, and every turn of
// the loop as long as it takes to copy from all of them. What is said here of heads goes for
// trailers.

const (
	// freeHead is how many bytes of an incomplete head, and one read buffer, are kept of every
	// connection.
	freeHead = 32 << 10
	// mostLarge is how many of a lane's connections may have more of one at a time. The others are
	// not read from meanwhile.
	mostLarge = 32
)

// A turn is how an incomplete head stands among the large ones of its lane.
type turn uint8

const (
	turnNone    turn = iota // it is not large
	turnHas                 // it grows
	turnAwaited             // its connection is paused until it may
)

// largeHeads are those of a lane.
type largeHeads struct {
	growing int
	waiting []*conn // the first comes next
}

// takeTurn has a head that has become large grow, or wait until others are complete. The time that
// it has runs on.
func (h *conn) takeTurn() {
	a, large := h.ahead, &h.lane.large
	switch {
	case a == nil || a.turn == turnHas || h.answering() || len(a.bytes()) < freeHead:
		return
	case a.turn == turnNone && large.growing < mostLarge:
		large.growing++
		a.turn = turnHas
		return
	case a.turn == turnNone:
		large.waiting = append(large.waiting, h)
		a.turn = turnAwaited
	}
	h.pause(pauseTurn)
}

// endTurn has the next one grow, if a did. One that still waited goes, or is a trailer that has
// come to its end: then goOn reads on.
func (h *conn) endTurn(a *ahead) {
	large := &h.lane.large
	switch a.turn {
	case turnHas:
		large.growing--
		large.next()
	case turnAwaited:
		at := slices.Index(large.waiting, h)
		large.waiting = slices.Delete(large.waiting, at, at+1)
	}
	a.turn = turnNone
}

// next lets the first waiting connection read its large head.
func (l *largeHeads) next() {
	if len(l.waiting) == 0 {
		return
	}
	h := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	l.growing++
	h.ahead.turn = turnHas
	h.resume(pauseTurn)
}
