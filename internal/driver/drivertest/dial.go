package drivertest

import (
	"context"
	"errors"
	"net"

	"github.com/myriad-go/myriad/internal/driver"
)

var dialCases = []testCase{
	{"Dial", dialed},
	{"DialUnix", dialUnix},
	{"DialRefused", dialRefused},
	{"DialAndClose", dialAndClose},
	{"DialItself", dialItself},
	{"DialUnknownAddress", dialUnknownAddress},
	{"Resolve", resolve},
}

func (b *bed) accept(network, addr string) (Acceptor, bool) {
	b.Helper()
	a, err := b.h.Listen(network, addr)
	if err != nil {
		b.Logf("peers cannot listen on %s %s: %v", network, addr, err)
		return nil, false
	}
	b.Cleanup(func() { a.Close() })
	return a, true
}

// dial connects the driver to a peer.
func (b *bed) dial(a Acceptor) (Peer, *Conn) {
	b.Helper()
	n := len(a.Accepted())
	c, err := b.k.DialTo(a.Addr())
	if err != nil {
		b.Fatalf("Dial: %v", err)
	}
	b.until("Dialed", func() bool { return c.Dialed && len(a.Accepted()) > n || c.Over })
	if c.Over {
		b.Fatalf("dial of %v failed: %v", a.Addr(), c.DialErr)
	}
	return a.Accepted()[n], c
}

func dialed(b *bed) {
	b.start()
	a, ok := b.accept("tcp", "127.0.0.1:0")
	if !ok {
		b.Fatalf("no peer can be dialled")
	}
	p, c := b.dial(a)
	if c.Local != p.Remote() {
		b.Errorf("Dialed from %v, the peer sees %v", c.Local, p.Remote())
	}
	b.exchange(p, c)
	p.Close()
	b.until("Ended", func() bool { return c.Ended })
	b.closed(c)

	p, c = b.dial(a)
	p.Reset()
	b.over(c, true)
}

func dialUnix(b *bed) {
	b.start()
	a, ok := b.accept("unix", b.TempDir()+"/s")
	if !ok {
		b.Skipf("no unix sockets here")
	}
	p, c := b.dial(a)
	b.exchange(p, c)
	b.closed(c)
	b.until("the peer sees the end", p.Ended)
}

func dialRefused(b *bed) {
	b.start()
	b.connect()
	b.l.CloseListener()
	b.over(b.l, false)
	addr := b.deserted()
	for range 3 {
		c, err := b.k.DialTo(addr)
		if err != nil {
			b.Fatalf("Dial: %v", err)
		}
		b.until("DialFailed", func() bool { return c.Over || c.Dialed })
		if c.DialErr == nil {
			b.Errorf("dialled %v, where nobody listens: %v", addr, c)
		}
	}
	b.settle()
}

// deserted closes the bed's listener, which no driver accepts from any more. As long as a
// connection that it accepted exists, the system gives its port to no other process.
func (b *bed) deserted() net.Addr {
	b.Helper()
	if err := b.listener.Close(); err != nil {
		b.Fatalf("Listener.Close: %v", err)
	}
	return b.listener.Addr()
}

func dialAndClose(b *bed) {
	b.start()
	var conns []*Conn
	for i := range 20 {
		c, err := b.k.DialTo(b.listener.Addr())
		if err != nil {
			b.Fatalf("Dial: %v", err)
		}
		conns = append(conns, c)
		switch i % 4 {
		case 0:
			c.Close()
		case 1:
			c.Abort()
		case 2:
			b.poll(0)
			c.Close()
		default:
			b.poll(pollWait)
			b.poll(pollWait)
			c.Abort()
		}
	}
	for _, c := range conns {
		b.until("the last event", func() bool { return c.Over })
	}
	b.settle()
}

// One driver has both ends.
func dialItself(b *bed) {
	b.start()
	c, err := b.k.DialTo(b.listener.Addr())
	if err != nil {
		b.Fatalf("Dial: %v", err)
	}
	b.until("both ends are there", func() bool { return c.Dialed && len(b.k.Accepted) == 1 || c.Over })
	if c.Over {
		b.Fatalf("dial failed: %v", c.DialErr)
	}
	far := b.k.Accepted[0]
	want := pattern(1<<20, 1)
	c.Send(want)
	c.CloseWrite()
	far.Send(want)
	far.CloseWrite()
	b.until("both ends have ended", func() bool { return c.Ended && far.Ended })
	b.same("received", c.In, want)
	b.same("received", far.In, want)
	b.until("Sent adds up to what was queued", func() bool { return c.Left() == 0 && far.Left() == 0 })
	b.closed(c, far)
}

func dialUnknownAddress(b *bed) {
	b.start()
	if _, err := b.k.DialTo(&net.IPAddr{IP: net.IPv4(127, 0, 0, 1)}); !errors.Is(err, driver.ErrUnsupported) {
		b.Errorf("Dial of an IP address without a port: %v, want ErrUnsupported", err)
	}
	b.settle()
}

func resolve(b *bed) {
	ctx := context.Background()
	addrs, err := b.sys.Resolve(ctx, "tcp", "127.0.0.1:80")
	if err != nil || len(addrs) != 1 || addrs[0].String() != "127.0.0.1:80" {
		b.Errorf("Resolve(127.0.0.1:80) = %v, %v", addrs, err)
	}
	if _, err := b.sys.Resolve(ctx, "tcp", "no port"); err == nil {
		b.Errorf("Resolve of an address without a port")
	}
	if _, err := b.sys.Resolve(ctx, "smoke signals", "127.0.0.1:80"); err == nil {
		b.Errorf("Resolve in an unknown network")
	}
}
