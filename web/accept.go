package web

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// acceptPause is the wait after a temporary error of a foreign listener, and twice as long after
// each that follows, up to maxAcceptPause.
const (
	acceptPause    = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// Serve accepts from l, with one goroutine that is the caller's, and adopts the connections. It
// closes l, once, and closing l ends it. Connections without a descriptor of their own, such as
// net.Pipe's, cost two goroutines each. Those of tls.NewListener are of that kind, and have a third
// for the handshake. ServeTLS needs none. A listener that wraps its connections to read a PROXY
// header makes them cost as much: see ProxyProtocol. Request.TLS is set for a connection that has a
// method ConnectionState, as a *tls.Conn has.
func (s *Server) Serve(l net.Listener) error {
	l = &onceListener{Listener: l}
	if err := s.start(); err != nil {
		_ = l.Close()
		return err // callers compare it with http.ErrServerClosed
	}
	return s.serve(l, newFront(s))
}

func (s *Server) serve(l net.Listener, front *front) error {
	s.state.serving.Add(1)
	defer s.state.serveOver()
	defer l.Close() // also if BaseContext panics
	front.setBase(l.(*onceListener).Listener)
	g := &gate{waiter: s.state.engine.System().NewParker()}
	s.state.load.add(g)
	defer s.state.load.remove(g)
	one := &listening{stop: func() error { g.end(); return l.Close() }, done: make(chan struct{})}
	if !s.track(one) {
		return http.ErrServerClosed
	}
	err := s.acceptFrom(l, g, front)
	s.untrack(one)
	return err
}

func (s *Server) acceptFrom(l net.Listener, g *gate, front *front) error {
	for pause := acceptPause; ; {
		g.pass()
		nc, err := l.Accept()
		if err != nil {
			if s.closing.Load() {
				return http.ErrServerClosed
			}
			if ne, ok := err.(interface{ Temporary() bool }); ok && ne.Temporary() {
				s.logf("http: Accept error: %v; retrying in %v", err, pause)
				time.Sleep(pause)
				pause = min(2*pause, maxAcceptPause)
				continue
			}
			return err
		}
		pause = acceptPause
		if tc, ok := nc.(*tls.Conn); ok && !leavesAtOnce(nc) {
			s.shake(tc, front)
			continue
		}
		s.adoptOrLog(nc, front, nil)
	}
}

// adopt gives nc to the engine. A ConnState function is called first, as by net/http: Serve does
// not return before. base is the connection's base context if ConnContext and ConnState have been
// called for it already.
func (s *Server) adopt(nc net.Conn, f *front, base context.Context) error {
	one := &front1{front: f, own: base}
	one.secure, _ = nc.(connectionStater)
	if !goesApart(nc) {
		one.seen = nc
	}
	if s.ConnState != nil && !leavesAtOnce(nc) && !one.announced() {
		one.opened = s.state.engine.System().NewParker()
	}
	if _, err := s.state.engine.AdoptWait(nc, nil, one); err != nil {
		return err
	}
	if one.opened != nil {
		one.opened.Park()
	}
	return nil
}

// A onceListener is closed once, by Serve or by Shutdown.
type onceListener struct {
	net.Listener
	once sync.Once
	err  error
}

func (l *onceListener) Close() error {
	l.once.Do(func() { l.err = l.Listener.Close() })
	return l.err
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
