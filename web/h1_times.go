package web

import (
	"net/http"
	"os"
	"time"

	"github.com/myriad-go/myriad"
)

// This file is the one timer of an HTTP/1 connection, and what it stands for: the timeouts of the
// Server, the deadlines that a handler sets by http.ResponseController, and the wait between
// requests. When many connections wait, each of them releases its conn and its myriad.Conn until
// something comes for it (myriad.Conn.Hibernate, docs/adr/0016).

// setTimes starts the time that an answer has.
func (h *conn) setTimes(x *h1stream) {
	if d := h.lane.s.WriteTimeout; d > 0 {
		x.setWriteBy(h.now().after(d))
	}
}

// setDeadlines starts the times that a request has: for its body, and for its answer.
func (h *conn) setDeadlines(x *h1stream, complete bool) {
	h.setTimes(x)
	began := h.began
	h.began = never
	h.phase = phaseAnswer
	if !complete {
		h.phase = phaseBody
		if d := h.lane.s.ReadTimeout; d > 0 {
			x.body.readBy = h.now().orEarlier(began).after(d)
		}
	}
	h.armDeadlines(x)
}

// armDeadlines sets the conn's one timer to the earlier of the body's and the answer's, or to when
// the handler is to be told of its client's FIN.
func (h *conn) armDeadlines(x *h1stream) {
	by := x.writeBy
	if h.phase == phaseBody {
		by = by.orEarlier(x.body.bound())
	}
	if h.ended {
		by = by.orEarlier(x.tellsOfEnd(h.now()))
	}
	h.c.SetTimer(h.until(by))
}

// deadlinePassed acts on the timer of a request. A deadline that passes while its handler neither
// reads nor writes has no effect, as with net/http: it may be moved before.
func (h *conn) deadlinePassed(x *h1stream) {
	now := h.now()
	x.takeWriteBy()
	if x.notice != nil && x.notice.at.passed(now) {
		x.lookAtEnd(now)
	}
	if x.writeBy.passed(now) && !h.answerLate(x) {
		return
	}
	if h.phase == phaseBody && x.body.expire(now) {
		h.pause(pauseLate)
	}
	h.armDeadlines(x)
}

// unsentTime is how long what was written in time has to reach the kernel: the loop comes to it in
// its next turn.
const unsentTime = time.Millisecond

// answerLate ends a connection whose client does not read the answer in time. It reports whether
// the connection goes on.
func (h *conn) answerLate(x *h1stream) bool {
	switch {
	case h.c.QueuedTotal() == 0 || x.stream() != nil: // which may take its time
		x.writeBy = never
	case x.looked:
		h.c.Abort(os.ErrDeadlineExceeded)
		return false
	default:
		x.looked, x.writeBy = true, x.writeBy.after(unsentTime)
	}
	return true
}

// idleTime is how long the wait for the next request may last: IdleTimeout, or until by, if a part
// of the answer that is due by then is still queued.
func (h *conn) idleTime(by moment) time.Duration {
	if h.sending = by != never && h.c.QueuedTotal() > 0; h.sending {
		return h.until(by)
	}
	d := firstOf(h.lane.s.IdleTimeout, h.lane.s.ReadTimeout)
	if h.lately {
		d = min(d, max(d/goneLooks, time.Second))
	}
	return d
}

// goneLooks is how often in IdleTimeout the loop checks whether a large answer has gone, at most
// once a second. IdleTimeout begins then.
const goneLooks = 8

// Expired acts on the timeout of the phase the conn is in.
func (h *conn) Expired(c *myriad.Conn) {
	if h.stream != nil {
		if !h.stream.beats(h.c.SetTimer) {
			// the deadline of a caller to which ConnState or ConnContext has shown the conn
			c.Abort(os.ErrDeadlineExceeded)
		}
		return
	}
	switch h.phase {
	case phaseHead:
		h.refuseUnfinished(http.StatusRequestTimeout, "the head was not complete in time")
	case phaseBody, phaseAnswer:
		h.deadlinePassed(h.x)
	case phaseIdle:
		h.idledOut()
	case phaseLeaving:
	default:
		h.close()
	}
}

// lateBytes is how large an answer is for its client to take it a long time after its handler has
// returned: more than sockets usually hold.
const lateBytes = 64 << 10

// idledOut ends a connection that has waited too long for a request, but not one whose client is
// still taking the answer before: that may last as long as the answer itself may. Nor does it end
// one whose client has taken it since the last look.
func (h *conn) idledOut() {
	late, looked, unsent := h.sending, h.lately, h.c.QueuedTotal() > 0
	h.sending, h.lately = false, unsent
	switch {
	case late && unsent:
		h.c.Abort(os.ErrDeadlineExceeded)
	case late || looked || unsent:
		h.c.SetTimer(h.idleTime(never))
	default:
		h.close()
	}
}

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

// hasSent begins the time of an idle connection if all of its answer has gone. The waker does not
// know what the timer was for.
func (h *conn) hasSent() {
	if h.phase == phaseIdle && (h.sending || h.lately) && h.c.QueuedTotal() == 0 {
		h.sending, h.lately = false, false
		h.c.SetTimer(h.idleTime(never))
	}
}

// hibernate gives h back if its connection does nothing but wait for a request.
func (h *conn) hibernate() {
	waits := afterRequest
	switch {
	case h.lately || h.blank > 0 && !h.padded(): // it would not be known
		return
	case h.phase == phaseNew:
		waits = beforeAny
	case h.phase != phaseIdle || h.sending:
		return
	case h.padded():
		waits = afterPadding
	case h.posted:
		waits = afterPost
	}
	if h.c.HibernateAs(h.from.waiter, uint8(waits), !h.shared) {
		h.lane.depart(&h.link)
	}
}

// padded reports whether all that has come for the next request is a CRLF behind a POST.
func (h *conn) padded() bool { return h.posted && h.blank == paddingLen }

const paddingLen = 2

// A rest is what is known of a connection that hibernates, which is its tag.
type rest uint8

const (
	afterRequest rest = iota
	beforeAny         // it has not asked yet
	afterPost         // its last request was a POST
	afterPadding      // and a CRLF has come behind it, which some clients always send
)

// idles is told that h waits for a request. If many are awake, it hibernates at the end of the
// turn, after its answer has left. If its timer is that of its answer, it is set again then.
func (ln *lane) idles(h *conn) {
	if !h.sending && (h.from.waiter == nil || !ln.crowded()) {
		return
	}
	if len(ln.idle) == 0 {
		ln.loop.Later(ln.thin)
	}
	ln.idle = append(ln.idle, h)
}

// thin has those hibernate that have come to wait in this turn.
func (ln *lane) thin() {
	for _, h := range ln.idle {
		h.hasSent()
		if h.from.waiter != nil && ln.crowded() {
			h.hibernate()
		}
	}
	clear(ln.idle)
	ln.idle = ln.idle[:0]
}
