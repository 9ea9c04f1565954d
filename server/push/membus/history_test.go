package membus

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// Histories are bounded in bytes and in channels. Those used last stay.
func TestHistoryIsBounded(t *testing.T) {
	for name, config := range map[string]Config{"bytes": {HistoryBytes: 20 * 1200},
		"channels": {HistoryChannels: 20}} {
		t.Run(name, func(t *testing.T) {
			config.Clock, config.Random = new(fakeClock), rand.NewChaCha8([32]byte{1})
			b := New(config)
			defer b.Close()
			receiver := new(quiet)
			keep := bus.Retention{Size: 100, Age: time.Hour}
			if err := b.Subscribe(t.Context(), bus.Topic{Name: "c0"}, receiver); err != nil {
				t.Fatal(err)
			}
			publish := func(channel string) bus.Position {
				at, err := b.Publish(t.Context(), bus.Topic{Name: channel, Keep: keep},
					bus.Publication{Data: make([]byte, 1000)})
				if err != nil {
					t.Fatal(err)
				}
				return at
			}
			first := publish("c0")
			for i := range 200 {
				publish(fmt.Sprintf("c%d", i%50+1))
				if b.lru.bytes > 20*1200 && name == "bytes" || b.lru.topics.Len() > 20 {
					t.Fatalf("%d bytes in %d channels", b.lru.bytes, b.lru.topics.Len())
				}
			}
			if h, err := b.History(t.Context(), bus.Topic{Name: "c0", Keep: keep}, bus.Query{Limit: -1}); err != nil ||
				h.Top != first || len(h.Publications) > 0 {
				t.Errorf("a channel with a subscriber has %d publications up to %v, want its position %v",
					len(h.Publications), h.Top, first)
			}
			if h, err := b.History(t.Context(), bus.Topic{Name: "c50", Keep: keep}, bus.Query{Limit: -1}); err != nil ||
				len(h.Publications) == 0 {
				t.Errorf("the channel used last has lost its history, %v", err)
			}
			topics := 0
			for i := range b.shards {
				topics += len(b.shards[i].topics)
			}
			if topics > 22 {
				t.Errorf("%d topics are left", topics)
			}
			b.Unsubscribe("c0", receiver)
			for i := range 30 {
				publish(fmt.Sprintf("d%d", i))
			}
			if at := publish("c0"); at.Epoch == first.Epoch || at.Offset != 1 {
				t.Errorf("a history that was evicted continues at %v", at)
			}
		})
	}
}

// Expired publications are removed from idle channels, too.
func TestHistoryIsSwept(t *testing.T) {
	clock := new(fakeClock)
	b := New(Config{Clock: clock})
	defer b.Close()
	news := bus.Topic{Name: "news", Keep: bus.Retention{Size: 10, Age: time.Minute}}
	if _, err := b.Publish(t.Context(), news, bus.Publication{Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	if b.lru.bytes == 0 {
		t.Fatal("nothing is kept")
	}
	clock.advance(time.Minute + 2*sweepEvery)
	if b.lru.bytes != 0 {
		t.Errorf("%d bytes are kept", b.lru.bytes)
	}
}
