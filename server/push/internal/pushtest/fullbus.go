package pushtest

import (
	"context"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
)

// A FullBus refuses all publications, as a node does that cannot deliver what it has accepted.
type FullBus struct{ bus.Local }

// Publish implements bus.Bus.
func (FullBus) Publish(context.Context, bus.Topic, bus.Publication) (bus.Position, error) {
	return bus.Position{}, answer.ErrOverloaded
}
