package web

import (
	"net/http"

	"github.com/myriad-go/myriad"
)

// This file is how a conn goes on: what its exchanges want, and the next one when they have ended.

// Notified is called after the exchange has asked for something from another goroutine.
func (h *conn) Notified(c *myriad.Conn) {
	if h.x == nil && h.stream != nil {
		h.settle(h.stream)
	}
	h.serveLine()
}

// serveLine serves what the current exchange wants and, when that was its end, what the next does.
func (h *conn) serveLine() {
	for x := h.x; x != nil && x.hasTurn(); x = h.x {
		h.serveWants(x)
		if h.x == x {
			return
		}
	}
}

func (h *conn) serveWants(x *h1stream) {
	want := x.takeWants()
	if want&wantTakeover != 0 {
		h.giveAway(x)
		return
	}
	if want&wantInput != 0 && !x.body.full() {
		h.resume(pauseBody)
	}
	if want&wantDeadline != 0 {
		h.takeDeadlines(x)
	}
	if want&wantFinish != 0 {
		h.answered(x)
	}
}

// answered goes on when the answer is complete and queued.
func (h *conn) answered(x *h1stream) {
	if s := x.stream(); s != nil {
		h.x, h.stream, h.last = nil, s, h.last || x.enc.closeAfter
		if x.behind != nil {
			s.from = x
		}
		h.c.SetTimer(0)
		if x.follows || x.hold != nil {
			s.drained() // that may have been told to an exchange before it
		}
		h.settle(s)
		return
	}
	h.last = h.last || h.endsBehind(x)
	switch {
	case h.last:
		h.close()
	case x.body.complete():
		h.finished()
	default:
		h.discardBody(x)
	}
}

// endsBehind reports whether no other request can follow x, or is to.
func (h *conn) endsBehind(x *h1stream) bool {
	switch {
	case x.enc.closeAfter || x.body.isLate():
		return true
	case h.ended && !x.body.complete(): // the rest of it will not come
		return true
	}
	return x.behind == nil && (h.leaving() || h.lane.s.noAlive.Load())
}

// discardBody reads a body away that its handler has left, if that is not too much.
func (h *conn) discardBody(x *h1stream) {
	if x.dec.remaining > maxDiscard {
		h.close()
		return
	}
	x.body.release() // its handler's goroutine may not have come to it, and would let the body fill up
	h.phase = phaseDiscard
	h.c.SetTimer(firstOf(h.lane.s.ReadTimeout, stopTimeout))
	h.resume(pauseRequest)
}

// finished makes the connection ready for the next request, which may have come already.
func (h *conn) finished() {
	x := h.x
	h.x = nil
	h.goOn(x, x.writeBy)
}

// goOn goes on behind an exchange, which is nil behind a Stream with none behind it. by is when its
// answer has to have gone.
func (h *conn) goOn(x *h1stream, by moment) {
	if x != nil {
		next, plain := x.behind, x.goesOn() && x.chain != nil
		h.lately = x.out.written > lateBytes
		x.release()
		if next != nil {
			h.promote(next, plain)
			return
		}
	}
	if h.lane.s.noAlive.Load() { // since the end of the answer, while the rest of the body or a Stream went on
		h.close()
		return
	}
	h.setState(http.StateIdle)
	h.phase = phaseIdle
	h.c.SetTimer(h.idleTime(by))
	h.resume(h.paused)
	h.takeAhead()
	if h.aheadIsFull() {
		h.pause(pauseAhead)
	}
	switch {
	case h.ended && h.x == nil && h.phase != phaseClosing:
		h.endsBetween() // what it had asked before its FIN is answered
	case h.ended && h.x != nil:
		h.x.dec.ended(len(h.kept()))
	case h.leaving():
		h.shut()
	case h.x == nil:
		h.lane.idles(h)
	}
}
