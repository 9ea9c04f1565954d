package enginetest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// quietly is longer than the goroutines of an adopted tls.Conn wait for more.
const quietly = 50 * time.Millisecond

// secrets are a server's configuration with a certificate of its own, and a client's.
func secrets(t testing.TB, version uint16) (server, client *tls.Config) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: version, MaxVersion: version},
		&tls.Config{InsecureSkipVerify: true}
}

// A tlsPair is a server's tls.Conn to be adopted and the peer's, over TCP.
type tlsPair struct {
	server, client *tls.Conn
	raw            *cutConn // below client
}

// A cutConn writes in two pieces, with a silence between.
type cutConn struct {
	net.Conn
	at int // where to cut; 0: not
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.at == 0 || c.at >= len(p) {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:c.at])
	time.Sleep(quietly)
	if err != nil {
		return n, err
	}
	m, err := c.Conn.Write(p[c.at:])
	return n + m, err
}

func newTLSPair(t testing.TB, version uint16) tlsPair {
	t.Helper()
	forServer, forClient := secrets(t, version)
	p := tlsPair{}
	server, client := socketPair(t, "tcp", "127.0.0.1:0")
	_ = client.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { client.Close() })
	p.raw = &cutConn{Conn: client}
	p.server, p.client = tls.Server(server, forServer), tls.Client(p.raw, forClient)
	return p
}

// shake has the handshake over before the connection is adopted.
func (p tlsPair) shake(t testing.TB) tlsPair {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.client.Handshake() }()
	if err := errors.Join(p.server.Handshake(), await(t, "the handshake", done)); err != nil {
		t.Fatal(err)
	}
	return p
}

func adopt(t testing.TB, e *myriad.Engine, nc net.Conn, h *probe) *myriad.Conn {
	t.Helper()
	c, err := e.Adopt(nc, nil, h)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "Opened", h.opens)
	return c
}

func eachTLS(t *testing.T, f func(t *testing.T, version uint16)) {
	t.Run("1.2", func(t *testing.T) { f(t, tls.VersionTLS12) })
	t.Run("1.3", func(t *testing.T) { f(t, tls.VersionTLS13) })
}

// needWatcher skips where the driver cannot tell when a connection that is not its own may be read.
func needWatcher(t *testing.T) {
	switch os.Getenv(driverEnv) {
	case "", "epoll", "uring", "kqueue":
		if runtime.GOOS != "windows" {
			return
		}
	}
	t.Skip("this driver has no Watcher")
}

// An adopted tls.Conn whose inside is private has no goroutine while it is silent, and serves as
// before when it speaks again.
func TestAdoptedTLSIsIdleWithoutGoroutines(t *testing.T) {
	needWatcher(t)
	eachTLS(t, func(t *testing.T, version uint16) {
		const n = 50
		e := start(t, myriad.Config{})
		h := newProbe()
		h.received = func(c *myriad.Conn, p []byte) { c.Write(p) }
		goroutines := runtime.NumGoroutine()
		pairs := make([]tlsPair, n)
		for i := range pairs {
			pairs[i] = newTLSPair(t, version).shake(t)
			adopt(t, e, pairs[i].server, h)
		}
		for range 3 {
			for _, p := range pairs {
				send(t, p.client, pattern(100))
				expect(t, p.client, pattern(100))
			}
			eventually(t, "idle connections have no goroutine",
				func() bool { return runtime.NumGoroutine() < goroutines+5 })
		}
		for _, p := range pairs {
			p.client.Close()
			if err := await(t, "Closed", h.closes); err != nil {
				t.Errorf("Closed(%v)", err)
			}
		}
		eventually(t, "the watcher has ended with the last",
			func() bool { return runtime.NumGoroutine() <= goroutines })
	})
}

// What comes in pieces with long silences between them, records cut anywhere, arrives whole.
func TestAdoptedTLSWaitsForTheRestOfARecord(t *testing.T) {
	t.Parallel()
	eachTLS(t, func(t *testing.T, version uint16) {
		e := start(t, myriad.Config{})
		h := newProbe()
		h.received = func(c *myriad.Conn, p []byte) { c.Write(p) }
		p := newTLSPair(t, version).shake(t)
		adopt(t, e, p.server, h)
		for i := range 4 {
			p.raw.at = []int{1, 3, 5, 40}[i] // in the header, behind it, in the body
			send(t, p.client, pattern(200+i))
			expect(t, p.client, pattern(200+i))
		}
	})
}

// A handshake that is still to come may take its time: a tls.Conn whose handshake has timed out
// once is lost.
func TestAdoptedTLSWaitsForTheHandshake(t *testing.T) {
	t.Parallel()
	eachTLS(t, func(t *testing.T, version uint16) {
		h := newProbe()
		h.received = func(c *myriad.Conn, p []byte) { c.Write(p) }
		p := newTLSPair(t, version)
		adopt(t, start(t, myriad.Config{}), p.server, h)
		p.raw.at = 40 // in the middle of the hello
		send(t, p.client, pattern(100))
		expect(t, p.client, pattern(100))
	})
}

// What tls.Conn has decrypted and read ahead before it was adopted is not waited for on the socket.
func TestAdoptDrainsTheTLSConn(t *testing.T) {
	t.Parallel()
	eachTLS(t, func(t *testing.T, version uint16) {
		e := start(t, myriad.Config{})
		p := newTLSPair(t, version).shake(t)
		send(t, p.client, pattern(1000))
		send(t, p.client, pattern(500))
		expect(t, p.server, pattern(1000)[:10])
		time.Sleep(quietly) // all of it is in the tls.Conn, or in the socket
		h := newProbe()
		got := make(chan []byte, 1024)
		h.received = func(_ *myriad.Conn, p []byte) { got <- append([]byte(nil), p...) }
		adopt(t, e, p.server, h)
		want := append(pattern(1000)[10:], pattern(500)...)
		for len(want) > 0 {
			part := await(t, "what was read ahead", got)
			if !strings.HasPrefix(string(want), string(part)) {
				t.Fatalf("%q, want %q", clip(part), clip(want))
			}
			want = want[len(part):]
		}
	})
}

// Much data both ways, through pauses that stop the goroutines in the middle.
func TestAdoptedTLSCarriesMuch(t *testing.T) {
	t.Parallel()
	eachTLS(t, func(t *testing.T, version uint16) {
		e := start(t, myriad.Config{WriteLimit: 64 << 10})
		client := newTLSPair(t, version)
		h, nc := myriad.Stream(0)
		if _, err := e.Adopt(client.server, nil, h); err != nil { // and the handshake is still to come
			t.Fatal(err)
		}
		defer nc.Close()
		go func() {
			_, _ = io.Copy(nc, nc)
			_ = nc.(interface{ CloseWrite() error }).CloseWrite()
		}()
		want := pattern(2 << 20)
		go func() {
			time.Sleep(quietly) // a handshake may take its time
			send(t, client.client, want[:1<<20])
			time.Sleep(2 * quietly)
			send(t, client.client, want[1<<20:])
			_ = client.client.CloseWrite()
		}()
		expect(t, client.client, want[:1<<19])
		time.Sleep(2 * quietly) // the peer stops reading meanwhile
		expectEnd(t, client.client, want[1<<19:])
	})
}

// However a connection ends while no call waits for it, both ends learn how.
func TestAdoptedTLSEndsWhileIdle(t *testing.T) {
	t.Parallel()
	eachTLS(t, func(t *testing.T, version uint16) {
		for _, tc := range []struct {
			name string
			end  func(p tlsPair, c *myriad.Conn)
			want error // of Closed
		}{
			{"the peer closes", func(p tlsPair, _ *myriad.Conn) { p.client.Close() }, nil},
			{"the peer is cut off", func(p tlsPair, _ *myriad.Conn) {
				send(t, p.raw, []byte{23, 3, 3}) // the beginning of a record
				time.Sleep(quietly)
				p.raw.Close()
			}, io.ErrUnexpectedEOF},
			{"the peer resets", func(p tlsPair, _ *myriad.Conn) { reset(p.raw.Conn) }, syscall.ECONNRESET},
			{"we abort", func(_ tlsPair, c *myriad.Conn) { c.Abort(io.ErrNoProgress) }, io.ErrNoProgress},
			{"we close", func(p tlsPair, c *myriad.Conn) {
				c.Write([]byte("bye"))
				c.Close()
				expectEnd(t, p.client, []byte("bye"))
				p.client.Close()
			}, nil},
			{"we cut", func(p tlsPair, c *myriad.Conn) {
				c.Write([]byte("by"))
				c.CloseTruncated()
				if all, err := io.ReadAll(p.client); string(all) != "by" || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("got %q, %v", all, err)
				}
				p.client.Close()
			}, nil},
		} {
			t.Run(tc.name, func(t *testing.T) {
				e := start(t, myriad.Config{})
				h := newProbe()
				p := newTLSPair(t, version).shake(t)
				c := adopt(t, e, p.server, h)
				time.Sleep(quietly)
				tc.end(p, c)
				if err := await(t, "Closed", h.closes); !errors.Is(err, tc.want) {
					t.Errorf("Closed(%v), want %v", err, tc.want)
				}
				if tc.want == io.ErrNoProgress {
					if _, err := p.client.Read(make([]byte, 1)); err == nil || err == io.EOF ||
						errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the peer reads: %v, want that it was aborted", err)
					}
				}
			})
		}
	})
}

// A wildConn does what it is told before it reads and writes.
type wildConn struct {
	net.Conn
	read, write func()
}

func (c wildConn) Read(p []byte) (int, error) {
	c.read()
	return c.Conn.Read(p)
}

func (c wildConn) Write(p []byte) (int, error) {
	c.write()
	return c.Conn.Write(p)
}

// A panic in a user's net.Conn, or in a callback of its configuration, costs its connection alone,
// and so does the end of its goroutine.
func TestPanicInAdoptedConn(t *testing.T) {
	if d := os.Getenv(driverEnv); d == "std" || d == "" && runtime.GOOS != "linux" {
		t.Skip("the driver std calls a net.Conn itself, and is at its mercy")
	}
	e := start(t, myriad.Config{Logger: quiet})
	h := newProbe()
	nothing, panics := func() {}, func() { panic("wild") }
	certificate := func(f func()) func(net.Conn) net.Conn {
		return func(nc net.Conn) net.Conn {
			return tls.Server(nc, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				f()
				return nil, io.ErrNoProgress
			}})
		}
	}
	for _, tc := range []struct {
		name string
		wrap func(net.Conn) net.Conn
	}{
		{"Read", func(nc net.Conn) net.Conn { return wildConn{nc, panics, nothing} }},
		{"Read ends its goroutine", func(nc net.Conn) net.Conn { return wildConn{nc, runtime.Goexit, nothing} }},
		{"Write", func(nc net.Conn) net.Conn { return wildConn{nc, nothing, panics} }},
		{"GetCertificate", certificate(panics)},
		{"GetCertificate ends its goroutine", certificate(runtime.Goexit)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server, client := socketPair(t, "tcp", "127.0.0.1:0")
			defer client.Close()
			go tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake()
			adopt(t, e, tc.wrap(server), h).Write([]byte("hello"))
			if err := await(t, "Closed", h.closes); err == nil || !strings.Contains(err.Error(),
				"panic in an adopted net.Conn") {
				t.Errorf("Closed(%v)", err)
			}
		})
	}
}

// A bareConn has what net/http calls, and panics for all else.
type bareConn struct {
	net.Conn
	wrapped net.Conn
}

func (c bareConn) Read(p []byte) (int, error)  { return c.wrapped.Read(p) }
func (c bareConn) Write(p []byte) (int, error) { return c.wrapped.Write(p) }
func (c bareConn) Close() error                { return c.wrapped.Close() }

// A net.Conn whose address cannot be asked for is served without one.
func TestAdoptedConnWithoutAddress(t *testing.T) {
	if d := os.Getenv(driverEnv); d == "std" || d == "" && runtime.GOOS != "linux" {
		t.Skip("the driver std calls a net.Conn itself, and is at its mercy")
	}
	e := start(t, myriad.Config{Logger: quiet})
	h := newProbe()
	h.received = func(c *myriad.Conn, p []byte) { c.Write(p) }
	server, client := socketPair(t, "tcp", "127.0.0.1:0")
	defer client.Close()
	c := adopt(t, e, bareConn{wrapped: server}, h)
	client.Write([]byte("hello"))
	p := make([]byte, 5)
	if _, err := io.ReadFull(client, p); err != nil || string(p) != "hello" {
		t.Errorf("echo %q, %v", p, err)
	}
	if local, remote := c.LocalAddr().String(), c.RemoteAddr().String(); local != "@" || remote != "@" {
		t.Errorf("addresses %s and %s, want those without a name", local, remote)
	}
	c.Abort(nil)
	await(t, "Closed", h.closes)
}

// Shutdown ends connections that no call waits for, in order or, at its deadline, by force.
func TestShutdownOfIdleAdoptedTLS(t *testing.T) {
	t.Parallel()
	for _, stubborn := range []bool{false, true} {
		e, err := myriad.Start(myriad.Config{})
		if err != nil {
			t.Fatal(err)
		}
		probe := newProbe()
		h := myriad.Handler(probe)
		if stubborn {
			h = unmoved{probe}
		}
		p := newTLSPair(t, tls.VersionTLS13).shake(t)
		if _, err := e.Adopt(p.server, nil, h); err != nil {
			t.Fatal(err)
		}
		await(t, "Opened", probe.opens)
		time.Sleep(quietly)
		if !stubborn {
			go func() {
				_, _ = io.Copy(io.Discard, p.client)
				p.client.Close()
			}()
		}
		wait := patience
		if stubborn {
			wait = 3 * quietly
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		if err := e.Shutdown(ctx); (err != nil) != stubborn {
			t.Errorf("Shutdown: %v, with a stubborn peer: %v", err, stubborn)
		}
		cancel()
	}
}

func TestDetachOfIdleAdoptedTLS(t *testing.T) {
	e := start(t, myriad.Config{})
	p := newTLSPair(t, tls.VersionTLS13).shake(t)
	c := adopt(t, e, p.server, newProbe())
	time.Sleep(quietly)
	var ch <-chan departure
	onLoop(t, c, func() { ch = detach(c) })
	d := await(t, "done", ch)
	if d.err != nil {
		t.Fatal(d.err)
	}
	send(t, p.client, []byte("there"))
	expect(t, d.nc, []byte("there"))
	time.Sleep(quietly)
	send(t, d.nc, []byte("and back"))
	d.nc.Close()
	expectEnd(t, p.client, []byte("and back"))
}
