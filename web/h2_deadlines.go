package web

import (
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// This file is the deadlines of a stream, for which its connection has one timer.

// setDeadlines starts the times that a request has: for its body, and for its answer.
func (x *h2stream) setDeadlines() {
	s := x.lane.s
	if d := s.WriteTimeout; d > 0 {
		x.setWriteBy(x.h.now().after(d))
	}
	if d := s.ReadTimeout; d > 0 && x.body != nil {
		x.body.readBy = x.h.now().after(d)
	}
	x.arm()
}

// arm has the connection look at x at the earliest of its deadlines.
func (x *h2stream) arm() {
	by := x.beat.orEarlier(x.writeBy)
	if !x.body.complete() && !x.pipe.tunnelled() {
		by = by.orEarlier(x.body.bound())
	}
	x.h.watch(x, by)
}

// deadlinePassed acts on the deadlines. As with net/http, a stream whose answer is late is reset at
// once, whatever its handler does.
func (x *h2stream) deadlinePassed(now moment) {
	x.takeWriteBy()
	if x.writeBy.passed(now) {
		x.writeBy = never
		x.lane.st.figures.late.Add(1)
		x.s.Cancel(h2.InternalError)
	}
	if !x.body.complete() {
		x.body.expire(now)
	}
	if x.beat.passed(now) {
		x.beat = never
		if x.pipe.tunnelled() {
			x.pipe.expired()
		} else {
			x.stream().beats(x.setBeat)
		}
	}
	x.arm()
}

// setBeat has the Stream's keep-alive, or the Pipe's timer, looked at after d; 0: no more.
func (x *h2stream) setBeat(d time.Duration) {
	if x.beat = never; d > 0 {
		x.beat = x.h.now().after(d)
	}
	x.arm()
}
