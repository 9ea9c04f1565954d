package client

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/textproto"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/tlsloop"
)

// uploadGrace is how long a connection waits for the end of a request whose response has been read
// to its end. Then it is closed. It is that of net/http.
const uploadGrace = 50 * time.Millisecond

// A conn is an HTTP/1 connection: the handler of a myriad.Conn. One call has it at a time. This
// file follows an exchange in order: Opened, send, the head, the body, its end, and the next one.
type conn struct {
	t    *Transport
	c    *myriad.Conn
	dial *dialing // that makes it, until it stands
	tls  *tls.ConnectionState

	pooled
	idling

	x    atomic.Pointer[Call] // the call that has it and has begun to write; what swaps it out ends the exchange
	gone atomic.Bool          // Closed was called

	plain bool   // a proxy is asked for absolute URLs
	auth  string // Proxy-Authorization for those

	sending
	receiving
}

// idling is what the pool keeps of an HTTP/1 connection. It is guarded by pool.mu; a connection in
// use is read without, by what has taken it.
type idling struct {
	idleSince time.Time
	inUse     bool // it is not among the idle ones
	idled     bool // it has been idle
}

// sending belongs to the goroutine that runs send, until it stores x; then to the loop.
type sending struct {
	carried bool // a call before
	up      *upload
	size    int // of the request, if it was written at once
	waits   wait
	due     int64 // when the wait ends, in nanoseconds since 1970
}

// receiving belongs to the loop.
type receiving struct {
	state   connState
	last    bool // the connection carries no further call: it closes behind this response, or has lost its server
	body    *body
	left    int64 // of a body with a length
	chunks  h1.Chunked
	interim int      // bytes of interim responses
	partial *partial // an incomplete head or trailer section
}

// A connState is what the bytes are that come, or that none are to come.
type connState uint8

const (
	inHead     connState = iota // a response's head; without a call, none is to come
	inLength                    // a body with a length
	inChunks                    // a chunked body
	inTrailer                   // its trailer section
	untilClose                  // a body that ends with the connection
	answered                    // none: the response is complete, and the request is not
	connOver                    // none that matter: the connection ends
)

// A wait is what a call waits for that has a limit of its own.
type wait uint8

const (
	forNothing  wait = iota
	forBody          // the first bytes of a request's body, to find out whether there is one
	forContinue      // 100 Continue
	forHead          // the response's head
	forUpload        // the rest of the request
)

// A partial is the part of a head, or of a trailer section, that has come. Most come in one piece.
type partial struct {
	p    []byte
	scan h1.Scan
}

func newPartial(p []byte) *partial { return &partial{p: append([]byte(nil), p...)} }

// Opened is called when the connection stands, and TLS on it.
func (pc *conn) Opened(c *myriad.Conn) {
	d := pc.dial
	if pc.state == connOver || d.isOver() {
		pc.state = connOver // a failed handshake, or a dial that was given up
		c.Abort(nil)
		return
	}
	pc.c = c
	if pc.tls == nil {
		pc.tls = tlsloop.SharedState(c)
	}
	negotiated := d.https && pc.tls != nil && pc.tls.NegotiatedProtocol == "h2"
	if negotiated || pc.host.mayH2 && !d.https { // by prior knowledge
		m := &muxConn{t: pc.t, pooled: pooled{host: pc.host}, dial: d, tls: pc.tls}
		m.Init(&pc.t.mux, m)
		pc.state, pc.dial = connOver, nil
		c.SetHandler(m, nil)
		return
	}
	d.stands(pc)
}

// send has the connection carry x. Its caller has taken it from the pool for that. Any goroutine.
func (pc *conn) send(x *Call) {
	up := &upload{x: x, pc: pc, payload: noPayload}
	reused := pc.idled || pc.carried
	pc.carried = true
	if !x.carried(pc, up, reused) { // cancelled
		pc.free()
		return
	}
	defer x.release()
	if err := up.frame(); err != nil {
		x.fail(err)
		pc.free()
		return
	}
	x.setPhase(Sent)
	var idleFor time.Duration
	if pc.idled && !pc.idleSince.IsZero() {
		idleFor = pc.t.sys.Now().Sub(pc.idleSince)
	}
	x.trace.gotConn(pc.c, reused, pc.idled, idleFor)
	up.begin()
}

// free passes the connection on to another call, keeps it idle, or closes it. It must be between
// two requests. Any goroutine.
func (pc *conn) free() {
	if err := pc.t.pool.offer(pc); err != nil {
		pc.retire()
	}
}

// retire closes a connection that no call has. Any goroutine.
func (pc *conn) retire() {
	_ = pc.c.Close()
	pc.t.pool.closed(&pc.pooled)
}

// waitFor begins a wait. In send, or on the loop.
func (pc *conn) waitFor(what wait, d time.Duration) {
	at := pc.t.sys.Now().Add(d)
	pc.waits, pc.due = what, at.UnixNano()
	_ = pc.c.SetDeadline(at)
}

// Received takes what the server sends.
func (pc *conn) Received(_ *myriad.Conn, p []byte) {
	for len(p) > 0 && pc.state != connOver {
		p = pc.take(p)
	}
}

// take takes the next part of a response, and returns what is behind it.
func (pc *conn) take(p []byte) (rest []byte) {
	switch pc.state {
	case inHead:
		return pc.takeHead(p)
	case inTrailer:
		return pc.takeTrailer(p)
	case inLength, inChunks, untilClose:
		return pc.takeBody(p)
	case answered, connOver:
	}
	pc.broken(ErrUnsolicited)
	return nil
}

// takeHead parses a response's head, and returns what is behind it.
func (pc *conn) takeHead(p []byte) (rest []byte) {
	x := pc.x.Load()
	if x == nil {
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

// A scratch is what a loop parses a head with.
type scratch struct{ head h1.ResponseHead }

func (s *scratch) put(t *Transport) {
	s.head.Reset()
	t.scratch.Put(s)
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
	x.trace.gotFirstByte()
	return true
}

// takeInterim is a response that another one follows (RFC 9110 section 15.2). As in net/http, those
// that a Got1xxResponse is called with do not count.
func (pc *conn) takeInterim(x *Call, head *h1.ResponseHead, n int) {
	if head.Status == http.StatusContinue {
		x.trace.got100()
		pc.goAhead()
	}
	header := func() textproto.MIMEHeader { return textproto.MIMEHeader(headerOf(head.Fields)) }
	if called, err := x.trace.got1xx(head.Status, header); called {
		if err != nil {
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
	if pc.waits == forContinue {
		pc.waits = forNothing
		pc.up.goAhead()
	}
}

// respond is the final head of a response; rest came behind it.
func (pc *conn) respond(x *Call, head *h1.ResponseHead, rest []byte) {
	pc.interim = 0
	r := newResponse(x.original, x.isHead, head)
	r.TLS = pc.tls
	pc.last = pc.last || !head.KeepAlive || x.closes || pc.t.DisableKeepAlives
	if head.Status == http.StatusSwitchingProtocols {
		if head.Upgrade {
			pc.switchProtocols(x, r, rest)
			return
		}
		pc.last = true // it names no protocol, so what follows belongs to none
	}
	switch {
	case pc.waits == forContinue && pc.last: // as in net/http the body is sent if the connection is to be used again
		pc.up.decline()
		pc.waits = forNothing
	case pc.waits == forContinue:
		pc.goAhead()
	default:
		pc.waits = forNothing
	}
	if pc.state = pc.framingOf(x, r, head); pc.state == inHead {
		pc.respondWithoutBody(x, r, rest)
		return
	}
	b := &body{exchange: pc, call: x, response: r}
	r.Body = b
	pc.body = b
	decompress(x, r)
	x.setPhase(Body) // an error in what follows is the body's, whether or not it came with the head
	for len(rest) > 0 && pc.body != nil && pc.state != connOver {
		rest = pc.take(rest)
	}
	if !x.settle(b) { // cancelled meanwhile
		pc.drop(x, errCanceled)
		b.discard()
		return
	}
	pc.endIfComplete(x)
	x.finish(r, nil)
}

// respondWithoutBody gives a response to its caller that has no body. The connection is free before
// that, so that the caller's next request finds it.
func (pc *conn) respondWithoutBody(x *Call, r *http.Response, rest []byte) {
	r.Body = http.NoBody
	if !x.settle(nil) {
		pc.broken(errCanceled)
		return
	}
	if len(rest) > 0 {
		pc.last = true // RFC 9112 section 6.3: the server is out of step
	}
	pc.answerComplete(x, nil)
	x.finish(r, nil)
}

// framingOf is how the body of a response is framed (RFC 9112 section 6.3), inHead if there is
// none.
func (pc *conn) framingOf(x *Call, r *http.Response, head *h1.ResponseHead) connState {
	switch {
	case x.isHead || head.NoBody:
		return inHead
	case x.isConnect && head.Status/100 == 2:
		r.ContentLength = -1
	case head.Chunked:
		pc.chunks = h1.Chunked{}
		return inChunks
	case head.ContentLength == 0:
		return inHead
	case head.ContentLength > 0:
		pc.left = head.ContentLength
		return inLength
	}
	pc.last, r.Close = true, true
	return untilClose
}

// takeBody decodes body bytes, and returns what is behind them.
func (pc *conn) takeBody(p []byte) (rest []byte) {
	switch pc.state {
	case inLength:
		n := int(min(int64(len(p)), pc.left))
		pc.left -= int64(n)
		pc.deliver(p[:n:n])
		if pc.left == 0 {
			pc.complete(p[n:])
		}
		return nil
	case untilClose:
		pc.deliver(p)
		return nil
	default:
	}
	n, data, done, err := pc.chunks.Decode(p)
	if err != nil {
		pc.malformed(err)
		return nil
	}
	pc.deliver(data)
	if done {
		pc.state = inTrailer
	}
	return p[n:]
}

// deliver gives decoded bytes to the body's reader, and stops reading at its limit.
func (pc *conn) deliver(p []byte) {
	if pc.body != nil && len(p) > 0 && pc.body.add(p) {
		pc.c.Pause()
	}
}

// takeTrailer parses the trailer section of a chunked body.
func (pc *conn) takeTrailer(p []byte) (rest []byte) {
	if k := pc.partial; k != nil {
		k.p = append(k.p, p...)
		p = k.p
		ready, err := k.scan.Trailer(p, pc.t.limits(0))
		if err != nil {
			pc.malformed(err)
			return nil
		}
		if !ready {
			return nil
		}
	}
	n, fields, err := h1.ParseTrailer(p, pc.t.limits(0), nil)
	switch {
	case err != nil:
		pc.malformed(err)
		return nil
	case n == 0:
		pc.partial = newPartial(p)
		if _, err = pc.partial.scan.Trailer(pc.partial.p, pc.t.limits(0)); err != nil {
			pc.malformed(err)
		}
		return nil
	}
	pc.partial = nil
	if len(fields) > 0 && pc.body != nil {
		pc.body.setTrailer(headerOf(fields))
	}
	pc.complete(p[n:])
	return nil
}

// complete ends a body in order. What is behind it belongs to no response.
func (pc *conn) complete(rest []byte) {
	if len(rest) > 0 {
		pc.last = true
	}
	x, b := pc.x.Load(), pc.body
	if x == nil || b == nil {
		return
	}
	pc.state = answered
	if x.isSettled() { // else respond has still to deliver the head
		pc.endIfComplete(x)
	}
	b.end()
}

// endIfComplete is for a response whose head has been delivered, or is about to be.
func (pc *conn) endIfComplete(x *Call) {
	if pc.state == answered && pc.body != nil {
		b := pc.body
		pc.body = nil
		pc.answerComplete(x, b)
	}
}

// answerComplete is the end of a response. The request may still be under way: then it goes on
// until the response has been read to its end, and, on a connection that is to be used again,
// uploadGrace longer. b is nil without a body.
func (pc *conn) answerComplete(x *Call, b *body) {
	if pc.up.wrote.Load() {
		pc.exchangeOver(x)
		return
	}
	pc.state = answered
	if b == nil || b.awaitRead() {
		pc.answerRead(x)
	}
}

// answerRead is called when the response has been read while the request is under way.
func (pc *conn) answerRead(x *Call) {
	switch {
	case pc.last:
		pc.exchangeOver(x)
	case pc.waits != forUpload:
		pc.waitFor(forUpload, uploadGrace)
	}
}

// exchangeOver ends an exchange whose response is complete: the connection is for the next call.
func (pc *conn) exchangeOver(x *Call) {
	if !pc.x.CompareAndSwap(x, nil) {
		return // cancelled
	}
	reuse := pc.up.wrote.Load() && !pc.last
	pc.state, pc.up, pc.size, pc.waits = inHead, nil, 0, forNothing
	x.over(errAbandoned)
	if !reuse {
		pc.close()
		pc.tracePut(x, errKeepIdle)
		return
	}
	pc.c.Resume()
	if pc.t.IdleConnTimeout > 0 {
		pc.c.SetTimer(pc.t.IdleConnTimeout)
	}
	err := pc.t.pool.offer(pc)
	pc.tracePut(x, err)
	if err != nil {
		pc.close()
	}
}

func (pc *conn) tracePut(x *Call, err error) {
	if !pc.t.DisableKeepAlives {
		x.trace.putIdle(err)
	}
}

// close ends a connection without a call in order.
func (pc *conn) close() {
	pc.state = connOver
	pc.retire()
}

// switchProtocols gives the connection to the caller: the response's Body is an io.ReadWriteCloser,
// as in net/http.
func (pc *conn) switchProtocols(x *Call, r *http.Response, rest []byte) {
	h, stream := myriad.Stream(0)
	r.ContentLength = 0
	s := &switched{stream}
	runtime.AddCleanup(s, func(stream io.Closer) { _ = stream.Close() }, io.Closer(stream))
	r.Body = s
	if !x.settle(nil) {
		_ = stream.Close()
		pc.broken(errCanceled)
		return
	}
	pc.x.Store(nil)
	pc.state, pc.waits = connOver, forNothing
	pc.c.SetTimer(0)
	pc.c.SetHandler(h, append([]byte(nil), rest...))
	pc.t.pool.closed(&pc.pooled)
	x.over(errAbandoned)
	x.finish(r, nil)
}

// switched is the Body of a response that has switched protocols. It has no other methods of the
// connection, as in net/http. httputil.ReverseProxy drops it without Close when a server has chosen
// another protocol. The connection is closed when the collector finds that.
type switched struct{ stream io.ReadWriteCloser }

func (s *switched) Read(p []byte) (int, error) {
	defer runtime.KeepAlive(s)
	return s.stream.Read(p)
}

func (s *switched) Write(p []byte) (int, error) {
	defer runtime.KeepAlive(s)
	return s.stream.Write(p)
}

func (s *switched) Close() error { return s.stream.Close() }

// CloseWrite ends our side, and reading goes on: httputil.ReverseProxy passes a FIN on by it.
func (s *switched) CloseWrite() error {
	return s.stream.(interface{ CloseWrite() error }).CloseWrite()
}

// malformed is for bytes that are no response.
func (pc *conn) malformed(err error) { pc.broken(pc.t.headError(err, pc.interim > 0)) }

// broken ends the connection, and what it carries, with err.
func (pc *conn) broken(err error) {
	pc.state = connOver
	pc.c.Abort(err)
	pc.lose(err)
}

// lose takes the connection from its call, whose attempt or body ends with err, and from the idle
// ones. On the loop.
func (pc *conn) lose(err error) {
	pc.t.pool.unkeep(pc, 0)
	pc.t.pool.closed(&pc.pooled)
	x, b := pc.x.Swap(nil), pc.body
	pc.body = nil
	switch {
	case x == nil: // it was cancelled, or none has it
	case b != nil:
		err = x.wrap(err)
		b.fail(err)
		x.over(err)
	case x.isSettled(): // it has its response
		x.over(err)
	default:
		x.attemptFailed(err)
	}
}

// drop ends the connection if it is the call's still. Any goroutine.
func (pc *conn) drop(x *Call, err error) {
	switch {
	case !pc.x.CompareAndSwap(x, nil):
	case x.isConnect && err == errBodyClosed: // what was written into the tunnel is sent
		pc.retire()
	default:
		pc.c.Abort(err)
		pc.t.pool.closed(&pc.pooled)
	}
}

func (pc *conn) more() { pc.c.Notify() }
func (pc *conn) read() { pc.c.Notify() }

// Ended is the server's FIN.
func (pc *conn) Ended(c *myriad.Conn) { pc.end(c, nil) }

// Truncated is a FIN without TLS's close_notify, behind which a body may go on.
func (pc *conn) Truncated(c *myriad.Conn, err error) { pc.end(c, err) }

func (pc *conn) end(c *myriad.Conn, cut error) {
	pc.last = true
	x := pc.x.Load()
	switch {
	case pc.state == connOver:
		_ = c.Close()
	case pc.state == untilClose && cut == nil && x != nil && pc.body != nil:
		pc.complete(nil)
	case pc.state == answered && x != nil: // the request may still be read
	default:
		pc.state = connOver
		_ = c.Close()
		pc.lose(pc.ending(c, cut))
	}
}

// ending is the error of what the connection carried when it ended with err; nil: in order.
func (pc *conn) ending(c *myriad.Conn, err error) error {
	x := pc.x.Load()
	return closedError(c, err, x != nil && x.gotByte.Load())
}

// Drained lets the upload go on.
func (pc *conn) Drained(*myriad.Conn) {
	if pc.x.Load() != nil && pc.up != nil {
		pc.up.room()
	}
}

// Notified is called when a goroutine has asked the loop for something: to go on with the request,
// to see that it is written, to read on, or to see that the response has been read.
func (pc *conn) Notified(c *myriad.Conn) {
	x := pc.x.Load()
	if x == nil {
		return
	}
	if pc.up.memory && pc.waits != forContinue {
		pc.up.room()
	}
	wrote := pc.up.wrote.Load()
	switch {
	case pc.state == answered && wrote:
		pc.exchangeOver(x)
	case pc.state == answered && x.isRead():
		pc.answerRead(x)
	case pc.state == inHead && wrote && pc.t.ResponseHeaderTimeout > 0 && pc.waits != forHead:
		pc.waitFor(forHead, pc.t.ResponseHeaderTimeout)
	case pc.body != nil && pc.body.resumes():
		c.Resume()
	}
}

// Expired is the end of a wait.
func (pc *conn) Expired(c *myriad.Conn) {
	x := pc.x.Load()
	if x == nil && pc.t.IdleConnTimeout <= 0 {
		return // the end of a wait that is over
	}
	if x == nil {
		taken, left := pc.t.pool.unkeep(pc, pc.t.IdleConnTimeout)
		if taken {
			pc.close()
		} else if left > 0 {
			c.SetTimer(left)
		}
		return
	}
	if pc.waits == forNothing {
		return
	}
	if left := time.Duration(pc.due - pc.t.sys.Now().UnixNano()); left > 0 {
		c.SetTimer(left)
		return
	}
	waited := pc.waits
	if waited != forContinue {
		pc.waits = forNothing
	}
	switch waited {
	case forBody:
		pc.up.probed()
	case forContinue:
		pc.goAhead()
	case forHead:
		pc.broken(errHeaderTimeout)
	case forUpload:
		pc.last = true
		pc.exchangeOver(x)
	case forNothing:
	}
}

// Stopping is the engine's shutdown: what is under way is completed.
func (pc *conn) Stopping(*myriad.Conn) {
	pc.last = true
	if taken, _ := pc.t.pool.unkeep(pc, 0); taken {
		pc.close()
	}
}

// Closed is the end of the connection.
func (pc *conn) Closed(c *myriad.Conn, err error) {
	pc.state = connOver
	pc.gone.Store(true)
	if pc.c == nil {
		return // its dial has failed
	}
	pc.lose(pc.ending(c, err))
	pc.t.pool.closed(&pc.pooled)
}
