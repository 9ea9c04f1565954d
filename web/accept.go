package web

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

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

// adoptOrLog is adopt for callers that can only log an error.
func (s *Server) adoptOrLog(nc net.Conn, f *front, base context.Context) {
	if err := s.adopt(nc, f, base); err != nil {
		if base != nil {
			s.reportOf(nc, http.StateClosed)
		}
		s.logf("web: adopt a connection of %v: %v", nc.LocalAddr(), err)
	}
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

// A gate pauses a foreign listener: each Accept passes the gate first.
type gate struct {
	waiter driver.Parker

	mu     sync.Mutex
	closed bool // guarded by mu: no Accept passes
	over   bool // guarded by mu: everybody does, for the listener has been closed
}

func (g *gate) Pause() { g.set(func() { g.closed = true }) }

func (g *gate) Resume() { g.set(func() { g.closed = false }) }

func (g *gate) end() { g.set(func() { g.over = true }) }

func (g *gate) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	g.waiter.Unpark()
}

func (g *gate) pass() {
	for g.waits() {
		g.waiter.Park()
	}
}

func (g *gate) waits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed && !g.over
}

// ownHandshake is how long a handshake may take whose connection came from a foreign listener, if
// no timeout is set: as tlsloop's.
const ownHandshake = 10 * time.Second

// A shaking is the *tls.Conns that a foreign listener, such as tls.NewListener's, has given to
// Serve and whose handshakes are being made: each on a goroutine, because their configuration
// cannot be taken out. They have no other owner yet.
type shaking struct {
	mu    sync.Mutex
	conns map[*tls.Conn]struct{} // guarded by mu
	// guarded by mu: their deadline, also for later ones; zero: none
	by   time.Time
	over bool // guarded by mu: at once
}

func (k *shaking) add(tc *tls.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conns == nil {
		k.conns = map[*tls.Conn]struct{}{}
	}
	k.conns[tc] = struct{}{}
	switch {
	case k.over:
		_ = tc.NetConn().Close()
	case !k.by.IsZero():
		_ = tc.SetDeadline(k.by)
	}
}

func (k *shaking) remove(tc *tls.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, tc)
}

// end has all of them fail at a time, and those that are added later.
func (k *shaking) end(by time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by.IsZero() || by.Before(k.by) {
		k.by = by
	}
	for tc := range k.conns {
		_ = tc.SetDeadline(k.by)
	}
}

// cut closes the connections of all of them, and of those that are added later.
func (k *shaking) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	for tc := range k.conns {
		_ = tc.NetConn().Close()
	}
}

// shake makes the handshake of tc on a goroutine of its own, and goes on with it then. ConnContext
// and ConnState are called for tc before, on Serve's goroutine, as by net/http.
func (s *Server) shake(tc *tls.Conn, f *front) {
	base := f.contextOf(tc)
	s.reportOf(tc, http.StateNew)
	st := s.state
	timeout := s.handshakeTimeout()
	if timeout == 0 {
		timeout = ownHandshake
	}
	_ = tc.SetDeadline(st.engine.System().Now().Add(timeout))
	st.shaking.add(tc)
	st.conns.Add(1)
	st.engine.System().Go(func() {
		defer st.connGone()
		defer st.shaking.remove(tc)
		ok := false
		defer func() {
			if !ok {
				s.shakePanicked(tc, recover())
			}
		}()
		if err := tc.Handshake(); err != nil {
			s.shakeFailed(tc, err)
		} else {
			st.shaking.remove(tc)
			_ = tc.SetDeadline(time.Time{})
			s.shaken(tc, f, base)
		}
		ok = true
	})
}

// shakePanicked is for a callback of tc's configuration that has panicked with v, or ended its
// goroutine, as GetCertificate may. As with net/http, it costs no other connection.
func (s *Server) shakePanicked(tc *tls.Conn, v any) {
	if v != nil && v != http.ErrAbortHandler {
		s.logf("http: panic serving %v: %v\n%s", tc.RemoteAddr(), v, debug.Stack())
	}
	s.reportOf(tc, http.StateClosed)
	_ = tc.Close()
}

func (s *Server) shakeFailed(tc *tls.Conn, err error) {
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil {
		_, _ = header.Conn.Write(answerPlain(header.RecordHeader))
	}
	s.logf("http: TLS handshake error from %v: %v", tc.RemoteAddr(), reasonOf(err))
	s.reportOf(tc, http.StateClosed)
	_ = tc.Close()
}

// shaken gives tc to the protocol that was negotiated.
func (s *Server) shaken(tc *tls.Conn, f *front, base context.Context) {
	proto := tc.ConnectionState().NegotiatedProtocol
	if speaks(proto) || proto == "h2" && s.speaksHTTP2() {
		s.adoptOrLog(tc, f, base)
		return
	}
	if serve := s.TLSNextProto[proto]; serve != nil {
		s.state.given.add(tc)
		s.speak(serve, tc, base)
		s.reportOf(tc, http.StateClosed)
		return
	}
	s.reportOf(tc, http.StateClosed)
	_ = tc.Close()
}

func (s *Server) reportOf(nc net.Conn, state http.ConnState) {
	if report := s.ConnState; report != nil {
		report(nc, state)
	}
}

// speaks reports whether proto, as ALPN has chosen it, is a name of HTTP/1, which only this server
// serves. A protocol that a TLSConfig offers, and that has no server, ends the connection, as with
// net/http.
func speaks(proto string) bool { return proto == "" || proto == "http/1.1" || proto == "http/1.0" }
