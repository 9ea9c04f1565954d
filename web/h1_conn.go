package web

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
)

const (
	// maxAhead is how many bytes behind the current request a connection keeps; above it the loop
	// stops reading. A read that was under way may add one read buffer.
	maxAhead = 32 << 10
	// maxDiscard is how much of a body that its handler did not read is read away to keep the
	// connection.
	maxDiscard = 256 << 10
	// headTimeout bounds a new connection's silence, and an incomplete head, when no timeout is
	// set.
	headTimeout = time.Minute
	// stopTimeout is for the last answer of a connection that is being shut down or refused.
	stopTimeout = 5 * time.Second
)

// A conn is an HTTP/1 connection: the handler of a myriad.Conn.
// Its fields are the loop's.
type conn struct {
	link
	x       *h1stream // the request that is being read or answered
	stream  *Stream   // instead of it, when its handler has left the answer to a Stream
	ahead   *ahead    // bytes that wait: an incomplete head, or what follows the current request
	began   moment    // when the head did that is coming; kept if ReadTimeout counts from it
	phase   phase
	ended   bool // the client's FIN
	sending bool // idle, but for a file that has to have gone when the timer expires
	// idle, and the answer before is a large one, for which the loop looks whether it has gone when
	// the timer expires
	lately bool
	posted bool  // the last request was a POST
	blank  uint8 // bytes of empty lines in front of the request to come, which have been discarded
	last   bool  // the connection closes after this answer
	paused pauseReason
}

// phase says what the conn's timer is for.
type phase uint8

const (
	phaseNew     phase = iota // no byte has come yet
	phaseIdle                 // between requests
	phaseHead                 // a head has begun
	phaseBody                 // reading a body
	phaseAnswer               // the handler runs, the body is complete
	phaseDiscard              // discarding a body that the handler did not read
	phaseClosing
)

// Opened begins the wait for the first request.
func (h *conn) Opened(c *myriad.Conn) {
	h.lane.add(h)
	h.lane.endGreeting(c)
	if !h.greeted {
		h.setState(http.StateNew)
	}
	h.phase = phaseNew
	s := h.lane.s
	c.SetTimer(firstOf(s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout, headTimeout))
	switch {
	case h.lane.aborted:
		c.Abort(http.ErrServerClosed)
	case h.leaving():
		h.shut()
	}
	h.lane.idles(h)
}

// Received takes what has come, behind what was kept.
func (h *conn) Received(c *myriad.Conn, p []byte) {
	if h.ahead != nil && h.startsHTTP2() {
		p = append(bytes.Clone(h.ahead.bytes()), p...)
		h.dropAhead()
	}
	if h.ahead != nil {
		h.extend(p)
		return
	}
	if n := h.process(p); n < len(p) {
		h.keep(p[n:])
		h.takeTurn()
	}
}

// answering reports whether bytes must wait for the end of the current answer.
func (h *conn) answering() bool {
	return h.stream != nil || h.x != nil && h.x.body.complete()
}

// process uses as much of p as it can, and returns how many bytes need not be kept.
func (h *conn) process(p []byte) (used int) {
	for used < len(p) && h.phase != phaseClosing {
		if h.answering() {
			return used + h.pipeline(p[used:])
		}
		n, ok := 0, true
		if h.x != nil {
			n, ok = h.feed(p[used:])
		} else {
			n, ok = h.parse(p[used:])
		}
		if used += n; !ok {
			return len(p)
		}
		if n == 0 {
			break
		}
	}
	if h.phase == phaseClosing {
		return len(p)
	}
	return used
}

// parse begins a request with the head at the start of p, and with what has come of its body. It
// returns how many bytes it took, 0 if the head is not complete, and whether the body can be
// understood so far.
func (h *conn) parse(p []byte) (n int, ok bool) {
	ln := h.lane
	if n := h1.EmptyLines(p); n > 0 {
		h.skip(p[:n], n == len(p))
		return n, true
	}
	n, err := h1.ParseRequest(p, ln.st.limits, &ln.head)
	if err == h1.ErrPreface && h.startsHTTP2() {
		h.becomeHTTP2(p)
		return len(p), true
	}
	if !ln.st.protocols.HTTP1() && (err != nil || n > 0) {
		h.close() // as net/http does
		return 0, true
	}
	if err == h1.ErrPreface {
		n, err = h1.ParsePreface(p, &ln.head)
	}
	switch {
	case err != nil:
		h.refuseHead(p, err)
		return 0, true
	case n == 0:
		h.headBegins()
		return 0, true
	}
	used, ok := h.begin(p[:n], &ln.head, p[n:])
	return n + used, ok
}

// skip discards the empty lines before a request, of which a few are let pass: some clients end a
// body with a CRLF too many. last: nothing has come behind them.
func (h *conn) skip(lines []byte, last bool) {
	if int(h.blank)+len(lines) > h1.MaxEmptyLines*len("\r\n") {
		h.refuseHead(lines, h1.ErrEmptyLines)
		return
	}
	h.blank += uint8(len(lines))
	switch {
	case h.blank >= leastHead:
		h.headBegins()
	case last:
		h.lane.idles(h)
	}
}

func (h *conn) headBegins() {
	if h.phase == phaseHead {
		return
	}
	s := h.lane.s
	if s.ReadTimeout > 0 {
		h.began = h.now()
	}
	onlyIdle := s.ReadHeaderTimeout == 0 && s.ReadTimeout == 0 && s.IdleTimeout != 0 // Opened had no other time to set
	runs := h.leaving() || h.phase == phaseNew && !onlyIdle
	h.phase = phaseHead
	if runs {
		return // its time has begun with the connection, or with the end of the server
	}
	h.c.SetTimer(firstOf(s.ReadHeaderTimeout, s.ReadTimeout, headTimeout))
}

// begin starts the exchange of a complete head, and takes the part of its body that has come. So a
// complete request is dispatched as one. It returns how many bytes of rest were the body's, and
// whether that can be understood.
func (h *conn) begin(raw []byte, head *h1.Head, rest []byte) (used int, ok bool) {
	h.setState(http.StateActive)
	x, status, reason := newStream(h, raw, head)
	switch status {
	case 0:
	case http.StatusExpectationFailed:
		h.refuseExpectation(head)
		return 0, true
	default:
		h.refuse(head.Method, status, reason)
		return 0, true
	}
	h.x = x
	var err error
	if len(rest) > 0 && !x.body.complete() {
		used, err = x.dec.decode(rest, h.lane.st.limits)
	}
	complete := x.body.complete()
	h.setDeadlines(x, complete)
	switch {
	case err != nil:
		h.badBody(err)
	case used > 0 && !complete && x.body.full():
		h.pause(pauseBody)
	}
	h.dispatch(x, complete)
	return used, err == nil
}

// bodyFailed ends a body that cannot be read to its end: the handler's Read fails, and the
// connection ends with its answer.
func (h *conn) bodyFailed(x *h1stream, err error) {
	h.last = true
	h.phase = phaseAnswer
	x.dec.misread(err)
	h.armDeadlines(x)
}

// feed gives body bytes to the exchange and returns how many were its own: none of a trailer that
// is not complete. After a body that cannot be understood (not ok) nothing can.
func (h *conn) feed(p []byte) (n int, ok bool) {
	x := h.x
	if x.dec.state == decoderBroken {
		return len(p), false
	}
	n, err := x.dec.decode(p, h.lane.st.limits)
	if err != nil {
		h.badBody(err)
		return n, false
	}
	switch {
	case x.body.complete():
		h.bodyComplete()
	case n > 0 && x.body.full():
		h.pause(pauseBody)
	}
	return n, true
}

func (h *conn) bodyComplete() {
	if h.phase == phaseDiscard {
		h.finished()
		return
	}
	h.phase = phaseAnswer
	h.armDeadlines(h.x)
}

// badBody is for a body that cannot be understood: what follows it cannot be trusted either.
func (h *conn) badBody(err error) {
	if h.phase == phaseDiscard {
		h.close()
		return
	}
	h.bodyFailed(h.x, err)
}

// Ended is the client's FIN. One that has asked still gets its answer; handlers learn from their
// context that the client may have gone.
func (h *conn) Ended(c *myriad.Conn) {
	h.ended = true
	switch {
	case h.stream != nil:
		h.settle(h.stream)
	case h.x == nil && h.phase != phaseClosing:
		h.endsBetween()
	case h.x == nil || h.phase == phaseDiscard:
		h.close()
	default:
		h.x.dec.ended(len(h.kept()))
		h.armDeadlines(h.x)
	}
}

// Truncated is the client's FIN without a close_notify. A request shows its own end, so this is
// like Ended: a complete request is answered, and an incomplete body fails with
// io.ErrUnexpectedEOF.
func (h *conn) Truncated(c *myriad.Conn, _ error) { h.Ended(c) }

// leastHead is how many bytes behind an answer are the beginning of a request, as net/http has it.
const leastHead = 4

// endsBetween is the client's FIN where a request would begin.
func (h *conn) endsBetween() {
	if h.headBegun() {
		h.refuseUnfinished(http.StatusBadRequest, "the head is not complete")
		return
	}
	h.close()
}

// headBegun reports whether what has come must be answered: empty lines count as there, which skips
// four bytes of them behind a POST.
func (h *conn) headBegun() bool {
	kept := h.kept()
	n, least := int(h.blank)+len(kept), 1
	if h.state == uint8(http.StateIdle) {
		least = leastHead
		if h.posted && h1.EmptyLines(kept) == len(kept) {
			least++
		}
	}
	return n >= least
}

// Stopping is the engine's shutdown: what has begun is answered.
func (h *conn) Stopping(*myriad.Conn) {
	h.stopping = true
	h.shut()
}

// Drained lets a handler that waits for room go on.
func (h *conn) Drained(c *myriad.Conn) {
	s := h.stream
	if x := h.x; x != nil {
		if !x.hasTurn() {
			h.release(x)
			h.serveLine()
			return
		}
		x.out.wake()
		s = x.stream()
	}
	if s != nil {
		s.drained()
	}
}

// Closed is the end of the connection.
func (h *conn) Closed(c *myriad.Conn, err error) {
	var end *lastState
	if h.lane.s.ConnState != nil {
		end = newLastState(&h.link)
	}
	if h.x != nil {
		h.x.connectionLost(err, end)
		h.x.loseLine(err, end)
	}
	if h.stream != nil {
		h.stream.lost(h.streamEnd(err))
		h.stream.from.loseLine(err, end)
	}
	h.dropAhead()
	if h.phase == phaseHead && h.state == uint8(http.StateNew) {
		h.setState(http.StateActive) // as net/http says of a first request that has begun
	}
	end.release()
	h.x, h.stream = nil, nil
	h.lane.remove(&h.link)
}

// streamEnd is what a Stream's OnClose gets for a connection that has ended with err.
func (h *conn) streamEnd(err error) error {
	switch {
	case err != nil:
		return err
	case h.ended:
		return io.EOF
	}
	return myriad.ErrClosed // by the server's side, around the Stream
}

// shut ends the connection in order: at once if it only waits, after its answer otherwise.
func (h *conn) shut() {
	switch {
	case h.stream != nil:
		h.stream.Close()
	case h.x != nil:
		h.last = h.last || h.x.behind == nil // what has lined up was accepted: the last of it closes
	case h.phase == phaseNew || h.phase == phaseHead:
		h.c.SetTimer(newConnGrace)
	case h.phase == phaseIdle:
		h.close()
	}
}

// closeIdle implements served.
func (h *conn) closeIdle() {
	if h.phase == phaseIdle {
		h.close()
	}
}

func (h *conn) close() {
	h.phase = phaseClosing
	h.dropAhead()
	_ = h.c.Close()
}
