package web

import "time"

// A goneNotice is when the loop tells a handler, by its context, that its client has ended its side
// of the connection. net/http reads for that on a goroutine which it starts when the handler
// begins, or later, when that has read its body to the end. So a quick handler gets no notice,
// least of all before it has begun: its client wants the answer, and http.TimeoutHandler would
// withhold it.
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
