package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/driver/std"
)

// DialFunc ends once, like Dial: with the connection that its handler was opened with, or with an
// error.
func TestDialFuncInTheWorld(t *testing.T) {
	for seed := range seeds(t) {
		s, names := simulateNames(t, seed, sim.Options{Dial: 0.3, Backlog: 1}, myriad.Config{})
		for i := range 1 + seed%3 {
			addr, _ := s.peerAt(fmt.Sprintf("127.0.0.1:%d", 81+i))
			names.addrs = append(names.addrs, addr)
		}
		if seed%4 == 0 {
			names.addrs = append(names.addrs, tcpAddr("[::1]:81")) // refuses
		}
		h, calls := newProbe(), 0
		s.e.DialFunc(t.Context(), "tcp", "name:80", h, func(c *myriad.Conn, err error) {
			calls++
			if want := int32(1); err == nil && h.openings.Load() != want || (c == nil) != (err != nil) {
				t.Errorf("seed %d: done(%v, %v) after %d openings", seed, c, err, h.openings.Load())
			}
			if err == nil {
				c.Close()
			}
		})
		s.Run()
		if calls != 1 {
			t.Errorf("seed %d: done was called %d times", seed, calls)
		}
		s.finish()
	}
}

// A dial that its caller cancels, at whatever time, ends once: with a connection if it had one
// already, else with the error of a cancelled context.
func TestDialFuncCancelled(t *testing.T) {
	for seed := range seeds(t) {
		s, names := simulateNames(t, seed, sim.Options{Dial: 0.3, Backlog: 1}, myriad.Config{})
		addr, _ := s.peerAt("127.0.0.1:81")
		names.addrs = append(names.addrs, addr)
		h, calls, begun := newProbe(), 0, false
		cancel := s.e.DialFunc(context.Background(), "tcp", "name:80", h, func(c *myriad.Conn, err error) {
			calls++
			switch {
			case err == nil && h.openings.Load() == 1:
				c.Close()
			case err == nil || c != nil || begun && !errors.Is(err, context.Canceled):
				t.Errorf("seed %d: done(%v, %v)", seed, c, err)
			}
		})
		s.AfterFunc(time.Duration(seed%20)*time.Millisecond, func() {
			begun = calls == 0
			cancel()
			cancel()
		})
		s.Run()
		if calls != 1 {
			t.Errorf("seed %d: done was called %d times", seed, calls)
		}
		s.finish()
	}
}

// A dialler dials again from its own loop.
type dialler struct {
	*probe
	left int
	addr string
	over chan error
}

func (d *dialler) Opened(c *myriad.Conn) {
	c.Abort(nil)
	if d.left--; d.left == 0 {
		close(d.over)
		return
	}
	c.Loop().Engine().DialFunc(context.Background(), "tcp", d.addr, d, func(_ *myriad.Conn, err error) {
		if err != nil {
			d.over <- err
		}
	})
}

func (*dialler) Closed(*myriad.Conn, error) {}

func TestDialFuncOnALoop(t *testing.T) {
	e := start(t, myriad.Config{})
	ln, err := e.Listen("tcp", "127.0.0.1:0", newProbe())
	if err != nil {
		t.Fatal(err)
	}
	d := &dialler{newProbe(), 20, ln.Addr().String(), make(chan error)}
	e.DialFunc(t.Context(), "tcp", d.addr, d, func(*myriad.Conn, error) {})
	if err = <-d.over; err != nil {
		t.Fatal(err)
	}
}

// A stalled system has a resolver that answers when the test says so.
type stalled struct {
	driver.System
	asked, running atomic.Int32
	answer         chan error
}

func (s *stalled) Resolve(_ context.Context, _, addr string) ([]net.Addr, error) {
	s.asked.Add(1)
	s.running.Add(1)
	defer s.running.Add(-1)
	return []net.Addr{tcpAddr("127.0.0.1:1")}, <-s.answer
}

// stalledEngine runs on the process with a stalled resolver.
func stalledEngine(t *testing.T) (*myriad.Engine, *stalled) {
	t.Helper()
	s := &stalled{System: std.System{}, answer: make(chan error)}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: s, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	return e, s
}

var errNoName = errors.New("no such name")

// Calls for one name share one lookup, at most 256 names are looked up at a time, and the end of a
// context does not wait for the resolver.
func TestDialFuncNames(t *testing.T) {
	e, s := stalledEngine(t)
	results := make(chan error, 1000)
	done := func(_ *myriad.Conn, err error) { results <- err }
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 900 {
		e.DialFunc(t.Context(), "tcp", fmt.Sprintf("name%d:80", i%300), newProbe(), done)
	}
	e.DialFunc(ctx, "tcp", "name0:80", newProbe(), done)
	cancel()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("the dial whose context has ended: %v", err)
	}
	e.DialFunc(context.Background(), "tcp", "name1:80", newProbe(), done)()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled dial: %v", err)
	}
	for s.running.Load() < 256 {
		time.Sleep(time.Millisecond)
	}
	if n := s.asked.Load(); n != 256 {
		t.Errorf("%d lookups under way, want 256", n)
	}
	close(s.answer)
	for range 900 {
		if err := <-results; err == nil {
			t.Error("a dial of a port that refuses has succeeded")
		}
	}
	if n := s.asked.Load(); n != 300 {
		t.Errorf("%d lookups for 300 names", n)
	}
}

// At 65,536 calls that wait for the resolver, the next one fails with ErrBusy.
func TestDialFuncTooManyNames(t *testing.T) {
	e, s := stalledEngine(t)
	var failed atomic.Int32
	h := newProbe()
	for range 65_536 {
		e.DialFunc(t.Context(), "tcp", "name:80", h, func(_ *myriad.Conn, err error) {
			if errors.Is(err, errNoName) {
				failed.Add(1)
			}
		})
	}
	got := error(nil)
	e.DialFunc(t.Context(), "tcp", "name:80", h, func(_ *myriad.Conn, err error) { got = err })
	if !errors.Is(got, myriad.ErrBusy) {
		t.Errorf("one call too many: %v, want ErrBusy", got)
	}
	s.answer <- errNoName
	for failed.Load() < 65_536 {
		time.Sleep(time.Millisecond)
	}
}
