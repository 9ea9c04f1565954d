package hub

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/membus"
)

// A testNode is a node with fake time and a recorded log.
type testNode struct {
	*Hub
	t     *testing.T
	clock *pushtest.Clock
	log   *pushtest.Log
}

// newTestNode returns an open node. change, if any, adjusts its settings.
func newTestNode(t *testing.T, change ...func(*Config)) *testNode {
	t.Helper()
	buf.CheckLeaks(t)
	clock, log := pushtest.NewClock(), new(pushtest.Log)
	c := Config{
		Rules: mustRules(t), Bus: membus.New(membus.Config{Clock: clock, Random: pushtest.Seeded()}), OwnsBus: true,
		Forms: FormsOf(testDoors()), Clock: clock, Random: pushtest.Random(),
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

// A fakeTransport is the transport of a client of which a test is the peer.
type fakeTransport struct {
	pushtest.Peer
	s *Session
}

func (f *fakeTransport) Send(m *Message) error {
	err := f.Receive(m.Payload)
	if err == pushtest.ErrFull {
		return ErrQueueFull
	}
	return err
}

// frame is a message from the peer.
func (f *fakeTransport) frame(p []byte) { runMessage(f.s, p) }

// hangUp ends the connection from the peer's side.
func (f *fakeTransport) hangUp() {
	if f.HangUp() {
		f.s.Ended()
	}
}

// dial opens a connection that has sent nothing yet.
func (n *testNode) dial() *fakeTransport {
	f := new(fakeTransport)
	f.s = n.Start(f, jsonForm, nil)
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
	if got := f.Take(); len(got) != 1+len(channels) {
		n.t.Fatalf("connecting was answered with %q", got)
	}
	return f
}
