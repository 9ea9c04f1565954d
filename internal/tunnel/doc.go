// Package tunnel has a proxy connect a conn to a server: by CONNECT of HTTP (RFC 9110 section
// 9.3.6) or by SOCKS5 (RFC 1928, RFC 1929).
//
//	h, err := tunnel.Connect(&tunnel.Dial{Proxy: proxy, Target: "example.com:443", Next: h, …}, request, judge)
//	h, err := tunnel.Socks(&tunnel.Dial{…})
//
// Each gives a myriad.Handler for the conn to the proxy. When the proxy has agreed, Dial.Next
// replaces it. TLS to the proxy is a handler before it. If Next is TLS as well, [Nested] stands
// between: a conn has one layer. What a proxy sends is bounded by Dial.Limits (CONNECT), or by the
// protocol (262 bytes, SOCKS5), and by Dial.Timeout.
package tunnel

import (
	"errors"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
)

// Timeout is how long a proxy has for its answer by default, as in net/http.
const Timeout = time.Minute

// A Dial is one connection through a proxy.
type Dial struct {
	Proxy  *url.URL       // with a user and password for SOCKS5, if there are any
	Target string         // the server's host and port
	Next   myriad.Handler // speaks when the tunnel stands
	// Timeout bounds the proxy's answer. 0: none.
	Timeout time.Duration
	// Limits bound the head of CONNECT's answer, with the interim responses before it.
	Limits h1.Limits
	// Failed is called once, on the loop, if the tunnel does not come to stand. The conn is then
	// aborted.
	Failed func(err error)
	// Over reports whether the dial was given up. Nil: never.
	Over func() bool
	// ServerFirst says that the server may speak before Next does, as one of HTTP/2 without TLS.
	// What it sends together with the proxy's answer is given to Next. Otherwise that ends the
	// dial.
	ServerFirst bool
}

var (
	// ErrTimeout says that the proxy has not answered within Dial.Timeout.
	ErrTimeout = timeout{}
	// ErrEarly says that the proxy sent bytes behind its answer, before the client spoke.
	ErrEarly = errors.New("the proxy sent bytes behind its answer, before it was sent any")
)

type timeout struct{}

func (timeout) Error() string { return "the proxy did not connect in time" }
func (timeout) Timeout() bool { return true }

// Is makes it one of package os, too.
func (timeout) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// A base is what handlers of both protocols have in common. Its methods run on the loop.
type base struct {
	*Dial
	dead bool
}

// open reports whether the handler is to speak.
func (b *base) open(c *myriad.Conn) bool {
	if b.Over != nil && b.Over() {
		b.dead = true
		c.Abort(nil)
		return false
	}
	c.SetTimer(b.Timeout)
	return true
}

// stands hands the conn over. rest came behind the proxy's answer.
func (b *base) stands(c *myriad.Conn, rest []byte) {
	if len(rest) > 0 && !b.ServerFirst {
		b.fail(c, ErrEarly)
		return
	}
	c.SetTimer(0)
	c.SetHandler(b.Next, rest)
	b.Dial = nil // TLS to the proxy keeps this handler as long as the connection
}

func (b *base) fail(c *myriad.Conn, err error) {
	if b.dead {
		return
	}
	b.dead = true
	b.Failed(err)
	c.Abort(err)
}

// Ended is the proxy's FIN.
func (b *base) Ended(c *myriad.Conn) { b.fail(c, io.ErrUnexpectedEOF) }

// Expired is the end of Dial.Timeout.
func (b *base) Expired(c *myriad.Conn) { b.fail(c, ErrTimeout) }

// Closed is the end of the conn.
func (b *base) Closed(_ *myriad.Conn, err error) {
	if b.dead {
		return
	}
	if b.dead = true; err == nil {
		err = io.ErrUnexpectedEOF
	}
	b.Failed(err)
}
