package web

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/h1"
)

// A lane is a server's state on one loop, and owned by that loop.
type lane struct {
	s       *Server
	st      *state
	loop    *myriad.Loop
	head    h1.Head         // of the request being parsed
	cache   headCache       // of a recent one
	scratch []byte          // where its text is put together
	spare   *h1stream       // of an inline task that has returned: for the next request; nil: none
	asked   *link           // whose request was the last; nil: it has gone
	address string          // of its client, if that has been asked for again; else empty
	tasks   *dispatch.Local // runs handlers
	awake   []served        // the lane's connections, without those that hibernate
	idle    []*conn         // those that hibernate when this turn ends, if they can
	greeted greeting        // connections that have not come to HTTP: PROXY headers, TLS handshakes
	large   largeHeads
	drained bool
	aborted bool // Close was called: what is opened yet is reset
	routes  routes
}

// texts copies what a request keeps of its head, and the address of its client, in one piece. The
// address is copied only once for requests of one client in a row, as with pipelining.
func (ln *lane) texts(k *link, raw []byte) (head, address string) {
	if ln.asked != k {
		ln.asked, ln.address = k, ""
		ln.scratch = k.c.AppendRemoteAddr(append(ln.scratch[:0], raw...))
		both := string(ln.scratch)
		return both[:len(raw)], both[len(raw):]
	}
	return string(raw), ln.addressOf(k)
}

// addressOf is the address of h's client.
func (ln *lane) addressOf(k *link) string {
	if ln.asked != k {
		ln.asked, ln.address = k, ""
	}
	if ln.address == "" {
		ln.scratch = k.c.AppendRemoteAddr(ln.scratch[:0])
		ln.address = string(ln.scratch)
	}
	return ln.address
}

func (ln *lane) add(h served) {
	ln.st.conns.Add(1)
	ln.stay(h)
}

func (ln *lane) remove(k *link) {
	ln.depart(k)
	ln.st.connGone()
}

// drain begins an orderly end: connections that wait for a request go now, the others after their
// answer.
func (ln *lane) drain() {
	ln.drained = true
	for c := range ln.greeted {
		ln.hasten(c)
	}
	ln.wakeAll()
	for _, h := range slices.Clone(ln.awake) {
		h.shut()
	}
}

// closeIdle closes the connections that wait for another request.
func (ln *lane) closeIdle() {
	ln.wakeAll()
	for _, h := range slices.Clone(ln.awake) {
		h.closeIdle()
	}
}

func (ln *lane) abort() {
	ln.drained, ln.aborted = true, true
	for c := range ln.greeted {
		c.Abort(http.ErrServerClosed)
	}
	ln.wakeAll()
	for _, h := range ln.awake {
		h.known().c.Abort(http.ErrServerClosed)
	}
}

// front opens connections: it is the handler that a listener gives them, and gives way to a conn of
// their own.
type front struct {
	s      *Server
	origin *origin
	set    chan struct{}  // closed when origin is set: a connection may come before its listener is known
	tls    myriad.Handler // makes the handshake first; nil: no TLS
	proxy  myriad.Handler // reads a PROXY header before that; nil: there is none
}

func newFront(s *Server) *front {
	f := &front{s: s, origin: &origin{base: context.Background()}, set: make(chan struct{})}
	f.proxy = f.receiver()
	return f
}

func (f *front) setBase(l net.Listener) {
	defer close(f.set)
	if f.s.ConnState == nil && f.s.ConnContext == nil {
		f.origin.waiter = f
	}
	if f.s.BaseContext != nil {
		if f.origin.base = f.s.BaseContext(l); f.origin.base == nil {
			panic("BaseContext returned a nil context")
		}
	}
	f.origin.base = context.WithValue(f.origin.base, http.ServerContextKey, f.s.state.std)
}

// Opened gives the connection its own handler.
func (f *front) Opened(c *myriad.Conn) {
	<-f.set // by Listen, which waits for nothing any more
	if f.proxy != nil {
		f.lane(c).expect(c, nil)
		c.SetHandler(f.proxy, nil)
		return
	}
	f.begin(c)
}

// begin goes on with a connection whose addresses are known.
func (f *front) begin(c *myriad.Conn) {
	if f.tls != nil {
		f.greet(c)
		return
	}
	f.open(c, f.contextOf(c))
}

// contextOf is the base context of nc.
func (f *front) contextOf(nc net.Conn) context.Context {
	if f.s.ConnContext == nil {
		return f.origin.base
	}
	base := f.s.ConnContext(f.origin.base, nc)
	if base == nil {
		panic("ConnContext returned nil")
	}
	return base
}

func (f *front) open(c *myriad.Conn, base context.Context) *conn {
	h := &conn{link: link{c: c, lane: f.lane(c), from: f.originOf(base)}}
	c.SetHandler(h, nil)
	return h
}

func (f *front) originOf(base context.Context) *origin {
	if base == f.origin.base {
		return f.origin
	}
	return &origin{base: base}
}

// Received is never reached: the handler changes in Opened.
func (*front) Received(c *myriad.Conn, _ []byte) { c.Abort(nil) }

// Closed is called if ConnState or ConnContext has ended the connection in Opened.
func (f *front) Closed(c *myriad.Conn, err error) { f.ended(c, err, f.proxy == nil) }

// clock formats the Date field once a second.
type clock struct{ last atomic.Pointer[stamp] }

type stamp struct {
	second int64
	text   string
}

func (k *clock) at(now time.Time) *stamp {
	second := now.Unix()
	if s := k.last.Load(); s != nil && s.second == second {
		return s
	}
	s := &stamp{second, now.UTC().Format(http.TimeFormat)}
	k.last.Store(s)
	return s
}
