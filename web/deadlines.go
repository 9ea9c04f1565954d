package web

import (
	"net/http"
	"os"
	"time"

	"github.com/myriad-go/myriad"
)

// This file is a connection's one timer, and what it stands for: the timeouts of the Server, and the deadlines that a handler sets by
// http.ResponseController.

// deadlines are what ResponseController has set; zero for none, and set tells which were.
type deadlines struct {
	read, write       moment
	readSet, writeSet bool
	rest              moment // for what the handler has left of the body
}

func firstOf(ds ...time.Duration) time.Duration {
	for _, d := range ds {
		if d != 0 {
			return max(d, 0)
		}
	}
	return 0
}

// setTimes starts the time that an answer has.
func (h *conn) setTimes(x *exchange) {
	if d := h.lane.s.WriteTimeout; d > 0 {
		x.writeBy = h.now().after(d)
		x.out.writeBy = x.writeBy
	}
}

// setDeadlines starts the times that a request has: for its body, and for its answer.
func (h *conn) setDeadlines(x *exchange, complete bool) {
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

// armDeadlines sets the conn's one timer to the earlier of the body's and the answer's, or to when the handler is to be told of its client's FIN.
func (h *conn) armDeadlines(x *exchange) {
	by := x.writeBy
	if h.phase == phaseBody {
		by = by.orEarlier(x.body.readBy)
	}
	if h.ended {
		by = by.orEarlier(x.tellsOfEnd(h.now()))
	}
	h.c.SetTimer(h.until(by))
}

// now is the loop's time.
func (h *conn) now() moment { return h.lane.st.moment(h.lane.loop.Now()) }

// until is how long the timer is to wait for by; 0 if there is no such moment.
func (h *conn) until(by moment) time.Duration {
	if by == never {
		return 0
	}
	return max(time.Duration(by-h.now()), time.Nanosecond)
}

// deadlinePassed acts on the timer of a request.
func (h *conn) deadlinePassed(x *exchange) {
	now := h.now()
	if x.farewell.at.passed(now) {
		x.lookAtEnd(now)
	}
	if x.writeBy.passed(now) {
		switch {
		case x.stream() != nil: // which may take its time
		case h.c.Unsent() > 0:
			h.c.Abort(os.ErrDeadlineExceeded) // its client does not read
			return
		default:
			x.out.lose(os.ErrDeadlineExceeded) // too late to begin: the connection ends in order when the handler does
		}
		x.writeBy = never
	}
	if h.phase == phaseBody && x.body.readBy.passed(now) {
		h.bodyFailed(x, os.ErrDeadlineExceeded)
		return
	}
	h.armDeadlines(x)
}

// idleTime is how long the wait for the next request may last: as IdleTimeout says, or until by while something of the answer
// that had to be taken by then is still to go.
func (h *conn) idleTime(by moment) time.Duration {
	if h.sending = by != never && h.c.Unsent() > 0; h.sending {
		return h.until(by)
	}
	return firstOf(h.lane.s.IdleTimeout, h.lane.s.ReadTimeout)
}

// Expired acts on the timeout of the phase the conn is in.
func (h *conn) Expired(c *myriad.Conn) {
	if h.stream != nil { // of a deadline that somebody has set whom ConnState or ConnContext has shown the conn
		c.Abort(os.ErrDeadlineExceeded)
		return
	}
	switch h.phase {
	case phaseHead:
		h.refuse(http.StatusRequestTimeout, "the head was not complete in time")
	case phaseBody, phaseAnswer:
		h.deadlinePassed(h.x)
	case phaseIdle:
		h.idledOut()
	default:
		h.close()
	}
}

// idledOut ends a connection that has waited too long for a request, but not one whose client is still taking a file of the
// answer before: that may last as long as the answer itself may.
func (h *conn) idledOut() {
	late := h.sending
	h.sending = false
	switch unsent := h.c.Unsent() > 0; {
	case late && unsent:
		h.c.Abort(os.ErrDeadlineExceeded)
	case late || unsent:
		h.c.SetTimer(h.idleTime(never))
	default:
		h.close()
	}
}

func (w *response) setReadDeadline(t time.Time) {
	by := w.x.lane.st.moment(t)
	w.setDeadline(func(d *deadlines) { d.read, d.readSet = by, true })
}

func (w *response) setWriteDeadline(t time.Time) {
	by := w.x.lane.st.moment(t)
	if w.lostErr() == nil {
		w.writeBy = by
	}
	w.setDeadline(func(d *deadlines) { d.write, d.writeSet = by, true })
}

// readWithin bounds the rest of the body by d from now, unless it is bounded more tightly already.
func (w *response) readWithin(d time.Duration) {
	by := w.x.lane.st.now().after(d)
	w.setDeadline(func(d *deadlines) { d.rest = by })
}

func (w *response) setDeadline(set func(d *deadlines)) {
	w.mu.Lock()
	more := w.more()
	if more.deadline == nil {
		more.deadline = new(deadlines)
	}
	set(more.deadline)
	w.mu.Unlock()
	w.x.want(wantDeadline)
}

// takeDeadlines makes the deadlines that ResponseController was given the exchange's own.
func (h *conn) takeDeadlines(x *exchange) {
	x.out.mu.Lock()
	more := x.out.more()
	if d := more.deadline; d != nil {
		if b := x.body; b != nil {
			if d.readSet {
				b.readBy = d.read
			}
			b.readBy = b.readBy.orEarlier(d.rest)
		}
		if d.writeSet {
			x.writeBy = d.write
		}
		more.deadline = nil
	}
	x.out.mu.Unlock()
	if h.phase == phaseBody || h.phase == phaseAnswer {
		h.armDeadlines(x)
	}
}
