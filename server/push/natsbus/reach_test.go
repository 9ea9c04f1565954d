package natsbus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// leaderless returns a follower at a position of a log whose leader does not say where the log
// ends.
func leaderless(t *testing.T, last uint64) *follower {
	b := opened(t, Config{Server: alone(t), Node: "one"})
	f := &follower{b: b, stream: "nothing", ctx: t.Context(), last: last, epoch: "e",
		live: make(chan struct{}), moved: make(chan struct{})}
	close(f.live)
	t.Cleanup(f.done.Wait)
	return f
}

// A client that is ahead of this node waits while the log has no leader, until what it has arrives.
func TestReachOutlastsElection(t *testing.T) {
	t.Parallel()
	f := leaderless(t, 5)
	reached := make(chan error, 1)
	go func() {
		since := bus.Position{Offset: 6, Epoch: channelEpoch("e", "news")}
		reached <- f.reach(t.Context(), "news", bus.Query{Since: &since})
	}()
	eventually(t, "it waits", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.waiting > 0
	})
	f.mu.Lock()
	f.last = 6
	close(f.moved)
	f.moved, f.waiting = make(chan struct{}), 0
	f.mu.Unlock()
	if err := <-reached; err != nil {
		t.Error(err)
	}
}

// A client that is ahead gets an error, and no answer that it has recovered, when the log stays
// without a leader.
func TestReachEnds(t *testing.T) {
	t.Parallel()
	f := leaderless(t, 5)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	since := bus.Position{Offset: 6, Epoch: channelEpoch("e", "news")}
	if err := f.reach(ctx, "news", bus.Query{Since: &since}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
	since.Epoch = "another" // nothing of it can come
	if err := f.reach(t.Context(), "news", bus.Query{Since: &since}); err != nil {
		t.Error(err)
	}
}
