package hub

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
)

// This file tests subscribers of a bus that is late, or loses publications.

// lateBus delivers publications only in deliver, and its history ends with what it has delivered.
// It can also lose publications.
type lateBus struct {
	bus.Bus
	mu        sync.Mutex
	receiver  bus.Receiver                   // the latest subscriber
	below     map[bus.Receiver]*lateReceiver // subscribed to the bus below in their place
	held      []bus.Publication
	delivered uint64 // offset of the last one delivered or lost
	reading   func() // runs in the middle of History
}

func (b *lateBus) Subscribe(ctx context.Context, t bus.Topic, r bus.Receiver) error {
	below := &lateReceiver{b, r}
	b.mu.Lock()
	if b.below == nil {
		b.below = make(map[bus.Receiver]*lateReceiver)
	}
	b.receiver, b.below[r] = r, below
	b.mu.Unlock()
	return b.Bus.Subscribe(ctx, t, below)
}

func (b *lateBus) Unsubscribe(channel string, r bus.Receiver) {
	b.mu.Lock()
	below := b.below[r]
	delete(b.below, r)
	if r == b.receiver {
		if n := len(b.held); n > 0 {
			b.delivered = b.held[n-1].Offset
		}
		b.receiver, b.held = nil, nil
	}
	b.mu.Unlock()
	b.Bus.Unsubscribe(channel, below)
}

// Serve is not needed, and the bus below may not be there yet.
func (b *lateBus) Serve(string, func([]byte) []byte) {}

func (b *lateBus) Publish(ctx context.Context, t bus.Topic, p bus.Publication) (bus.Position, error) {
	at, err := b.Bus.Publish(ctx, t, p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.held) == 0 { // it has no receiver
		b.delivered = at.Offset
	}
	return at, err
}

// lateReceiver receives publications from the bus below, and holds them for a receiver.
type lateReceiver struct {
	*lateBus
	r bus.Receiver
}

func (b *lateBus) History(ctx context.Context, t bus.Topic, q bus.Query) (bus.History, error) {
	h, err := b.Bus.History(ctx, t, q)
	b.mu.Lock()
	h.Top.Offset = b.delivered
	b.mu.Unlock()
	for n := len(h.Publications); n > 0 && h.Publications[n-1].Offset > h.Top.Offset; n-- {
		h.Publications = h.Publications[:n-1]
	}
	if f := b.reading; f != nil {
		b.reading = nil
		f()
	}
	return h, err
}

func (e *lateReceiver) Receive(_ string, list []bus.Publication) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.receiver == e.r {
		e.held = append(e.held, list...)
	}
}

func (e *lateReceiver) Lost(string)                                            {}
func (e *lateReceiver) Notice(string, bus.Notice)                              {}
func (e *lateReceiver) Present(_ string, to []bus.ClientInfo) []bus.ClientInfo { return to }

// deliver delivers the first n held publications, but loses the first lose of them.
func (b *lateBus) deliver(n, lose int) {
	b.mu.Lock()
	list := b.held[lose:n]
	if n > 0 {
		b.delivered = b.held[n-1].Offset
	}
	b.held = b.held[n:]
	b.mu.Unlock()
	if lose > 0 {
		b.receiver.Lost("news")
	}
	if len(list) > 0 {
		b.receiver.Receive("news", list)
	}
}

func newLateNode(t *testing.T) (*testNode, *lateBus) {
	bus := new(lateBus)
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
			bus.reading = func() {
				publish()
				bus.deliver(random.IntN(len(bus.held)+1), 0)
			}
			others[i].n = n
			conns[i] = others[i].dial()
			bus.deliver(random.IntN(len(bus.held)+1), 0)
			if random.IntN(2) == 0 {
				others[i].take(t, conns[i])
			}
		}
		bus.deliver(len(bus.held), 0)
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
	bus.deliver(4, 0)
	f.take(t, c)
	bus.deliver(3, 1) // 5 is lost
	if f.take(t, c) || f.told != 1 || f.seen != 4 {
		t.Fatalf("told %d times after %d publications", f.told, f.seen)
	}
	c.wantOpen(t, "after a loss")
	f.subscribe(c)
	bus.deliver(3, 0)
	n.mustPublish("news", "11")
	bus.deliver(1, 0)
	f.take(t, c)
	if f.seen != 11 || f.lost > 0 {
		t.Errorf("seen %d of 11, lost %d times", f.seen, f.lost)
	}
	if !strings.Contains(n.log.String(), "the bus lost publications") {
		t.Errorf("log %q", n.log.String())
	}
}
