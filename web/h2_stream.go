package web

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
)

// An h2stream is an exchange on a stream of an HTTP/2 connection, and its carrier. Only the loop
// uses what is not in exchange or enc.
type h2stream struct {
	exchange
	h     *h2conn
	s     mux.Stream
	enc   h2encoder // the handler's goroutine's
	pipe  *Pipe     // of an extended CONNECT; nil: it is none
	begun bool      // there is a request
	apart bool      // the loop is done with the stream, which a Stream had kept
	beat  moment    // of the Stream's next keep-alive; never: none

	parted atomic.Bool // one of loop and handler is done with a stream that a Stream or a Pipe has
}

var (
	_ carrier         = (*h2stream)(nil)
	_ sink            = (*h2stream)(nil)
	_ mux.StreamOwner = (*h2stream)(nil)
)

// Head begins the request.
func (x *h2stream) Head(head *h2.Head, last bool) h2.Code {
	ln := x.h.lane
	x.given = newGiven()
	x.given.out.Store(&x.out)
	x.attach(x, &x.h.link)
	if !x.fill(head, last) {
		x.given.ctx.end()
		return h2.ProtocolError
	}
	x.begun = true
	x.h.begins()
	x.setDeadlines()
	switch limit := ln.s.MaxBodyBytes; {
	case head.TooLarge:
		x.refuse431()
	case limit > 0 && head.Length > limit:
		x.exchange.refuse(http.StatusRequestEntityTooLarge, "")
	default:
		ln.dispatch(x, last)
	}
	return h2.NoError
}

// refuse431 answers a request whose fields were not all kept.
func (x *h2stream) refuse431() {
	x.exchange.refuse(http.StatusRequestHeaderFieldsTooLarge, "")
}

// Data feeds the body.
func (x *h2stream) Data(p []byte, last bool) {
	if x.pipe != nil {
		x.pipe.receive(p, last)
		return
	}
	x.feed(p, last)
}

func (x *h2stream) feed(p []byte, last bool) {
	_ = x.body.add(p, last) // too much of it fails the Read
	if last {
		x.arm()
	}
}

// Trailers ends the body.
func (x *h2stream) Trailers(fields []hpack.Field) {
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
	x.body.end(trailer)
	x.arm()
}

// Credit serves what the exchange wants, and returns how much of the body has been consumed.
func (x *h2stream) Credit() int {
	if !x.begun {
		return 0
	}
	x.serve()
	return x.body.credit() + x.pipe.credit()
}

// Room lets a handler that waits for room go on.
func (x *h2stream) Room() {
	x.out.wake()
	if s := x.stream(); s != nil {
		s.drained()
	}
	x.pipe.drained()
}

// Ended is the end of the stream. If it did not come in order, the handler learns from its context,
// its body and its writes.
func (x *h2stream) Ended(_ h2.Code, err error) {
	x.h.watch(x, never)
	piped := x.pipe.end(err)
	switch {
	case !x.begun:
		x.s.Release()
	case err == nil && !piped:
		x.body.fail(http.ErrBodyReadAfterClose)    // of which the answer had no need
		if s := x.stream(); s != nil && !x.apart { // Close was called, and its notify comes too late
			s.lost(nil)
			x.leave()
		}
	default:
		x.lose(err, x.h.last, func() {})
		if x.stream() != nil || piped {
			x.leave()
		}
	}
}

// serve does what the exchange asks for.
func (x *h2stream) serve() {
	demands := x.takeDemands()
	if demands&demandGoAway != 0 {
		x.h.Shutdown()
	}
	if demands&demandDeadline != 0 {
		x.arm()
	}
	if s := x.stream(); s != nil && !x.apart {
		x.look(s)
	}
	x.pipe.serve()
}

// look goes on with a Stream: when it has been closed, or its keep-alive has changed.
func (x *h2stream) look(s *Stream) {
	if _, known := x.h.detached[x]; !known {
		x.h.detach(x)
		x.writeBy = never // a Stream may take its time
		x.arm()
	}
	over, owed := s.look(x.setBeat)
	switch {
	case s.cut:
		x.s.Cancel(h2.InternalError)
	case over && !owed:
		s.lost(nil)
		x.leave()
	case !over && x.h.leaving():
		_ = s.Close()
	}
}

// leave is the loop's release of a stream that a Stream has kept.
func (x *h2stream) leave() {
	if x.apart {
		return
	}
	x.apart = true
	delete(x.h.detached, x)
	if x.beat != never {
		x.beat = never
		x.arm()
	}
	if x.parted.Swap(true) {
		x.s.Release()
	}
}

// comesBack implements carrier. If a Stream or a Pipe goes on, the loop releases the mux.Stream.
func (x *h2stream) comesBack() dispatch.Task {
	x.complete()
	x.given.out.Store(nil)
	switch x.progress() {
	case detached, outlived:
		x.s.Notify()
		fallthrough
	case upgraded:
		if !x.given.ctx.isLost() && !x.parted.Swap(true) {
			return nil
		}
	}
	x.s.Release()
	return nil
}

// returned implements carrier.
func (x *h2stream) returned() {
	x.serve()
	x.comesBack()
}

func (x *h2stream) fail() { x.s.Cancel(h2.InternalError) }

func (x *h2stream) hasTurn() bool { return true }

// writer implements carrier.
func (x *h2stream) writer() http.ResponseWriter { return (*given2)(x.given) }

// upgrade implements carrier. HTTP/2 has no upgrade (RFC 9113 section 8.6).
func (x *h2stream) upgrade([]byte, myriad.Handler) error {
	return errNoUpgrade
}

func (x *h2stream) hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// outlive implements carrier.
func (x *h2stream) outlive() error { return nil }

// sink implements carrier: the stream itself.
func (x *h2stream) sink() sink { return x }

func (x *h2stream) write(p []byte) error { return x.put(nil, p, false) }

func (x *h2stream) chunk(k *Chunk) error { return x.put(nil, k.data(), false) }

// end implements sink. It needs no room.
func (x *h2stream) end() error { return x.s.End(nil) }

func (x *h2stream) queued() int { return x.s.Queued() }

func (x *h2stream) setLimit(n int) { x.s.SetLimit(n) }

func (x *h2stream) abort(error) { x.s.Cancel(h2.Cancel) }

func (x *h2stream) notify() { x.s.Notify() }

func (x *h2stream) remoteAddr() net.Addr { return x.h.c.RemoteAddr() }

// fill fills in the request of x. It reports false if no handler could make sense of the head,
// which is malformed then. last: there is no body.
func (x *h2stream) fill(head *h2.Head, last bool) bool {
	req := &x.given.request
	req.Method, req.Host, req.RequestURI = head.Method, head.Authority, head.Path
	req.Proto, req.ProtoMajor = "HTTP/2.0", 2
	switch {
	case head.Scheme != "" && head.Scheme != "http" && head.Scheme != "https": // net/http has no other
		return false
	case head.Method == http.MethodConnect && head.Protocol == "":
		req.URL, req.RequestURI = &x.given.url, head.Authority
		req.URL.Host = head.Authority
	case plainTarget(head.Path):
		path, query, has := strings.Cut(head.Path, "?")
		req.URL = &x.given.url
		req.URL.Path, req.URL.RawQuery, req.URL.ForceQuery = path, query, has && query == ""
	default:
		u, err := url.ParseRequestURI(head.Path)
		if err != nil {
			return false
		}
		req.URL = u
	}
	x.fields = headerOf(head, x.fields)
	req.Header = x.fields
	if head.Protocol != "" {
		req.Header[":protocol"] = []string{head.Protocol} // as in net/http
		x.pipe = &Pipe{x: x}
	}
	expects := httpguts.HeaderValuesContainsToken(req.Header["Expect"], "100-continue")
	if expects {
		delete(req.Header, "Expect")
	}
	req.Trailer = announcedTrailer(req.Header)
	req.RemoteAddr = x.lane.addressOf(&x.h.link)
	req.TLS = x.h.tlsState()
	x.out.framing = framingStream
	x.out.noBody = req.Method == http.MethodHead
	x.setBody(head, last, expects)
	return true
}

// setBody says how the request's body comes.
func (x *h2stream) setBody(head *h2.Head, last, expects bool) {
	req := &x.given.request
	if last {
		req.Body = http.NoBody
		return
	}
	req.ContentLength = head.Length
	x.body = new(body)
	x.body.init(&x.exchange, head.Length, expects)
	x.body.in.Reset(int(x.lane.st.window), true)
	req.Body = x.body
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
func (x *h2stream) setDeadlines() {
	s := x.lane.s
	if d := s.WriteTimeout; d > 0 {
		x.setWriteBy(x.h.now().after(d))
	}
	if d := s.ReadTimeout; d > 0 && x.body != nil {
		x.body.readBy = x.h.now().after(d)
	}
	x.arm()
}

// arm has the connection look at x at the earliest of its deadlines.
func (x *h2stream) arm() {
	by := x.beat.orEarlier(x.writeBy)
	if !x.body.complete() && !x.pipe.tunnelled() {
		by = by.orEarlier(x.body.bound())
	}
	x.h.watch(x, by)
}

// deadlinePassed acts on the deadlines. As with net/http, a stream whose answer is late is reset at
// once, whatever its handler does.
func (x *h2stream) deadlinePassed(now moment) {
	x.takeWriteBy()
	if x.writeBy.passed(now) {
		x.writeBy = never
		x.lane.st.figures.late.Add(1)
		x.s.Cancel(h2.InternalError)
	}
	if !x.body.complete() {
		x.body.expire(now)
	}
	if x.beat.passed(now) {
		x.beat = never
		if x.pipe.tunnelled() {
			x.pipe.expired()
		} else {
			x.stream().beats(x.setBeat)
		}
	}
	x.arm()
}

// setBeat has the Stream's keep-alive, or the Pipe's timer, looked at after d; 0: no more.
func (x *h2stream) setBeat(d time.Duration) {
	if x.beat = never; d > 0 {
		x.beat = x.h.now().after(d)
	}
	x.arm()
}
