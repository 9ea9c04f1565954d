// Package centrifuge is the codec of the Centrifuge client protocol, version 2, in its JSON and
// Protobuf forms: pure functions between bytes and commands, replies and pushes. It knows no
// connection, no channel and no clock.
//
//	n, command, err := centrifuge.JSON.Parse(frame)
//	frame = centrifuge.JSON.AppendReply(nil, &centrifuge.Reply{ID: command.ID, Method: centrifuge.Publish})
//
// https://github.com/centrifugal/protocol defines the protocol (definitions/client.proto), and
// https://centrifugal.dev/docs/transports/client_protocol describes it. In short: a WebSocket
// message carries one or more commands. In JSON each is an object on a line of its own; in Protobuf
// each is a message after its length as a varint. A command has an id and one member named after
// its method. The reply has the same id, and a member of the same name or an error. A message that
// the server sends without a command is a push, which has no id. An empty command is a pong, an
// empty reply a ping.
//
// APIRequest and APIResponse translate between Centrifugo's gRPC API for backends and its HTTP API.
package centrifuge

import (
	"encoding/json"
	"errors"
)

// A Codec is one of the two forms of the protocol.
type Codec uint8

const (
	JSON Codec = iota
	Protobuf
)

// ErrEmpty is returned for a command without bytes.
var ErrEmpty = errors.New("centrifuge: empty command: a frame holds one JSON object to a line")

// Parse parses the first command of p. p[n:] starts with the next command, and is empty after the
// last. On an error n is 0, and the rest of the frame cannot be parsed. The command does not refer
// to p.
func (c Codec) Parse(p []byte) (n int, command Command, err error) {
	if c == Protobuf {
		return parseProtobuf(p)
	}
	return parseJSON(p)
}

// AppendReply appends r to the replies in dst.
func (c Codec) AppendReply(dst []byte, r *Reply) []byte {
	if c == Protobuf {
		return appendProtobufReply(dst, r)
	}
	if len(dst) > 0 {
		dst = append(dst, '\n')
	}
	return appendJSONReply(dst, r)
}

// AppendPush appends p as a message of its own, without a reply around it, as unidirectional
// clients read it.
func (c Codec) AppendPush(dst []byte, p *Push) []byte {
	if c == Protobuf {
		return appendProtobufPush(dst, p)
	}
	if len(dst) > 0 {
		dst = append(dst, '\n')
	}
	return appendJSONPush(dst, p)
}

// Ping returns the message that the server pings with.
func (c Codec) Ping() string {
	if c == Protobuf {
		return "\x00"
	}
	return "{}"
}

// A Method is the method of a command. Its String is the name of the member in the command and in
// its reply.
type Method uint8

const (
	None Method = iota // no member that this package knows
	Connect
	Subscribe
	Unsubscribe
	Publish
	Presence
	PresenceStats
	History
	Ping
	Send
	RPC
	Refresh
	SubRefresh
)

var methodNames = [...]string{"none", "connect", "subscribe", "unsubscribe", "publish", "presence", "presence_stats",
	"history", "ping", "send", "rpc", "refresh", "sub_refresh"}

func (m Method) String() string { return methodNames[m] }

// A Command is what a client sends. The server reads at most one of the pointers: see Method.
type Command struct {
	ID            uint32             `json:"id"`
	Connect       *ConnectRequest    `json:"connect"`
	Subscribe     *SubscribeRequest  `json:"subscribe"`
	Unsubscribe   *ChannelRequest    `json:"unsubscribe"`
	Publish       *PublishRequest    `json:"publish"`
	Presence      *ChannelRequest    `json:"presence"`
	PresenceStats *ChannelRequest    `json:"presence_stats"`
	History       *HistoryRequest    `json:"history"`
	Ping          *struct{}          `json:"ping"`
	Send          *SendRequest       `json:"send"`
	RPC           *RPCRequest        `json:"rpc"`
	Refresh       *RefreshRequest    `json:"refresh"`
	SubRefresh    *SubRefreshRequest `json:"sub_refresh"`
}

// ConnectRequest is the first command of every connection. Subs has the positions after which the
// client continues its server-side subscriptions.
//
// The package reads past members that it does not know, here and in all commands, in both forms.
// The protocol's way to add something is an offer: flag, profile and dict of this command,
// positioned and recoverable of a subscription. The client then looks into the reply for what the
// server does, so that newer clients can connect to older servers. Members that change what a
// command asks for are read, and refused if they are not served: type, flag, delta and tf.
type ConnectRequest struct {
	Token   string                       `json:"token"`
	Data    json.RawMessage              `json:"data"`
	Subs    map[string]*SubscribeRequest `json:"subs"`
	Name    string                       `json:"name"`
	Version string                       `json:"version"`
}

// SubscribeRequest requests the publications of a channel. Recover also requests those after Offset
// of Epoch. JoinLeave requests a notice of each join and leave. Delta names the compression that
// the client understands. Filter selects publications by their tags.
type SubscribeRequest struct {
	Channel   string          `json:"channel"`
	Token     string          `json:"token"`
	Recover   bool            `json:"recover"`
	Epoch     string          `json:"epoch"`
	Offset    uint64          `json:"offset"`
	Data      json.RawMessage `json:"data"`
	JoinLeave bool            `json:"join_leave"`
	Delta     string          `json:"delta"`
	Filter    *FilterNode     `json:"tf"`
	Flag      int64           `json:"flag"`
	Type      int32           `json:"type"`
}

// FlagRejectUnrecovered in SubscribeRequest.Flag asks for the error 112 instead of a subscription
// that has not recovered everything.
const FlagRejectUnrecovered = 2

// Flags are the bits of SubscribeRequest.Flag that have a meaning. The one besides
// FlagRejectUnrecovered asks for a number instead of the channel's name in pushes, which a server
// may leave out: clients look for it in the reply.
const Flags = 1 | FlagRejectUnrecovered

// A FilterNode is an operation on tags. With Op "and", "or" or "not" it combines Nodes; without Op
// it compares the tag Key.
type FilterNode struct {
	Op      string        `json:"op"`
	Key     string        `json:"key"`
	Compare string        `json:"cmp"`
	Value   string        `json:"val"`
	Values  []string      `json:"vals"`
	Nodes   []*FilterNode `json:"nodes"`
}

// HistoryRequest requests publications of a channel's history: those after Since, or before it if
// Reverse, at most Limit. A Limit of 0 requests the position only, a negative one all publications.
type HistoryRequest struct {
	Channel string    `json:"channel"`
	Limit   int32     `json:"limit"`
	Since   *Position `json:"since"`
	Reverse bool      `json:"reverse"`
}

// A Position is a place in the history of a channel.
type Position struct {
	Offset uint64 `json:"offset"`
	Epoch  string `json:"epoch"`
}

// ChannelRequest is the body of every method that only names a channel.
type ChannelRequest struct {
	Channel string `json:"channel"`
}

// PublishRequest carries data: in JSON any JSON value, in Protobuf any bytes; nil when the member
// is absent. Another Type than 0 is a publication into a map.
type PublishRequest struct {
	Channel string          `json:"channel"`
	Data    json.RawMessage `json:"data"`
	Type    int32           `json:"type"`
}

// SendRequest carries data to the server's program. It has no reply.
type SendRequest struct {
	Data json.RawMessage `json:"data"`
}

// RPCRequest calls a method of the server's program.
type RPCRequest struct {
	Data   json.RawMessage `json:"data"`
	Method string          `json:"method"`
}

type RefreshRequest struct {
	Token string `json:"token"`
}

// SubRefreshRequest renews the token of a subscription. Another Type than 0 belongs to subscription
// types that are not served.
type SubRefreshRequest struct {
	Channel string `json:"channel"`
	Token   string `json:"token"`
	Type    int32  `json:"type"`
}

// IsPong reports whether c is an empty object, the answer to the server's ping.
func (c *Command) IsPong() bool { return c.ID == 0 && c.Method() == None }

// Method returns c's method. A client should send one member; of several, the first in this order
// counts.
func (c *Command) Method() Method {
	switch {
	case c.Connect != nil:
		return Connect
	case c.Subscribe != nil:
		return Subscribe
	case c.Unsubscribe != nil:
		return Unsubscribe
	case c.Publish != nil:
		return Publish
	case c.Presence != nil:
		return Presence
	case c.PresenceStats != nil:
		return PresenceStats
	case c.History != nil:
		return History
	case c.Ping != nil:
		return Ping
	case c.Send != nil:
		return Send
	case c.RPC != nil:
		return RPC
	case c.Refresh != nil:
		return Refresh
	case c.SubRefresh != nil:
		return SubRefresh
	}
	return None
}

// Channel returns the channel that c names, or "".
func (c *Command) Channel() string {
	switch c.Method() {
	case Subscribe:
		return c.Subscribe.Channel
	case Unsubscribe:
		return c.Unsubscribe.Channel
	case Publish:
		return c.Publish.Channel
	case Presence:
		return c.Presence.Channel
	case PresenceStats:
		return c.PresenceStats.Channel
	case History:
		return c.History.Channel
	case SubRefresh:
		return c.SubRefresh.Channel
	}
	return ""
}

// An EmulationRequest carries commands of a client whose connection only receives. Data is a frame
// of commands.
type EmulationRequest struct {
	Node, Session string
	Data          []byte
}
