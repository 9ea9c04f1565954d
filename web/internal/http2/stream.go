package http2

import (
	"bufio"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
	"github.com/myriad-go/myriad/internal/mux"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// A Stream is an exchange on a stream of an HTTP/2 connection, and its carrier. Only the loop
// uses what is not in exchange or enc.
type Stream struct {
	exchange.Exchange
	h     *Conn
	s     mux.Stream
	enc   encoder         // the handler's goroutine's
	pipe  *Pipe           // of an extended CONNECT; nil: it is none
	begun bool            // there is a request
	apart bool            // the loop is done with the stream, which a Stream had kept
	beat  exchange.Moment // of the Stream's next keep-alive; never: none
	until exchange.Moment // when the connection looks at x, which is in Conn.timed then; never: not

	parted atomic.Bool // one of loop and handler is done with a stream that a Stream or a Pipe has
}

var (
	_ exchange.Carrier = (*Stream)(nil)
	_ exchange.Sink    = (*Stream)(nil)
	_ mux.StreamOwner  = (*Stream)(nil)
)

// Head begins the request.
func (x *Stream) Head(head *h2.Head, last bool) h2.Code {
	ln := x.h.Lane
	x.Given = exchange.NewGiven()
	x.Given.Out.Store(&x.Out)
	x.Attach(x, &x.h.Link)
	if !x.fill(head, last) {
		x.Given.Ctx.End()
		return h2.ProtocolError
	}
	x.begun = true
	x.h.begins()
	x.setDeadlines()
	switch limit := ln.Server.MaxBodyBytes; {
	case head.TooLarge:
		x.refuse431()
	case limit > 0 && head.Length > limit:
		x.Exchange.Decline(http.StatusRequestEntityTooLarge, "")
	}
	ln.Begun = append(ln.Begun, &x.Exchange)
	return h2.NoError
}

// refuse431 answers a request whose fields were not all kept.
func (x *Stream) refuse431() {
	x.Exchange.Decline(http.StatusRequestHeaderFieldsTooLarge, "")
}

// Data feeds the body.
func (x *Stream) Data(p []byte, last bool) {
	if x.pipe != nil {
		x.pipe.receive(p, last)
		return
	}
	x.feed(p, last)
}

func (x *Stream) feed(p []byte, last bool) {
	_ = x.Body.Add(p, last) // too much of it fails the Read
	if last {
		x.bodyComplete()
	}
}

// Trailers ends the body.
func (x *Stream) Trailers(fields []hpack.Field) {
	var trailer http.Header
	for _, f := range fields {
		if !httpguts.ValidTrailerHeader(f.Name) { // RFC 9110 section 6.5.1
			continue
		}
		if trailer == nil {
			trailer = http.Header{}
		}
		trailer.Add(f.Name, f.Value)
	}
	x.Body.End(trailer)
	x.bodyComplete()
}

// bodyComplete ends the time that the body had.
func (x *Stream) bodyComplete() {
	if x.until != exchange.Never {
		x.arm()
	}
}

// Credit serves what the exchange wants, and returns how much of the body has been consumed.
func (x *Stream) Credit() int {
	if !x.begun {
		return 0
	}
	x.serve()
	n := 0
	if x.Body != nil {
		n = x.Body.In.Credit()
	}
	if x.pipe != nil {
		n += x.pipe.credit()
	}
	return n
}

// Room lets a handler that waits for room go on.
func (x *Stream) Room() {
	x.Out.Wake()
	if s := x.Stream(); s != nil {
		s.Drained()
	}
	if x.pipe != nil {
		x.pipe.drained()
	}
}

// Ended is the end of the stream. If it did not come in order, the handler learns from its context,
// its body and its writes.
func (x *Stream) Ended(_ h2.Code, err error) {
	x.h.watch(x, exchange.Never)
	piped := x.pipe != nil && x.pipe.end(err)
	switch {
	case !x.begun:
		x.s.Release()
	case err == nil && !piped:
		if !x.Body.Complete() {
			x.Body.Fail(http.ErrBodyReadAfterClose) // the answer had no need of it
		}
		if s := x.Stream(); s != nil && !x.apart { // Close was called, and its notify comes too late
			s.Lost(nil)
			x.leave()
		}
	default:
		x.Lose(err, x.h.last, func() {})
		if x.Enter(exchange.Unheard) {
			x.Given.Ctx.End()
			x.Body.Release()
			x.s.Release()
		}
		if x.Stream() != nil || piped {
			x.leave()
		}
	}
}

// serve does what the exchange asks for.
func (x *Stream) serve() {
	demands := x.TakeDemands()
	if demands&exchange.DemandGoAway != 0 {
		x.h.Shutdown()
	}
	if demands&exchange.DemandDeadline != 0 {
		x.arm()
	}
	if s := x.Stream(); s != nil && !x.apart {
		x.look(s)
	}
	if x.pipe != nil {
		x.pipe.serve()
	}
}

// look goes on with a Stream: when it has been closed, or its keep-alive has changed.
func (x *Stream) look(s *exchange.Stream) {
	if _, known := x.h.detached[x]; !known {
		x.h.detach(x)
		x.WriteBy = exchange.Never // a Stream may take its time
		x.arm()
	}
	over, owed := s.Look(x.setBeat)
	switch {
	case s.Failed():
		x.s.Cancel(h2.InternalError)
	case over && !owed:
		s.Lost(nil)
		x.leave()
	case !over && x.h.Leaving():
		_ = s.Close()
	}
}

// leave is the loop's release of a stream that a Stream has kept.
func (x *Stream) leave() {
	if x.apart {
		return
	}
	x.apart = true
	delete(x.h.detached, x)
	if x.beat != exchange.Never {
		x.beat = exchange.Never
		x.arm()
	}
	if x.parted.Swap(true) {
		x.s.Release()
	}
}

// ComesBack implements exchange.Carrier. If a Stream or a Pipe goes on, the loop releases the
// mux.Stream.
func (x *Stream) ComesBack() dispatch.Task {
	x.Complete()
	x.Given.Out.Store(nil)
	switch x.Progress() {
	case exchange.Detached, exchange.Outlived:
		x.s.Notify()
		fallthrough
	case exchange.Upgraded:
		if !x.Given.Ctx.IsLost() && !x.parted.Swap(true) {
			return nil
		}
	}
	x.s.Release()
	return nil
}

// KeptByLoop implements exchange.Carrier.
func (x *Stream) KeptByLoop() {
	x.serve()
	x.ComesBack()
}

func (x *Stream) Fail() { x.s.Cancel(h2.InternalError) }

func (x *Stream) HasTurn() bool { return true }

// Upgrade implements exchange.Carrier. HTTP/2 has no upgrade (RFC 9113 section 8.6).
func (x *Stream) Upgrade([]byte, myriad.Handler) error {
	return ErrNoUpgrade
}

func (x *Stream) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// Outlive implements exchange.Carrier.
func (x *Stream) Outlive() error { return nil }

// Sink implements exchange.Carrier: the stream itself.
func (x *Stream) Sink() exchange.Sink { return x }

func (x *Stream) Write(p []byte) error { return x.put(nil, p, false) }

func (x *Stream) Chunk(k *exchange.Chunk) error { return x.put(nil, k.Data(), false) }

// End implements exchange.Sink. It needs no room.
func (x *Stream) End() error { return x.s.End(nil) }

func (x *Stream) Queued() int { return x.s.Queued() }

func (x *Stream) SetLimit(n int) { x.s.SetLimit(n) }

func (x *Stream) Abort(error) { x.s.Cancel(h2.Cancel) }

func (x *Stream) Notify() { x.s.Notify() }

func (x *Stream) RemoteAddr() net.Addr { return x.h.C.RemoteAddr() }

// fill fills in the request of x. It reports false if no handler could make sense of the head,
// which is malformed then. last: there is no body.
func (x *Stream) fill(head *h2.Head, last bool) bool {
	req := &x.Given.Request
	req.Method, req.Host, req.RequestURI = head.Method, head.Authority, head.Path
	req.Proto, req.ProtoMajor = "HTTP/2.0", 2
	switch {
	case head.Scheme != "" && head.Scheme != "http" && head.Scheme != "https": // net/http has no other
		return false
	case head.Method == http.MethodConnect && head.Protocol == "":
		req.URL, req.RequestURI = &x.Given.URL, head.Authority
		req.URL.Host = head.Authority
	case exchange.PlainTarget(head.Path):
		path, query, has := strings.Cut(head.Path, "?")
		req.URL = &x.Given.URL
		req.URL.Path, req.URL.RawQuery, req.URL.ForceQuery = path, query, has && query == ""
	default:
		u, err := url.ParseRequestURI(head.Path)
		if err != nil {
			return false
		}
		req.URL = u
	}
	x.Fields = headerOf(head, x.Fields)
	req.Header = x.Fields
	if head.Protocol != "" {
		req.Header[":protocol"] = []string{head.Protocol} // as in net/http
		x.pipe = &Pipe{x: x}
	}
	expects := httpguts.HeaderValuesContainsToken(req.Header["Expect"], "100-continue")
	if expects {
		delete(req.Header, "Expect")
	}
	req.Trailer = exchange.AnnouncedTrailer(req.Header)
	req.RemoteAddr = x.Lane.AddressOf(&x.h.Link)
	if x.h.Secure {
		req.TLS = x.h.TLSState()
	}
	x.Out.Framing = exchange.FramingStream
	x.Out.NoBody = req.Method == http.MethodHead
	x.setBody(head, last, expects)
	return true
}

// setBody says how the request's body comes.
func (x *Stream) setBody(head *h2.Head, last, expects bool) {
	req := &x.Given.Request
	if last {
		req.Body = http.NoBody
		return
	}
	req.ContentLength = head.Length
	x.Body = new(exchange.Body)
	x.Body.Init(&x.Exchange, head.Length, expects)
	x.Body.In.Reset(int(x.h.server.window), true)
	req.Body = x.Body
}

// headerOf makes the map; all values share one slice. m is an empty map to be used again, or nil.
func headerOf(head *h2.Head, m http.Header) http.Header {
	if m == nil {
		m = make(http.Header, len(head.Fields))
	}
	if len(head.Fields) == 0 {
		return m
	}
	var scratch [64]byte
	values := make([]string, 0, len(head.Fields))
	for i := range head.Fields {
		f := &head.Fields[i]
		name := h1.CanonicalName(append(scratch[:0], f.Name...))
		if own := m[name]; own != nil {
			m[name] = append(own, f.Value)
			continue
		}
		values = append(values, f.Value)
		m[name] = values[len(values)-1 : len(values) : len(values)]
	}
	return m
}

// setDeadlines starts the times that a request has: for its body, and for its answer.
func (x *Stream) setDeadlines() {
	s := x.Lane.Server
	if d := s.WriteTimeout; d > 0 {
		x.SetWriteBy(x.h.Now().After(d))
	}
	if d := s.ReadTimeout; d > 0 && x.Body != nil {
		x.Body.ReadBy = x.h.Now().After(d)
	}
	if s.WriteTimeout > 0 || s.ReadTimeout > 0 {
		x.arm()
	}
}

// arm has the connection look at x at the earliest of its deadlines.
func (x *Stream) arm() {
	by := x.beat.OrEarlier(x.WriteBy)
	if !x.Body.Complete() && !x.pipe.tunnelled() {
		by = by.OrEarlier(x.Body.Bound())
	}
	x.h.watch(x, by)
}

// deadlinePassed acts on the deadlines. As with net/http, a stream whose answer is late is reset at
// once, whatever its handler does.
func (x *Stream) deadlinePassed(now exchange.Moment) {
	x.TakeWriteBy()
	if x.WriteBy.Passed(now) {
		x.WriteBy = exchange.Never
		x.h.server.figures.late.Add(1)
		x.s.Cancel(h2.InternalError)
	}
	if !x.Body.Complete() {
		x.Body.Expire(now)
	}
	if x.beat.Passed(now) {
		x.beat = exchange.Never
		if x.pipe.tunnelled() {
			x.pipe.expired()
		} else {
			x.Stream().Beats(x.setBeat)
		}
	}
	x.arm()
}

// setBeat has the Stream's keep-alive, or the Pipe's timer, looked at after d; 0: no more.
func (x *Stream) setBeat(d time.Duration) {
	if x.beat = exchange.Never; d > 0 {
		x.beat = x.h.Now().After(d)
	}
	x.arm()
}
