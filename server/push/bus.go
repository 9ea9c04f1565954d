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
	Tags         map[string]string // set by the publisher for subscribers; usually nil
	Client, User string            // the connection that published it and its user; empty when the HTTP API did
	Position                       // the bus sets it; zero if it is not in the channel's history
}

// size returns the bytes of Data and Tags together.
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
	Epoch  string // names one run of offsets; offsets of different epochs cannot be compared
}

// A Retention says how much history a channel keeps. The zero value keeps none.
type Retention struct {
	Size int           // publications
	Age  time.Duration // how long each is kept
}

// A Query selects a part of a history.
type Query struct {
	Since   *Position // only publications after it, or before it if Reverse; an empty Epoch means the current one
	Limit   int       // the most publications to return; 0: only the position; negative: all
	Reverse bool      // newest first
}

// A History is the publications that a channel keeps, and its position.
type History struct {
	Publications []Publication // with Position
	// Top is the position of the last publication, even if that one is no longer kept. Its offset
	// is 0 if the epoch has no publication yet.
	Top Position
}

// A ClientInfo is what one subscriber of a channel may learn of another.
type ClientInfo struct {
	Client, User string
	// JSON: the claim info of the connection's token and of the subscription's token; nil without
	// one
	ConnInfo, ChanInfo []byte
}

// A Notice says that a client has joined or left a channel.
type Notice struct {
	ClientInfo
	Joined bool
}

// A Receiver is called with the events of the channels that it is subscribed to.
type Receiver interface {
	// Receive is called with at least one publication, in order. The bus owns the slice and reuses
	// it.
	Receive(channel string, list []Publication)
	// Notice is called when a client joins or leaves.
	Notice(channel string, n Notice)
	// Present appends the clients of this receiver that are subscribed to channel.
	Present(channel string, to []ClientInfo) []ClientInfo
}

// A Bus carries publications between nodes and keeps the histories of channels. It knows channels
// and receivers, not connections. A node subscribes to a channel once, when its first client does,
// and delivers to its own clients.
//
// The contract, which bustest.Run checks:
//
//   - Subscribe returns when r is subscribed: the bus delivers to r every publication of channel
//     whose Publish starts later on this node. Subscribing r twice to one channel returns
//     ErrSubscribed. Subscribe may take a round trip over a network.
//   - Publish returns nil when the bus has accepted the publication. A bus within the process has
//     then delivered it to every receiver. A bus that spans nodes has handed it to the network, and
//     will deliver it or count it as lost in its own statistics. If Publish returns an error,
//     nothing has been or will be delivered on this node. Publish may be called from any goroutine
//     and blocks at most until ctx ends. A channel without subscribers accepts publications too.
//   - Order: all receivers get the publications of one channel in the same order. Those published
//     by one goroutine keep its order. There is no order between channels, nor between publications
//     and notices.
//   - History: with a Retention, Publish also appends to the channel's history and returns the
//     publication's position; receivers get the same position. Offsets of one epoch rise by one, in
//     the order of delivery. When Publish has returned, History includes the publication. A bus may
//     drop a history, or its oldest part, sooner than the Retention says. If it cannot continue the
//     offsets, it begins a new epoch. While a channel has receivers, a bus within the process keeps
//     the epoch. A receiver that sees a missing offset or a new epoch has missed publications.
//   - History returns publications of Top's epoch, without gaps. Each of them has been delivered to
//     the receivers, or is about to be. If q.Since is of another epoch, it returns no publications.
//     For a channel without a history it begins one, so that a later Query can use Top. Forget
//     drops the publications but keeps the position.
//   - Announce sends the notice to every receiver of the channel. The notice may be lost, and is
//     not kept.
//   - Present calls every receiver. The result omits a receiver that does not answer in time.
//   - The bus calls the methods of a receiver from its own goroutine or from within a method of the
//     bus. Calls of Receive for one channel do not overlap; those for different channels may. A
//     receiver must not block or call the bus. After Publish has been called, p.Data and p.Tags are
//     immutable for the bus, the publisher and the receivers; a receiver may keep both.
//   - Unsubscribe returns when the last Receive and Notice of r for channel has returned; nothing
//     is delivered afterwards. It must not be called from within a receiver. If r is not
//     subscribed, it does nothing.
//   - Close ends the bus. It returns when all calls of receivers have returned; the other methods
//     then return ErrBusClosed. Close may be called twice.
//
// The node's own limits bound receivers and channels; the bus bounds histories.
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
