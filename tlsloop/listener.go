package tlsloop

import (
	"crypto/tls"
	"net"

	"github.com/myriad-go/myriad"
)

// NewListener is tls.NewListener for net/http and other callers of Accept: its conns are ordinary
// *tls.Conns. Engine.Adopt takes such a conn, hijacked for a WebSocket for example, without a
// goroutine. It cannot do so with a conn of tls.NewListener, whose inner conn is private.
func NewListener(l net.Listener, cfg *tls.Config) net.Listener {
	return listener{l, newKind(cfg, false, Options{})}
}

type listener struct {
	net.Listener
	kind *kind
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s := newSession(l.kind)
	s.raw = nc
	return s.tls, nil
}

// SharedState is State without a copy: all calls for c return one value, which must not be changed,
// or nil. On the loop only.
func SharedState(c *myriad.Conn) *tls.ConnectionState {
	s, ok := c.Layer().(*session)
	if !ok {
		return nil
	}
	if s.state == nil {
		state := s.tls.ConnectionState()
		s.state = &state
	}
	return s.state
}

// State is the state of the TLS connection that c is, if it is one of this package's: what pick was
// given. Any goroutine, once the handler has been opened.
func State(c *myriad.Conn) (tls.ConnectionState, bool) {
	s, ok := c.Layer().(*session)
	if !ok {
		return tls.ConnectionState{}, false
	}
	if s.rec != nil {
		return *s.state, true
	}
	return s.tls.ConnectionState(), true
}
