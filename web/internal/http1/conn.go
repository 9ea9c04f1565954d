// Package http1 is HTTP/1 for a server: connections, and how they frame what package exchange
// decides. It does not know HTTP/2, but for the preface, at which a connection leaves it.
//
// The life of a request is in conn.go, from the top down. Received parses a head and begins the
// exchange; what comes of its body is fed to it. serve is called when the exchange has asked for
// something or has come back from its handler. answered ends the exchange, and goOn begins the next
// one or the wait for it. ahead.go is what comes too early, times.go the timer and hibernation,
// stream.go the exchange as it is carried here.
package http1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/pace"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// A Conn is an HTTP/1 connection: the handler of a myriad.Conn. Its fields are the loop's.
type Conn struct {
	exchange.Link
	Own     *Lane
	X       *Stream          // the request that is being read or answered
	stream  *exchange.Stream // instead of it, when its handler has left the answer to a Stream
	Ahead   *ahead           // bytes that wait: an incomplete head, or what follows the current request
	began   exchange.Moment  // when the head did that is coming; kept if ReadTimeout counts from it
	phase   phase
	FIN     bool // the client's FIN
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

// maxAhead is how many bytes behind the current request a connection keeps; above it the loop stops
// reading. A read that was under way may add one read buffer.
const MaxAhead = 32 << 10

// A Server is what the HTTP/1 connections of a server have in common.
type Server struct {
	Shared *exchange.Server
	Limits h1.Limits
	Speaks bool // else a connection that comes to nothing but HTTP/2 is closed
	// overTLS and unencrypted say where the preface of HTTP/2 is looked for. become has a
	// connection go on by HTTP/2, with what has come.
	OverTLS, Unencrypted bool
	Become               func(k exchange.Link, came []byte)

	misled pace.Reports // TLS clients on a port without TLS
	spare  sync.Pool    // of Streams that have come back
	fronts sync.Pool    // of those that are not used again: encoder.front
}

// headSlack is what net/http adds to MaxHeaderBytes.
const headSlack = 4 << 10

// HeadLimits are those of heads, of which at most so many bytes are asked for.
func HeadLimits(most int) h1.Limits {
	most = min(most, h1.MaxHeadBytes) + headSlack
	return h1.Limits{HeadBytes: most, LineBytes: most, Fields: exchange.MaxFields}
}

// A Lane is what they have in common on one loop, which owns it.
type Lane struct {
	*exchange.Lane
	Protocol *Server
	Head     h1.Head   // of the request being parsed
	cache    HeadCache // of a recent one
	spare    *Stream   // that has come back: for the next request; nil: none
	idle     []*Conn   // those that hibernate when this turn ends, if they can
	Large    largeHeads
}

// Open makes an HTTP/1 connection of one that has just begun.
func (ln *Lane) Open(k exchange.Link) { k.C.SetHandler(&Conn{Link: k, Own: ln}, nil) }

// Opened begins the wait for the first request.
func (h *Conn) Opened(c *myriad.Conn) {
	h.Lane.Add(h)
	h.Lane.Arrived(c)
	if !h.Greeted {
		h.SetState(http.StateNew)
	}
	h.phase = phaseNew
	s := h.Lane.Server
	c.SetTimer(exchange.FirstOf(s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout, exchange.HeadTimeout))
	switch {
	case h.Lane.Aborted:
		c.Abort(http.ErrServerClosed)
	case h.Finishes():
		h.Shut()
	}
	h.Own.idles(h)
}

// Received takes what has come, behind what was kept.
func (h *Conn) Received(c *myriad.Conn, p []byte) {
	if h.Ahead != nil && h.startsHTTP2() {
		p = append(bytes.Clone(h.Ahead.bytes()), p...)
		h.dropAhead()
	}
	if h.Ahead != nil {
		h.extend(p)
		return
	}
	if n := h.process(p); n < len(p) {
		h.keep(p[n:])
		h.takeTurn()
	}
}

// process uses as much of p as it can, and returns how many bytes need not be kept.
func (h *Conn) process(p []byte) (used int) {
	for used < len(p) && h.phase != phaseClosing {
		if h.answering() {
			return used + h.pipeline(p[used:])
		}
		n, ok := 0, true
		if h.X != nil {
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
func (h *Conn) answering() bool {
	return h.stream != nil || h.X != nil && h.X.Body.Complete()
}

// parse begins a request with the head at the start of p, and with what has come of its body. It
// returns how many bytes it took, 0 if the head is not complete, and whether the body can be
// understood so far.
func (h *Conn) parse(p []byte) (n int, ok bool) {
	ln := h.Own
	if n := h1.EmptyLines(p); n > 0 {
		h.skip(p[:n], n == len(p))
		return n, true
	}
	n, err := h1.ParseRequest(p, ln.Protocol.Limits, &ln.Head)
	if err == h1.ErrPreface && h.startsHTTP2() {
		h.becomeHTTP2(p)
		return len(p), true
	}
	if !ln.Protocol.Speaks && (err != nil || n > 0) {
		h.close() // as net/http does
		return 0, true
	}
	if err == h1.ErrPreface {
		n, err = h1.ParsePreface(p, &ln.Head)
	}
	switch {
	case err != nil:
		h.refuseHead(p, err)
		return 0, true
	case n == 0:
		h.headBegins()
		return 0, true
	}
	used, ok := h.begin(p[:n], &ln.Head, p[n:])
	return n + used, ok
}

// skip discards the empty lines before a request, of which a few are let pass: some clients end a
// body with a CRLF too many. last: nothing has come behind them.
func (h *Conn) skip(lines []byte, last bool) {
	if int(h.blank)+len(lines) > h1.MaxEmptyLines*len("\r\n") {
		h.refuseHead(lines, h1.ErrEmptyLines)
		return
	}
	h.blank += uint8(len(lines))
	switch {
	case h.blank >= leastHead:
		h.headBegins()
	case last:
		h.Own.idles(h)
	}
}

func (h *Conn) headBegins() {
	if h.phase == phaseHead {
		return
	}
	s := h.Lane.Server
	if s.ReadTimeout > 0 {
		h.began = h.Now()
	}
	onlyIdle := s.ReadHeaderTimeout == 0 && s.ReadTimeout == 0 && s.IdleTimeout != 0 // Opened had no other time to set
	runs := h.Finishes() || h.phase == phaseNew && !onlyIdle
	h.phase = phaseHead
	if runs {
		return // its time has begun with the connection, or with the end of the server
	}
	h.C.SetTimer(exchange.FirstOf(s.ReadHeaderTimeout, s.ReadTimeout, exchange.HeadTimeout))
}

// begin starts the exchange of a complete head, and takes the part of its body that has come. So a
// complete request is dispatched as one. It returns how many bytes of rest were the body's, and
// whether that can be understood.
func (h *Conn) begin(raw []byte, head *h1.Head, rest []byte) (used int, ok bool) {
	h.SetState(http.StateActive)
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
	h.X = x
	var err error
	if len(rest) > 0 && !x.Body.Complete() {
		used, err = x.dec.decode(rest, h.Own.Protocol.Limits)
	}
	complete := x.Body.Complete()
	h.setDeadlines(x, complete)
	switch {
	case err != nil:
		h.badBody(err)
	case used > 0 && !complete && x.Body.Full():
		h.pause(pauseBody)
	}
	h.dispatch(x, complete)
	return used, err == nil
}

// feed gives body bytes to the exchange and returns how many were its own: none of a trailer that
// is not complete. After a body that cannot be understood (not ok) nothing can.
func (h *Conn) feed(p []byte) (n int, ok bool) {
	x := h.X
	if x.dec.state == decoderBroken {
		return len(p), false
	}
	n, err := x.dec.decode(p, h.Own.Protocol.Limits)
	if err != nil {
		h.badBody(err)
		return n, false
	}
	switch {
	case x.Body.Complete():
		h.bodyComplete()
	case n > 0 && x.Body.Full():
		h.pause(pauseBody)
	}
	return n, true
}

func (h *Conn) bodyComplete() {
	if h.phase == phaseDiscard {
		h.finished()
		return
	}
	h.phase = phaseAnswer
	h.armDeadlines(h.X)
}

// badBody is for a body that cannot be understood: what follows it cannot be trusted either.
func (h *Conn) badBody(err error) {
	if h.phase == phaseDiscard {
		h.close()
		return
	}
	h.bodyFailed(h.X, err)
}

// bodyFailed ends a body that cannot be read to its end: the handler's Read fails, and the
// connection ends with its answer.
func (h *Conn) bodyFailed(x *Stream, err error) {
	h.last = true
	h.phase = phaseAnswer
	x.dec.misread(err)
	h.armDeadlines(x)
}

// dispatch runs the handler of x.
func (h *Conn) dispatch(x *Stream, complete bool) {
	if x.Dispatch(complete); x.Inlined {
		x.Chain = nil // an inline task runs alone: those behind are dispatched when it has returned
	}
}

// Notified is called after the exchange has asked for something from another goroutine, or has come
// back from its handler. It is also called when a connection goes on that was frozen, which may
// hibernate again.
func (h *Conn) Notified(c *myriad.Conn) {
	switch {
	case h.X != nil:
	case h.stream != nil:
		h.settle(h.stream)
	case h.phase == phaseNew || h.phase == phaseIdle:
		h.Own.idles(h)
	}
	h.serve()
}

// serve does what the current exchange asks for. When it has come back from its handler, the
// connection goes on behind it, and with what the next has asked for.
func (h *Conn) serve() {
	for x := h.X; x != nil && x.HasTurn() && h.phase != phaseLeaving; x = h.X {
		demands := x.TakeDemands()
		at := x.Progress()
		if at == exchange.Upgraded || at == exchange.Hijacked {
			h.giveAway(x)
			return
		}
		if demands&exchange.DemandInput != 0 && !x.Body.Full() {
			h.resume(pauseBody)
		}
		if demands&exchange.DemandDeadline != 0 {
			if !x.Body.IsLate() {
				h.resume(pauseLate)
			}
			if h.phase == phaseBody || h.phase == phaseAnswer {
				h.armDeadlines(x)
			}
		}
		switch at {
		case exchange.Outlived:
			h.goOnBeside(x)
		case exchange.Answered, exchange.Declined:
			if h.phase != phaseDiscard {
				h.answered(x)
			}
		}
		if h.X == x {
			return
		}
	}
}

// Drained lets a handler that waits for room go on.
func (h *Conn) Drained(c *myriad.Conn) {
	s := h.stream
	if x := h.X; x != nil {
		if !x.HasTurn() {
			h.release(x)
			h.serve()
			return
		}
		x.Out.Wake()
		s = x.Stream()
	}
	if s != nil {
		s.Drained()
	}
}

// goOnBeside leaves the connection to the Stream that x has become.
func (h *Conn) goOnBeside(x *Stream) {
	s := x.Stream()
	h.X, h.stream, h.Shared, h.last = nil, s, true, h.last || x.enc.closeAfter
	if x.behind != nil {
		s.LineUp(x)
	}
	h.C.SetTimer(0)
	if x.follows || x.hold != nil {
		s.Drained() // that may have been told to an exchange before it
	}
	h.settle(s)
}

// answered goes on when the answer is complete and queued.
func (h *Conn) answered(x *Stream) {
	complete, late := x.Body.Complete(), x.Body.IsLate()
	switch {
	case x.enc.closeAfter || late:
		h.last = true
	case h.FIN && !complete: // the rest of it will not come
		h.last = true
	case x.behind == nil && (h.Finishes() || h.Lane.Server.NoAlive.Load()):
		h.last = true
	}
	switch {
	case h.last:
		h.close()
	case complete:
		h.finished()
	case x.dec.remaining > exchange.MaxDiscard:
		h.close()
	default: // the rest of the body that its handler has left is read away
		h.phase = phaseDiscard
		h.C.SetTimer(exchange.FirstOf(h.Lane.Server.ReadTimeout, exchange.StopTimeout))
		h.resume(pauseRequest)
	}
}

// finished makes the connection ready for the next request, which may have come already.
func (h *Conn) finished() {
	x := h.X
	h.X = nil
	h.goOn(x, x.WriteBy)
}

// goOn goes on behind an exchange, which is nil behind a Stream with none behind it. by is when its
// answer has to have gone.
func (h *Conn) goOn(x *Stream, by exchange.Moment) {
	if x != nil {
		next := x.behind
		h.lately = x.Out.Written > LateBytes
		h.Own.recycle(x)
		if next != nil {
			h.promote(next)
			return
		}
	}
	if h.Lane.Server.NoAlive.Load() { // since the end of the answer, while the rest of the body or a Stream went on
		h.close()
		return
	}
	h.SetState(http.StateIdle)
	h.phase = phaseIdle
	h.C.SetTimer(h.idleTime(by))
	h.resume(h.paused)
	if h.Ahead != nil {
		h.takeAhead()
		if h.aheadIsFull() {
			h.pause(pauseAhead)
		}
	}
	switch {
	case h.FIN && h.X == nil && h.phase != phaseClosing:
		h.endsBetween() // what it had asked before its FIN is answered
	case h.FIN && h.X != nil:
		h.X.dec.ended(len(h.kept()))
	case h.Finishes():
		h.Shut()
	case h.X == nil:
		h.Own.idles(h)
	}
}

// settle goes on with the connection once its Stream has been closed. Requests behind it are
// answered, also if the client's FIN has come. At the FIN a Stream that is open ends without an end
// of its body, because only its owner knows whether that is complete.
func (h *Conn) settle(s *exchange.Stream) {
	over, owed := s.Look(h.C.SetTimer)
	switch {
	case over && owed: // Drained goes on
	case over:
		s.Lost(nil)
		if s.Failed() || h.last || h.Finishes() && s.Behind() == nil {
			h.close() // Closed ends what has lined up behind s
			return
		}
		h.stream = nil
		h.goOn(answeredBy(s), exchange.Never)
	case h.Leaving():
		_ = s.Close()
	case h.FIN:
		h.close()
	}
}

// answeredBy is the exchange whose answer s is, nil if no requests have lined up behind it.
func answeredBy(s *exchange.Stream) *Stream {
	x, _ := s.Behind().(*Stream)
	return x
}

// giveAway lets the connection go, on its loop.
func (h *Conn) giveAway(x *Stream) {
	h.phase = phaseLeaving
	h.C.SetTimer(0)
	rest := append(x.Body.Unread(), x.unbegun()...)
	x.loseLine(http.ErrHijacked, nil)
	if h.Ahead != nil {
		rest = append(rest, h.Ahead.bytes()...)
		h.dropAhead()
	}
	x.Out.Mu.Lock()
	t := x.Out.Seldom.Takeover
	x.Out.Mu.Unlock()
	if t.Handler != nil {
		h.resume(h.paused) // what the client sends is the handler's now
		h.C.SetHandler(&heir{h, t.Handler}, rest)
		return
	}
	h.C.Detach(func(nc net.Conn, unread []byte, err error) {
		if err != nil {
			h.hijackFailed(x, err)
			return
		}
		h.leave()
		t.Done(nc, append(rest, unread...), nil)
	})
}

// hijackFailed tells the handler. The connection is closed: what it had read ahead is no longer in
// order.
func (h *Conn) hijackFailed(x *Stream, err error) {
	if t := x.EndTakeover(); t.Done != nil {
		t.Done(nil, nil, err)
	}
	h.close()
}

// leave ends the server's part in the connection.
func (h *Conn) leave() {
	h.SetState(http.StateHijacked)
	h.X = nil
	h.Lane.Remove(&h.Link)
}

// Ended is the client's FIN. One that has asked still gets its answer; handlers learn from their
// context that the client may have gone.
func (h *Conn) Ended(c *myriad.Conn) {
	h.FIN = true
	switch {
	case h.stream != nil:
		h.settle(h.stream)
	case h.X == nil && h.phase != phaseClosing:
		h.endsBetween()
	case h.X == nil || h.phase == phaseDiscard:
		h.close()
	default:
		h.X.dec.ended(len(h.kept()))
		h.armDeadlines(h.X)
	}
}

// Truncated is the client's FIN without a close_notify. A request shows its own end, so this is
// like Ended: a complete request is answered, and an incomplete body fails with
// io.ErrUnexpectedEOF.
func (h *Conn) Truncated(c *myriad.Conn, _ error) { h.Ended(c) }

// leastHead is how many bytes behind an answer are the beginning of a request, as net/http has it.
const leastHead = 4

// endsBetween is the client's FIN where a request would begin.
func (h *Conn) endsBetween() {
	if h.headBegun() {
		h.refuseUnfinished(http.StatusBadRequest, "the head is not complete")
		return
	}
	h.close()
}

// headBegun reports whether what has come must be answered: empty lines count as there, which skips
// four bytes of them behind a POST.
func (h *Conn) headBegun() bool {
	kept := h.kept()
	n, least := int(h.blank)+len(kept), 1
	if h.State == uint8(http.StateIdle) {
		least = leastHead
		if h.posted && h1.EmptyLines(kept) == len(kept) {
			least++
		}
	}
	return n >= least
}

// Stopping is the engine's shutdown: what has begun is answered.
func (h *Conn) Stopping(*myriad.Conn) {
	h.Lane.Stopping = true
	h.Shut()
}

// Shut ends the connection in order: at once if it only waits, after its answer otherwise.
func (h *Conn) Shut() {
	switch {
	case h.stream != nil:
		h.stream.Close()
	case h.X != nil:
		h.last = h.last || h.X.behind == nil // what has lined up was accepted: the last of it closes
	case h.phase == phaseNew || h.phase == phaseHead:
		h.C.SetTimer(exchange.NewConnGrace)
	case h.phase == phaseIdle:
		h.close()
	}
}

// Finish implements exchange.Served.
func (h *Conn) Finish() {
	if h.Finishes() && h.stream == nil {
		h.Shut()
	}
}

// CloseIdle implements exchange.Served.
func (h *Conn) CloseIdle() {
	if h.phase == phaseIdle {
		h.close()
	}
}

func (h *Conn) close() {
	h.phase = phaseClosing
	h.dropAhead()
	_ = h.C.Close()
}

// Closed is the end of the connection.
func (h *Conn) Closed(c *myriad.Conn, err error) {
	if notMoved(err) {
		h.Moved(c)
		return
	}
	var end *exchange.LastState
	if h.Lane.Server.ConnState != nil {
		end = exchange.NewLastState(&h.Link)
	}
	if h.X != nil {
		h.X.ConnectionLost(err, end)
		h.X.loseLine(err, end)
	}
	if h.stream != nil {
		h.stream.Lost(h.streamEnd(err))
		answeredBy(h.stream).loseLine(err, end)
	}
	h.dropAhead()
	if h.phase == phaseHead && h.State == uint8(http.StateNew) {
		h.SetState(http.StateActive) // as net/http says of a first request that has begun
	}
	end.Release()
	h.X, h.stream = nil, nil
	h.Lane.Remove(&h.Link)
}

// streamEnd is what a Stream's OnClose gets for a connection that has ended with err.
func (h *Conn) streamEnd(err error) error {
	switch {
	case err != nil:
		return err
	case h.FIN:
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

func (h *Conn) pause(why pauseReason) {
	h.paused |= why
	h.C.Pause()
}

// resume ends some reasons.
func (h *Conn) resume(why pauseReason) {
	if h.paused == 0 {
		return
	}
	if h.paused &^= why; h.paused == 0 {
		h.C.Resume()
	}
}

// refuseHead answers head, the bytes of what is no request, and closes.
func (h *Conn) refuseHead(head []byte, err error) {
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
func (h *Conn) refuseUnfinished(status int, reason string) {
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
func (h *Conn) refuse(method []byte, status int, reason string) {
	h.answerAndClose(appendError(nil, method, exchange.RefusalOf(status, reason), h.Date()))
}

// refuseExpectation answers a request with an unknown expectation.
func (h *Conn) refuseExpectation(head *h1.Head) {
	h.answerAndClose(appendExpectationFailed(nil, head, h.Date()))
}

func (h *Conn) answerAndClose(answer []byte) {
	h.SetState(http.StateActive)
	_, _ = h.C.Write(answer) // a conn that takes no more needs no answer
	h.close()
}

// misledPeriod is how often the log is told at most of TLS clients that have come to a port without
// TLS.
const misledPeriod = 10 * time.Second

// reportTLS has the log tell of a TLS client, in the words of a failed handshake. Of the answer
// most such clients show nothing; that of net/http recognises its beginning.
func (h *Conn) reportTLS(reason string) {
	if times, due := h.Own.Protocol.misled.Next(h.Lane.Loop.Now(), misledPeriod); due {
		h.Lane.Server.LogHandshake(h.C.RemoteAddr(), reason, times)
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

// appendError is a whole answer. To HEAD it has no body (RFC 9110 section 9.3.2).
func appendError[T []byte | string](dst []byte, method T, r exchange.Refusal, date string) []byte {
	dst = h1.AppendStatusLine(dst, 1, r.Status)
	dst = h1.AppendField(dst, "Date", date)
	dst = h1.AppendField(dst, "Content-Type", r.Type)
	if r.RetryAfter != "" {
		dst = h1.AppendField(dst, "Retry-After", r.RetryAfter)
	}
	if r.NoStore {
		dst = h1.AppendField(dst, "Cache-Control", "no-store")
	}
	dst = h1.AppendLength(dst, int64(len(r.Body)))
	dst = h1.AppendField(dst, "Connection", "close")
	dst = append(dst, "\r\n"...)
	if string(method) == http.MethodHead {
		return dst
	}
	return append(dst, r.Body...)
}

// startsHTTP2 reports whether nothing but a part of the preface has come, and HTTP/2 may follow it.
// That is so with TLS, too, where a listener of Serve has made the handshake.
func (h *Conn) startsHTTP2() bool {
	if h.State != uint8(http.StateNew) || !strings.HasPrefix(h2.Preface, string(h.kept())) {
		return false
	}
	if h.Secure {
		return h.Own.Protocol.OverTLS && h.TLSState().NegotiatedProtocol == "h2"
	}
	return h.Own.Protocol.Unencrypted
}

// becomeHTTP2 changes to HTTP/2 with all that has come.
func (h *Conn) becomeHTTP2(p []byte) {
	h.phase = phaseClosing
	h.C.SetTimer(0)
	h.Own.Protocol.Become(h.Link, append([]byte(nil), p...))
	h.dropAhead()
	h.Lane.Depart(&h.Link)
}
