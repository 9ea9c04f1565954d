package tlsloop

import (
	"crypto/tls"
	"net"

	"github.com/myriad-go/myriad"
)

// Leave is a handler that takes the connection out of the engine. pick returns it, by itself or
// embedded in a handler whose Opened calls its Opened. done is called on the loop with the
// *tls.Conn, of which nothing has been read, or with an error.
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

// Closed follows the call of done if the conn broke first, or could not leave.
func (*leaver) Closed(*myriad.Conn, error) {}
