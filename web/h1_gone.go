package web

import "time"

// A goneNotice is when the loop ends the context of a handler whose client has ended its side of
// the connection. It comes late: a client may half-close and still wait for its answer, which
// http.TimeoutHandler would withhold. A quick handler gets no notice, and none gets it before it
// has begun and has read its body. net/http has the same delay, as a side effect of its background
// read.
type goneNotice struct {
	at    moment        // of the next look; never: there is none, because it has been told
	wait  time.Duration // between the last look and that
	ready bool          // at the last look the handler could be told
}

const (
	firstNotice = time.Millisecond // between the first two looks
	maxNotice   = time.Second / 8  // at most, between any two
)

// tellsOfEnd begins the notice, if that has not been done, and returns when the next look is. On
// the loop.
func (x *h1stream) tellsOfEnd(now moment) moment {
	if x.notice == nil {
		x.notice = new(goneNotice)
		x.lookAtEnd(now)
	}
	return x.notice.at
}

// lookAtEnd ends the context if that could have been done at the last look, too. On the loop.
func (x *h1stream) lookAtEnd(now moment) {
	f := x.notice
	if f.ready {
		f.at = never
		x.given.ctx.depart()
		return
	}
	f.ready = (x.inline() || x.given.ctx.hasBegun()) && x.body.got()
	f.wait = min(max(2*f.wait, firstNotice), maxNotice)
	f.at = now.after(f.wait)
}
