package http1

import (
	"net/http"
	"os"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file is the one timer of an HTTP/1 connection, and what it stands for: the timeouts of the
// Server, the deadlines that a handler sets by http.ResponseController, and the wait between
// requests. When many connections wait, each of them releases its conn and its myriad.Conn until
// something comes for it (myriad.Conn.Hibernate, docs/adr/0016).

// setTimes starts the time that an answer has.
func (h *Conn) setTimes(x *Stream) {
	if d := h.Lane.Server.WriteTimeout; d > 0 {
		x.SetWriteBy(h.Now().After(d))
	}
}

// setDeadlines starts the times that a request has: for its body, and for its answer.
func (h *Conn) setDeadlines(x *Stream, complete bool) {
	h.setTimes(x)
	began := h.began
	h.began = exchange.Never
	h.phase = phaseAnswer
	if !complete {
		h.phase = phaseBody
		if d := h.Lane.Server.ReadTimeout; d > 0 {
			x.Body.ReadBy = h.Now().OrEarlier(began).After(d)
		}
	}
	h.armDeadlines(x)
}

// armDeadlines sets the conn's one timer to the earlier of the body's and the answer's, or to when
// the handler is to be told of its client's FIN.
func (h *Conn) armDeadlines(x *Stream) {
	by := x.WriteBy
	if h.phase == phaseBody {
		by = by.OrEarlier(x.Body.Bound())
	}
	if h.FIN {
		by = by.OrEarlier(x.TellsOfEnd(h.Now()))
	}
	h.C.SetTimer(h.Until(by))
}

// DeadlinePassed acts on the timer of a request. A deadline that passes while its handler neither
// reads nor writes has no effect, as with net/http: it may be moved before.
func (h *Conn) DeadlinePassed(x *Stream) {
	now := h.Now()
	x.TakeWriteBy()
	if x.notice != nil && x.notice.at.Passed(now) {
		x.LookAtEnd(now)
	}
	if x.WriteBy.Passed(now) && !h.answerLate(x) {
		return
	}
	if h.phase == phaseBody && x.Body.Expire(now) {
		h.pause(pauseLate)
	}
	h.armDeadlines(x)
}

// unsentTime is how long what was written in time has to reach the kernel: the loop comes to it in
// its next turn.
const unsentTime = time.Millisecond

// answerLate ends a connection whose client does not read the answer in time. It reports whether
// the connection goes on.
func (h *Conn) answerLate(x *Stream) bool {
	switch {
	case h.C.QueuedTotal() == 0 || x.Stream() != nil: // which may take its time
		x.WriteBy = exchange.Never
	case x.Looked:
		h.C.Abort(os.ErrDeadlineExceeded)
		return false
	default:
		x.Looked, x.WriteBy = true, x.WriteBy.After(unsentTime)
	}
	return true
}

// idleTime is how long the wait for the next request may last: IdleTimeout, or until by, if a part
// of the answer that is due by then is still queued.
func (h *Conn) idleTime(by exchange.Moment) time.Duration {
	if h.sending = by != exchange.Never && h.C.QueuedTotal() > 0; h.sending {
		return h.Until(by)
	}
	d := max(0, h.Lane.Server.IdleTimeout)
	if h.lately {
		d = min(d, max(d/goneLooks, time.Second))
	}
	return d
}

// goneLooks is how often in IdleTimeout the loop checks whether a large answer has gone, at most
// once a second. IdleTimeout begins then.
const goneLooks = 8

// Expired acts on the timeout of the phase the conn is in.
func (h *Conn) Expired(c *myriad.Conn) {
	if h.stream != nil {
		if !h.stream.Beats(h.C.SetTimer) {
			// the deadline of a caller to which ConnState or ConnContext has shown the conn
			c.Abort(os.ErrDeadlineExceeded)
		}
		return
	}
	switch h.phase {
	case phaseHead:
		h.refuseUnfinished(http.StatusRequestTimeout, "the head was not complete in time")
	case phaseBody, phaseAnswer:
		h.DeadlinePassed(h.X)
	case phaseIdle:
		h.idledOut()
	case phaseLeaving:
	default:
		h.close()
	}
}

// lateBytes is how large an answer is for its client to take it a long time after its handler has
// returned: more than sockets usually hold.
const LateBytes = 64 << 10

// idledOut ends a connection that has waited too long for a request, but not one whose client is
// still taking the answer before: that may last as long as the answer itself may. Nor does it end
// one whose client has taken it since the last look.
func (h *Conn) idledOut() {
	late, looked, unsent := h.sending, h.lately, h.C.QueuedTotal() > 0
	h.sending, h.lately = false, unsent
	switch {
	case late && unsent:
		h.C.Abort(os.ErrDeadlineExceeded)
	case late || looked || unsent:
		h.C.SetTimer(h.idleTime(exchange.Never))
	default:
		h.close()
	}
}

// hasSent begins the time of an idle connection if all of its answer has gone. The waker does not
// know what the timer was for.
func (h *Conn) hasSent() {
	if h.phase == phaseIdle && (h.sending || h.lately) && h.C.QueuedTotal() == 0 {
		h.sending, h.lately = false, false
		h.C.SetTimer(h.idleTime(exchange.Never))
	}
}

// hibernate gives h back if its connection does nothing but wait for a request.
func (h *Conn) hibernate() {
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
	if h.C.HibernateAs(h.From.Waiter, uint8(waits), !h.Shared) {
		h.Lane.Depart(&h.Link)
	}
}

// padded reports whether all that has come for the next request is a CRLF behind a POST.
func (h *Conn) padded() bool { return h.posted && h.blank == paddingLen }

const paddingLen = 2

// A rest is what is known of a connection that hibernates, which is its tag.
type rest uint8

const (
	afterRequest rest = iota
	beforeAny         // it has not asked yet
	afterPost         // its last request was a POST
	afterPadding      // and a CRLF has come behind it, which some clients always send
)

// Wake makes a connection that has hibernated anew. last is a conn that may be used for it, which
// was another connection's, or nil.
func (ln *Lane) Wake(c *myriad.Conn, last myriad.Handler, from *exchange.Origin) myriad.Handler {
	h, ok := last.(*Conn)
	if !ok {
		h = &Conn{Link: exchange.Link{C: c, Lane: ln.Lane, From: from}, Own: ln}
	}
	ln.Stay(h)
	waits := rest(c.HibernatedAs())
	h.phase, h.State = phaseIdle, uint8(http.StateIdle)
	if waits == beforeAny {
		h.phase, h.State = phaseNew, uint8(http.StateNew)
	}
	h.posted, h.blank = waits == afterPost || waits == afterPadding, 0
	if waits == afterPadding {
		h.blank = paddingLen
	}
	return h
}

// idles is told that h waits for a request. If many are awake, it hibernates at the end of the
// turn, after its answer has left. If its timer is that of its answer, it is set again then.
func (ln *Lane) idles(h *Conn) {
	if !h.sending && (h.From.Waiter == nil || !ln.Crowded()) {
		return
	}
	if len(ln.idle) == 0 && len(ln.unsent) == 0 {
		ln.Loop.Later(ln.thin)
	}
	ln.idle = append(ln.idle, h)
}

// thin has those hibernate that have come to wait in this turn. A driver that sends in batches says
// in the next poll that an answer has left: then the connection is tried once more.
func (ln *Lane) thin() {
	for _, h := range ln.unsent {
		ln.rests(h)
	}
	clear(ln.unsent)
	ln.unsent = ln.unsent[:0]
	for _, h := range ln.idle {
		if h.C.QueuedTotal() > 0 {
			ln.unsent = append(ln.unsent, h)
			continue
		}
		ln.rests(h)
	}
	clear(ln.idle)
	ln.idle = ln.idle[:0]
	if len(ln.unsent) > 0 {
		ln.Loop.Later(ln.thin)
	}
}

// rests is for a connection that waits for a request, whose answer has left perhaps.
func (ln *Lane) rests(h *Conn) {
	h.hasSent()
	if h.From.Waiter != nil && ln.Crowded() {
		h.hibernate()
	}
}
