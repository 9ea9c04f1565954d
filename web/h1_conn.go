package web

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/h2"
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
	phaseLeaving              // another handler or owner is to have the connection
	phaseClosing
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

// answering reports whether bytes must wait for the end of the current answer.
func (h *conn) answering() bool {
	return h.stream != nil || h.x != nil && h.x.body.complete()
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

// bodyFailed ends a body that cannot be read to its end: the handler's Read fails, and the
// connection ends with its answer.
func (h *conn) bodyFailed(x *h1stream, err error) {
	h.last = true
	h.phase = phaseAnswer
	x.dec.misread(err)
	h.armDeadlines(x)
}

// dispatch runs the handler of x.
func (h *conn) dispatch(x *h1stream, complete bool) {
	if h.lane.dispatch(x, complete); x.inline() {
		x.chain = nil // an inline task runs alone: those behind are dispatched when it has returned
	}
}

// Notified is called after the exchange has asked for something from another goroutine, or has come
// back from its handler.
func (h *conn) Notified(c *myriad.Conn) {
	if h.x == nil && h.stream != nil {
		h.settle(h.stream)
	}
	h.serve()
}

// serve does what the current exchange asks for. When it has come back from its handler, the
// connection goes on behind it, and with what the next has asked for.
func (h *conn) serve() {
	for x := h.x; x != nil && x.hasTurn() && h.phase != phaseLeaving; x = h.x {
		demands := x.takeDemands()
		at := x.progress()
		if at == upgraded || at == hijacked {
			h.giveAway(x)
			return
		}
		if demands&demandInput != 0 && !x.body.full() {
			h.resume(pauseBody)
		}
		if demands&demandDeadline != 0 {
			if !x.body.isLate() {
				h.resume(pauseLate)
			}
			if h.phase == phaseBody || h.phase == phaseAnswer {
				h.armDeadlines(x)
			}
		}
		switch at {
		case outlived:
			h.goOnBeside(x)
		case answered, declined:
			if h.phase != phaseDiscard {
				h.answered(x)
			}
		}
		if h.x == x {
			return
		}
	}
}

// Drained lets a handler that waits for room go on.
func (h *conn) Drained(c *myriad.Conn) {
	s := h.stream
	if x := h.x; x != nil {
		if !x.hasTurn() {
			h.release(x)
			h.serve()
			return
		}
		x.out.wake()
		s = x.stream()
	}
	if s != nil {
		s.drained()
	}
}

// goOnBeside leaves the connection to the Stream that x has become.
func (h *conn) goOnBeside(x *h1stream) {
	s := x.stream()
	h.x, h.stream, h.shared, h.last = nil, s, true, h.last || x.enc.closeAfter
	if x.behind != nil {
		s.from = x
	}
	h.c.SetTimer(0)
	if x.follows || x.hold != nil {
		s.drained() // that may have been told to an exchange before it
	}
	h.settle(s)
}

// answered goes on when the answer is complete and queued.
func (h *conn) answered(x *h1stream) {
	h.last = h.last || h.endsBehind(x)
	switch {
	case h.last:
		h.close()
	case x.body.complete():
		h.finished()
	case x.dec.remaining > maxDiscard:
		h.close()
	default: // the rest of the body that its handler has left is read away
		h.phase = phaseDiscard
		h.c.SetTimer(firstOf(h.lane.s.ReadTimeout, stopTimeout))
		h.resume(pauseRequest)
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
		next := x.behind
		h.lately = x.out.written > lateBytes
		h.lane.recycle(x)
		if next != nil {
			h.promote(next)
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

// settle goes on with the connection once its Stream has been closed. Requests behind it are
// answered, also if the client's FIN has come. At the FIN a Stream that is open ends without an end
// of its body, because only its owner knows whether that is complete.
func (h *conn) settle(s *Stream) {
	over, owed := s.look(h.c.SetTimer)
	switch {
	case over && owed: // Drained goes on
	case over:
		s.lost(nil)
		if s.cut || h.last || h.leaving() && s.from == nil {
			h.close() // Closed ends what has lined up behind s
			return
		}
		h.stream = nil
		h.goOn(s.from, never)
	case h.leaving():
		_ = s.Close()
	case h.ended:
		h.close()
	}
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

// A pauseReason is why the loop does not read an HTTP/1 connection. There may be several at a time:
// it reads on when the last has gone.
type pauseReason uint8

const (
	pauseBody  pauseReason = 1 << iota // what has come of the body waits for its handler
	pauseLate                          // the body is late: one that comes slowly could be read without end
	pauseAhead                         // enough is kept behind the current request
	pauseTurn                          // a large head or trailer waits for its turn

	pauseRequest = pauseBody | pauseLate // the reasons that end with a request
)

func (h *conn) pause(why pauseReason) {
	h.paused |= why
	h.c.Pause()
}

// resume ends some reasons.
func (h *conn) resume(why pauseReason) {
	if h.paused == 0 {
		return
	}
	if h.paused &^= why; h.paused == 0 {
		h.c.Resume()
	}
}

// refuseHead answers head, the bytes of what is no request, and closes.
func (h *conn) refuseHead(head []byte, err error) {
	status, reason := http.StatusBadRequest, err.Error()
	if e, ok := errors.AsType[*h1.Error](err); ok {
		status, reason = e.Status, e.Reason
	}
	if err == h1.ErrTLS {
		h.reportTLS(reason)
	}
	h.refuse(methodOf(head), status, reason)
}

// refuseUnfinished answers a head of which no more is awaited, and closes.
func (h *conn) refuseUnfinished(status int, reason string) {
	h.refuse(methodOf(h.kept()), status, reason)
}

// methodOf is the method that a head begins with, of which the rest may be missing or wrong.
func methodOf(head []byte) []byte {
	method, _, found := bytes.Cut(head[h1.EmptyLines(head):], []byte(" "))
	if !found {
		return nil
	}
	return method
}

// refuse answers from the loop and closes; the close waits for the client to read the answer.
func (h *conn) refuse(method []byte, status int, reason string) {
	h.answerAndClose(appendError(nil, method, status, reason, h.date()))
}

// refuseExpectation answers a request with an unknown expectation.
func (h *conn) refuseExpectation(head *h1.Head) {
	h.answerAndClose(appendExpectationFailed(nil, head, h.date()))
}

func (h *conn) answerAndClose(answer []byte) {
	h.setState(http.StateActive)
	_, _ = h.c.Write(answer) // a conn that takes no more needs no answer
	h.close()
}

// misledPeriod is how often the log is told at most of TLS clients that have come to a port without
// TLS.
const misledPeriod = 10 * time.Second

// reportTLS has the log tell of a TLS client, in the words of a failed handshake. Of the answer
// most such clients show nothing; that of net/http recognises its beginning.
func (h *conn) reportTLS(reason string) {
	if times, due := h.lane.st.misled.Next(h.lane.loop.Now(), misledPeriod); due {
		h.lane.s.logHandshake(h.c.RemoteAddr(), reason, times)
	}
}

// appendExpectationFailed is the whole answer, to the byte that of net/http.
func appendExpectationFailed(dst []byte, head *h1.Head, date string) []byte {
	dst = h1.AppendStatusLine(dst, min(head.Minor, 1), http.StatusExpectationFailed)
	dst = h1.AppendField(dst, "Connection", "close")
	dst = h1.AppendField(dst, "Date", date)
	if string(head.Method) != http.MethodHead {
		dst = h1.AppendLength(dst, 0)
	}
	return append(dst, "\r\n"...)
}

// appendError is a whole answer in the words of net/http. To HEAD it has no body (RFC 9110 section
// 9.3.2).
func appendError[T []byte | string](dst []byte, method T, status int, reason, date string) []byte {
	body := errorText(status, reason)
	dst = h1.AppendStatusLine(dst, 1, status)
	dst = h1.AppendField(dst, "Date", date)
	dst = h1.AppendField(dst, "Content-Type", "text/plain; charset=utf-8")
	if status == http.StatusServiceUnavailable {
		dst = h1.AppendField(dst, "Retry-After", "1")
	}
	dst = h1.AppendLength(dst, int64(len(body)))
	dst = h1.AppendField(dst, "Connection", "close")
	dst = append(dst, "\r\n"...)
	if string(method) == http.MethodHead {
		return dst
	}
	return append(dst, body...)
}

// startsHTTP2 reports whether nothing but a part of the preface has come, and HTTP/2 may follow it.
// That is so with TLS, too, where a listener of Serve has made the handshake.
func (h *conn) startsHTTP2() bool {
	if h.state != uint8(http.StateNew) || !strings.HasPrefix(h2.Preface, string(h.kept())) {
		return false
	}
	if h.secure {
		return h.lane.s.speaksHTTP2() && h.tlsState().NegotiatedProtocol == "h2"
	}
	return h.lane.st.protocols.UnencryptedHTTP2()
}

// becomeHTTP2 changes to HTTP/2 with all that has come.
func (h *conn) becomeHTTP2(p []byte) {
	h.phase = phaseClosing
	h.c.SetTimer(0)
	h.c.SetHandler(&h2conn{
		link:  link{c: h.c, lane: h.lane, from: h.from, state: h.state, secure: h.secure, greeted: h.greeted},
		moved: true,
	}, append([]byte(nil), p...))
	h.dropAhead()
	h.lane.depart(&h.link)
}
