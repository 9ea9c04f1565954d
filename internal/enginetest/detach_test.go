package enginetest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

type departure struct {
	nc     net.Conn
	unread []byte
	err    error
}

// detach asks for it on the loop; the answer comes on the channel, never from inside the call.
func detach(c *myriad.Conn) <-chan departure {
	ch := make(chan departure, 1)
	inside := true
	c.Detach(func(nc net.Conn, unread []byte, err error) {
		if inside {
			err = errors.New("done was called from inside Detach")
		}
		ch <- departure{nc, unread, err}
	})
	inside = false
	return ch
}

// What is queued leaves first, what was not delivered is handed over, and the connection goes on as
// a net.Conn.
func TestDetach(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		var got []byte
		left := make(chan (<-chan departure), 1)
		h.received = func(c *myriad.Conn, p []byte) {
			if got = append(got, p...); len(got) == len(p) {
				c.Pause()
				c.Write(pattern(3_000_000))
				left <- detach(c)
			}
		}
		nc := s.one(t, myriad.Config{}, h)
		send(t, nc, []byte("first second"))
		expect(t, nc, pattern(3_000_000))
		d := await(t, "done", await(t, "Received", left))
		if d.err != nil {
			t.Fatal(d.err)
		}
		defer d.nc.Close()
		if s.layered {
			if _, ok := d.nc.(*xorConn); !ok {
				t.Errorf("the layer's view is %T", d.nc)
			}
		}
		send(t, nc, []byte(" third"))
		closeWrite(t, nc)
		rest, err := io.ReadAll(d.nc)
		if all := string(got) + string(d.unread) + string(rest); err != nil || all != "first second third" {
			t.Errorf("got %q, unread %q, read %q: %v", got, d.unread, rest, err)
		}
		send(t, d.nc, []byte("bye"))
		d.nc.Close()
		expectEnd(t, nc, []byte("bye"))
		c := <-h.opens
		if _, err := c.Write([]byte("x")); err != myriad.ErrClosed {
			t.Errorf("Write after Detach: %v", err)
		}
		if h.closing.Load() != 0 {
			t.Error("Closed after Detach")
		}
	})
}

// What a driver has read ahead is among the unread bytes, and the connection is the socket's own.
func TestDetachWhatWasReadAhead(t *testing.T) {
	e := start(t, myriad.Config{})
	server, client := socketPair(t, "tcp", "127.0.0.1:0")
	defer client.Close()
	h := newProbe()
	left := make(chan (<-chan departure), 1)
	h.opened = func(c *myriad.Conn) { left <- detach(c) }
	if _, err := e.Adopt(driver.Ahead(server, []byte("early")), nil, h); err != nil {
		t.Fatal(err)
	}
	d := await(t, "done", await(t, "Opened", left))
	if d.err != nil {
		t.Fatal(d.err)
	}
	defer d.nc.Close()
	if _, ok := d.nc.(*net.TCPConn); !ok || string(d.unread) != "early" {
		t.Errorf("detached a %T with %q unread", d.nc, d.unread)
	}
	send(t, client, []byte("late"))
	expect(t, d.nc, []byte("late"))
}

func TestDetachAfterCloseWrite(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		nc := s.one(t, myriad.Config{}, h)
		c := await(t, "Opened", h.opens)
		var ch <-chan departure
		onLoop(t, c, func() { c.CloseWrite(); ch = detach(c) })
		d := await(t, "done", ch)
		if d.err != nil {
			t.Fatal(d.err)
		}
		defer d.nc.Close()
		expectEnd(t, nc, nil)
		send(t, nc, []byte("still"))
		expect(t, d.nc, []byte("still"))
	})
}

func TestDetachThatFails(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		nc := s.one(t, myriad.Config{LingerTimeout: 50 * time.Millisecond}, h)
		c := await(t, "Opened", h.opens)
		var first, second, third <-chan departure
		onLoop(t, c, func() {
			c.Write(pattern(16 << 20)) // more than the peer's kernel takes
			first, second = detach(c), detach(c)
		})
		if d := await(t, "the second", second); d.err != myriad.ErrBusy {
			t.Errorf("a second Detach: %v", d.err)
		}
		onLoop(t, c, func() { c.Close(); third = detach(c) })
		if d := await(t, "the third", third); d.err != myriad.ErrClosed {
			t.Errorf("Detach after Close: %v", d.err)
		}
		if d := await(t, "the first", first); d.err == nil || d.nc != nil {
			t.Errorf("Detach of a conn that is closed: %v", d.err)
		}
		await(t, "Closed", h.closes)
		nc.Close()
	})
}

// pairs are connected conns of each kind that Adopt knows.
func pairs(t testing.TB) map[string]func() (server, client net.Conn) {
	return map[string]func() (net.Conn, net.Conn){
		"tcp":  func() (net.Conn, net.Conn) { return socketPair(t, "tcp", "127.0.0.1:0") },
		"unix": func() (net.Conn, net.Conn) { return socketPair(t, "unix", t.TempDir()+"/s") },
		"wrapped": func() (net.Conn, net.Conn) {
			server, client := socketPair(t, "tcp", "127.0.0.1:0")
			return wrapped{server}, client
		},
	}
}

// wrapped hides the descriptor, as a *tls.Conn does.
type wrapped struct{ net.Conn }

func (w wrapped) CloseWrite() error { return w.Conn.(*net.TCPConn).CloseWrite() }

func socketPair(t testing.TB, network, addr string) (server, client net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return server, client
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	eachLayer(t, func(t *testing.T, s setting) {
		for kind, pair := range pairs(t) {
			t.Run(kind, func(t *testing.T) {
				e := start(t, myriad.Config{WriteLimit: 16 << 10})
				server, client := pair()
				remote, local := server.RemoteAddr(), server.LocalAddr()
				nc := s.own(t, client)
				unread := []byte("early ")
				if s.layered {
					unread = nc.(*xorConn).out.apply(unread)
				}
				c, err := e.Adopt(server, unread, s.wrap(newEchoAll()))
				if err != nil {
					t.Fatal(err)
				}
				clear(unread) // Adopt has a copy
				c.Write([]byte("greeting "))
				if c.RemoteAddr().Network() != remote.Network() || kind != "unix" &&
					c.RemoteAddr().String() != remote.String() || c.LocalAddr().String() != local.String() {
					t.Errorf("addresses %v, %v, want %v, %v", c.LocalAddr(), c.RemoteAddr(), local, remote)
				}
				msg := pattern(1_000_000)
				go func() {
					send(t, nc, msg)
					closeWrite(t, nc)
				}()
				got, err := io.ReadAll(nc)
				for _, part := range []string{"greeting ", "early "} { // the one from elsewhere may come in between
					i := bytes.Index(got[:min(len(got), 15)], []byte(part))
					if i < 0 {
						t.Fatalf("%q is missing: %q, %v", part, clip(got), err)
					}
					got = append(got[:i:i], got[i+len(part):]...)
				}
				if err != nil || !bytes.Equal(got, msg) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		}
	})
}

func TestAdoptThenEndAtOnce(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		for kind, pair := range pairs(t) {
			t.Run(kind, func(t *testing.T) {
				e := start(t, myriad.Config{})
				cause := errors.New("cause")
				for _, end := range []func(c *myriad.Conn) error{
					func(c *myriad.Conn) error { c.Close(); return nil },
					func(c *myriad.Conn) error { c.Abort(cause); return cause },
				} {
					server, client := pair()
					h := newProbe()
					c, err := e.Adopt(server, []byte("unread"), s.wrap(h))
					if err != nil {
						t.Fatal(err)
					}
					want := end(c)
					_, _ = io.ReadAll(client)
					client.Close()
					if err := await(t, "Closed", h.closes); err != want || h.openings.Load() != 1 {
						t.Errorf("opened %d times, Closed(%v), want once and %v", h.openings.Load(), err, want)
					}
				}
			})
		}
	})
}

// A net.Pipe has neither a descriptor nor a half close.
func TestAdoptPipe(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{})
		server, client := net.Pipe()
		nc := s.own(t, client)
		h := newProbe()
		h.received = func(c *myriad.Conn, p []byte) { c.Write(p) }
		c, err := e.Adopt(server, nil, s.wrap(h))
		if err != nil {
			t.Fatal(err)
		}
		if c.RemoteAddr().Network() != "pipe" {
			t.Errorf("RemoteAddr is %v", c.RemoteAddr())
		}
		go send(t, nc, pattern(10_000))
		expect(t, nc, pattern(10_000))
		c.Close()
		if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the peer sees %v, want EOF", err)
		}
		if err := await(t, "Closed", h.closes); err != nil {
			t.Errorf("Closed(%v)", err)
		}
	})
}

// A bridge carries errors: a truncation must not look like an end.
func TestBridgeReportsWhatBroke(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{})
		server, client := socketPair(t, "tcp", "127.0.0.1:0")
		h := newProbe()
		if _, err := e.Adopt(wrapped{server}, nil, s.wrap(h)); err != nil {
			t.Fatal(err)
		}
		await(t, "Opened", h.opens)
		reset(client)
		if err := await(t, "Closed", h.closes); err == nil || h.endings.Load() != 0 {
			t.Errorf("Closed(%v), Ended %d times, want the reset", err, h.endings.Load())
		}
	})
}

func TestDetachOfABridge(t *testing.T) {
	e := start(t, myriad.Config{})
	server, client := socketPair(t, "tcp", "127.0.0.1:0")
	defer client.Close()
	remote := server.RemoteAddr()
	h := newProbe()
	c, err := e.Adopt(wrapped{server}, nil, h)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "Opened", h.opens)
	var ch <-chan departure
	onLoop(t, c, func() { ch = detach(c) })
	d := await(t, "done", ch)
	if inside, ok := d.nc.(interface{ NetConn() net.Conn }); d.nc != (wrapped{server}) &&
		(!ok || inside.NetConn() != (wrapped{server})) {
		t.Errorf("a %T does not tell what was adopted", d.nc)
	}
	if d.err != nil || d.nc.RemoteAddr() != remote {
		t.Fatalf("%v, remote %v", d.err, d.nc.RemoteAddr())
	}
	send(t, client, []byte("there"))
	expect(t, d.nc, []byte("there"))
	send(t, d.nc, []byte("and back"))
	d.nc.Close()
	expectEnd(t, client, []byte("and back"))
}

func TestAdoptRefuses(t *testing.T) {
	e := start(t, myriad.Config{})
	h, nc := myriad.Stream(0)
	if _, err := e.Adopt(nc, nil, h); !errors.Is(err, myriad.ErrUnsupported) {
		t.Errorf("Adopt of a stream: %v", err)
	}
	server, client := socketPair(t, "tcp", "127.0.0.1:0")
	defer client.Close()
	p := newProbe()
	c, err := e.Adopt(server, nil, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Adopt(c, nil, p); !errors.Is(err, myriad.ErrUnsupported) {
		t.Errorf("Adopt of a conn: %v", err)
	}
	server.Close()
	if _, err := e.Adopt(server, nil, p); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Adopt of a closed net.Conn: %v", err)
	}
	client.Close()
	await(t, "Closed", p.closes)
	packets, peer := socketPair(t, "unixpacket", filepath.Join(t.TempDir(), "s"))
	defer peer.Close()
	if _, err := e.Adopt(packets, nil, p); !errors.Is(err, myriad.ErrUnsupported) ||
		!strings.Contains(err.Error(), "unixpacket") {
		t.Errorf("Adopt of a connection of packets: %v", err)
	}
}

// Where the driver keeps its connections, a handler whose Detach has failed can hand over to
// another handler.
func TestDetachRefusedThenSetHandler(t *testing.T) {
	s := simulate(t, 1, func() sim.Options { o := sim.Calm(); o.NoDetach = true; return o }(), myriad.Config{Loops: 1})
	next, h := newProbe(), newProbe()
	var refused error
	next.opened = func(c *myriad.Conn) { c.Write([]byte("next")) }
	h.opened = func(c *myriad.Conn) {
		c.Detach(func(_ net.Conn, _ []byte, err error) {
			refused = err
			c.SetHandler(next, nil)
		})
	}
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Dial(ln.Addr())
	s.Run()
	if refused == nil || string(p.Received()) != "next" {
		t.Errorf("Detach: %v, then the peer received %q", refused, p.Received())
	}
	p.Close()
	s.finish()
}

// Receiving stops when Detach is called, whatever the handler does with a pause of its own; so
// nothing piles up behind output that the peer does not read.
func TestDetachStopsReceiving(t *testing.T) {
	for seed := range seeds(t) / 5 {
		const buffer = 1000
		s := simulate(t, seed, sim.Lossless(), myriad.Config{Loops: 1, ReadBuffer: buffer})
		var unread []byte
		h := newProbe()
		h.received = func(c *myriad.Conn, p []byte) {
			c.Pause()
			c.Write(pattern(300_000)) // more than the sockets' buffers hold
			c.Detach(func(nc net.Conn, left []byte, err error) {
				if unread = left; err == nil {
					nc.Close()
				}
			})
			c.Resume()
		}
		ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
		if err != nil {
			t.Fatal(err)
		}
		p := s.Dial(ln.Addr())
		p.StopReading()
		p.Write(pattern(100_000))
		s.RunFor(time.Minute)
		p.Resume()
		s.Run()
		if len(unread) > 2*buffer {
			t.Fatalf("seed %d: %d bytes were received after Detach", seed, len(unread))
		}
		p.Close()
		s.finish()
	}
}

// A strict world's sockets become no net.Conn, as when there are no descriptors left.
type strict struct{ *sim.World }

func (w strict) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	d, err := w.World.Open(loop, o)
	return strictDriver{d}, err
}

type strictDriver struct{ driver.Driver }

func (d strictDriver) Poll(wait time.Duration, ev driver.Events) (int, error) {
	return d.Driver.Poll(wait, strictEvents{ev})
}

type strictEvents struct{ driver.Events }

func (e strictEvents) Detached(id driver.ID, s driver.Socket) { e.Events.Detached(id, strictSocket{s}) }

type strictSocket struct{ driver.Socket }

func (s strictSocket) Conn() (net.Conn, error) {
	_ = s.Close()
	return nil, syscall.EMFILE
}

// A conn that has left its driver and cannot be a net.Conn is closed: its handler's Closed is
// called after done.
func TestDetachWithoutDescriptors(t *testing.T) {
	w := strict{newWorld(1, sim.Calm())}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	h := newProbe()
	var failed error
	h.opened = func(c *myriad.Conn) {
		c.Detach(func(nc net.Conn, _ []byte, err error) {
			if failed = err; nc != nil || h.closing.Load() != 0 {
				t.Errorf("done is given %v, after %d Closed", nc, h.closing.Load())
			}
		})
	}
	ln, err := e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	w.Dial(ln.Addr())
	w.Run()
	if !errors.Is(failed, syscall.EMFILE) || len(h.closes) != 1 {
		t.Fatalf("done(%v), %d Closed", failed, len(h.closes))
	}
	if err := <-h.closes; !errors.Is(err, syscall.EMFILE) {
		t.Errorf("Closed(%v)", err)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	w.Run()
	w.Check(t)
}
