package natsbus

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// leaderless returns a reader, at a position of a log whose leader does not say where the log ends.
func leaderless(t *testing.T, last uint64) *historyReader {
	b := opened(t, Config{Server: alone(t), Node: "one"})
	p := newProgress("nothing", b.closing)
	p.startAt(stored{seq: last})
	p.setEpoch("e", 0)
	p.setProblem("")
	p.goLive()
	var background sync.WaitGroup
	t.Cleanup(background.Wait)
	return newHistoryReader(t.Context(), &logName{stream: "nothing"}, b.logs.streams.jetStream, p, b.registry,
		&background)
}

// A client that is ahead of this node waits while the log has no leader, until what it has arrives.
func TestReachOutlastsElection(t *testing.T) {
	t.Parallel()
	h := leaderless(t, 5)
	reached := make(chan error, 1)
	go func() {
		since := bus.Position{Offset: 6, Epoch: channelEpoch("e", "news")}
		reached <- h.reach(t.Context(), "news", bus.Query{Since: &since})
	}()
	eventually(t, "it waits", func() bool {
		h.progress.mu.Lock()
		defer h.progress.mu.Unlock()
		return h.progress.waiting > 0
	})
	h.progress.advance(stored{seq: 6})
	if err := <-reached; err != nil {
		t.Error(err)
	}
}

// A client that is ahead gets an error, and no answer that it has recovered, when the log stays
// without a leader.
func TestReachEnds(t *testing.T) {
	t.Parallel()
	h := leaderless(t, 5)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	since := bus.Position{Offset: 6, Epoch: channelEpoch("e", "news")}
	if err := h.reach(ctx, "news", bus.Query{Since: &since}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
	since.Epoch = "another" // nothing of it can come
	if err := h.reach(t.Context(), "news", bus.Query{Since: &since}); err != nil {
		t.Error(err)
	}
}
