package enginetest

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

func TestTimer(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		fired := make(chan time.Time, 10)
		h.expired = func(c *myriad.Conn) { fired <- c.Loop().Now() }
		s.one(t, myriad.Config{}, h)
		c := await(t, "Opened", h.opens)
		var set time.Time
		onLoop(t, c, func() {
			c.SetTimer(time.Hour)
			c.SetTimer(math.MaxInt64)
			set = c.Loop().Now()
			c.SetTimer(25 * time.Millisecond)
		})
		if at := await(t, "Expired", fired); at.Sub(set) < 25*time.Millisecond {
			t.Errorf("fired after %v, want 25ms at least", at.Sub(set))
		}
		onLoop(t, c, func() { c.SetTimer(-time.Second) }) // what time.Until says of a moment that has passed
		await(t, "Expired", fired)
		onLoop(t, c, func() { c.SetTimer(time.Millisecond); c.SetTimer(0) })
		for _, when := range []time.Time{time.Now().Add(20 * time.Millisecond), time.Unix(1, 0), time.Now()} {
			if err := c.SetReadDeadline(when); err != nil {
				t.Fatal(err)
			}
			if at := await(t, "Expired", fired); at.Before(when.Add(-time.Millisecond)) {
				t.Errorf("fired at %v, want %v", at, when)
			}
		}
		for _, never := range []time.Time{time.Unix(1<<40, 0), {}} {
			_ = c.SetDeadline(never)
			onLoop(t, c, func() {})
			onLoop(t, c, func() {})
		}
		if len(fired) != 0 {
			t.Error("a timer that is off, or far away, has fired")
		}
	})
}

func TestExpiredAbsentMeansAbort(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		d := &diary{done: make(chan string, 1)}
		end, conns := make(chan error, 1), make(chan *myriad.Conn, 1)
		h := &lasting{stage{name: "a", d: d, opened: func(c *myriad.Conn) { conns <- c }}, end}
		s.one(t, myriad.Config{}, h)
		c := await(t, "Opened", conns)
		// not in Opened: the peer's connect would fail if it came late
		onLoop(t, c, func() { c.SetTimer(time.Millisecond) })
		if err := await(t, "Closed", end); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Closed(%v), want os.ErrDeadlineExceeded", err)
		}
	})
}

// lasting reports how it is closed, and has no optional method.
type lasting struct {
	stage
	end chan error
}

func (l *lasting) Closed(_ *myriad.Conn, err error) { l.end <- err }

func TestNotifyCoalesces(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		var calls atomic.Int32
		heard := make(chan struct{}, 1000)
		again := false
		h.notified = func(c *myriad.Conn) {
			calls.Add(1)
			heard <- struct{}{}
			if again {
				again = false
				c.Notify()
			}
		}
		s.one(t, myriad.Config{}, h)
		c := await(t, "Opened", h.opens)
		onLoop(t, c, func() { // the loop is busy here, so they come to one
			for range 100 {
				c.Notify()
			}
		})
		await(t, "Notified", heard)
		if n := calls.Load(); n != 1 {
			t.Errorf("Notified %d times, want once", n)
		}
		onLoop(t, c, func() { again = true; c.Notify() })
		await(t, "Notified", heard)
		await(t, "Notified from Notified", heard)
	})
}

func TestDoIsBounded(t *testing.T) {
	e, err := myriad.Start(myriad.Config{Loops: 1, Mailbox: 3, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	l := e.Loops()[0]
	busy, release := make(chan struct{}), make(chan struct{})
	if err := l.Do(func() { close(busy); <-release }); err != nil {
		t.Fatal(err)
	}
	await(t, "the loop", busy)
	var order []int
	for i := range 3 {
		if err := l.Do(func() { order = append(order, i) }); err != nil {
			t.Errorf("Do %d: %v", i, err)
		}
	}
	if err := l.Do(func() {}); err != myriad.ErrBusy {
		t.Errorf("Do into a full mailbox: %v", err)
	}
	close(release)
	if err := e.Shutdown(atLength(t)); err != nil {
		t.Fatal(err)
	}
	if len(order) != 3 || order[0] != 0 || order[2] != 2 {
		t.Errorf("ran in order %v", order)
	}
	if err := l.Do(func() {}); err != myriad.ErrClosed {
		t.Errorf("Do after Shutdown: %v", err)
	}
	mine, theirs := net.Pipe()
	defer theirs.Close()
	for name, begin := range map[string]func() error{
		"Listen": func() error { _, err := e.Listen("tcp", "127.0.0.1:0", echo{}); return err },
		"Dial":   func() error { _, err := e.Dial(context.Background(), "tcp", "127.0.0.1:1", echo{}); return err },
		"Adopt":  func() error { _, err := e.Adopt(mine, nil, echo{}); return err },
	} {
		err := begin()
		if !errors.Is(err, myriad.ErrClosed) || !errors.Is(err, net.ErrClosed) ||
			!strings.Contains(err.Error(), "the engine has been shut down") {
			t.Errorf("%s after Shutdown: %v", name, err)
		}
	}
}

func TestLaterAndPanicsOnTheLoop(t *testing.T) {
	eachFailure(t, laterAndPanicsOnTheLoop)
}

func laterAndPanicsOnTheLoop(t *testing.T, fail func()) {
	e := start(t, myriad.Config{Loops: 1, Logger: quiet})
	l := e.Loops()[0]
	done := make(chan int, 10)
	n := 0
	var again func()
	again = func() {
		if n++; n < 3 {
			l.Later(again) // in the next turn, not for ever in this one
		}
		done <- n
		fail()
	}
	if err := l.Do(func() { l.Later(again); fail() }); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if got := await(t, "Later", done); got != i+1 {
			t.Errorf("call %d came as %d", i+1, got)
		}
	}
}
