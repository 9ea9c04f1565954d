// Package http2 is HTTP/2 for a server: it has internal/mux carry what package exchange decides.
//
// The life of a request is in stream.go: Head begins the exchange, Data and Trailers feed its body,
// and Conn.Received dispatches its handler when all that came has been read. Credit is called when
// the exchange has asked for something. ComesBack takes it from its handler, and Ended is the end
// of its stream. conn.go is the connection, answer.go the framing of answers, pipe.go a stream that
// speaks another protocol (RFC 8441).
package http2

import (
	"cmp"
	"crypto/tls"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/mux"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

const (
	// maxStreams is how many requests of a connection may be open: see web.Server.HTTP2.
	MaxStreams = 250
	// streamWindow is how much of a request's body may wait for its handler.
	StreamWindow = 64 << 10
)

// A Server is what the HTTP/2 connections of a server have in common.
type Server struct {
	shared      *exchange.Server
	config      mux.Config
	figures     *figures
	window      int32 // of each stream
	permitsWeak bool  // TLS that RFC 9113 section 9.2 does not want
}

// Init makes it ready for heads of head bytes. tunnels: the extended CONNECT is offered.
func (s *Server) Init(common *exchange.Server, limits *http.HTTP2Config, head int, tunnels bool) {
	const overhead = 10 * 32 // net/http adds it for ten fields as HPACK counts them
	s.shared, s.figures = common, common.Engine.Shared(figuresKey{}, newFigures).(*figures)
	s.config = mux.Config{
		Streams: MaxStreams, Window: StreamWindow, HeaderList: head + overhead, Now: common.Engine.System().Now,
		Connect: tunnels, HeadTimeout: exchange.FirstOf(common.ReadHeaderTimeout, common.ReadTimeout,
			exchange.HeadTimeout),
		Counters: &s.figures.Counters, Log: mux.NewLog(func(f mux.Fault) { common.Logf("http: %v", f) }),
	}
	s.config.Take(limits)
	s.window = int32(s.config.Window)
	s.permitsWeak = limits != nil && limits.PermitProhibitedCipherSuites
}

// Open makes an HTTP/2 connection of one that has just begun.
func (s *Server) Open(k exchange.Link) { k.C.SetHandler(&Conn{Link: k, server: s}, nil) }

// Take has a connection of HTTP/1 go on by HTTP/2, with what has come.
func (s *Server) Take(k exchange.Link, came []byte) {
	k.C.SetHandler(&Conn{Link: k, server: s, moved: true}, came)
}

// A Conn is an HTTP/2 connection: the handler of a myriad.Conn, and the owner of its streams.
type Conn struct {
	exchange.Link
	mux.Conn
	server   *Server
	last     *exchange.LastState  // while the connection is lost; nil: no state function
	timed    map[*Stream]struct{} // streams that have a deadline: Stream.until
	detached map[*Stream]struct{} // streams that a Stream or a Pipe has
	due      exchange.Moment      // of streamTimer; never: it is not set
	open     bool                 // there are streams
	moved    bool                 // an HTTP/1 connection before, until the preface came
}

// The timers besides those of mux.
const (
	idleTimer   = mux.FirstTimer + iota
	streamTimer // the first of timed
)

// errNoUpgrade is what Upgrade fails with.
var ErrNoUpgrade = errors.New("web: Upgrade of an HTTP/2 request: HTTP/2 has no upgrade")

// Opened begins the wait for the preface, which has its own time.
func (h *Conn) Opened(c *myriad.Conn) {
	if h.moved {
		h.Lane.Stay(h)
	} else {
		h.Lane.Add(h)
		h.Lane.Arrived(c)
		if !h.Greeted {
			h.SetState(http.StateNew)
		}
	}
	h.Conn.Init(&h.server.config, h)
	h.Conn.Opened(c)
	h.awaitRequest()
	switch {
	case h.Lane.Aborted:
		c.Abort(http.ErrServerClosed)
	case h.Leaving():
		h.Shut()
	case h.Lane.Moved:
		h.Shutdown()
	case h.Secure && tooWeak(h.TLSState()) && !h.server.permitsWeak:
		h.Conn.Abort(h2.InadequateSecurity, "TLS 1.3, or 1.2 with ECDHE and AEAD, is needed")
	}
}

// tooWeak reports whether TLS is not as RFC 9113 section 9.2 wants it.
func tooWeak(state *tls.ConnectionState) bool {
	if state.Version != tls.VersionTLS12 {
		return state.Version < tls.VersionTLS12
	}
	switch state.CipherSuite {
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return false
	}
	return true
}

// Received reads frames, and then dispatches the requests that have begun in them: what has come of
// their bodies is there.
func (h *Conn) Received(c *myriad.Conn, p []byte) {
	h.Conn.Received(c, p)
	ln := h.Lane
	for _, x := range ln.Begun {
		if x.Progress() == exchange.Waiting {
			x.Dispatch(x.Body.Complete())
		}
	}
	clear(ln.Begun)
	ln.Begun = ln.Begun[:0]
}

// Accept implements mux.Owner.
func (h *Conn) Accept(uint32) *mux.Stream {
	x := &Stream{h: h}
	x.s.Init(x)
	return &x.s
}

// begins is called when a request has come.
func (h *Conn) begins() {
	if !h.open {
		h.open = true
		h.SetState(http.StateActive)
		h.Timers.Set(h.C, idleTimer, 0)
	}
}

// Idle implements mux.Owner.
func (h *Conn) Idle() {
	h.open = false
	h.SetState(http.StateIdle)
	if h.Leaving() || h.Lane.Server.NoAlive.Load() {
		h.Shutdown()
		return
	}
	h.awaitRequest()
}

// awaitRequest begins the time that a connection may be idle.
func (h *Conn) awaitRequest() {
	h.Timers.Set(h.C, idleTimer, max(0, h.Lane.Server.IdleTimeout))
}

// Settings implements mux.Owner. As with net/http, the preface makes a connection idle, by way of
// active.
func (h *Conn) Settings() {
	if h.State == uint8(http.StateNew) {
		h.SetState(http.StateActive)
		h.SetState(http.StateIdle)
	}
}

// GoAway implements mux.Owner: the client opens no more streams.
func (h *Conn) GoAway(uint32, h2.Code) {}

// Closed is the end of the connection: all streams end first.
func (h *Conn) Closed(c *myriad.Conn, err error) {
	if h.Lane.Server.ConnState != nil {
		h.last = exchange.NewLastState(&h.Link)
	}
	h.Conn.Closed(c, err)
}

// Gone implements mux.Owner.
func (h *Conn) Gone(error) {
	h.last.Release()
	h.Lane.Remove(&h.Link)
}

// Stopping is the engine's shutdown.
func (h *Conn) Stopping(*myriad.Conn) {
	h.Lane.Stopping = true
	h.Shut()
}

// Shut implements exchange.Served: streams that the client has opened are answered, Streams and
// Pipes end.
func (h *Conn) Shut() {
	h.Shutdown()
	for _, x := range inOrder(h.detached) {
		if x.pipe.tunnelled() {
			x.pipe.stopping()
		} else {
			_ = x.Stream().Close()
		}
	}
}

// Finish implements exchange.Served.
func (h *Conn) Finish() { h.Shutdown() }

// inOrder are the streams of a map, the oldest first.
func inOrder[V any](streams map[*Stream]V) []*Stream {
	return slices.SortedFunc(maps.Keys(streams), func(a, b *Stream) int { return cmp.Compare(a.s.ID(), b.s.ID()) })
}

// detach notes that a Stream or a Pipe has x.
func (h *Conn) detach(x *Stream) {
	if h.detached == nil {
		h.detached = map[*Stream]struct{}{}
	}
	h.detached[x] = struct{}{}
}

// Truncated is the client's FIN without a close_notify: frames show their own end.
func (h *Conn) Truncated(c *myriad.Conn, _ error) { h.Ended(c) }

// Expired implements myriad.Timed.
func (h *Conn) Expired(c *myriad.Conn) {
	for number := range h.Timers.Expired(c) {
		switch number {
		case idleTimer:
			h.Shutdown()
		case streamTimer:
			h.lookAtStreams()
		default:
			h.TimerExpired(number)
		}
	}
}

// watch has x looked at when by has come; never: no more.
func (h *Conn) watch(x *Stream, by exchange.Moment) {
	if x.until == by {
		return
	}
	x.until = by
	if by == exchange.Never {
		delete(h.timed, x)
		return
	}
	if h.timed == nil {
		h.timed = map[*Stream]struct{}{}
	}
	h.timed[x] = struct{}{}
	if h.due == exchange.Never || by < h.due {
		h.setDue(by)
	}
}

func (h *Conn) setDue(by exchange.Moment) {
	h.due = by
	h.Timers.Set(h.C, streamTimer, h.Until(by))
}

// lookAtStreams acts on the deadlines that have passed.
func (h *Conn) lookAtStreams() {
	now := h.Now()
	h.due = exchange.Never
	for _, x := range inOrder(h.timed) {
		if x.until.Passed(now) {
			x.deadlinePassed(now)
		}
	}
	first := exchange.Never
	for x := range h.timed {
		first = first.OrEarlier(x.until)
	}
	if first != exchange.Never {
		h.setDue(first)
	}
}

// CloseIdle implements exchange.Served.
func (h *Conn) CloseIdle() {
	if !h.open {
		h.Shutdown()
	}
}

// figuresKey is the engine's key for the figures of its servers.
type figuresKey struct{}

// figures count for all HTTP/2 connections of an engine's servers.
type figures struct {
	mux.Counters
	late atomic.Int64 // streams reset because their answer was late
}

func newFigures() any { return new(figures) }

// Figures is for package debug.
func (f *figures) Figures() myriad.Figures {
	return myriad.Figures{Title: "web: HTTP/2", Counts: []myriad.Count{
		{Name: "streams", Count: f.Opened.Load()},
		{Name: "streams refused", Count: f.Refused.Load()},
		{Name: "streams reset by clients", Count: f.PeerResets.Load()},
		{Name: "streams reset for mistakes", Count: f.Resets.Load()},
		{Name: "connections ended for mistakes", Count: f.ConnErrors.Load()},
		{Name: "connections ended for floods", Count: f.Calmed.Load()},
		{Name: "heads too large", Count: f.TooLarge.Load()},
		{Name: "streams reset for late answers", Count: f.late.Load()},
		{Name: "pauses for clients that do not read", Count: f.Paused.Load()},
		{Name: "connections ended for clients that do not read", Count: f.Stalled.Load()},
	}}
}
