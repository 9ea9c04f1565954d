package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A position between two publications of a channel is as good as one at a publication, if it is
// older than what is in memory, too. Clients hold such positions when nothing was published since
// they came.
func TestHistoryAfterAnyPosition(t *testing.T) {
	t.Parallel()
	b := opened(t, Config{Server: alone(t)})
	topic := func(name string) bus.Topic {
		return bus.Topic{Name: name, Keep: bus.Retention{Size: 3, Age: time.Hour}}
	}
	put := func(name string, count int) (at bus.Position) {
		t.Helper()
		for range count {
			var err error
			if at, err = b.Publish(within(t), topic(name), bus.Publication{Data: []byte("1")}); err != nil {
				t.Fatal(err)
			}
		}
		return at
	}
	channels := sameLog(b, 4)
	full, short, fresh, other := channels[0], channels[1], channels[2], channels[3]
	put(full, 1)
	put(short, 1)
	since := put(other, 1).Offset
	put(full, 4)
	put(short, 3)
	put(fresh, 1)
	f, err := b.logs.live(within(t), topic(full))
	if err != nil {
		t.Fatal(err)
	}
	p := f.progress
	p.mu.Lock()
	p.tail.reset(p.last)
	p.mu.Unlock()
	for _, tt := range []struct {
		name, why string
		complete  bool
		count     int
	}{
		{full, "it has dropped one", false, 3}, {short, "it still has the one before", true, 3},
		{fresh, "the log has all since then", true, 1}, {other, "there is none", true, 0},
	} {
		h, err := b.History(within(t), topic(tt.name), bus.Query{Since: &bus.Position{Offset: since}, Limit: -1})
		if err != nil || h.Complete != tt.complete || len(h.Publications) != tt.count {
			t.Errorf("%s: %d publications, complete %v, %v; want %d, %v", tt.why, len(h.Publications), h.Complete, err,
				tt.count, tt.complete)
		}
	}
}

// sameLog returns names of channels that share a log.
func sameLog(b *Bus, n int) (list []string) {
	for i := 0; len(list) < n; i++ {
		t := bus.Topic{Name: fmt.Sprint("channel", i), Keep: bus.Retention{Size: 3, Age: time.Hour}}
		if strings.HasSuffix(idOf(t, b.logs.parts).stream(b.prefix), "_0") {
			list = append(list, t.Name)
		}
	}
	return list
}

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
