package push

import (
	"context"
	"errors"
	"time"
)

// A Publication is one message of a channel, as it travels on a Bus.
type Publication struct {
	// one valid JSON value in UTF-8, without newlines; with Tags at most Limits.Publication bytes
	Data         []byte
	Tags         map[string]string // of the publisher, for subscribers; nil for most
	Client, User string            // the connection that published it and its user; empty when the HTTP API did
	Position                       // the bus sets it; zero if it is not in the channel's history
}

// size is how many bytes Data and Tags have.
func (p *Publication) size() int { return len(p.Data) + tagsSize(p.Tags) }

func tagsSize(tags map[string]string) (n int) {
	for name, value := range tags {
		n += len(name) + len(value)
	}
	return n
}

// A Position is a place in the history of a channel.
type Position struct {
	Offset uint64 // of a publication: 1 for the first in the epoch, and one more for each
	Epoch  string // names one life of a history: offsets of different epochs have nothing to do with each other
}

// A Retention says how much of its history a channel keeps; the zero value, nothing.
type Retention struct {
	Size int           // publications
	Age  time.Duration // how long each is kept
}

// A Query asks for a part of a history.
type Query struct {
	Since   *Position // only those behind it, or before it if Reverse; its Epoch may be empty for the current one
	Limit   int       // at most so many; 0: none, only the position; negative: all
	Reverse bool      // the last one first
}

// A History is what a channel has kept.
type History struct {
	Publications []Publication // with Position
	// of the last publication, whether it is still kept or not; offset 0 if there was none in the
	// epoch
	Top Position
}

// A ClientInfo is what the subscribers of a channel may know of each other.
type ClientInfo struct {
	Client, User string
	// JSON from the claim info of the connection's token, and of the subscription's; nil if there
	// was none
	ConnInfo, ChanInfo []byte
}

// A Notice says that a client has subscribed to a channel, or has left it.
type Notice struct {
	ClientInfo
	Joined bool
}

// A Receiver takes what happens in the channels that it is subscribed to.
type Receiver interface {
	// Receive takes publications in their order, at least one. The slice is the bus's and is used
	// again.
	Receive(channel string, list []Publication)
	// Notice takes who joins and leaves.
	Notice(channel string, n Notice)
	// Present appends the clients that are subscribed here.
	Present(channel string, to []ClientInfo) []ClientInfo
}

// A Bus is how a node hears what is published on it and on the others, and where histories are
// kept. It knows channels and receivers and nothing of connections: a node subscribes to a channel
// once, when the first of its clients does, and spreads what arrives itself.
//
// The contract, which bustest.Run checks:
//
//   - Subscribe returns when the bus will deliver to r every publication of channel whose Publish
//     starts later on this node. Subscribing r twice to one channel is ErrSubscribed. It may take a
//     round trip over a network.
//   - Publish returning nil means that the bus has taken the publication: a bus within the process
//     has delivered it to every receiver; one that spans nodes has handed it to the network, and
//     will deliver it or count it as lost in its own statistics. On an error nothing has been
//     delivered on this node and nothing will be. Publish may be called from any goroutine and
//     blocks at most until ctx ends. A channel without subscribers takes publications too.
//   - Order: publications of one channel reach every receiver in one and the same order, and those
//     of one goroutine in the order in which it published them. Nothing is promised between
//     channels, nor between publications and notices.
//   - History: with a Retention, Publish also appends to the channel's history and returns the
//     publication's position, with which it is delivered. Offsets of one epoch rise by one, in the
//     order of delivery. When Publish has returned History has it. A bus may lose a history, whole
//     or its oldest part, sooner than the Retention says; when it cannot go on with the offsets it
//     begins a new epoch. While somebody is subscribed, a bus within the process keeps the epoch. A
//     receiver that sees an offset missing, or a new epoch, knows that it has missed something.
//   - History returns publications whose epoch is Top's, without gaps between them, and never one
//     that is not delivered, or about to be, to whoever is subscribed. If q.Since is of another
//     epoch it returns no publications. For a channel that has no history yet it begins one, so
//     that Top can be given to History later. Forget drops the publications, not the position.
//   - Announce gives the notice to every receiver of the channel. It may be lost, and nothing is
//     kept of it.
//   - Present asks every receiver. One that does not answer in time is left out.
//   - The methods of a receiver are called by the bus, from a goroutine of its own or from within a
//     method of the bus. Receive is called once at a time for each channel, at the same time for
//     different channels. None may block or call the bus. The bus never changes p.Data and p.Tags
//     after Publish has been called, and neither may the publisher or a receiver; a receiver may
//     keep both.
//   - Unsubscribe returns when the last Receive and Notice of r for channel has returned: nothing
//     is delivered afterwards. It must not be called from within a receiver. Unsubscribing what is
//     not subscribed does nothing.
//   - Close ends the bus: calls of receivers have returned when it does, the other methods then
//     return ErrBusClosed. Closing twice is allowed.
//
// There is no limit on receivers and channels here: the node's own limits bound both. Histories are
// bounded by the bus.
type Bus interface {
	Publish(ctx context.Context, channel string, p Publication, keep Retention) (Position, error)
	Subscribe(channel string, r Receiver) error
	Unsubscribe(channel string, r Receiver)
	History(ctx context.Context, channel string, q Query) (History, error)
	Forget(ctx context.Context, channel string) error
	Announce(ctx context.Context, channel string, n Notice) error
	Present(ctx context.Context, channel string) ([]ClientInfo, error)
	Close() error
}

var (
	// ErrBusClosed is returned by a Bus after Close.
	ErrBusClosed = errors.New("push: the bus is closed: publish and subscribe before shutting down")
	// ErrSubscribed is returned by Subscribe for a receiver that is already subscribed to the
	// channel.
	ErrSubscribed = errors.New("push: the receiver is already subscribed to this channel")
)
