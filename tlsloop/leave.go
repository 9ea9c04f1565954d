package tlsloop

import (
	"crypto/tls"
	"errors"
	"net"

	"github.com/myriad-go/myriad"
)

// Leave is a handler that takes the connection out of the engine. pick returns it, by itself or
// embedded in a handler whose Opened calls its Opened, and which is a [Leaver]. done is called on
// the loop with the *tls.Conn, of which nothing has been read, or with an error.
func Leave(done func(tc *tls.Conn, err error)) myriad.Handler { return &leaver{done: done} }

// A Leaver is a handler that pick returns for a connection that leaves the engine by Leave. Such a
// connection keeps its tls.Conn, whatever Options say.
type Leaver interface {
	myriad.Handler
	// LeavesWithTLS is never called.
	LeavesWithTLS()
}

// errTaken says that Leave was called without a Leaver.
var errTaken = errors.New("tlsloop: Leave by a handler without LeavesWithTLS: there is no tls.Conn any more")

// A leaver is the handler of a conn on its way out.
type leaver struct {
	done func(tc *tls.Conn, err error)
}

func (l *leaver) Opened(c *myriad.Conn) {
	if s, ok := c.Layer().(*session); ok {
		if s.rec != nil {
			c.Loop().Later(func() { l.fail(c, errTaken) })
			return
		}
		s.leaving = true
	}
	c.Detach(func(nc net.Conn, _ []byte, err error) {
		if err != nil {
			l.fail(c, err)
			return
		}
		tc, ok := nc.(*tls.Conn)
		if !ok { // it never had TLS
			_ = nc.Close()
			l.fail(c, errTaken)
			return
		}
		l.done(tc, nil)
	})
}

// fail calls done, and closes the conn.
func (l *leaver) fail(c *myriad.Conn, err error) {
	l.done(nil, err)
	_ = c.Close()
}

// LeavesWithTLS implements Leaver.
func (*leaver) LeavesWithTLS() {}

// Received is called only for a conn without a tls.Conn, which is being closed: the session keeps
// what comes in for a tls.Conn.
func (*leaver) Received(*myriad.Conn, []byte) {}

// Closed follows the call of done if the conn broke first, or could not leave.
func (*leaver) Closed(*myriad.Conn, error) {}
