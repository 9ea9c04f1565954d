// Package centrifuge is the codec of the Centrifuge client protocol, version 2, in its JSON form:
// pure functions between bytes and commands, replies and pushes. It knows no connection, no channel
// and no clock.
//
// https://github.com/centrifugal/protocol defines the protocol (definitions/client.proto), and
// https://centrifugal.dev/docs/transports/client_protocol describes it. In short: a WebSocket
// message carries one or more commands, one JSON object to a line. A command has an id and one
// member named after its method. The reply has the same id, and a member of the same name or an
// error. A message that the server sends without a command is a push, which has no id. An empty
// object is a ping from the server or a pong from the client.
package centrifuge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

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
	"history",
	"ping", "send", "rpc", "refresh", "sub_refresh"}

func (m Method) String() string { return methodNames[m] }

// A Command is one line of a client's frame. The server reads at most one of the pointers: see
// Method.
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
	Send          *struct{}          `json:"send"`
	RPC           *struct{}          `json:"rpc"`
	Refresh       *RefreshRequest    `json:"refresh"`
	SubRefresh    *SubRefreshRequest `json:"sub_refresh"`
}

// ConnectRequest is the first command of every connection. The package ignores data, headers and
// server-side subscriptions, which the protocol also allows here.
type ConnectRequest struct {
	Token   string `json:"token"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

// SubscribeRequest requests the publications of a channel. Recover also requests those after Offset
// of Epoch. JoinLeave requests a notice of each join and leave. The package ignores the protocol's
// other members.
type SubscribeRequest struct {
	Channel   string `json:"channel"`
	Token     string `json:"token"`
	Recover   bool   `json:"recover"`
	Epoch     string `json:"epoch"`
	Offset    uint64 `json:"offset"`
	JoinLeave bool   `json:"join_leave"`
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

// PublishRequest carries data that is any JSON value; nil when the member is absent.
type PublishRequest struct {
	Channel string          `json:"channel"`
	Data    json.RawMessage `json:"data"`
}

type RefreshRequest struct {
	Token string `json:"token"`
}

type SubRefreshRequest struct {
	Channel string `json:"channel"`
	Token   string `json:"token"`
}

// ErrEmpty is returned for a line with nothing on it.
var ErrEmpty = errors.New("centrifuge: empty command: a frame holds one JSON object to a line")

// Parse parses the command on the first line of p. n is the length of the line with its newline:
// p[n:] starts with the next command, and is empty after the last. On an error n is 0, and the rest
// of the frame cannot be parsed. The command does not refer to p.
func Parse(p []byte) (n int, c Command, err error) {
	line := p
	n = len(p)
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		line, n = p[:i], i+1
	}
	if len(line) == 0 {
		return 0, Command{}, ErrEmpty
	}
	if err := json.Unmarshal(line, &c); err != nil {
		return 0, Command{}, fmt.Errorf("centrifuge: malformed command of %d bytes: %w", len(line), err)
	}
	return n, c, nil
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
