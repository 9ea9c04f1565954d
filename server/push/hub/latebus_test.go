package hub

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/internal/pushtest"
)

// This file tests subscribers of a bus that is late, or loses publications.

func newLateNode(t *testing.T) (*testNode, *pushtest.LateBus) {
	bus := new(pushtest.LateBus)
	n := newTestNode(t, keeping(t, 1000), func(c *Config) {
		bus.Bus = c.Bus
		c.Bus = bus
	})
	return n, bus
}

// Clients join while the history is ahead of the channel, or the channel ahead of the history that
// was read.
func TestHistoryAndChannelMeet(t *testing.T) {
	for seed := range uint64(300) {
		n, bus := newLateNode(t)
		random := rand.New(rand.NewPCG(seed, 1))
		steady := follower{n: n}
		first := steady.dial()
		others := make([]follower, 3)
		conns := make([]*fakeTransport, len(others))
		published := 0
		publish := func() {
			for range random.IntN(4) {
				published++
				n.mustPublish("news", strconv.Itoa(published))
			}
		}
		for range 30 {
			publish()
			i := random.IntN(len(others))
			if conns[i] != nil {
				conns[i].hangUp()
				others[i].take(t, conns[i])
			}
			bus.Reading = func() {
				publish()
				bus.Deliver(random.IntN(bus.Held()+1), 0)
			}
			others[i].n = n
			conns[i] = others[i].dial()
			bus.Deliver(random.IntN(bus.Held()+1), 0)
			if random.IntN(2) == 0 {
				others[i].take(t, conns[i])
			}
		}
		bus.Deliver(bus.Held(), 0)
		steady.take(t, first)
		for i, c := range conns {
			if c == nil {
				continue
			}
			others[i].take(t, c)
			if others[i].seen != published || others[i].lost > 0 {
				t.Errorf("seed %d: client %d has seen %d of %d, and lost %d times", seed, i, others[i].seen, published,
					others[i].lost)
			}
		}
		if steady.seen != published {
			t.Errorf("seed %d: the client that stayed connected has seen %d of %d", seed, steady.seen, published)
		}
		if t.Failed() {
			return
		}
	}
}

// If the bus loses publications, the server tells subscribers to subscribe again, and they recover
// what was lost.
func TestLossIsNoticed(t *testing.T) {
	n, bus := newLateNode(t)
	f := follower{n: n}
	c := f.dial()
	for i := range 10 {
		n.mustPublish("news", strconv.Itoa(i+1))
	}
	bus.Deliver(4, 0)
	f.take(t, c)
	bus.Deliver(3, 1) // 5 is lost
	if f.take(t, c) || f.told != 1 || f.seen != 4 {
		t.Fatalf("told %d times after %d publications", f.told, f.seen)
	}
	c.WantOpen(t, "after a loss")
	f.subscribe(c)
	bus.Deliver(3, 0)
	n.mustPublish("news", "11")
	bus.Deliver(1, 0)
	f.take(t, c)
	if f.seen != 11 || f.lost > 0 {
		t.Errorf("seen %d of 11, lost %d times", f.seen, f.lost)
	}
	if !strings.Contains(n.log.String(), "the bus lost publications") {
		t.Errorf("log %q", n.log.String())
	}
}
