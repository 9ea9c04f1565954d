package pushtest

import (
	"context"
	"sync"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A LateBus is a bus that delivers publications only in Deliver. Its history ends with what it has
// delivered. It can also lose publications. It is for one channel.
type LateBus struct {
	bus.Bus
	Reading func() // runs once, in the middle of the next History

	mu        sync.Mutex
	channel   string
	receiver  bus.Receiver                   // the latest subscriber
	below     map[bus.Receiver]*lateReceiver // subscribed to the bus below in their place
	held      []bus.Publication
	delivered uint64 // offset of the last one delivered or lost
}

// A lateReceiver receives publications from the bus below, and holds them for a receiver.
type lateReceiver struct {
	*LateBus
	r bus.Receiver
}

// Subscribe implements bus.Bus.
func (b *LateBus) Subscribe(ctx context.Context, t bus.Topic, r bus.Receiver) error {
	below := &lateReceiver{b, r}
	b.mu.Lock()
	if b.below == nil {
		b.below = make(map[bus.Receiver]*lateReceiver)
	}
	b.channel, b.receiver, b.below[r] = t.Name, r, below
	b.mu.Unlock()
	return b.Bus.Subscribe(ctx, t, below)
}

// Unsubscribe implements bus.Bus.
func (b *LateBus) Unsubscribe(channel string, r bus.Receiver) {
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

// Serve does nothing: the tests do not need it, and the bus below may not be there yet.
func (b *LateBus) Serve(string, func([]byte) []byte) (stop func()) { return func() {} }

// Publish implements bus.Bus.
func (b *LateBus) Publish(ctx context.Context, t bus.Topic, p bus.Publication) (bus.Position, error) {
	at, err := b.Bus.Publish(ctx, t, p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.held) == 0 { // it has no receiver
		b.delivered = at.Offset
	}
	return at, err
}

// History implements bus.Bus.
func (b *LateBus) History(ctx context.Context, t bus.Topic, q bus.Query) (bus.History, error) {
	h, err := b.Bus.History(ctx, t, q)
	b.mu.Lock()
	h.Top.Offset = b.delivered
	b.mu.Unlock()
	for n := len(h.Publications); n > 0 && h.Publications[n-1].Offset > h.Top.Offset; n-- {
		h.Publications = h.Publications[:n-1]
	}
	if f := b.Reading; f != nil {
		b.Reading = nil
		f()
	}
	return h, err
}

// Held returns how many publications wait for Deliver.
func (b *LateBus) Held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held)
}

// Deliver delivers the first n held publications, but loses the first lose of them.
func (b *LateBus) Deliver(n, lose int) {
	b.mu.Lock()
	list := b.held[lose:n]
	if n > 0 {
		b.delivered = b.held[n-1].Offset
	}
	b.held = b.held[n:]
	b.mu.Unlock()
	if lose > 0 {
		b.receiver.Lost(b.channel)
	}
	if len(list) > 0 {
		b.receiver.Receive(b.channel, list)
	}
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
