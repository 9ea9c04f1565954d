package web

import (
	"context"
	"net/http"

	"github.com/myriad-go/myriad"
)

// When many connections wait for a request, each of them releases its conn and its myriad.Conn
// until something comes for it (myriad.Conn.Hibernate, docs/adr/0016).

// mostAwake is how many connections of a lane may be awake while they wait.
const mostAwake = 1024

// An origin is what requests of many connections have in common: those of a listener, most often.
type origin struct {
	base   context.Context
	waiter *front // for those that hibernate; nil: they must not, because others know their net.Conn
}

// stay puts h on the list of those that are awake.
func (ln *lane) stay(h served) {
	h.known().place = int32(len(ln.awake))
	ln.awake = append(ln.awake, h)
}

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

// depart takes h off the list.
func (ln *lane) depart(k *link) {
	last := len(ln.awake) - 1
	ln.awake[k.place] = ln.awake[last]
	ln.awake[k.place].known().place = k.place
	ln.awake[last] = nil
	ln.awake = ln.awake[:last]
	if ln.asked == k {
		ln.asked, ln.address = nil, ""
	}
}

// crowded reports whether more are awake than may be.
func (ln *lane) crowded() bool { return len(ln.awake) > ln.s.awakeConns() }

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
	if h.c.HibernateAs(h.from.waiter, uint8(waits), h.unreleased.Load() == 0) {
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

// Wake implements myriad.Waker.
func (f *front) Wake(c *myriad.Conn, last myriad.Handler) myriad.Handler {
	waits := rest(c.HibernatedAs())
	phase, state := phaseIdle, http.StateIdle
	if waits == beforeAny {
		phase, state = phaseNew, http.StateNew
	}
	h := f.rouse(c, last, phase, state)
	h.phase, h.state = phase, uint8(state) // last was of another connection
	h.posted, h.blank = waits == afterPost || waits == afterPadding, 0
	if waits == afterPadding {
		h.blank = paddingLen
	}
	return h
}

func (f *front) rouse(c *myriad.Conn, last myriad.Handler, waits phase, state http.ConnState) *conn {
	h, ok := last.(*conn)
	if !ok {
		h = &conn{link: link{c: c, lane: f.lane(c), from: f.origin, state: uint8(state)}, phase: waits}
	}
	h.lane.stay(h)
	return h
}

// wakeAll ends the hibernation of all connections of the lane.
func (ln *lane) wakeAll() {
	ln.loop.WakeAll(func(w myriad.Waker) bool {
		f, ok := w.(*front)
		return ok && f.s == ln.s
	})
}

func (s *Server) awakeConns() int {
	if s.mostAwake > 0 {
		return s.mostAwake
	}
	return mostAwake
}
