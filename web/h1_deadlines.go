package web

import (
	"net/http"
	"os"
	"time"

	"github.com/myriad-go/myriad"
)

// This file is the one timer of an HTTP/1 connection, and what it stands for: the timeouts of the
// Server, and the deadlines that a handler sets by http.ResponseController.

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

// takeDeadlines has the loop go by the deadlines that ResponseController was given.
func (h *conn) takeDeadlines(x *h1stream) {
	if !x.body.isLate() {
		h.resume(pauseLate)
	}
	if h.phase == phaseBody || h.phase == phaseAnswer {
		h.armDeadlines(x)
	}
}
