package client

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/tlsloop"
)

// uploadGrace is how long a connection whose response is complete waits for the end of the request.
// Then it is closed. It is that of net/http.
const uploadGrace = 50 * time.Millisecond

// A conn is an HTTP/1 connection: the handler of a myriad.Conn. One call has it at a time.
type conn struct {
	t     *Transport
	host  *host
	dial  *dialing // that makes it, until it stands
	c     *myriad.Conn
	tls   *tls.ConnectionState
	plain bool   // a proxy is asked for absolute URLs
	h2    bool   // HTTP/2 by prior knowledge
	auth  string // Proxy-Authorization for those

	idleSince time.Time // guarded by Transport.mu
	inUse     bool      // guarded by Transport.mu: it is not among the idle ones
	idled     bool      // guarded by Transport.mu: it has been idle

	x    atomic.Pointer[Call] // the call that has it and has begun to write; nil: none
	due  atomic.Int64         // when the current wait ends, in nanoseconds since 1970; 0: never
	gone atomic.Bool          // Closed was called

	// Written by the call's goroutine before it sets x, then the loop's.
	carried   bool // a call before
	up        *upload
	size      int  // of the request, if it was written at once
	expecting bool // the body waits for 100 Continue

	// The loop's.
	partial  *partial // an incomplete head or trailer section
	interim  int      // bytes of interim responses
	body     *body
	frame    framing
	left     int64 // of a body with a length
	chunks   h1.Chunked
	last     bool // it is closed behind this response
	answered bool // the response is complete, the request is not
	dead     bool // nothing that comes matters
	ended    bool // the server's FIN
	stopping bool // the engine shuts down
}

// A partial is the part of a head, or of a trailer section, that has come. Most come in one piece.
type partial struct {
	p    []byte
	scan h1.Scan
}

func newPartial(p []byte) *partial { return &partial{p: append([]byte(nil), p...)} }

// framing is what the bytes that come are.
type framing uint8

const (
	inHead framing = iota
	inLength
	inChunks
	inTrailer
	untilClose
)

// Opened is called when the connection stands, and TLS on it.
func (pc *conn) Opened(c *myriad.Conn) {
	if pc.dead || pc.dial.over.Load() {
		pc.dead = true // a failed handshake, or a dial that was given up
		c.Abort(nil)
		return
	}
	pc.c = c
	if pc.tls == nil {
		pc.tls = tlsloop.SharedState(c)
	}
	if pc.dial.https && pc.tls != nil && pc.tls.NegotiatedProtocol == "h2" || pc.h2 {
		pc.dead = true
		m := &muxConn{t: pc.t, host: pc.host, dial: pc.dial, tls: pc.tls}
		m.Init(&pc.t.mux, m)
		c.SetHandler(m, nil)
		return
	}
	pc.dial.stands(pc)
}

// send has the connection carry x. The caller has taken it for that. Any goroutine.
func (pc *conn) send(x *Call) {
	up, err := newUpload(x, pc, nil)
	reused := pc.idled || pc.carried
	pc.carried = true
	x.mu.Lock()
	settled := x.settled
	if !settled {
		x.link, x.up, x.reused = pc, up, reused
	}
	x.mu.Unlock()
	switch {
	case settled:
		pc.free()
		return
	case err != nil:
		x.fail(err)
		pc.free()
		return
	}
	x.setPhase(Sent)
	x.traceGotConn(pc, reused)
	up.begin()
}

func (x *Call) traceGotConn(pc *conn, reused bool) {
	if x.trace == nil || x.trace.GotConn == nil {
		return
	}
	info := httptrace.GotConnInfo{Conn: pc.c, Reused: reused}
	if info.WasIdle = pc.idled; pc.idled && !pc.idleSince.IsZero() {
		info.IdleTime = pc.t.sys.Now().Sub(pc.idleSince)
	}
	x.trace.GotConn(info)
}

// free passes the connection on to another call, keeps it idle, or closes it. It must be between
// two requests. Any goroutine.
func (pc *conn) free() {
	if err := pc.t.offer(pc); err != nil {
		pc.retire()
	}
}

// retire closes a connection that no call has. Any goroutine.
func (pc *conn) retire() { _ = pc.c.Close() }

// wait sets the end of the current wait. Any goroutine.
func (pc *conn) wait(d time.Duration) {
	at := pc.t.sys.Now().Add(d)
	pc.due.Store(at.UnixNano())
	_ = pc.c.SetDeadline(at)
}

// Received takes what the server sends.
func (pc *conn) Received(_ *myriad.Conn, p []byte) {
	for len(p) > 0 && !pc.dead {
		switch pc.frame {
		case inHead:
			p = pc.takeHead(p)
		case inTrailer:
			p = pc.takeTrailer(p)
		default:
			p = pc.takeBody(p)
		}
	}
}

// takeHead parses a response's head, and returns what is behind it.
func (pc *conn) takeHead(p []byte) (rest []byte) {
	x := pc.x.Load()
	if x == nil || pc.answered {
		pc.broken(ErrUnsolicited)
		return nil
	}
	if !x.gotByte.Load() && !pc.begins(x) {
		return nil
	}
	if k := pc.partial; k != nil {
		k.p = append(k.p, p...)
		p = k.p
		ready, err := k.scan.Response(p, pc.t.limits(pc.interim))
		if err != nil {
			pc.malformed(err)
			return nil
		}
		if !ready {
			return nil
		}
	}
	s := pc.t.scratch.Get().(*scratch)
	defer s.put(pc.t)
	n, err := h1.ParseResponse(p, pc.t.limits(pc.interim), &s.head)
	switch {
	case err != nil:
		pc.malformed(err)
		return nil
	case n == 0:
		pc.partial = newPartial(p)
		if _, err = pc.partial.scan.Response(pc.partial.p, pc.t.limits(pc.interim)); err != nil {
			pc.malformed(err)
		}
		return nil
	}
	pc.partial = nil
	if s.head.Status < 200 && s.head.Status != http.StatusSwitchingProtocols {
		pc.takeInterim(x, &s.head, n)
		return p[n:]
	}
	pc.respond(x, &s.head, p[n:])
	return nil
}

// begins notes the first byte of a response. It returns false if nothing of the request can have
// reached the server: then the bytes answer another one.
func (pc *conn) begins(x *Call) bool {
	if pc.size > 0 && pc.c.Queued() >= pc.size {
		pc.broken(ErrUnsolicited)
		return false
	}
	x.gotByte.Store(true)
	x.setPhase(Head)
	if x.trace != nil && x.trace.GotFirstResponseByte != nil {
		x.trace.GotFirstResponseByte()
	}
	return true
}

// limits bounds a head, behind interim responses of so many bytes.
func (t *Transport) limits(interim int) h1.Limits {
	most := t.MaxResponseHeaderBytes
	if most <= 0 {
		most = defaultHeadBytes
	}
	n := int(max(1, min(most, h1.MaxHeadBytes)-int64(interim)))
	return h1.Limits{HeadBytes: n, LineBytes: n, Fields: maxFields}
}

// takeInterim is a response that another one follows (RFC 9110 section 15.2). As in net/http, those
// that a Got1xxResponse is called with do not count.
func (pc *conn) takeInterim(x *Call, head *h1.ResponseHead, n int) {
	if head.Status == http.StatusContinue {
		if x.trace != nil && x.trace.Got100Continue != nil {
			x.trace.Got100Continue()
		}
		pc.goAhead()
	}
	if x.trace != nil && x.trace.Got1xxResponse != nil {
		if err := x.trace.Got1xxResponse(head.Status, mimeHeader(head)); err != nil {
			pc.broken(err)
		}
		return
	}
	pc.interim += n
	if most := pc.t.limits(0).HeadBytes; pc.interim >= most {
		pc.broken(ErrInterim)
	}
}

// goAhead sends the body of a request that has waited for 100 Continue.
func (pc *conn) goAhead() {
	if pc.expecting {
		pc.expecting = false
		pc.due.Store(0)
		pc.up.goAhead()
	}
}

// malformed is for bytes that are no response.
func (pc *conn) malformed(err error) {
	if e, ok := errors.AsType[*h1.Error](err); ok {
		if e.Status == http.StatusRequestHeaderFieldsTooLarge || e.Status == http.StatusRequestURITooLong {
			err = errors.New("client: the response's head is too large (Transport.MaxResponseHeaderBytes): " + e.Reason)
			if pc.interim > 0 {
				err = ErrInterim
			}
		} else {
			err = errors.New("client: malformed HTTP response: " + e.Reason)
		}
	}
	pc.broken(err)
}

// broken ends the connection, and what it carries, with err.
func (pc *conn) broken(err error) {
	pc.dead = true
	pc.c.Abort(err)
	pc.lose(err)
}

// lose takes the connection from its call, whose attempt or body ends with err, and from the idle
// ones. On the loop.
func (pc *conn) lose(err error) {
	pc.t.unkeep(pc, 0)
	x, b := pc.x.Swap(nil), pc.body
	pc.body = nil
	switch {
	case b != nil:
		b.fail(b.call.wrap(err))
		b.call.abandonUpload(err)
		b.call.over()
	case x == nil:
	case pc.answered:
		x.abandonUpload(err)
	default:
		x.attemptFailed(err)
	}
}

// attemptFailed tries again on another connection, or ends the call with err. Any goroutine that
// has taken the connection's x. A server that is too slow is not asked twice.
func (x *Call) attemptFailed(err error) {
	again := x.reused && err != error(errHeaderTimeout) && !x.gotByte.Load() && x.up.readErr.Load() == nil &&
		(x.replayable() || x.rewindable() && !x.up.began.Load()) && !x.isSettled()
	if !again {
		x.fail(err)
		return
	}
	if err := x.rewind(); err != nil {
		x.fail(err)
		return
	}
	x.t.acquire(x, x.host.key)
}

// Ended is the server's FIN.
func (pc *conn) Ended(c *myriad.Conn) { pc.end(c, nil) }

// Truncated is a FIN without TLS's close_notify, behind which a body may go on.
func (pc *conn) Truncated(c *myriad.Conn, err error) { pc.end(c, err) }

func (pc *conn) end(c *myriad.Conn, cut error) {
	pc.ended = true
	if pc.dead {
		_ = c.Close()
		return
	}
	if pc.frame == untilClose && cut == nil && pc.body != nil {
		pc.last = true
		pc.complete()
		return
	}
	pc.dead = true
	_ = c.Close()
	err := error(errServerClosed)
	if x := pc.x.Load(); x != nil && x.gotByte.Load() {
		err = io.ErrUnexpectedEOF
	}
	pc.lose(err)
}

// Drained lets the upload go on.
func (pc *conn) Drained(*myriad.Conn) {
	if pc.x.Load() != nil && pc.up != nil {
		pc.up.room()
	}
}

// Notified is called when a goroutine has asked the loop for something: to begin an upload, to end
// one, to read on.
func (pc *conn) Notified(c *myriad.Conn) {
	x := pc.x.Load()
	if x == nil {
		return
	}
	if pc.up != nil && pc.up.memory && !pc.expecting {
		pc.up.room()
	}
	if pc.answered && pc.up.wrote.Load() {
		pc.leave()
		return
	}
	if pc.body != nil && pc.body.resumes() {
		c.Resume()
	}
}

// Expired is the end of a wait.
func (pc *conn) Expired(c *myriad.Conn) {
	x := pc.x.Load()
	if x == nil {
		taken, left := pc.t.unkeep(pc, pc.t.IdleConnTimeout)
		if taken {
			pc.dead = true
			_ = c.Close()
		} else if left > 0 {
			c.SetTimer(left)
		}
		return
	}
	due := pc.due.Load()
	if due == 0 {
		return
	}
	if left := time.Duration(due - pc.t.sys.Now().UnixNano()); left > 0 {
		c.SetTimer(left)
		return
	}
	switch {
	case pc.expecting:
		pc.goAhead()
	case pc.up.probe && !pc.answered && pc.body == nil && !pc.up.wrote.Load():
		pc.due.Store(0)
		pc.up.probed()
	case pc.answered:
		pc.x.Store(nil)
		x.abandonUpload(errKeepIdle)
		pc.dead = true
		_ = c.Close()
	case pc.body == nil:
		pc.broken(errHeaderTimeout)
	}
}

// Stopping is the engine's shutdown: what is under way is completed.
func (pc *conn) Stopping(c *myriad.Conn) {
	pc.stopping = true
	if taken, _ := pc.t.unkeep(pc, 0); taken {
		pc.dead = true
		_ = c.Close()
	}
}

// Closed is the end of the connection.
func (pc *conn) Closed(_ *myriad.Conn, err error) {
	pc.dead = true
	pc.gone.Store(true)
	if pc.c == nil {
		return // its dial has failed
	}
	if err == nil {
		err = errServerClosed
		if x := pc.x.Load(); x != nil && x.gotByte.Load() {
			err = io.ErrUnexpectedEOF
		}
	}
	pc.lose(err)
	pc.t.closed(pc.host, false)
}
