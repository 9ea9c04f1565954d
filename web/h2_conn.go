package web

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
)

// An h2conn is an HTTP/2 connection: the handler of a myriad.Conn, and the owner of its streams.
type h2conn struct {
	link
	mux.Conn
	last     *lastState             // while the connection is lost; nil: no state function
	timed    map[*h2stream]moment   // streams that have a deadline, and when
	detached map[*h2stream]struct{} // streams that a Stream or a Pipe has
	due      moment                 // of streamTimer; never: it is not set
	open     bool                   // there are streams
	moved    bool                   // an HTTP/1 connection before, until the preface came
}

// The timers besides those of mux.
const (
	idleTimer   = mux.FirstTimer + iota
	streamTimer // the first of timed
)

// errNoUpgrade is what Upgrade fails with.
var errNoUpgrade = errors.New("web: Upgrade of an HTTP/2 request: HTTP/2 has no upgrade")

// Opened begins the wait for the preface, which has its own time.
func (h *h2conn) Opened(c *myriad.Conn) {
	if h.moved {
		h.lane.stay(h)
	} else {
		h.lane.add(h)
		h.lane.endGreeting(c)
		if !h.greeted {
			h.setState(http.StateNew)
		}
	}
	h.Conn.Init(&h.lane.st.mux, h)
	h.Conn.Opened(c)
	h.awaitRequest()
	switch {
	case h.lane.aborted:
		c.Abort(http.ErrServerClosed)
	case h.leaving():
		h.shut()
	case h.secure && tooWeak(h.tlsState()) && !h.permitsWeak():
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

func (h *h2conn) permitsWeak() bool {
	c := h.lane.s.HTTP2
	return c != nil && c.PermitProhibitedCipherSuites
}

// Accept implements mux.Owner.
func (h *h2conn) Accept(uint32) *mux.Stream {
	x := &h2stream{h: h}
	x.s.Init(x)
	return &x.s
}

// begins is called when a request has come.
func (h *h2conn) begins() {
	if !h.open {
		h.open = true
		h.setState(http.StateActive)
		h.Timers.Set(h.c, idleTimer, 0)
	}
}

// Idle implements mux.Owner.
func (h *h2conn) Idle() {
	h.open = false
	h.setState(http.StateIdle)
	if h.leaving() || h.lane.s.noAlive.Load() {
		h.Shutdown()
		return
	}
	h.awaitRequest()
}

// awaitRequest begins the time that a connection may be idle.
func (h *h2conn) awaitRequest() {
	s := h.lane.s
	h.Timers.Set(h.c, idleTimer, firstOf(s.IdleTimeout, s.ReadTimeout))
}

// Settings implements mux.Owner. As with net/http, the preface makes a connection idle, by way of
// active.
func (h *h2conn) Settings() {
	if h.state == uint8(http.StateNew) {
		h.setState(http.StateActive)
		h.setState(http.StateIdle)
	}
}

// GoAway implements mux.Owner: the client opens no more streams.
func (h *h2conn) GoAway(uint32, h2.Code) {}

// Closed is the end of the connection: all streams end first.
func (h *h2conn) Closed(c *myriad.Conn, err error) {
	if h.lane.s.ConnState != nil {
		h.last = newLastState(&h.link)
	}
	h.Conn.Closed(c, err)
}

// Gone implements mux.Owner.
func (h *h2conn) Gone(error) {
	h.last.release()
	h.lane.remove(&h.link)
}

// Stopping is the engine's shutdown.
func (h *h2conn) Stopping(*myriad.Conn) {
	h.stopping = true
	h.shut()
}

// shut implements served: streams that the client has opened are answered, Streams and Pipes end.
func (h *h2conn) shut() {
	h.Shutdown()
	for _, x := range inOrder(h.detached) {
		if x.pipe.tunnelled() {
			x.pipe.stopping()
		} else {
			_ = x.stream().Close()
		}
	}
}

// inOrder are the streams of a map, the oldest first.
func inOrder[V any](streams map[*h2stream]V) []*h2stream {
	return slices.SortedFunc(maps.Keys(streams), func(a, b *h2stream) int { return cmp.Compare(a.s.ID(), b.s.ID()) })
}

// detach notes that a Stream or a Pipe has x.
func (h *h2conn) detach(x *h2stream) {
	if h.detached == nil {
		h.detached = map[*h2stream]struct{}{}
	}
	h.detached[x] = struct{}{}
}

// Truncated is the client's FIN without a close_notify: frames show their own end.
func (h *h2conn) Truncated(c *myriad.Conn, _ error) { h.Ended(c) }

// Expired implements myriad.Timed.
func (h *h2conn) Expired(c *myriad.Conn) {
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
func (h *h2conn) watch(x *h2stream, by moment) {
	if by == never {
		delete(h.timed, x)
		return
	}
	if h.timed == nil {
		h.timed = map[*h2stream]moment{}
	}
	h.timed[x] = by
	if h.due == never || by < h.due {
		h.setDue(by)
	}
}

func (h *h2conn) setDue(by moment) {
	h.due = by
	h.Timers.Set(h.c, streamTimer, h.until(by))
}

// lookAtStreams acts on the deadlines that have passed.
func (h *h2conn) lookAtStreams() {
	now := h.now()
	h.due = never
	for _, x := range inOrder(h.timed) {
		if h.timed[x].passed(now) {
			x.deadlinePassed(now)
		}
	}
	first := never
	for _, by := range h.timed {
		first = first.orEarlier(by)
	}
	if first != never {
		h.setDue(first)
	}
}

// closeIdle implements served.
func (h *h2conn) closeIdle() {
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
