package hub

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/membus"
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

// A testNode is a node with fake time and a recorded log.
type testNode struct {
	*Hub
	t     *testing.T
	clock *fakeClock
	log   *syncBuffer
}

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

// newTestNode returns an open node. change, if any, adjusts its settings.
func newTestNode(t *testing.T, change ...func(*Config)) *testNode {
	t.Helper()
	buf.CheckLeaks(t)
	clock, log := newFakeClock(), new(syncBuffer)
	c := Config{
		Rules: mustRules(t), Bus: membus.New(membus.Config{Clock: clock, Random: seeded()}),
		Forms: FormsOf(testDoors()), Clock: clock, Random: &lockedReader{r: seeded()},
		Logger: slog.New(slog.NewTextHandler(log, nil)), Version: "test",
	}
	for _, f := range change {
		f(&c)
	}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	n.StartClock(nil)
	t.Cleanup(func() {
		for _, s := range n.wheel.all() {
			s.t.(*fakeTransport).hangUp()
		}
		if err := errors.Join(n.pool.Close(context.Background()), n.close()); err != nil {
			t.Errorf("close: %v", err)
		}
		if left := n.figures.connections.Load(); left != 0 {
			t.Errorf("%d connections left", left)
		}
		if left := n.channels.held(); left != 0 {
			t.Errorf("%d channels left", left)
		}
	})
	return &testNode{n, t, clock, log}
}

// publish publishes p as the Go API does.
func (n *testNode) publish(ctx context.Context, channel string, p bus.Publication) (bus.Position, error) {
	return n.Publish(ctx, channel, p, false, false)
}

// held returns the number of channels, including those with only watchers.
func (c *channels) held() (n int) {
	for i := range c.shards {
		c.shards[i].mu.Lock()
		n += len(c.shards[i].channels)
		c.shards[i].mu.Unlock()
	}
	return n
}

// mustRules returns the rules of the namespaces.
func mustRules(t *testing.T, list ...policy.Namespace) *policy.Table {
	t.Helper()
	rules, err := policy.NewNamespaces(list, true)
	if err != nil {
		t.Fatal(err)
	}
	table := &policy.Table{LongestName: 255}
	table.Set(rules)
	return table
}

// A fakeTransport records what the peer receives. While stuck is set, the peer does not read.
type fakeTransport struct {
	mu     sync.Mutex
	s      *Session
	sent   []string
	stuck  bool     // the peer does not read
	unread []string // sent while stuck
	bytes  int      // queued while stuck
	max    int      // the maximum of bytes
	full   bool
	closed *answer.Disconnect
	hung   bool
}

func (f *fakeTransport) Send(m *Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.hung:
		return net.ErrClosed
	case f.full:
		return ErrQueueFull
	case f.stuck:
		f.bytes += len(m.Payload)
		f.max = max(f.max, f.bytes)
		f.unread = append(f.unread, string(m.Payload))
		return nil
	}
	f.sent = append(f.sent, string(m.Payload))
	return nil
}

// readOn has a stuck peer read what has been queued for it.
func (f *fakeTransport) readOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, f.unread...)
	f.stuck, f.bytes, f.unread = false, 0, nil
}

// frame is a message from the peer.
func (f *fakeTransport) frame(p []byte) { runMessage(f.s, p) }

func (f *fakeTransport) Queued() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes
}

func (f *fakeTransport) Remote() string { return "192.0.2.1:1234" }

func (f *fakeTransport) Close(d answer.Disconnect) {
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

// dial opens a connection that has sent nothing yet.
func (n *testNode) dial() *fakeTransport {
	f := new(fakeTransport)
	f.s = n.Start(f, jsonForm)
	return f
}

// connected opens a connection, connects it without a token, and subscribes it to the channels.
func (n *testNode) connected(channels ...string) *fakeTransport {
	n.t.Helper()
	f := n.dial()
	f.frame([]byte(`{"id":1,"connect":{}}`))
	for _, name := range channels {
		f.frame([]byte(`{"id":2,"subscribe":{"channel":"` + name + `"}}`))
	}
	if got := f.take(); len(got) != 1+len(channels) {
		n.t.Fatalf("connecting was answered with %q", got)
	}
	return f
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

func (f *fakeTransport) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed != nil
}

// wantClosed checks that the server has closed the connection with d.
func (f *fakeTransport) wantClosed(t *testing.T, what string, d answer.Disconnect) {
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

// A lockedReader is a reader that several goroutines use.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return io.ReadFull(l.r, p)
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	t.Errorf("timed out waiting for %s", what)
}
