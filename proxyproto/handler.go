package proxyproto

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/pace"
)

const (
	// defaultTimeout is Options.Timeout for 0.
	defaultTimeout = 10 * time.Second
	// reportPeriod is for how long further failures are only counted.
	reportPeriod = 10 * time.Second
)

// Options are the settings of a Handler.
type Options struct {
	// Trusted are the networks whose connections begin with a header; those on a unix socket always
	// do. IPv4 addresses match IPv4 networks, also on a listener for both.
	Trusted []netip.Prefix
	// Timeout bounds the wait for the header, from the moment the connection is there. 0: 10 s;
	// negative: no bound.
	Timeout time.Duration
	// Failed is called when a connection is refused, with the number of refusals since it was
	// called last: at once, then once in 10 s at most. c has its own addresses. It runs on the loop
	// and must not block. Nil: the engine's Logger is used.
	Failed func(c *myriad.Conn, err error, times uint64)
	// Closed is called for each connection that ends before next was opened; err is nil if it was
	// closed here, or by the peer before its first byte. It runs on the loop and must not block.
	Closed func(c *myriad.Conn, err error)
}

// Handler reads the header of each connection and then has next speak on it, with the addresses
// that the header says. Connections that are not trusted have next speak at once. next is opened
// once for each connection, as by Engine.Listen.
func (o Options) Handler(next myriad.Handler) myriad.Handler {
	return &receiver{Options: o, next: next, reports: new(pace.Reports)}
}

// A receiver is the first handler of all connections of a Handler.
type receiver struct {
	Options
	next    myriad.Handler
	reports *pace.Reports
}

// Opened lets connections pass that have no header.
func (r *receiver) Opened(c *myriad.Conn) {
	if !r.trusts(c.RemoteAddr()) {
		c.SetHandler(r.next, nil)
		return
	}
	if d := r.timeout(); d > 0 {
		c.SetTimer(d)
	}
}

func (r *receiver) trusts(peer net.Addr) bool {
	switch peer := peer.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		addr := peer.AddrPort().Addr().Unmap().WithZone("")
		return slices.ContainsFunc(r.Trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	return false
}

func (r *receiver) timeout() time.Duration {
	if r.Timeout == 0 {
		return defaultTimeout
	}
	return r.Timeout
}

// Heir is the handler that a connection will have, which the engine has to know if it is a
// Stream's.
func (r *receiver) Heir() myriad.Handler { return r.next }

// Received reads a header that has come in one piece; for another the connection gets a handler of
// its own.
func (r *receiver) Received(c *myriad.Conn, p []byte) {
	if !r.read(c, p) {
		c.SetHandler(&gatherer{receiver: r, got: slices.Clone(p)}, nil)
	}
}

// read reports whether the fate of c is decided by p, all that has come.
func (r *receiver) read(c *myriad.Conn, p []byte) bool {
	n, h, err := Parse(p)
	switch {
	case err != nil:
		r.refuse(c, err)
	case n == 0:
		return false
	default:
		c.SetTimer(0)
		if h.Source.IsValid() {
			c.SetAddrs(h.Destination, h.Source)
		}
		c.SetHandler(r.next, p[n:])
	}
	return true
}

// refuse ends c, and says so in the log unless it has done that just now.
func (r *receiver) refuse(c *myriad.Conn, err error) {
	if n, due := r.reports.Next(c.Loop().Now(), reportPeriod); due {
		if r.Failed != nil {
			r.Failed(c, err, n)
		} else {
			c.Loop().Engine().Logger().Warn("proxyproto: connections refused",
				"times", n, "last", err.Error(), "remote", c.RemoteAddr().String())
		}
	}
	c.Abort(err)
}

// Ended is a peer that leaves before its first byte.
func (r *receiver) Ended(c *myriad.Conn) { _ = c.Close() }

// Expired is a peer whose header is not complete in time.
func (r *receiver) Expired(c *myriad.Conn) {
	r.refuse(c, fmt.Errorf("proxyproto: no complete header within %v: %w", r.timeout(), os.ErrDeadlineExceeded))
}

// Closed is the end of a connection that has not come to next.
func (r *receiver) Closed(c *myriad.Conn, err error) {
	if r.Options.Closed != nil {
		r.Options.Closed(c, err)
	}
}

// A gatherer waits for the rest of one connection's header. It holds at most a header, and what
// comes in one read with its end.
type gatherer struct {
	*receiver
	got []byte
}

// Opened is called when the first bytes are there.
func (*gatherer) Opened(*myriad.Conn) {}

// Received reads the header if all of it is there.
func (g *gatherer) Received(c *myriad.Conn, p []byte) {
	g.got = append(g.got, p...)
	g.read(c, g.got)
}

// Ended is a peer that leaves within its header.
func (g *gatherer) Ended(c *myriad.Conn) {
	g.refuse(c, malformed("the connection ended behind %q", g.got[:min(len(g.got), maxLine)]))
}
