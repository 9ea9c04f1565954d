package enginetest

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

func TestDial(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{})
		for _, addr := range [][2]string{{"tcp", "127.0.0.1:0"}, {"tcp6", "[::1]:0"},
			{"unix", filepath.Join(t.TempDir(), "s")}} {
			ln, err := e.Listen(addr[0], addr[1], s.wrap(newEchoAll()))
			if err != nil {
				t.Logf("%v: %v", addr, err)
				continue
			}
			h := newProbe()
			var got []byte
			h.received = func(c *myriad.Conn, p []byte) {
				if got = append(got, p...); string(got) == "hello" {
					c.Close()
				}
			}
			c, err := e.Dial(t.Context(), addr[0], ln.Addr().String(), s.wrap(h))
			if err != nil {
				t.Fatalf("%v: %v", addr, err)
			}
			if c.RemoteAddr().Network() != ln.Addr().Network() || c.LocalAddr() == nil {
				t.Errorf("%v: addresses %v, %v", addr, c.LocalAddr(), c.RemoteAddr())
			}
			c.Write([]byte("hello"))
			if err := await(t, "Closed", h.closes); err != nil || string(got) != "hello" {
				t.Errorf("%v: Closed(%v) after %q", addr, err, got)
			}
		}
	})
}

func TestListenerCloseFreesTheAddress(t *testing.T) {
	e := start(t, myriad.Config{})
	for _, network := range []string{"tcp", "unix"} {
		first := map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")}[network]
		addr := first
		for again, lost := 0, 0; again < 20; again++ {
			ln, err := e.Listen(network, addr, echo{})
			// another process may be given the port meanwhile
			if errors.Is(err, syscall.EADDRINUSE) && lost < 3 {
				addr = first
				lost++
				continue
			}
			if err != nil {
				t.Fatalf("Listen again on %s: %v", addr, err)
			}
			addr = ln.Addr().String()
			nc, err := net.Dial(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = nc.SetDeadline(time.Now().Add(patience))
			send(t, nc, []byte("a"))
			expect(t, nc, []byte("a"))
			if err := ln.Close(); err != nil {
				t.Fatal(err)
			}
			if err := ln.Close(); err != myriad.ErrClosed {
				t.Errorf("a second Close: %v", err)
			}
			send(t, nc, []byte("lives on"))
			expect(t, nc, []byte("lives on"))
			nc.Close()
		}
	}
}

func TestListenerFile(t *testing.T) {
	e := start(t, myriad.Config{})
	ln, err := e.Listen("tcp", "127.0.0.1:0", echo{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if other.Addr().String() != ln.Addr().String() {
		t.Errorf("the file listens on %v, want %v", other.Addr(), ln.Addr())
	}
	ln.Close() // peers are the file's from now on
	nc, err := net.Dial("tcp", other.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	eventually(t, "the engine accepts no more", func() bool {
		_ = other.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Millisecond))
		accepted, err := other.Accept()
		if err == nil {
			accepted.Close()
			return true
		}
		late, err := net.Dial("tcp", other.Addr().String()) // the one before was the engine's yet
		if err == nil {
			t.Cleanup(func() { late.Close() })
		}
		return false
	})
}

// A listener without a host serves both families, and says of each peer what it is: one of IPv4 has
// an IPv4 address.
func TestDualStack(t *testing.T) {
	e := start(t, myriad.Config{})
	h := newProbe()
	ln, err := e.Listen("tcp", ":0", h)
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	for network, host := range map[string]string{"tcp4": "127.0.0.1", "tcp6": "::1"} {
		nc, err := net.Dial(network, net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil && network == "tcp6" {
			t.Skipf("no IPv6 here: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		c := await(t, "Opened", h.opens)
		local, remote := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
		if remote.String() != nc.LocalAddr().String() || local.String() != nc.RemoteAddr().String() {
			t.Errorf("%s: a conn from %v to %v, the peer's is from %v to %v", network, remote, local, nc.LocalAddr(),
				nc.RemoteAddr())
		}
		if four := network == "tcp4"; (len(remote.IP) == net.IPv4len) != four ||
			(len(local.IP) == net.IPv4len) != four {
			t.Errorf("%s: addresses of %d and %d bytes", network, len(remote.IP), len(local.IP))
		}
	}
}

func TestShutdown(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		t.Run("flushes", func(t *testing.T) {
			h := newProbe()
			e, err := myriad.Start(myriad.Config{Loops: 2, LingerTimeout: patience})
			if err != nil {
				t.Fatal(err)
			}
			ln := s.listen(t, e, h)
			var peers sync.WaitGroup
			for range 10 {
				nc := s.dial(t, ln)
				c := await(t, "Opened", h.opens)
				c.Write(pattern(2_000_000))
				peers.Go(func() {
					defer nc.Close()
					expectEnd(t, nc, pattern(2_000_000))
				})
			}
			if err := e.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			peers.Wait()
			for range 10 {
				if err := await(t, "Closed", h.closes); err != nil {
					t.Errorf("Closed(%v)", err)
				}
			}
			if err := e.Shutdown(t.Context()); err != nil {
				t.Errorf("a second Shutdown: %v", err)
			}
			if n := e.Stats().Conns; n != 0 {
				t.Errorf("%d conns are left", n)
			}
		})
		t.Run("deadline", func(t *testing.T) {
			h := newProbe()
			e, err := myriad.Start(myriad.Config{Loops: 2})
			if err != nil {
				t.Fatal(err)
			}
			ln := s.listen(t, e, unmoved{h})
			for range 4 {
				s.dial(t, ln)
				await(t, "Opened", h.opens)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := e.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown: %v", err)
			}
			for range 4 {
				if err := await(t, "Closed", h.closes); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Closed(%v)", err)
				}
			}
		})
	})
}

// Listen, Dial, Adopt and Do race with Shutdown: each either works or says that it is too late.
func TestShutdownRaces(t *testing.T) {
	t.Parallel()
	for range 30 {
		e, err := myriad.Start(myriad.Config{Loops: 2, LingerTimeout: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		base, err := e.Listen("tcp", "127.0.0.1:0", echo{})
		if err != nil {
			t.Fatal(err)
		}
		h := newProbe()
		server, client := socketPair(t, "tcp", "127.0.0.1:0")
		bridged, other := socketPair(t, "tcp", "127.0.0.1:0")
		adopted := make(chan bool, 2)
		var work sync.WaitGroup
		for _, f := range []func(){
			func() { e.Listen("tcp", "127.0.0.1:0", echo{}) },
			func() { e.Dial(context.Background(), "tcp", base.Addr().String(), echo{}) },
			func() { base.Close() },
			func() { _, err := e.Adopt(server, nil, h); adopted <- err == nil },
			func() { _, err := e.Adopt(wrapped{bridged}, nil, h); adopted <- err == nil },
			func() { e.Shutdown(context.Background()) },
		} {
			work.Go(f)
		}
		work.Wait()
		for range 2 {
			if <-adopted {
				await(t, "Closed", h.closes)
			}
		}
		if err := e.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		client.Close()
		other.Close()
	}
}

func TestConnsAreSpread(t *testing.T) {
	h := newProbe()
	e := start(t, myriad.Config{Loops: 4})
	bare := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
		client: func(nc net.Conn) net.Conn { return nc }}
	ln := bare.listen(t, e, h)
	for range 40 {
		bare.dial(t, ln)
		await(t, "Opened", h.opens)
	}
	for i, l := range e.Stats().Loops {
		if l.Conns != 10 {
			t.Errorf("loop %d has %d conns of 40", i, l.Conns)
		}
	}
}

func TestDefaultLoops(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for procs, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 9: 4} {
		runtime.GOMAXPROCS(procs)
		e, err := myriad.Start(myriad.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(e.Loops()); got != want {
			t.Errorf("%d loops on %d processors, want %d", got, procs, want)
		}
		if err := e.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []myriad.Config{{Loops: -1}, {Loops: 256}, {Driver: "none"}, {MaxWrite: -1}, {LingerTimeout: -1},
		{ReadBuffer: 64<<20 + 1}} {
		if e, err := myriad.Start(c); err == nil {
			t.Errorf("Start(%+v) worked", c)
			_ = e.Shutdown(t.Context())
		}
	}
}

// Conns come and go in every way, from both ends, while slots are used again and again.
func TestChurn(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{WriteLimit: 4 << 10, LingerTimeout: 50 * time.Millisecond, Logger: quiet})
		h := newProbe()
		h.closes = make(chan error, 10_000)
		h.opens = make(chan *myriad.Conn, 10_000)
		h.received = func(c *myriad.Conn, p []byte) {
			switch p[0] % 7 {
			case 0:
				c.Abort(nil)
			case 1:
				c.Close()
			case 2:
				c.Pause()
				c.SetTimer(time.Millisecond)
			case 3:
				c.CloseWrite()
			default:
				c.Write(p)
			}
		}
		h.expired = func(c *myriad.Conn) { c.Resume() }
		ln := s.listen(t, e, h)
		var peers sync.WaitGroup
		for worker := range 4 {
			peers.Go(func() {
				for i := range 60 {
					churn(t, s, ln, worker*61+i)
				}
			})
		}
		peers.Wait()
		for range 240 {
			await(t, "Closed", h.closes)
		}
		eventually(t, "no conn is left", func() bool { return e.Stats().Conns == 0 })
		if n := h.openings.Load(); n != 240 {
			t.Errorf("Opened %d times", n)
		}
	})
}

func churn(t *testing.T, s setting, ln *myriad.Listener, i int) {
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Error(err)
		return
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(patience))
	nc := s.client(raw)
	p := pattern(1 + i*37%5000)
	p[0] = byte(i)
	_, _ = nc.Write(p)
	switch i % 3 {
	case 0:
		reset(nc)
	case 1:
		_ = nc.(interface{ CloseWrite() error }).CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
	}
}
