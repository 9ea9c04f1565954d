package enginetest

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file is what a loop does with the callbacks of a conn, in fake time.

// A caller is a handler with all callbacks. It writes each call down, and passes it to on.
type caller struct {
	on    func(callback string, c *myriad.Conn)
	c     *myriad.Conn
	heard strings.Builder // a space and the callback's name; of Received, the bytes
	err   error           // of Closed
}

func (h *caller) call(callback string, c *myriad.Conn) {
	h.c = c
	h.heard.WriteString(" " + callback)
	if h.on != nil {
		h.on(callback, c)
	}
}

func (h *caller) Opened(c *myriad.Conn)   { h.call("Opened", c) }
func (h *caller) Ended(c *myriad.Conn)    { h.call("Ended", c) }
func (h *caller) Drained(c *myriad.Conn)  { h.call("Drained", c) }
func (h *caller) Expired(c *myriad.Conn)  { h.call("Expired", c) }
func (h *caller) Notified(c *myriad.Conn) { h.call("Notified", c) }
func (h *caller) Stopping(c *myriad.Conn) { h.call("Stopping", c) }

func (h *caller) Received(c *myriad.Conn, p []byte) {
	h.c = c
	h.heard.WriteString(" " + string(p))
	if h.on != nil {
		h.on("Received", c)
	}
}

func (h *caller) Closed(c *myriad.Conn, err error) {
	h.heard.WriteString(" Closed")
	h.err = err
}

// callbacks are those that provoke can cause. Opened needs none: the accepted conn causes it.
var callbacks = []string{"Opened", "Received", "Ended", "Drained", "Expired", "Notified", "Stopping"}

// provoke makes the loop call one callback of h, whose conn has the peer p.
func provoke(t *testing.T, s *simulation, p *sim.Peer, h *caller, callback string) {
	t.Helper()
	do := func(f func()) {
		if err := h.c.Loop().Do(f); err != nil {
			t.Error(err)
		}
	}
	switch callback {
	case "Received":
		p.Write([]byte("x"))
	case "Ended":
		p.CloseWrite()
	case "Drained":
		do(func() { h.c.Write(make([]byte, 10)); h.c.Write(make([]byte, 10)) })
	case "Expired":
		do(func() { h.c.SetTimer(time.Millisecond) })
	case "Notified":
		h.c.Notify()
	case "Stopping":
		s.Go(func() { _ = s.e.Shutdown(atLength(t)) })
	}
	s.RunFor(10 * time.Millisecond)
}

// meet listens with the handler h, and connects one peer.
func (s *simulation) meet(h myriad.Handler) *sim.Peer {
	s.t.Helper()
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.Dial(ln.Addr())
}

// A panic in a callback closes its conn with an error, and is logged once. Other conns go on.
func TestPanicInEachCallback(t *testing.T) {
	for _, callback := range callbacks {
		t.Run(callback, func(t *testing.T) {
			var logs bytes.Buffer
			s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1, WriteLimit: 10,
				Logger: slog.New(slog.NewTextHandler(&logs, nil))})
			h := &caller{on: func(is string, _ *myriad.Conn) {
				if is == callback {
					panic("of the test")
				}
			}}
			p, other := s.meet(h), s.meet(echo{})
			s.RunFor(time.Millisecond)
			provoke(t, s, p, h, callback)
			if n := strings.Count(h.heard.String(), "Closed"); n != 1 || h.err == nil ||
				!strings.Contains(h.err.Error(), "panic in *enginetest.caller: of the test") {
				t.Errorf("closed %d times with %v", n, h.err)
			}
			if n := strings.Count(logs.String(), "panic in a handler"); n != 1 ||
				!strings.Contains(logs.String(), "*enginetest.caller") {
				t.Errorf("logged %d times: %s", n, logs.String())
			}
			if other.Write([]byte("echo")); callback != "Stopping" {
				s.RunFor(time.Millisecond)
				if got := string(other.Received()); got != "echo" {
					t.Errorf("another conn echoes %q", got)
				}
			}
			p.Close()
			other.Close()
			s.finish()
		})
	}
}

// A callback gives another conn a new handler, whose Opened calls runtime.Goexit. Both conns are
// closed with an error. Other conns go on.
func TestExitOfAnotherConnsHandler(t *testing.T) {
	s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1})
	next := &caller{on: func(string, *myriad.Conn) { runtime.Goexit() }}
	taken := &caller{}
	taker := &caller{on: func(is string, _ *myriad.Conn) {
		if is == "Received" {
			taken.c.SetHandler(next, nil)
		}
	}}
	p, q, other := s.meet(taker), s.meet(taken), s.meet(echo{})
	s.RunFor(time.Millisecond)
	p.Write([]byte("x"))
	s.RunFor(time.Millisecond)
	for _, h := range []*caller{taker, next} {
		if !strings.HasSuffix(h.heard.String(), " Closed") || h.err == nil {
			t.Errorf("heard%s with %v", h.heard.String(), h.err)
		}
	}
	other.Write([]byte("echo"))
	if s.RunFor(time.Millisecond); string(other.Received()) != "echo" {
		t.Errorf("another conn echoes %q", other.Received())
	}
	p.Close()
	q.Close()
	other.Close()
	s.finish()
}

// Any callback may give its conn another handler. The loop opens the new handler at once, and gives
// it the rest of the input before later input.
func TestSwitchInEachCallback(t *testing.T) {
	for _, callback := range callbacks {
		t.Run(callback, func(t *testing.T) {
			s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1, WriteLimit: 10})
			next := &caller{}
			h := &caller{on: func(is string, c *myriad.Conn) {
				if is == callback {
					c.SetHandler(next, []byte("rest"))
				}
			}}
			p := s.meet(h)
			s.RunFor(time.Millisecond)
			provoke(t, s, p, h, callback)
			want := " Opened rest"
			switch callback {
			case "Ended", "Stopping":
				want += " " + callback
			}
			if got := next.heard.String(); got != want {
				t.Errorf("the next handler has heard%s, want%s", got, want)
			}
			if callback != "Ended" {
				p.Write([]byte("more"))
				s.RunFor(10 * time.Millisecond)
				want += " more"
			}
			if got := next.heard.String(); got != want {
				t.Errorf("then the next handler has heard%s, want%s", got, want)
			}
			next.c.Close()
			p.Close()
			s.finish()
		})
	}
}

// What a layer delivers in two pieces may go to two handlers. If a handler pauses between them, it
// gets the second when it resumes, before later bytes and the end.
func TestPiecesOfALayer(t *testing.T) {
	for name, tc := range map[string]struct {
		first       func(c *myriad.Conn, next myriad.Handler) // in Received of the first piece
		resumes     bool                                      // later
		heard, next string
	}{
		"switch": {func(c *myriad.Conn, next myriad.Handler) { c.SetHandler(next, []byte("rest")) }, false,
			" Opened ab", " Opened rest cd ef gh Ended"},
		"pause": {func(c *myriad.Conn, _ myriad.Handler) { c.Pause() }, false, " Opened ab", ""},
		"pause and resume": {func(c *myriad.Conn, _ myriad.Handler) { c.Pause(); c.Resume() }, false,
			" Opened ab cd ef gh Ended", ""},
		"pause, resume later": {func(c *myriad.Conn, _ myriad.Handler) { c.Pause() }, true,
			" Opened ab cd ef gh Ended", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1})
			h, next := &caller{}, &caller{}
			pieces := 0
			h.on = func(is string, c *myriad.Conn) {
				if is == "Received" {
					if pieces++; pieces == 1 {
						tc.first(c, next)
					}
				}
			}
			p := s.meet(withXOR(h))
			var out xor
			s.RunFor(time.Millisecond)
			p.Write(out.apply([]byte("abcd")))
			s.RunFor(time.Millisecond)
			p.Write(out.apply([]byte("efgh")))
			p.CloseWrite()
			s.RunFor(time.Millisecond)
			if tc.resumes {
				if err := h.c.Loop().Do(h.c.Resume); err != nil {
					t.Error(err)
				}
				s.RunFor(time.Millisecond)
			}
			if got, then := h.heard.String(), next.heard.String(); got != tc.heard || then != tc.next {
				t.Errorf("heard%s, and the next handler%s; want%s and%s", got, then, tc.heard, tc.next)
			}
			h.c.Abort(nil)
			p.Close()
			s.finish()
		})
	}
}

// A sentence is a layer that delivers its input byte by byte, and ends it with a full stop.
type sentence struct{ xorLayer }

func (sentence) Received(w myriad.Wire, p []byte) {
	for i, b := range p {
		if b == '.' {
			w.End()
			return
		}
		w.Deliver(p[i : i+1 : i+1])
	}
}

// At the end of a layer's stream, after all bytes, the loop calls Ended once, of the handler that
// the conn has then. It does not call it after Detach.
func TestEndOfALayer(t *testing.T) {
	for name, tc := range map[string]struct {
		first       func(c *myriad.Conn) // in Received of the first byte
		later       func(c, next *caller)
		heard, next string
	}{
		"at once": {func(*myriad.Conn) {}, func(_, _ *caller) {}, " Opened a b c Ended", ""},
		"paused":  {(*myriad.Conn).Pause, func(_, _ *caller) {}, " Opened a", ""},
		"resumed": {(*myriad.Conn).Pause, func(h, _ *caller) { h.c.Resume() }, " Opened a bc Ended", ""},
		"resumed for another": {(*myriad.Conn).Pause, func(h, next *caller) {
			h.c.SetHandler(next, []byte("rest"))
			h.c.Resume()
		}, " Opened a", " Opened rest bc Ended"},
		"resumed by another": {(*myriad.Conn).Pause, func(h, next *caller) {
			next.on = func(is string, c *myriad.Conn) {
				if is == "Opened" {
					c.Resume()
				}
			}
			h.c.SetHandler(next, nil)
		}, " Opened a", " Opened bc Ended"},
		"read to the end, then resumed by another": {(*myriad.Conn).Pause, func(h, next *caller) {
			h.on = func(is string, c *myriad.Conn) { c.SetHandler(next, nil) }
			h.c.Resume()
		}, " Opened a bc", " Opened Ended"},
		"detached": {func(c *myriad.Conn) {
			c.Detach(func(nc net.Conn, _ []byte, err error) {
				if err == nil {
					nc.Close()
				}
			})
		}, func(_, _ *caller) {}, " Opened a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1})
			h, next := &caller{}, &caller{}
			h.on = func(is string, c *myriad.Conn) {
				if is == "Received" && strings.HasSuffix(h.heard.String(), " a") {
					tc.first(c)
				}
			}
			p := s.meet(withLayer{h, func() myriad.Layer { return new(sentence) }})
			p.Write([]byte("abc."))
			s.RunFor(time.Millisecond)
			if err := h.c.Loop().Do(func() { tc.later(h, next) }); err != nil {
				t.Error(err)
			}
			s.RunFor(time.Millisecond)
			if got, then := h.heard.String(), next.heard.String(); got != tc.heard || then != tc.next {
				t.Errorf("heard%s, and the next handler%s; want%s and%s", got, then, tc.heard, tc.next)
			}
			h.c.Abort(nil)
			p.Close()
			s.finish()
		})
	}
}

// After ErrFull, Drained is called once, when at most half of the limit is queued. If no more than
// half was queued when the Write was refused, it is called when nothing is. After Close it is not
// called.
func TestDrainedAtItsMark(t *testing.T) {
	const limit, kernel = 100_000, 128 << 10 // the sockets take kernel bytes
	for name, tc := range map[string]struct {
		queued, refused int
		low, high       int // what is queued when Drained is called
		closes          bool
	}{
		"above the half": {limit * 8 / 10, limit / 2, 1, limit / 2, false},
		"below the half": {limit * 4 / 10, limit * 7 / 10, 0, 0, false},
		"at the half":    {limit / 2, limit/2 + 1, 0, 0, false},
		"closed":         {limit * 8 / 10, limit / 2, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1, WriteLimit: limit, MaxWrite: 1 << 20})
			var at []int
			h := &caller{on: func(is string, c *myriad.Conn) {
				if is == "Drained" {
					at = append(at, c.Queued())
				}
			}}
			p := s.meet(h)
			p.StopReading()
			s.RunFor(time.Millisecond)
			write := func(n int, want error) {
				if _, err := h.c.Write(make([]byte, n)); err != want {
					t.Fatalf("Write(%d) behind %d bytes: %v", n, h.c.Queued(), err)
				}
				s.RunFor(time.Millisecond)
			}
			write(kernel+tc.queued, nil)
			write(tc.refused, myriad.ErrFull)
			if tc.closes {
				h.c.Close()
			}
			if len(at) > 0 {
				t.Fatalf("Drained is called with %d bytes queued", at[0])
			}
			p.Resume()
			s.RunFor(10 * time.Second)
			if tc.closes != (len(at) == 0) || len(at) > 1 || len(at) == 1 && (at[0] < tc.low || at[0] > tc.high) {
				t.Errorf("Drained was called with these lengths of the queue: %v", at)
			}
			h.c.Abort(nil)
			p.Close()
			s.finish()
		})
	}
}

// If the next handler detaches the conn in Opened, the rest of the input goes to the new owner.
func TestRestIsDetached(t *testing.T) {
	s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1})
	var left string
	next := &caller{on: func(is string, c *myriad.Conn) {
		if is != "Opened" {
			t.Errorf("%s of a handler that has detached", is)
			return
		}
		c.Detach(func(nc net.Conn, unread []byte, err error) {
			if left = string(unread); err != nil {
				t.Error(err)
				return
			}
			nc.Close()
		})
	}}
	h := &caller{on: func(is string, c *myriad.Conn) {
		if is == "Received" {
			c.SetHandler(next, []byte("rest"))
		}
	}}
	p := s.meet(h)
	p.Write([]byte("head"))
	if s.RunFor(time.Second); left != "rest" {
		t.Errorf("the new owner got %q", left)
	}
	p.Close()
	s.finish()
}

// Write accepts bytes up to WriteLimit exactly.
func TestWriteUpToTheLimit(t *testing.T) {
	s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1, WriteLimit: 100})
	h := &caller{}
	p := s.meet(h)
	s.RunFor(time.Millisecond)
	err := h.c.Loop().Do(func() { // nothing leaves before this function returns
		for _, tc := range []struct {
			n    int
			want error
		}{{40, nil}, {61, myriad.ErrFull}, {60, nil}, {1, myriad.ErrFull}} {
			if _, err := h.c.Write(make([]byte, tc.n)); err != tc.want {
				t.Errorf("Write(%d) behind %d bytes: %v, want %v", tc.n, h.c.Queued(), err, tc.want)
			}
		}
	})
	if s.RunFor(time.Millisecond); err != nil || p.Count() != 100 {
		t.Errorf("%v; %d bytes came", err, p.Count())
	}
	h.c.Close()
	p.Close()
	s.finish()
}

var errLayer = errors.New("the layer has failed")

// A failing is a layer that fails at its first input.
type failing struct{ xorLayer }

func (*failing) Received(w myriad.Wire, _ []byte) { w.Fail(errLayer) }

// Closed gets the error with which a layer has failed, not that of a later Abort.
func TestAbortBehindALayersFailure(t *testing.T) {
	for _, reason := range []error{nil, errors.New("later")} {
		s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1})
		h := &caller{}
		p := s.meet(withLayer{h, func() myriad.Layer { return new(failing) }})
		p.Write([]byte("x"))
		if s.RunFor(time.Millisecond); strings.Contains(h.heard.String(), "Closed") {
			t.Fatal("the conn is closed before Abort")
		}
		h.c.Abort(reason)
		if s.RunFor(time.Millisecond); !strings.HasSuffix(h.heard.String(), " Closed") || h.err != errLayer {
			t.Errorf("Abort(%v): heard%s with %v", reason, h.heard.String(), h.err)
		}
		p.Close()
		s.finish()
	}
}
