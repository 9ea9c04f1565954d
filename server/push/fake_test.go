package push

import (
	"bytes"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/tokentest"

	"github.com/myriad-go/myriad/server/push/hub"
)

// fakeClock moves only in advance, which runs the timers that it passes.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*fakeTimer
}

type fakeTimer struct {
	at time.Time
	f  func()
}

func newFakeClock() *fakeClock { return &fakeClock{now: time.Unix(1_800_000_000, 0)} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := &fakeTimer{c.now.Add(d), f}
	c.timers = append(c.timers, timer)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.timers, timer)
		if i >= 0 {
			c.timers = slices.Delete(c.timers, i, i+1)
		}
		return i >= 0
	}
}

// advance moves the clock by d, and runs each timer at its time.
func (c *fakeClock) advance(d time.Duration) {
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
		timer := c.timers[next]
		c.timers = slices.Delete(c.timers, next, next+1)
		c.now = timer.at
		c.mu.Unlock()
		timer.f()
	}
}

// seeded returns a source of reproducible randomness.
func seeded() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{1}) }

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A fakeTransport records what the peer receives. While stuck is set, the peer does not read.
type fakeTransport struct {
	mu     sync.Mutex
	s      *hub.Session
	sent   []string
	stuck  bool     // the peer does not read
	unread []string // sent while stuck
	bytes  int      // queued while stuck
	max    int      // the maximum of bytes
	full   bool
	closed *Disconnect
	hung   bool
}

func (f *fakeTransport) Send(m *hub.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.hung:
		return net.ErrClosed
	case f.full:
		return hub.ErrQueueFull
	case f.stuck:
		f.bytes += len(m.Payload)
		f.max = max(f.max, f.bytes)
		f.unread = append(f.unread, string(m.Payload))
		return nil
	}
	f.sent = append(f.sent, string(m.Payload))
	return nil
}

// frame is a message from the peer.
func (f *fakeTransport) frame(p []byte) { runMessage(f.s, p) }

func (f *fakeTransport) Queued() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes
}

func (f *fakeTransport) Remote() string { return "192.0.2.1:1234" }

func (f *fakeTransport) Close(d Disconnect) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed == nil {
		f.closed = &d
	}
}

// hangUp ends the connection from the peer's side.
func (f *fakeTransport) hangUp() {
	f.mu.Lock()
	hung := f.hung
	f.hung = true
	f.bytes = 0
	f.mu.Unlock()
	if !hung {
		f.s.Ended()
	}
}

// take returns the messages that the peer has received since the last call.
func (f *fakeTransport) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := f.sent
	f.sent = nil
	return sent
}

// want checks that the peer has received exactly these messages.
func (f *fakeTransport) want(t *testing.T, what string, messages ...string) {
	t.Helper()
	got := f.take()
	if !slices.Equal(got, messages) {
		t.Errorf("%s: received\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(messages, "\n  "))
	}
}

// wantClosed checks that the server has closed the connection with d.
func (f *fakeTransport) wantClosed(t *testing.T, what string, d Disconnect) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed == nil:
		t.Errorf("%s: still open, want %v", what, d)
	case *f.closed != d:
		t.Errorf("%s: closed with %v, want %v", what, *f.closed, d)
	}
}

func (f *fakeTransport) wantOpen(t *testing.T, what string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		t.Errorf("%s: closed with %v", what, *f.closed)
	}
}

const testSecret = tokentest.Secret

var (
	sign   = tokentest.Sign
	tokens = tokentest.Tokens
)
