package push

import (
	"context"
	"errors"
)

// A Publication is one message of a channel, as it travels on a Bus.
type Publication struct {
	Data         []byte // one valid JSON value in UTF-8, without newlines; at most Limits.Publication bytes
	Client, User string // the connection that published it and its user; empty when the HTTP API did
}

// A Receiver takes the publications of the channels that it is subscribed to.
type Receiver interface {
	Receive(channel string, p Publication)
}

// A Bus is how a node hears what is published on it and on the others. It knows channels and receivers and nothing of clients:
// a node subscribes to a channel once, when the first of its clients does, and spreads what arrives itself.
//
// The contract, which bustest.Run checks:
//
//   - Subscribe returns when the bus will deliver to r every publication of channel whose Publish starts later on this node.
//     Subscribing r twice to one channel is ErrSubscribed.
//   - Publish returning nil means that the bus has taken the publication: a bus within the process has delivered it to every
//     receiver; one that spans nodes has handed it to the network, and will deliver it or count it as lost in its own
//     statistics. On an error nothing has been delivered on this node and nothing will be. Publish may be called from any
//     goroutine and blocks at most until ctx ends. A channel without subscribers takes publications too; they go nowhere.
//   - Order: publications of one channel reach every receiver in one and the same order, and those of one goroutine in the
//     order in which it published them. Nothing is promised between channels.
//   - Receive is called by the bus, from a goroutine of its own or from within Publish, one call at a time for each channel, at
//     the same time for different channels. It must not block and must not call the bus. The bus never changes p.Data after
//     Publish has been called, and neither may the publisher or a receiver; a receiver may keep it.
//   - Unsubscribe returns when the last Receive of r for channel has returned: nothing is delivered afterwards. It must not be
//     called from within Receive. Unsubscribing what is not subscribed does nothing.
//   - Close ends the bus: calls of Receive have returned when it does, Publish and Subscribe then return ErrBusClosed. Closing
//     twice is allowed.
//
// There is no limit on receivers and channels here: the node's own limits bound both.
type Bus interface {
	Publish(ctx context.Context, channel string, p Publication) error
	Subscribe(channel string, r Receiver) error
	Unsubscribe(channel string, r Receiver)
	Close() error
}

var (
	// ErrBusClosed is returned by a Bus after Close.
	ErrBusClosed = errors.New("push: the bus is closed: publish and subscribe before shutting down")
	// ErrSubscribed is returned by Subscribe for a receiver that is already subscribed to the channel.
	ErrSubscribed = errors.New("push: the receiver is already subscribed to this channel")
)
