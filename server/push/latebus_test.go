package push

import (
	"context"
	"sync"

	"github.com/myriad-go/myriad/server/push/bus"
)

// lateBus delivers publications only in deliver, and its history ends with what it has delivered.
// It can also lose publications.
type lateBus struct {
	bus.Bus
	mu        sync.Mutex
	receiver  bus.Receiver                   // the latest subscriber
	below     map[bus.Receiver]*lateReceiver // subscribed to the bus below in their place
	held      []Publication
	delivered uint64 // offset of the last one delivered or lost
	reading   func() // runs in the middle of History
}

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

// lateReceiver receives publications from the bus below, and holds them for a receiver.
type lateReceiver struct {
	*lateBus
	r bus.Receiver
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
func (b *lateBus) Serve(string, func([]byte) []byte) (stop func()) { return func() {} }

func (b *lateBus) Publish(ctx context.Context, t bus.Topic, p Publication) (Position, error) {
	at, err := b.Bus.Publish(ctx, t, p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.held) == 0 { // it has no receiver
		b.delivered = at.Offset
	}
	return at, err
}

func (b *lateBus) History(ctx context.Context, t bus.Topic, q Query) (History, error) {
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

func (e *lateReceiver) Receive(_ string, list []Publication) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.receiver == e.r {
		e.held = append(e.held, list...)
	}
}

func (e *lateReceiver) Lost(string) {}

func (e *lateReceiver) Notice(string, bus.Notice) {}

func (e *lateReceiver) Present(_ string, to []ClientInfo) []ClientInfo { return to }
