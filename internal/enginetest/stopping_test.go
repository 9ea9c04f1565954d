package enginetest

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// polite says goodbye when the engine stops. A successor is another handler that takes over at that
// moment.
type polite struct {
	echo
	closed    chan error
	successor myriad.Handler
}

func (h *polite) Stopping(c *myriad.Conn) {
	if h.successor != nil {
		c.SetHandler(h.successor, nil)
		return
	}
	c.Write([]byte("goodbye"))
	c.Close()
}

func (h *polite) Closed(_ *myriad.Conn, err error) { h.closed <- err }

func TestShutdownAsksTheHandler(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		last := &polite{closed: make(chan error, 2)}
		for name, h := range map[string]myriad.Handler{
			"itself":        last,
			"its successor": &polite{closed: last.closed, successor: last},
		} {
			t.Run(name, func(t *testing.T) {
				e, err := myriad.Start(myriad.Config{Loops: 2})
				if err != nil {
					t.Fatal(err)
				}
				nc := s.dial(t, s.listen(t, e, h))
				send(t, nc, []byte("hello"))
				expect(t, nc, []byte("hello"))
				down := make(chan error, 1)
				go func() { down <- e.Shutdown(t.Context()) }()
				expectEnd(t, nc, []byte("goodbye"))
				nc.Close()
				if err := await(t, "the end of Shutdown", down); err != nil {
					t.Error(err)
				}
				if err := await(t, "Closed", last.closed); err != nil {
					t.Errorf("Closed(%v)", err)
				}
			})
		}
	})
}

// A timer counts from the turn in which it is set, however long the loop has slept before.
func TestTimerAfterALongSleep(t *testing.T) {
	s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1})
	var set, fired time.Time
	h := newProbe()
	h.received = func(c *myriad.Conn, _ []byte) {
		set = s.Now()
		c.SetTimer(10 * time.Second)
	}
	h.expired = func(c *myriad.Conn) {
		fired = s.Now()
		c.Close()
	}
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Dial(ln.Addr())
	s.Run()
	s.RunFor(9 * time.Second)
	p.Write([]byte("x"))
	s.Run()
	if waited := fired.Sub(set); waited < 10*time.Second || waited > 10*time.Second+100*time.Millisecond {
		t.Errorf("a timer of 10 s fired after %v", waited)
	}
	p.Close()
	s.finish()
}

// A stubborn handler counts how often it is told.
type stubborn struct {
	echo
	told atomic.Int32
}

func (h *stubborn) Stopping(*myriad.Conn) { h.told.Add(1) }

// An unmoved handler does nothing, so that only a deadline ends Shutdown. One that closes waits for
// half a second at most, which may pass before a deadline is heard of.
type unmoved struct{ *probe }

func (unmoved) Stopping(*myriad.Conn) {}

// Further calls of Shutdown wait with the first: no handler is told again, and what one of them has
// aborted stays so.
func TestShutdownAgain(t *testing.T) {
	h := new(stubborn)
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
		client: func(nc net.Conn) net.Conn { return nc }}
	nc := s.dial(t, s.listen(t, e, h))
	send(t, nc, []byte("hello"))
	expect(t, nc, []byte("hello"))
	down := make(chan error, 3)
	for range 3 {
		go func() { down <- e.Shutdown(t.Context()) }()
	}
	eventually(t, "it is told", func() bool { return h.told.Load() > 0 })
	done := make(chan struct{})
	time.AfterFunc(20*time.Millisecond, func() { _ = e.Loops()[0].Do(func() { close(done) }) })
	await(t, "a function on the loop", done)
	nc.Close()
	for range 3 {
		if err := await(t, "the end of Shutdown", down); err != nil {
			t.Error(err)
		}
	}
	if n := h.told.Load(); n != 1 {
		t.Errorf("the handler was told %d times", n)
	}
}

// Shutdown is bounded by its context while a callback, or a function given to the loop, blocks it.
// Connections of other loops are aborted at once, and the rest when the callback returns.
func TestShutdownBesideABlockedLoop(t *testing.T) {
	for name, begin := range map[string]func(c *myriad.Conn, nc net.Conn, wait func()){
		"Received": func(_ *myriad.Conn, nc net.Conn, _ func()) { _, _ = nc.Write([]byte("x")) },
		"Notified": func(c *myriad.Conn, _ net.Conn, _ func()) { c.Notify() },
		"Do":       func(c *myriad.Conn, _ net.Conn, wait func()) { _ = c.Loop().Do(wait) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blocked, free := make(chan bool), make(chan bool)
			wait := func() { blocked <- true; <-free }
			h := newProbe()
			h.received = func(*myriad.Conn, []byte) { wait() }
			h.notified = func(*myriad.Conn) { wait() }
			e, err := myriad.Start(myriad.Config{Loops: 2})
			if err != nil {
				t.Fatal(err)
			}
			s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
				client: func(nc net.Conn) net.Conn { return nc }}
			ln := s.listen(t, e, unmoved{h})
			first := s.dial(t, ln)
			c := await(t, "Opened", h.opens)
			held := 1 // connections of the loop that is blocked
			for range 3 {
				s.dial(t, ln)
				if await(t, "Opened", h.opens).Loop() == c.Loop() {
					held++
				}
			}
			begin(c, first, wait)
			await(t, "the callback", blocked)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			down := make(chan error, 1)
			go func() { down <- e.Shutdown(ctx) }()
			if err := await(t, "the end of Shutdown", down); !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown: %v", err)
			}
			for range 4 - held {
				if err := await(t, "Closed on the other loop", h.closes); !errors.Is(err, context.Canceled) {
					t.Errorf("Closed(%v)", err)
				}
			}
			close(free)
			for range held {
				if err := await(t, "Closed on the loop that was blocked", h.closes); !errors.Is(err, context.Canceled) {
					t.Errorf("Closed(%v)", err)
				}
			}
			if err := e.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown when nothing blocks: %v", err)
			}
		})
	}
}
