package pushtest

import (
	"context"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A WaitingBus is a bus whose Publish waits until its context ends, and fails. It says on Waits
// when it begins to wait.
type WaitingBus struct {
	bus.Bus
	Waits chan struct{}
}

// Publish implements bus.Bus.
func (b WaitingBus) Publish(ctx context.Context, _ bus.Topic, _ bus.Publication) (bus.Position, error) {
	b.Waits <- struct{}{}
	<-ctx.Done()
	return bus.Position{}, ctx.Err()
}
