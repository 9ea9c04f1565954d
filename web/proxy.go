package web

import (
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/proxyproto"
)

// This file is what comes before HTTP, and before TLS: PROXY headers, and the count of connections
// that have not come to HTTP yet.

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
