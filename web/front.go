package web

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/proxyproto"
)

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

// greet begins a handshake.
func (f *front) greet(c *myriad.Conn) {
	if report := f.s.ConnState; report != nil {
		report(c, http.StateNew)
	}
	f.lane(c).expect(c, nil)
	c.SetHandler(f.tls, nil)
}

func (f *front) lane(c *myriad.Conn) *lane { return f.s.state.lanes[c.Loop().Index()] }

// lost is called for a connection that ends before its handshake has succeeded.
func (f *front) lost(c *myriad.Conn, _ error) {
	if report := f.s.ConnState; report != nil {
		report(c, http.StateClosed)
	}
	f.lane(c).endGreeting(c)
}

// negotiated is what a connection speaks after its handshake.
func (f *front) negotiated(state tls.ConnectionState) myriad.Handler {
	switch p := f.s.protocols(); {
	case state.NegotiatedProtocol == "h2" && f.s.speaksHTTP2():
		return (*muxedFront)(f)
	case speaks(state.NegotiatedProtocol) && p.HTTP1():
		return (*securedFront)(f)
	}
	if serve := f.s.TLSNextProto[state.NegotiatedProtocol]; serve != nil {
		return &departing{Handler: (*securedFront)(f), front: f, serve: serve}
	}
	return (*strangeFront)(f)
}

// connectionStater is what tells Serve that a connection is one of TLS.
type connectionStater interface{ ConnectionState() tls.ConnectionState }

// goesApart reports whether the engine goes on with a connection under another net.Conn, because it
// needs its descriptor alone.
func goesApart(nc net.Conn) bool {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return leavesAtOnce(nc)
}

// An accepted is what a listener has given to Serve, as far as that is needed later on.
type accepted struct {
	seen   net.Conn         // what ConnState and ConnContext are given; nil: the engine's
	secure connectionStater // nil: no TLS. What was negotiated is known when the first bytes have come.
}

// acceptedKey is where the base context of a connection has its *accepted, if there is something in
// it.
type acceptedKey struct{}

// A front1 is the front of one adopted connection.
type front1 struct {
	*front
	accepted
	own    context.Context // its base context, if ConnContext and ConnState have heard of it; else nil
	opened driver.Parker   // of the goroutine that waits until ConnState has been called; nil: none does
}

// announced reports whether a PROXY header may come first: not on a net.Conn of the listener's own
// kind, which may have read it, and not within TLS.
func (f *front1) announced() bool { return f.proxy != nil && f.seen == nil && f.secure == nil }

// Opened gives the connection its own handler.
func (f *front1) Opened(c *myriad.Conn) {
	if f.announced() {
		f.lane(c).expect(c, f)
		c.SetHandler(f.proxy, nil)
		return
	}
	f.begin(c)
}

func (f *front1) begin(c *myriad.Conn) {
	if f.tls != nil {
		f.greet(c)
		f.wake(c)
		return
	}
	seen, base := f.seen, f.own
	if seen == nil {
		seen = c
	}
	if base == nil {
		base = f.contextOf(seen)
	}
	if f.seen != nil || f.secure != nil {
		base = context.WithValue(base, acceptedKey{}, &f.accepted)
	}
	h := f.open(c, base)
	h.secure, h.greeted = f.secure != nil, f.own != nil
	f.wake(c)
}

// wake lets Serve go on when the connection's own handler has been opened.
func (f *front1) wake(c *myriad.Conn) {
	if f.opened != nil {
		c.Loop().Later(f.opened.Unpark)
	}
}

// Closed is called for a connection that is refused before it is opened.
func (f *front1) Closed(c *myriad.Conn, err error) {
	f.ended(c, err, !f.announced())
	if f.own != nil {
		f.s.reportOf(f.seen, http.StateClosed)
	}
	if f.opened != nil {
		f.opened.Unpark()
	}
}

// receiver is a handler that reads PROXY headers; nil without ProxyProtocol.
func (f *front) receiver() myriad.Handler {
	s := f.s
	if s.ProxyProtocol == nil {
		return nil
	}
	return proxyproto.Options{
		Trusted: s.ProxyProtocol,
		Timeout: firstOf(s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout, headTimeout),
		Failed:  s.headerFailed,
		Closed:  func(c *myriad.Conn, _ error) { f.lane(c).endGreeting(c) },
	}.Handler((*announcedFront)(f))
}

func (s *Server) headerFailed(c *myriad.Conn, err error, times uint64) {
	if times > 1 {
		s.logf("http: connection of %v refused: %v (and %d more)", c.RemoteAddr(), err, times-1)
		return
	}
	s.logf("http: connection of %v refused: %v", c.RemoteAddr(), err)
}

// announcedFront opens connections whose PROXY header has come, or that need none.
type announcedFront front

func (f *announcedFront) Opened(c *myriad.Conn) {
	if one := f.lane(c).greeted[c]; one != nil {
		one.begin(c)
		return
	}
	(*front)(f).begin(c)
}

func (f *announcedFront) lane(c *myriad.Conn) *lane { return (*front)(f).lane(c) }

// Received is never reached: the handler changes in Opened.
func (*announcedFront) Received(c *myriad.Conn, _ []byte) { c.Abort(nil) }

// Closed is called if ConnState or ConnContext has ended the connection in Opened.
func (f *announcedFront) Closed(c *myriad.Conn, err error) { (*front)(f).ended(c, err, true) }

// ended is the end of a connection that has not come to a handler of its own. begun says that begin
// was called.
func (f *front) ended(c *myriad.Conn, err error, begun bool) {
	ln := f.lane(c)
	if _, ok := ln.greeted[c]; ok && begun && f.tls != nil {
		f.tls.Closed(c, err) // which was to be next
	}
	ln.endGreeting(c)
}

// A greeting is the connections of a lane that have not come to HTTP, so that Shutdown and Close
// reach them too: they wait for a PROXY header or make their TLS handshake. The front1 is that of
// an adopted one.
type greeting map[*myriad.Conn]*front1

// expect counts a connection as one that has not come to HTTP, if it does not count already.
func (ln *lane) expect(c *myriad.Conn, one *front1) {
	if _, ok := ln.greeted[c]; !ok {
		if ln.greeted == nil {
			ln.greeted = greeting{}
		}
		ln.greeted[c] = one
		ln.st.conns.Add(1)
	}
	switch {
	case ln.aborted:
		c.Abort(http.ErrServerClosed)
	case ln.drained:
		c.Loop().Later(func() { ln.hasten(c) })
	}
}

// endGreeting takes a connection from those that have not come to HTTP.
func (ln *lane) endGreeting(c *myriad.Conn) {
	if _, ok := ln.greeted[c]; ok {
		delete(ln.greeted, c)
		ln.st.connGone()
	}
}

// hasten gives a connection no more time to come to HTTP than it has there for its first request.
func (ln *lane) hasten(c *myriad.Conn) {
	if _, ok := ln.greeted[c]; ok {
		c.SetTimer(min(newConnGrace, firstOf(ln.s.handshakeTimeout(), newConnGrace)))
	}
}

// securedFront opens connections whose handshake has succeeded.
type securedFront front

func (f *securedFront) Opened(c *myriad.Conn) {
	<-f.set
	h := (*front)(f).open(c, (*front)(f).contextOf(c))
	h.secure, h.greeted = true, true
}

// Received is never reached: the handler changes in Opened.
func (*securedFront) Received(c *myriad.Conn, _ []byte) { c.Abort(nil) }

// Closed is heard if ConnContext has ended the connection in Opened.
func (f *securedFront) Closed(c *myriad.Conn, err error) { (*front)(f).lost(c, err) }

// muxedFront opens connections on which ALPN has chosen HTTP/2.
type muxedFront front

func (f *muxedFront) Opened(c *myriad.Conn) {
	<-f.set
	g := (*front)(f)
	h := &h2conn{link: link{c: c, lane: g.lane(c), from: g.originOf(g.contextOf(c)), secure: true, greeted: true}}
	c.SetHandler(h, nil)
}

// Received is never reached: the handler changes in Opened.
func (*muxedFront) Received(c *myriad.Conn, _ []byte) { c.Abort(nil) }

// Closed is called if ConnContext has ended the connection in Opened.
func (f *muxedFront) Closed(c *myriad.Conn, err error) { (*front)(f).lost(c, err) }

// strangeFront ends connections with a protocol that has no server here.
type strangeFront front

func (*strangeFront) Opened(c *myriad.Conn) { _ = c.Close() }

func (*strangeFront) Received(*myriad.Conn, []byte) {}

func (f *strangeFront) Closed(c *myriad.Conn, err error) { (*front)(f).lost(c, err) }

// Wake implements myriad.Waker.
func (f *front) Wake(c *myriad.Conn, last myriad.Handler) myriad.Handler {
	waits := rest(c.HibernatedAs())
	phase, state := phaseIdle, http.StateIdle
	if waits == beforeAny {
		phase, state = phaseNew, http.StateNew
	}
	h := f.rouse(c, last, phase, state)
	h.phase, h.state = phase, uint8(state) // last was of another connection
	h.posted, h.blank = waits == afterPost || waits == afterPadding, 0
	if waits == afterPadding {
		h.blank = paddingLen
	}
	return h
}

func (f *front) rouse(c *myriad.Conn, last myriad.Handler, waits phase, state http.ConnState) *conn {
	h, ok := last.(*conn)
	if !ok {
		h = &conn{link: link{c: c, lane: f.lane(c), from: f.origin, state: uint8(state)}, phase: waits}
	}
	h.lane.stay(h)
	return h
}

// wakeAll ends the hibernation of all connections of the lane.
func (ln *lane) wakeAll() {
	ln.loop.WakeAll(func(w myriad.Waker) bool {
		f, ok := w.(*front)
		return ok && f.s == ln.s
	})
}
