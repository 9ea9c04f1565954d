package enginetest

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/myriad-go/myriad"
)

var (
	claimedLocal  = netip.MustParseAddrPort("192.0.2.1:443")
	claimedRemote = netip.MustParseAddrPort("[2001:db8::7]:56324")
)

func wantAddrs(t *testing.T, of string, nc net.Conn) {
	t.Helper()
	want := fmt.Sprint(claimedRemote, " to ", claimedLocal)
	if got := fmt.Sprint(nc.RemoteAddr(), " to ", nc.LocalAddr()); got != want {
		t.Errorf("%s: %s, want %s", of, got, want)
	}
}

// The addresses that a proxy has told are those of the conn, of the net.Conn that leaves, and of
// the conn that this becomes again.
func TestSetAddrs(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		h.opened = func(c *myriad.Conn) {
			c.SetAddrs(netip.AddrPort{}, netip.AddrPort{}) // changes nothing
			if c.RemoteAddr().(*net.TCPAddr).IP.String() != "127.0.0.1" {
				t.Errorf("addresses that are not valid: %v", c.RemoteAddr())
			}
			c.SetAddrs(claimedLocal, claimedRemote)
		}
		h.received = func(c *myriad.Conn, p []byte) { c.Write(p) }
		e := start(t, myriad.Config{})
		nc := s.dial(t, s.listen(t, e, h))
		c := await(t, "Opened", h.opens)
		wantAddrs(t, "the conn", c)
		if got := string(c.AppendRemoteAddr(nil)); got != claimedRemote.String() {
			t.Errorf("AppendRemoteAddr: %s", got)
		}
		left := make(chan (<-chan departure), 1)
		onLoop(t, c, func() { left <- detach(c) })
		d := await(t, "done", <-left)
		if d.err != nil {
			t.Fatal(d.err)
		}
		wantAddrs(t, "the net.Conn", d.nc)
		before := runtime.NumGoroutine()
		again := newProbe()
		again.received = h.received
		if s.layered {
			send(t, d.nc, []byte("from outside"))
			expect(t, nc, []byte("from outside"))
			d.nc.Close()
			return
		}
		back, err := e.Adopt(d.nc, nil, again)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "Opened", again.opens)
		wantAddrs(t, "the adopted conn", back)
		send(t, nc, []byte("to the engine"))
		expect(t, nc, []byte("to the engine"))
		own := os.Getenv(driverEnv) != "std" && os.Getenv(driverEnv) != "bound" // else the driver has goroutines
		if own && runtime.NumGoroutine() > before {
			t.Error("the adopted conn has a goroutine")
		}
	})
}

// They stay while the connection hibernates, and what leaves the engine behind that has them still.
func TestSetAddrsHibernates(t *testing.T) {
	d := newDormitory()
	d.opened = func(c *myriad.Conn) { c.SetAddrs(claimedLocal, claimedRemote) }
	_, nc, c := d.served(t, myriad.Config{})
	if !d.sleep(t, c, true) {
		t.Fatal("it does not hibernate")
	}
	send(t, nc, []byte("x"))
	c = await(t, "Wake", d.woken)
	wantAddrs(t, "the conn", c)
	expect(t, nc, []byte("x"))
	left := make(chan (<-chan departure), 1)
	onLoop(t, c, func() { left <- detach(c) })
	out := await(t, "done", <-left)
	wantAddrs(t, "the net.Conn", out.nc)
	if err := out.nc.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(nc); len(rest) > 0 || err != nil {
		t.Errorf("behind CloseWrite: %q, %v", rest, err)
	}
	out.nc.Close()
}

// Of what was adopted without a descriptor, too.
func TestSetAddrsOfABridge(t *testing.T) {
	ours, theirs := net.Pipe()
	h := newProbe()
	h.opened = func(c *myriad.Conn) { c.SetAddrs(claimedLocal, claimedRemote) }
	if _, err := start(t, myriad.Config{}).Adopt(ours, nil, h); err != nil {
		t.Fatal(err)
	}
	wantAddrs(t, "the conn", await(t, "Opened", h.opens))
	theirs.Close()
	await(t, "Closed", h.closes)
}
