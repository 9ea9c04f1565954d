package pushtest

import (
	"context"
	"sync/atomic"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A CountingBus counts the channels that are subscribed to.
type CountingBus struct {
	bus.Bus
	Subscribed atomic.Int64
}

// Subscribe implements bus.Bus.
func (b *CountingBus) Subscribe(ctx context.Context, topic bus.Topic, r bus.Receiver) error {
	err := b.Bus.Subscribe(ctx, topic, r)
	if err == nil {
		b.Subscribed.Add(1)
	}
	return err
}

// Unsubscribe implements bus.Bus.
func (b *CountingBus) Unsubscribe(channel string, r bus.Receiver) {
	b.Bus.Unsubscribe(channel, r)
	b.Subscribed.Add(-1)
}
