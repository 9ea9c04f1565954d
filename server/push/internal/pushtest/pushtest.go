// Package pushtest has the fakes of the push server's tests. It imports neither the server nor its
// hub, so that tests inside of these packages can use it; servertest is for those outside.
package pushtest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// A Clock moves only in Advance, which runs the timers that it passes.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*timer
}

type timer struct {
	at time.Time
	f  func()
}

// NewClock returns a clock that stands in January 2027.
func NewClock() *Clock { return NewClockAt(time.Unix(1_800_000_000, 0)) }

// NewClockAt returns a clock that stands at now.
func NewClockAt(now time.Time) *Clock { return &Clock{now: now} }

// Now implements hub.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc implements hub.Clock. Advance calls f.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := &timer{c.now.Add(d), f}
	c.timers = append(c.timers, one)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.timers, one)
		if i >= 0 {
			c.timers = slices.Delete(c.timers, i, i+1)
		}
		return i >= 0
	}
}

// Advance moves the clock by d, and runs each timer at its time.
func (c *Clock) Advance(d time.Duration) {
	end := c.Now().Add(d)
	for {
		c.mu.Lock()
		next := -1
		for i, timer := range c.timers {
			if !timer.at.After(end) && (next < 0 || timer.at.Before(c.timers[next].at)) {
				next = i
			}
		}
		if next < 0 {
			c.now = end
			c.mu.Unlock()
			return
		}
		due := c.timers[next]
		c.timers = slices.Delete(c.timers, next, next+1)
		c.now = due.at
		c.mu.Unlock()
		due.f()
	}
}

// Random returns a source of reproducible randomness, which any goroutine may read.
func Random() io.Reader { return &lockedReader{r: Seeded()} }

// Seeded returns a source of reproducible randomness for one goroutine.
func Seeded() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{1}) }

type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return io.ReadFull(l.r, p)
}

// A Log keeps what several goroutines write to it.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// WaitFor waits until done returns true, at most 20 seconds. what says for a failure what it is.
func WaitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	t.Errorf("timed out waiting for %s", what)
}
