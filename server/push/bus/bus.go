// Package bus is the contract between the nodes of a push server. A publication enters at one node,
// and the bus carries it to all that have subscribers. Package membus implements the contract
// within one process, natsbus between processes, and bustest checks an implementation.
package bus

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// A Publication is one message of a channel, as it travels on a Bus.
type Publication struct {
	// ID names the publication for retries: Publish makes one publication of several calls with the
	// same Topic.Name and ID. At most 256 bytes. Empty: every call publishes.
	ID string
	// Data is opaque to the bus; Kind says what it is. With Tags at most push.Limits.Publication
	// bytes.
	Data         []byte
	Kind         Kind
	Tags         map[string]string // set by the publisher for subscribers; usually nil
	Client, User string            // the connection that published it and its user; empty when the HTTP API did
	Position                       // the bus sets it; zero if it is not in the channel's history
	// Version lets Publish drop what is older than the channel's latest publication. nil: it has
	// none. Receivers and histories do not get it.
	Version *Version
}

// A Version says how new the data of a publication is, by the publisher's own count.
type Version struct {
	Number uint64 // at least 1
	Epoch  string // names one run of numbers, at most 256 bytes; empty: compared with those of any run
}

// After reports whether a publication with v may follow one with latest, which is zero if the
// channel's latest publication has none.
func (v Version) After(latest Version) bool {
	return v.Epoch != "" && v.Epoch != latest.Epoch || v.Number > latest.Number
}

// A Kind says what a publication's Data is.
type Kind uint8

const (
	JSON   Kind = iota // one valid JSON value in UTF-8, without newlines
	Text               // UTF-8
	Binary             // any bytes
)

// Size returns the bytes of Data and Tags together.
func (p *Publication) Size() int {
	n := len(p.Data)
	for name, value := range p.Tags {
		n += len(name) + len(value)
	}
	return n
}

// A Position is a place in the history of a channel.
type Position struct {
	// Offset rises from one publication of an epoch to the next. Offsets need not be contiguous: in
	// a bus that spans nodes, channels share a log and its sequence numbers.
	Offset uint64 `json:"offset"`
	Epoch  string `json:"epoch"` // names one run of offsets; offsets of different epochs cannot be compared
}

// A Retention says how much history a channel keeps. The zero value keeps none.
type Retention struct {
	Size int           // publications
	Age  time.Duration // how long each is kept
}

// A Topic is a channel and what is kept of it. All nodes use the same Retention for a channel; with
// another one its history begins again, in a new epoch.
type Topic struct {
	Name string
	Keep Retention
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
	// Top is at or after the last publication that the receivers of this node have received, and
	// before the next one. Its offset may be 0 if the epoch has no publication yet.
	Top Position
	// Complete says that Publications is everything that was published after Query.Since up to Top.
	// It is false without Since, in Reverse, and if Limit has cut the list. It is also false if
	// Since is of another epoch or after Top, and if the bus has dropped a part or cannot know.
	Complete bool
}

// A ClientInfo is what one subscriber of a channel may learn of another.
type ClientInfo struct {
	Client string `json:"client"`
	User   string `json:"user"`
	// JSON: the claim info of the connection's token and of the subscription's token; nil without
	// one
	ConnInfo json.RawMessage `json:"conn_info,omitempty"`
	ChanInfo json.RawMessage `json:"chan_info,omitempty"`
}

// A Notice says that a client has joined or left a channel.
type Notice struct {
	ClientInfo
	Joined bool
}

// A Presence is the clients of a channel, on all nodes.
type Presence struct {
	Clients []ClientInfo // as many as the limit allows
	Count   int          // of all clients
	Users   int          // distinct users among them; those without a name count as one
	Missing []string     // nodes that did not answer in time, whose clients are left out
}

// A Receiver is called with the events of the channels that it is subscribed to.
type Receiver interface {
	// Receive is called with at least one publication, in order. The bus owns the slice and reuses
	// it.
	Receive(channel string, list []Publication)
	// Lost is called when publications may be missing between two calls of Receive, or a new epoch
	// begins. The channel's members have to recover from the history.
	Lost(channel string)
	// Notice is called when a client joins or leaves.
	Notice(channel string, n Notice)
	// Present appends the clients of this receiver that are subscribed to channel.
	Present(channel string, to []ClientInfo) []ClientInfo
}

// A State is how a bus is doing. The zero value is that of a bus within one process.
type State struct {
	Problem string // why this node does not have what the others publish; empty if it does
	Nodes   []NodeState
	Logs    []LogState
}

// A NodeState describes one node of a cluster.
type NodeState struct {
	Name string        `json:"name"`
	Self bool          `json:"self"`
	Seen time.Duration `json:"seen"` // since its last sign of life
}

// A LogState describes one log that this node follows.
type LogState struct {
	Name     string `json:"name"`
	Leader   string `json:"leader"` // the node that orders it; empty if there is none
	Last     uint64 `json:"last"`   // sequence number of the last message
	Followed uint64 `json:"followed"`
	Replicas int    `json:"replicas"`
	Current  int    `json:"current"` // replicas that have everything
}

// A Bus carries publications between nodes and keeps the histories of channels. It knows channels
// and receivers, not connections. A node subscribes to a channel once, when its first client does,
// and delivers to its own clients.
//
// The contract, which bustest.Run checks:
//
//   - A context bounds how long a method waits for other nodes: give it a deadline. A bus within
//     the process does not wait.
//   - Subscribe returns when r is subscribed: the bus delivers to r every publication of the topic
//     whose Publish starts later, on any node, or calls r.Lost. Subscribing r twice to one channel
//     returns ErrSubscribed. Publications without a Retention reach receivers, too.
//   - Publish returns nil when the bus has accepted the publication and has delivered it to the
//     receivers of this node. If t has a Retention, no failure of a minority of nodes loses it. If
//     not, other nodes miss it while their link is down. If Publish returns ErrUncertain, the
//     publication may have been or may still be delivered: publish again with the same ID. After
//     any other error it has not been and will not be delivered. An election among nodes takes up
//     to 9 s, in which Publish waits: the deadline should be above 10 s. A channel without
//     subscribers accepts publications too.
//   - ID: for five minutes, Publish on the same node makes one publication of all calls with the
//     same channel and ID, and returns its position. For 30 s, and if t has a Retention, that holds
//     on all nodes.
//   - Version: Publish drops a publication with a Version that is not After the one of the channel's
//     latest publication. It then returns the position of the latest and ErrOutdated. Of two
//     publications on two nodes at the same time, the newer one is the later, or the older one is
//     dropped. It needs a Retention: without one Publish returns ErrNoHistory.
//   - Order: on each node, all receivers get the publications of one channel in the same order; if
//     they have positions, it is the same on all nodes, and that of their offsets. Those published
//     by one goroutine keep its order. There is no order between channels, between publications
//     with and without a position from other nodes, nor between publications and notices.
//   - Lost: a receiver of a topic with a Retention receives every publication with a position once,
//     or Lost is called before the first one after the gap. Publications without a position may be
//     missed without notice.
//   - History: with a Retention, Publish also appends to the channel's history and returns the
//     publication's position; receivers get the same position. Offsets of one epoch rise in the
//     order of delivery. When Publish has returned, History on this node includes the publication.
//     A bus may drop a history, or its oldest part, sooner than the Retention says. If it cannot
//     continue the offsets, it begins a new epoch, and calls Lost. While a channel has receivers, a
//     bus within the process keeps the epoch.
//   - History returns publications of Top's epoch, without gaps. All of them, and everything up to
//     Top, have been delivered to this node's receivers when History returns; a later one has not
//     been when it began. If q.Since is after what this node has received, History waits for the
//     node to catch up. If q.Since is of another epoch, it returns no publications. For a channel
//     without a history it begins one, so that a later Query can use Top. Forget drops the
//     publications but keeps the epoch. Both need a Retention, and return ErrNoHistory without one.
//   - Announce sends the notice to every receiver of the channel. The notice may be lost, and is
//     not kept.
//   - Present asks the receivers of all nodes, and returns at most limit clients (0: none, only the
//     numbers). It names the nodes that did not answer in time.
//   - Serve makes this node answer questions of that kind, until stop is called: f gets the body and
//     returns the answer. A call of f may still run when stop returns. stop may be called twice.
//     Ask sends a question to all nodes, this one included, and calls each with every answer, one
//     at a time. It returns the names of nodes that did not answer in time. A node answers a kind
//     that it does not serve with nothing, and each is not called for it. A node
//     answers one question after another: f should be quick. It must not call Ask or Present.
//   - State returns at once.
//   - The bus calls the methods of a receiver from its own goroutine or from within a method of the
//     bus. Calls of Receive and Lost for one channel do not overlap; those for different channels
//     may. A receiver must not block or call the bus. After Publish has been called, p.Data and
//     p.Tags are immutable for the bus, the publisher and the receivers; a receiver may keep both.
//   - Unsubscribe returns when the last call of r for channel has returned; nothing is delivered
//     afterwards. It must not be called from within a receiver. If r is not subscribed, it does
//     nothing.
//   - Close ends the bus. It returns when all calls of receivers have returned; the other methods
//     then return ErrClosed. Close may be called twice.
//
// The node's own limits bound receivers and channels; the bus bounds histories.
type Bus interface {
	Publish(ctx context.Context, t Topic, p Publication) (Position, error)
	Subscribe(ctx context.Context, t Topic, r Receiver) error
	Unsubscribe(channel string, r Receiver)
	History(ctx context.Context, t Topic, q Query) (History, error)
	Forget(ctx context.Context, t Topic) error
	Announce(ctx context.Context, channel string, n Notice) error
	Present(ctx context.Context, channel string, limit int) (Presence, error)
	Serve(kind string, f func(body []byte) []byte) (stop func())
	Ask(ctx context.Context, kind string, body []byte, each func(answer []byte)) (missing []string, err error)
	State() State
	Close() error
}

// A Local is a bus within this process. Its methods do not wait for others, and need no deadline;
// it sees all publications. A server asserts at its start whether its Bus is one.
type Local interface {
	Bus
	// Tap has f called with what is published from now on, in all channels. f is called after the
	// channel's receivers, with the same slice, and once at a time for each channel. Like a
	// Receiver, it must not block or call the bus. stop ends that. A publication that has begun may
	// reach f before Tap returns, and after stop has.
	Tap(f func(channel string, list []Publication)) (stop func())
}

var (
	// ErrClosed is returned by a Bus after Close.
	ErrClosed = errors.New("push: the bus is closed: publish and subscribe before shutting down")
	// ErrSubscribed is returned by Subscribe for a receiver that is already subscribed to the
	// channel.
	ErrSubscribed = errors.New("push: the receiver is already subscribed to this channel")
	// ErrUncertain is returned by Publish if the publication may or may not be delivered.
	ErrUncertain = errors.New("push: the publication was sent, but not confirmed in time: " +
		"publish it again with the same ID")
	// ErrOutdated is returned by Publish for a Version that is not after the latest.
	ErrOutdated = errors.New("push: a publication with this version, or a newer one, was made before")
	// ErrNoHistory is returned by History, Forget, and Publish with a Version, for a Topic without
	// a Retention.
	ErrNoHistory = errors.New("push: the topic keeps no history: give it a Retention")
)
