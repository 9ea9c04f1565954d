package proxyproto

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/tlsloop"
)

// patience is how long a test on sockets waits for what must happen.
const patience = time.Minute

var (
	everybody = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	nobody    = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
)

// A teller writes the addresses of its conn in front of what it echoes. It is shared by
// connections.
type teller struct{}

func (teller) Opened(c *myriad.Conn)             { fmt.Fprintf(c, "%v to %v: ", c.RemoteAddr(), c.LocalAddr()) }
func (teller) Received(c *myriad.Conn, p []byte) { c.Write(p) }
func (teller) Closed(*myriad.Conn, error)        {}

// A room is an engine in a simulated world, and what Options' functions were called with.
type room struct {
	*sim.World
	t      *testing.T
	e      *myriad.Engine
	addr   net.Addr
	failed []string
	closed []error
	log    bytes.Buffer
}

func newRoom(t *testing.T, o Options) *room {
	t.Helper()
	r := &room{World: sim.New(1, sim.Calm()), t: t}
	e, err := myriad.Start(myriad.Config{System: r.World, Loops: 1, Logger: slog.New(slog.NewTextHandler(&r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	o.Failed = func(c *myriad.Conn, err error, times uint64) {
		r.failed = append(r.failed, fmt.Sprintf("%d: %v", times, err))
	}
	o.Closed = func(_ *myriad.Conn, err error) { r.closed = append(r.closed, err) }
	ln, err := e.Listen("tcp", "127.0.0.1:80", o.Handler(teller{}))
	if err != nil {
		t.Fatal(err)
	}
	r.e, r.addr = e, ln.Addr()
	t.Cleanup(func() {
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		r.Run()
		r.Check(t)
	})
	return r
}

// sent is what a peer gets that sends the pieces, a second apart.
func (r *room) sent(pieces ...string) (got string, p *sim.Peer) {
	p = r.Dial(r.addr)
	for _, piece := range pieces {
		r.RunFor(time.Second)
		p.Write([]byte(piece))
	}
	r.RunFor(time.Second)
	return string(p.Received()), p
}

func (r *room) own(p *sim.Peer) string { return fmt.Sprintf("%v to %v: ", p.Local(), r.addr) }

// What a header says is what the next handler finds, whose bytes begin behind it, however they are
// cut.
func TestHeaders(t *testing.T) {
	r := newRoom(t, Options{Trusted: everybody})
	for name, c := range good {
		whole := c.text + "hello"
		for _, cut := range []int{0, 1, len(lineStart), len(c.text) / 2, len(c.text) - 1, len(c.text), len(whole)} {
			got, p := r.sent(whole[:cut], whole[cut:])
			want := r.own(p)
			if c.want.Source.IsValid() {
				want = fmt.Sprintf("%v to %v: ", c.want.Source, c.want.Destination)
			}
			if got != want+"hello" {
				t.Errorf("%s, cut at %d: %q, want %q", name, cut, got, want)
			}
			p.Close()
		}
	}
	if len(r.failed) > 0 {
		t.Errorf("failed: %q", r.failed)
	}
}

// A header one byte at a time.
func TestByteByByte(t *testing.T) {
	r := newRoom(t, Options{Trusted: everybody, Timeout: -1})
	for _, name := range []string{"v1 TCP6", "v2 fields"} {
		c := good[name]
		got, p := r.sent(strings.Split(c.text+"hello", "")...)
		if want := fmt.Sprintf("%v to %v: hello", c.want.Source, c.want.Destination); got != want {
			t.Errorf("%s: %q", name, got)
		}
		p.Close()
	}
}

// What is no header from a trusted network is reset, and reported once in ten seconds, with the
// number.
func TestRefused(t *testing.T) {
	for name, c := range bad {
		r := newRoom(t, Options{Trusted: everybody})
		for range 3 {
			if got, p := r.sent(c.text); got != "" || p.Err() == nil {
				t.Errorf("%s: got %q, %v; want a reset", name, got, p.Err())
			}
		}
		if len(r.failed) != 1 || !strings.HasPrefix(r.failed[0], "1: ") || !strings.Contains(r.failed[0], c.part) {
			t.Errorf("%s: reported %q", name, r.failed)
		}
		if len(r.closed) != 3 || !errors.Is(r.closed[0], c.kind) {
			t.Errorf("%s: Closed with %v", name, r.closed)
		}
		r.RunFor(10 * time.Second)
		if r.sent(c.text); len(r.failed) != 2 || !strings.HasPrefix(r.failed[1], "3: ") {
			t.Errorf("%s: reported %q", name, r.failed)
		}
	}
}

// The log has it where no function is given.
func TestRefusedIsLogged(t *testing.T) {
	r := newRoom(t, Options{})
	o := Options{Trusted: everybody}
	ln, err := r.e.Listen("tcp", "127.0.0.1:81", o.Handler(teller{}))
	if err != nil {
		t.Fatal(err)
	}
	r.addr = ln.Addr()
	_, p := r.sent("GET / HTTP/1.1\r\n\r\n")
	if got := r.log.String(); !strings.Contains(got, "GET / HTTP/1") || !strings.Contains(got, p.Local().String()) {
		t.Errorf("logged %q", got)
	}
}

// The wait for a header is bounded, from the beginning of the connection; what follows is not.
func TestTimeout(t *testing.T) {
	for _, begun := range []string{"", "PROXY TCP4 "} {
		r := newRoom(t, Options{Trusted: everybody, Timeout: 5 * time.Second})
		p := r.Dial(r.addr)
		r.RunFor(3 * time.Second)
		p.Write([]byte(begun))
		if r.RunFor(1900 * time.Millisecond); !p.Open() || len(r.closed) > 0 {
			t.Errorf("%q: it has ended before its time", begun)
		}
		r.RunFor(200 * time.Millisecond)
		if p.Err() == nil || len(r.closed) != 1 || !errors.Is(r.closed[0], os.ErrDeadlineExceeded) {
			t.Errorf("%q: %v, Closed(%v)", begun, p.Err(), r.closed)
		}
	}
	r := newRoom(t, Options{Trusted: everybody})
	_, p := r.sent(good["v1 TCP4"].text)
	if r.RunFor(time.Hour); !p.Open() || p.Closed() {
		t.Error("the timer goes on behind the header")
	}
	p.Close()
}

// A peer that leaves before its first byte is no failure; one that leaves within its header is.
func TestEndsEarly(t *testing.T) {
	r := newRoom(t, Options{Trusted: everybody})
	p := r.Dial(r.addr)
	p.CloseWrite()
	r.RunFor(time.Second)
	if len(r.failed) > 0 || len(r.closed) != 1 || r.closed[0] != nil {
		t.Errorf("without a byte: %q, Closed(%v)", r.failed, r.closed)
	}
	p = r.Dial(r.addr)
	p.Write([]byte("PROXY TCP4 192."))
	p.CloseWrite()
	r.RunFor(time.Second)
	if len(r.failed) != 1 || !strings.Contains(r.failed[0], "PROXY TCP4 192.") || len(r.closed) != 2 {
		t.Errorf("within the header: %q, Closed(%v)", r.failed, r.closed)
	}
}

// From other networks a header is nothing but bytes, and none is waited for.
func TestUntrusted(t *testing.T) {
	r := newRoom(t, Options{Trusted: nobody})
	p := r.Dial(r.addr)
	r.RunFor(time.Second)
	if got := string(p.Received()); got != r.own(p) {
		t.Errorf("before a byte: %q", got)
	}
	p.Write([]byte(good["v1 TCP4"].text))
	r.RunFor(time.Second)
	if got := string(p.Received()); got != r.own(p)+good["v1 TCP4"].text {
		t.Errorf("with a header: %q", got)
	}
	p.Close()
}

// The engine's end closes connections that wait.
func TestShutdownWhileWaiting(t *testing.T) {
	r := newRoom(t, Options{Trusted: everybody, Timeout: -1})
	p := r.Dial(r.addr)
	p.Write([]byte("PROXY "))
	r.RunFor(time.Second)
	if err := r.e.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if len(r.closed) != 1 || r.closed[0] != nil || len(r.failed) > 0 {
		t.Errorf("Closed(%v), failed %q", r.closed, r.failed)
	}
}

// start runs an engine on sockets.
func start(t *testing.T) *myriad.Engine {
	t.Helper()
	cfg := myriad.Config{Driver: os.Getenv("MYRIAD_DRIVER"), Loops: 2, Logger: slog.New(slog.DiscardHandler)}
	e, err := myriad.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}

func dial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { nc.Close() })
	return nc
}

func expect(t *testing.T, nc net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(nc, got); string(got) != want {
		t.Errorf("read %q, %v; want %q", got[:n], err, want)
	}
}

// The header comes before TLS, in one segment with the ClientHello or on its own, and what TLS
// tells of the client is what it says.
func TestBeforeTLS(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	seen := make(chan string, 10)
	cfg := &tls.Config{Certificates: borrowed.TLS.Certificates}
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		seen <- hello.Conn.RemoteAddr().String()
		return nil, nil
	}
	pick := func(tls.ConnectionState) myriad.Handler { return teller{} }
	secure := tlsloop.Options{Timeout: patience}.Handler(cfg, pick)
	ln, err := start(t).Listen("tcp", "127.0.0.1:0", Options{Trusted: everybody}.Handler(secure))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{good["v1 TCP4"].text, good["v2 checksum"].text} {
		for _, cut := range []int{0, 1, len(header) / 2, len(header)} {
			nc := dial(t, "tcp", ln.Addr().String())
			io.WriteString(nc, header[:cut])
			tc := tls.Client(&prefixed{Conn: nc, first: header[cut:]}, &tls.Config{InsecureSkipVerify: true})
			if _, err := io.WriteString(tc, "hello"); err != nil {
				t.Fatal(err)
			}
			expect(t, tc, fmt.Sprintf("%v to %v: hello", header4.Source, header4.Destination))
			if got := <-seen; got != header4.Source.String() {
				t.Errorf("the handshake was that of %s", got)
			}
			tc.Close()
		}
	}
}

// A prefixed conn sends something in front of its first Write, in one piece with it.
type prefixed struct {
	net.Conn
	first string
}

func (c *prefixed) Write(p []byte) (int, error) {
	first := c.first
	c.first = ""
	n, err := c.Conn.Write(append([]byte(first), p...))
	return max(0, n-len(first)), err
}

// Who may open the socket's file is trusted.
func TestUnixSocket(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	ln, err := start(t).Listen("unix", name, Options{Trusted: nobody}.Handler(teller{}))
	if err != nil {
		t.Fatal(err)
	}
	nc := dial(t, ln.Addr().Network(), name)
	io.WriteString(nc, good["v2 TCP6"].text+"hello")
	expect(t, nc, fmt.Sprintf("%v to %v: hello", header6.Source, header6.Destination))
}

// The next handler may be a Stream's, and the connection one that another program has accepted.
func TestStreamOfAdopted(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc := dial(t, "tcp", ln.Addr().String())
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	h, stream := myriad.Stream(0)
	if _, err := start(t).Adopt(accepted, nil, Options{Trusted: everybody}.Handler(h)); err != nil {
		t.Fatal(err)
	}
	io.WriteString(nc, good["v1 TCP6"].text+"hello")
	expect(t, stream, "hello")
	if got := stream.RemoteAddr().String(); got != header6.Source.String() {
		t.Errorf("RemoteAddr: %s", got)
	}
	stream.Close()
	nc.Close()
}

// Trust is by network, and a listener for both families sees IPv4 peers as such.
func TestTrusts(t *testing.T) {
	r := &receiver{Options: Options{Trusted: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("fe80::/10"),
	}}}
	for addr, want := range map[net.Addr]bool{
		&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)}:                true,
		&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3).To4()}:          true,
		&net.TCPAddr{IP: net.IPv4(11, 1, 2, 3)}:                false,
		&net.TCPAddr{IP: net.ParseIP("fd00::1")}:               true,
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}: true,
		&net.TCPAddr{IP: net.ParseIP("2001:db8::1")}:           false,
		&net.TCPAddr{}:                          false,
		&net.UnixAddr{Name: "@", Net: "unix"}:   true,
		&net.UDPAddr{IP: net.IPv4(10, 1, 2, 3)}: false,
		(*net.IPAddr)(nil):                      false,
	} {
		if r.trusts(addr) != want {
			t.Errorf("%v (%T): %t", addr, addr, !want)
		}
	}
}

// Many peers that never finish their headers hold what they have sent, and the end frees it.
func TestHeldHeadersAreBounded(t *testing.T) {
	r := newRoom(t, Options{Trusted: everybody, Timeout: time.Minute})
	longest := v2(0x21, 0x11, inet+strings.Repeat("\x04\x00\x00", (MaxHeader-fixedLen-len(inet))/fieldHead))
	p := r.Dial(r.addr)
	for i := range len(longest) - 1 {
		p.Write([]byte{longest[i]})
	}
	r.RunFor(time.Second)
	if len(r.failed) > 0 || r.e.Stats().BytesIn != uint64(len(longest)-1) {
		t.Errorf("%d bytes, %q", r.e.Stats().BytesIn, r.failed)
	}
	p.Write([]byte{longest[len(longest)-1]})
	r.RunFor(time.Second)
	if got := string(p.Received()); !strings.HasPrefix(got, "192.0.2.1:56324 to") {
		t.Errorf("got %q", got)
	}
	p.Close()
}
