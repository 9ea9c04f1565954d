package enginetest

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// The 400 reaches a client that is still sending: input is discarded until the peer has read the
// answer and ended.
func TestCloseDeliversTheLastBytesToASender(t *testing.T) {
	t.Parallel()
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		answer := pattern(20_000)
		h.received = func(c *myriad.Conn, _ []byte) {
			c.Write(answer)
			c.Close()
		}
		nc := s.one(t, myriad.Config{LingerBytes: 64 << 20, System: timeless(t)}, h)
		send(t, nc, pattern(300_000))
		send(t, nc, pattern(300_000))
		got := make([]byte, len(answer))
		if _, err := io.ReadFull(nc, got); err != nil {
			t.Fatalf("the answer is lost: %v", err)
		}
		send(t, nc, pattern(100_000))
		closeWrite(t, nc)
		expectEnd(t, nc, nil)
		if err := await(t, "Closed", h.closes); err != nil {
			t.Errorf("Closed(%v), want nil", err)
		}
		if n := h.endings.Load(); n != 0 {
			t.Errorf("Ended was called %d times after Close", n)
		}
	})
}

func TestCloseSaysNothingButClosed(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		done := false
		h.received = func(c *myriad.Conn, _ []byte) {
			if done {
				t.Error("Received after Close")
			}
			done = true
			c.Notify()
			c.SetTimer(time.Millisecond)
			c.Close()
			if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
				t.Errorf("SetDeadline: %v", err)
			}
		}
		bad := func(*myriad.Conn) { t.Error("a call after Close") }
		h.notified, h.expired, h.drained, h.ended = bad, bad, bad, bad
		nc := s.one(t, myriad.Config{}, h)
		send(t, nc, pattern(1000))
		expectEnd(t, nc, nil)
		_, _ = nc.Write(pattern(1000)) // the conn may have gone: it does not wait long for a silent peer
		nc.Close()
		if err := await(t, "Closed", h.closes); err != nil {
			t.Errorf("Closed(%v), want nil", err)
		}
	})
}

// Of a peer that never stops sending LingerBytes are read, and then, as with one that never ends,
// it is a matter of time.
func TestLingerIsBounded(t *testing.T) {
	t.Parallel()
	eachLayer(t, func(t *testing.T, s setting) {
		t.Run("bytes", func(t *testing.T) {
			const most, buffer = 100_000, 8 << 10
			n := uint64(0)
			// the peer may be held up for so long
			for wait := 200 * time.Millisecond; n <= most && wait < patience; wait *= 4 {
				h := newProbe()
				h.opened = func(c *myriad.Conn) { c.Close() }
				e := start(t, myriad.Config{LingerBytes: most, LingerTimeout: wait, ReadBuffer: buffer})
				nc := s.dial(t, s.listen(t, e, h))
				p := pattern(10_000)
				for {
					if _, err := nc.Write(p); err != nil {
						break
					}
				}
				await(t, "Closed", h.closes)
				n = e.Stats().BytesIn
			}
			if n <= most || n > most+2*buffer {
				t.Errorf("%d bytes of a closing conn were read, want a little more than %d", n, most)
			}
		})
		t.Run("time", func(t *testing.T) {
			h := newProbe()
			h.opened = func(c *myriad.Conn) { c.Close() }
			nc := s.one(t, myriad.Config{LingerTimeout: 30 * time.Millisecond}, h)
			expectEnd(t, nc, nil)
			if err := await(t, "Closed", h.closes); err != nil {
				t.Errorf("Closed(%v), want nil", err)
			}
		})
		t.Run("flush", func(t *testing.T) {
			h := newProbe()
			h.opened = func(c *myriad.Conn) { c.Write(pattern(16 << 20)); c.Close() }
			s.one(t, myriad.Config{LingerTimeout: 30 * time.Millisecond}, h)
			if err := await(t, "Closed", h.closes); !errors.Is(err, myriad.ErrSlow) {
				t.Errorf("Closed(%v), want ErrSlow", err)
			}
		})
	})
}

func TestAbortResets(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		cause := errors.New("cause")
		h := newProbe()
		h.received = func(c *myriad.Conn, _ []byte) { c.Write([]byte("dropped")); c.Abort(cause) }
		nc := s.one(t, myriad.Config{}, h)
		send(t, nc, []byte("x"))
		if _, err := io.ReadAll(nc); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer sees %v, want a reset", err)
		}
		if err := await(t, "Closed", h.closes); err != cause {
			t.Errorf("Closed(%v), want Abort's argument", err)
		}
		c := <-h.opens
		c.Abort(nil)
		c.Notify()
		if err := c.Close(); err != nil {
			t.Errorf("Close after the end: %v", err)
		}
		if err := c.CloseWrite(); err != myriad.ErrClosed {
			t.Errorf("CloseWrite after the end: %v", err)
		}
		if err := c.SetDeadline(time.Now()); err != myriad.ErrClosed {
			t.Errorf("SetDeadline after the end: %v", err)
		}
		if n := h.closing.Load(); n != 1 {
			t.Errorf("Closed was called %d times", n)
		}
	})
}

func TestPeerResets(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		for _, paused := range []bool{false, true} {
			h := newProbe()
			h.opened = func(c *myriad.Conn) {
				if paused {
					c.Pause()
				}
			}
			nc := s.one(t, myriad.Config{}, h)
			await(t, "Opened", h.opens)
			reset(nc)
			if err := await(t, "Closed", h.closes); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("paused %v: Closed(%v), want a reset", paused, err)
			}
		}
	})
}

// A handler that does not know Ended is closed at the peer's FIN, after what it has queued.
func TestEndedAbsentMeansClose(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		nc := s.one(t, myriad.Config{}, echo{})
		send(t, nc, []byte("last words"))
		closeWrite(t, nc)
		expectEnd(t, nc, []byte("last words"))
	})
}

// A handler with Ended may answer behind the peer's FIN, from any goroutine and as late as it
// likes: the conn ends when it closes it.
func TestAnswersBehindTheFIN(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		var got []byte
		h.received = func(_ *myriad.Conn, p []byte) { got = append(got, p...) }
		h.ended = func(c *myriad.Conn) {
			c.SetWriteLimit(4 << 20)
			question := string(got)
			go func() {
				c.Write([]byte(question))
				c.Write(pattern(2_000_000)) // more than the kernel takes at once
				c.Close()
			}()
		}
		nc := s.one(t, myriad.Config{}, h)
		send(t, nc, []byte("the question;"))
		closeWrite(t, nc)
		expectEnd(t, nc, append([]byte("the question;"), pattern(2_000_000)...))
		if err := await(t, "Closed", h.closes); err != nil {
			t.Errorf("Closed(%v)", err)
		}
	})
}

func TestPanicsCostOneConn(t *testing.T) {
	eachFailure(t, func(t *testing.T, fail func()) {
		eachLayer(t, func(t *testing.T, s setting) { panicsCostOneConn(t, s, fail) })
	})
}

// eachFailure is for the ways in which a handler can fail to return.
func eachFailure(t *testing.T, f func(t *testing.T, fail func())) {
	t.Run("panic", func(t *testing.T) { f(t, func() { panic("boom") }) })
	t.Run("goexit", func(t *testing.T) { f(t, runtime.Goexit) })
}

func panicsCostOneConn(t *testing.T, s setting, fail func()) {
	boom := func(*myriad.Conn) { fail() }
	cases := map[string]func(h *probe, c func(*myriad.Conn)){
		"Received": func(h *probe, _ func(*myriad.Conn)) { h.received = func(c *myriad.Conn, _ []byte) { boom(c) } },
		"Ended":    func(h *probe, _ func(*myriad.Conn)) { h.ended = boom },
		"Notified": func(h *probe, _ func(*myriad.Conn)) {
			h.received = func(c *myriad.Conn, _ []byte) { c.Notify() }
			h.notified = boom
		},
		"Expired": func(h *probe, _ func(*myriad.Conn)) {
			h.received = func(c *myriad.Conn, _ []byte) { c.SetTimer(1) }
			h.expired = boom
		},
		"Opened": func(h *probe, _ func(*myriad.Conn)) { h.opened = boom },
		"the next handler's Opened": func(h *probe, _ func(*myriad.Conn)) {
			next := &probe{opens: h.opens, closes: h.closes}
			next.opened = boom
			h.received = func(c *myriad.Conn, _ []byte) { c.SetHandler(next, nil) }
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			h := newProbe()
			prepare(h, boom)
			e := start(t, myriad.Config{Loops: 1, Logger: quiet})
			neighbour := s.dial(t, s.listen(t, e, echo{}))
			ln := s.listen(t, e, h)
			if nc, err := net.Dial("tcp", ln.Addr().String()); err == nil { // it may be reset already
				nc = s.own(t, nc)
				_, _ = nc.Write([]byte("x"))
				if name == "Ended" {
					closeWrite(t, nc)
				}
			}
			if err := await(t, "Closed", h.closes); err == nil {
				t.Error("Closed(nil) after a panic")
			}
			send(t, neighbour, []byte("alive"))
			expect(t, neighbour, []byte("alive"))
		})
	}
}

// failingLayer fails to return where its field says so.
type failingLayer struct {
	xorLayer
	write, closeWrite func()
	closed, detach    func()
}

func (l *failingLayer) Closed(err error) error {
	if l.closed != nil {
		l.closed()
	}
	return err
}

func (l *failingLayer) Detach(raw net.Conn, unread []byte) (net.Conn, []byte) {
	if l.detach != nil {
		l.detach()
	}
	return l.xorLayer.Detach(raw, unread)
}

func (l *failingLayer) Write(w myriad.Wire, p []byte) (int, error) {
	if l.write != nil {
		l.write()
	}
	return l.xorLayer.Write(w, p)
}

func (l *failingLayer) CloseWrite(w myriad.Wire) error {
	if l.closeWrite != nil {
		l.closeWrite()
	}
	return l.xorLayer.CloseWrite(w)
}

// A layer that fails to return while the conn is locked costs that conn, whichever goroutine
// writes.
func TestPanicsInALayerCostOneConn(t *testing.T) {
	eachFailure(t, func(t *testing.T, fail func()) {
		layersCostOneConn(t, fail)
	})
}

func layersCostOneConn(t *testing.T, fail func()) {
	write := func(c *myriad.Conn) error { _, err := c.Write([]byte("x")); return err }
	elsewhere := func(c *myriad.Conn) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			if err := write(c); err == nil {
				t.Error("Write in which the layer panicked succeeded")
			}
		}()
		<-ended
	}
	for name, received := range map[string]func(c *myriad.Conn){
		"on the loop":          func(c *myriad.Conn) { _ = write(c) },
		"on another goroutine": elsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			layerCostsOneConn(t, &failingLayer{write: fail}, func(c *myriad.Conn, _ []byte) { received(c) })
		})
	}
	t.Run("at the end", func(t *testing.T) {
		layerCostsOneConn(t, &failingLayer{closeWrite: fail}, func(c *myriad.Conn, _ []byte) { c.Close() })
	})
	t.Run("with a file", func(t *testing.T) {
		f := tempFile(t, pattern(1000))
		layerCostsOneConn(t, &failingLayer{write: fail}, func(c *myriad.Conn, _ []byte) { _ = c.WriteFile(f, 0, 1000) })
	})
	t.Run("that detaches", func(t *testing.T) {
		done := make(chan (<-chan departure), 1)
		layerCostsOneConn(t, &failingLayer{detach: fail}, func(c *myriad.Conn, _ []byte) { done <- detach(c) })
		if d := await(t, "done", <-done); d.err == nil || d.nc != nil {
			t.Errorf("detached as %v, %v", d.nc, d.err)
		}
	})
}

// So does one that is asked what an end means, and the loop goes on.
func TestPanicsOfALayerAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(nc net.Conn){
		"FIN":   func(nc net.Conn) { _ = nc.(*net.TCPConn).CloseWrite() },
		"reset": func(nc net.Conn) { _ = nc.(*net.TCPConn).SetLinger(0); nc.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			eachFailure(t, func(t *testing.T, fail func()) {
				h := newProbe()
				h.opened = func(c *myriad.Conn) { c.SetLayer(&failingLayer{closed: fail}) }
				e := start(t, myriad.Config{Loops: 1, Logger: quiet})
				s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
					client: func(nc net.Conn) net.Conn { return nc }}
				neighbour := s.dial(t, s.listen(t, e, echo{}))
				end(s.dial(t, s.listen(t, e, h)))
				if err := await(t, "Closed", h.closes); err == nil {
					t.Error("Closed(nil) behind a panic")
				}
				send(t, neighbour, []byte("alive"))
				expect(t, neighbour, []byte("alive"))
			})
		})
	}
}

func layerCostsOneConn(t *testing.T, l *failingLayer, received func(c *myriad.Conn, p []byte)) {
	h := newProbe()
	h.opened = func(c *myriad.Conn) { c.SetLayer(l) }
	h.received = received
	e := start(t, myriad.Config{Loops: 1, Logger: quiet})
	s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
		client: func(nc net.Conn) net.Conn { return nc }}
	neighbour := s.dial(t, s.listen(t, e, echo{}))
	send(t, s.dial(t, s.listen(t, e, h)), []byte("x"))
	if err := await(t, "Closed", h.closes); err == nil || !strings.Contains(err.Error(),
		"panic in *enginetest.failingLayer") {
		t.Errorf("Closed(%v), want the panic", err)
	}
	send(t, neighbour, []byte("alive"))
	expect(t, neighbour, []byte("alive"))
}

// shortLayer ends like TLS: the peer's FIN alone is a truncation.
type shortLayer struct{ xorLayer }

func (*shortLayer) Closed(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (l *shortLayer) Received(w myriad.Wire, p []byte) {
	switch q := l.in.apply(p); string(q) {
	case "end":
		w.End()
	case "fail":
		w.Write(l.out.apply([]byte("alert")))
		w.Fail(os.ErrInvalid)
	default:
		w.Deliver(q)
	}
}

func (l *shortLayer) CloseWrite(w myriad.Wire) error {
	_, err := w.Write(l.out.apply([]byte("notify")))
	return err
}

func TestLayerEnds(t *testing.T) {
	t.Parallel()
	layer := func() (*probe, net.Conn) {
		h := newProbe()
		h.opened = func(c *myriad.Conn) { c.SetLayer(new(shortLayer)) }
		bare := setting{wrap: func(h myriad.Handler) myriad.Handler { return h }, client: newXORConn}
		return h, bare.one(t, myriad.Config{}, h)
	}
	t.Run("in order", func(t *testing.T) {
		h, nc := layer()
		send(t, nc, []byte("end"))
		expectEnd(t, nc, []byte("notify"))
		if err := await(t, "Closed", h.closes); err != nil || h.endings.Load() != 1 {
			t.Errorf("Closed(%v) and %d times Ended, want nil and once", err, h.endings.Load())
		}
	})
	t.Run("truncated", func(t *testing.T) {
		h, nc := layer()
		closeWrite(t, nc)
		if err := await(t, "Closed", h.closes); err != io.ErrUnexpectedEOF || h.endings.Load() != 0 {
			t.Errorf("Closed(%v) and %d times Ended, want ErrUnexpectedEOF alone", err, h.endings.Load())
		}
	})
	t.Run("failing", func(t *testing.T) {
		h, nc := layer()
		send(t, nc, []byte("fail"))
		expect(t, nc, []byte("alert"))
		if err := await(t, "Closed", h.closes); err != os.ErrInvalid {
			t.Errorf("Closed(%v), want the layer's error", err)
		}
	})
}

// A deadline that passes between Close and the loop's coming to it costs nothing of what was
// queued.
func TestCloseBeforeTheDeadline(t *testing.T) {
	e := start(t, myriad.Config{Loops: 1})
	ln, err := e.Listen("tcp", "127.0.0.1:0", echo{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 100 // more than a loop settles before it looks for timers
	var conns []*myriad.Conn
	var peers []net.Conn
	for range n {
		h := newProbe()
		one, err := e.Listen("tcp", "127.0.0.1:0", struct{ myriad.Handler }{h}) // without Expired
		if err != nil {
			t.Fatal(err)
		}
		nc, err := net.Dial("tcp", one.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetReadDeadline(time.Now().Add(patience))
		conns, peers = append(conns, await(t, "Opened", h.opens)), append(peers, nc)
		_ = one.Close()
	}
	_ = ln.Close()
	msg := pattern(100_000)
	onLoop(t, conns[0], func() {
		for _, c := range conns {
			c.SetTimer(time.Millisecond)
		}
		_ = e.Loops()[0].Do(func() { // in the next turn, when all of them are due
			for _, c := range conns {
				c.Write(msg)
				c.Close()
			}
		})
		time.Sleep(30 * time.Millisecond)
	})
	for _, nc := range peers {
		expectEnd(t, nc, msg)
	}
}
