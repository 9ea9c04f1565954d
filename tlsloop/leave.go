package tlsloop

import (
	"crypto/tls"
	"net"

	"github.com/myriad-go/myriad"
)

// Leave is a handler for pick to return, by itself or embedded in another whose Opened calls its
// own: the connection leaves the engine, and done is called on the loop with its *tls.Conn, which
// has not given out any byte yet, or with what went wrong.
func Leave(done func(tc *tls.Conn, err error)) myriad.Handler { return &leaver{done: done} }

// A leaver is the handler of a conn on its way out.
type leaver struct {
	done func(tc *tls.Conn, err error)
}

func (l *leaver) Opened(c *myriad.Conn) {
	if s, ok := c.Layer().(*session); ok {
		s.leaving = true
	}
	c.Detach(func(nc net.Conn, _ []byte, err error) {
		done := l.done
		l.done = nil
		if err != nil {
			done(nil, err)
			_ = c.Close()
			return
		}
		done(nc.(*tls.Conn), nil)
	})
}

// Received is never called: the session keeps what comes in for the tls.Conn.
func (*leaver) Received(*myriad.Conn, []byte) {}

// Closed is heard when the conn breaks before it could leave, after Detach has told done, and when
// it could not.
func (*leaver) Closed(*myriad.Conn, error) {}
