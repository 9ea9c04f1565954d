package centrifuge

import "encoding/json"

// A Reply is what the server sends. One of the members after ID is set; with none of them it is a
// ping. Method is set for replies whose result is empty: Unsubscribe, Publish and Ping.
type Reply struct {
	ID         uint32
	Error      *Error
	Push       *Push
	Method     Method
	Connect    *ConnectResult
	Subscribe  *SubscribeResult
	Presence   *PresenceResult
	Stats      *PresenceStatsResult
	History    *HistoryResult
	RPC        *RPCResult
	Refresh    *RefreshResult
	SubRefresh *RefreshResult // without Client and Version
}

// A Push is what the server sends on its own. One of the pointers is set.
type Push struct {
	Channel     string
	Publication *Publication
	Join, Leave *ClientInfo
	Unsubscribe *Unsubscribed
	Message     json.RawMessage // from the server's program; nil if it is none
	Subscribe   *SubscribeResult
	Connect     *ConnectResult
	Disconnect  *Disconnect
	Refresh     *RefreshResult // without Client and Version
}

// ConnectResult is the answer to Connect. Zero members are left out.
type ConnectResult struct {
	Client  string // id of the connection, unique in the cluster
	Version string // of the server
	Expires bool   // the connection ends TTL seconds from now unless the client refreshes its token
	TTL     uint32 // seconds
	Data    json.RawMessage
	Subs    []ServerSubscription
	Ping    uint32 // seconds between the server's pings
	Pong    bool   // the client must answer pings
	Session string // with Node, how an EmulationRequest finds the connection
	Node    string
}

// A ServerSubscription is a subscription that the server has made for the client.
type ServerSubscription struct {
	Channel string
	SubscribeResult
}

// SubscribeResult is the answer to Subscribe. Zero members are left out.
type SubscribeResult struct {
	Expires bool   // the subscription ends TTL seconds from now unless the client refreshes its token
	TTL     uint32 // seconds

	Recoverable   bool // the client may reconnect and recover
	Position           // the channel's position, if Recoverable
	WasRecovering bool // the client requested recovery
	Recovered     bool // Publications is everything that the client has missed
	Publications  []Publication
	Delta         bool // publications may be deltas
	Data          json.RawMessage
}

// RefreshResult says that the connection, or the subscription, ends in TTL seconds.
type RefreshResult struct {
	Client, Version string
	Expires         bool
	TTL             uint32
}

// HistoryResult is the answer to History.
type HistoryResult struct {
	Publications []Publication
	Position
}

// PresenceResult is the answer to Presence.
type PresenceResult struct{ Clients []ClientInfo }

// PresenceStatsResult is the answer to PresenceStats.
type PresenceStatsResult struct{ Clients, Users int }

// RPCResult is the answer to RPC.
type RPCResult struct{ Data json.RawMessage }

// A ClientInfo is what one subscriber may learn of another. ConnInfo and ChanInfo are JSON or nil.
type ClientInfo struct {
	Client, User       string
	ConnInfo, ChanInfo json.RawMessage
}

// A Publication is one message of a channel. For JSON, Data is valid JSON in UTF-8 without
// newlines. Client and User name the connection that published it; they are empty for a publication
// from the server's API. Offset is its place in the channel's history, 0 if there is none. Delta
// says that Data is to be applied to the previous publication.
type Publication struct {
	Data         []byte
	Client, User string
	Offset       uint64
	Tags         map[string]string
	Delta        bool
}
