package centrifuge

import (
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// PingFrame is the server's ping and the client's answer to it.
const PingFrame = "{}"

// ConnectResult is the answer to Connect. Zero members are left out.
type ConnectResult struct {
	Client  string // id of the connection, unique in the cluster
	Version string // of the server
	Expires bool   // the connection ends TTL seconds from now unless the client refreshes its token
	TTL     uint32 // seconds
	Ping    uint32 // seconds between the server's pings
	Pong    bool   // the client must answer pings
}

// AppendConnect appends the reply to the Connect command with that id, without a newline.
func AppendConnect(dst []byte, id uint32, r ConnectResult) []byte {
	dst = append(appendReply(dst, id, Connect), `{"client":`...)
	dst = AppendString(dst, r.Client)
	if r.Version != "" {
		dst = AppendString(append(dst, `,"version":`...), r.Version)
	}
	dst = appendTTL(dst, r.Expires, r.TTL)
	if r.Ping > 0 {
		dst = appendUint(append(dst, `,"ping":`...), r.Ping)
	}
	if r.Pong {
		dst = append(dst, `,"pong":true`...)
	}
	return append(dst, "}}"...)
}

// AppendRefresh appends the reply to a Refresh command: the connection of that client now ends in
// ttl seconds.
func AppendRefresh(dst []byte, id uint32, client string, ttl uint32) []byte {
	dst = append(appendReply(dst, id, Refresh), `{"client":`...)
	dst = AppendString(dst, client)
	dst = appendTTL(dst, true, ttl)
	return append(dst, "}}"...)
}

func appendTTL(dst []byte, expires bool, ttl uint32) []byte {
	if expires {
		dst = append(dst, `,"expires":true`...)
	}
	if ttl > 0 {
		dst = appendUint(append(dst, `,"ttl":`...), ttl)
	}
	return dst
}

// AppendDone appends a reply with an empty object as result, as for Unsubscribe, Publish and Ping.
func AppendDone(dst []byte, id uint32, m Method) []byte {
	return append(appendReply(dst, id, m), "{}}"...)
}

// AppendError appends the reply to a command that failed.
func AppendError(dst []byte, id uint32, e Error) []byte {
	dst = appendUint(append(dst, `{"id":`...), id)
	dst = appendUint(append(dst, `,"error":{"code":`...), e.Code)
	dst = AppendString(append(dst, `,"message":`...), e.Message)
	if e.Temporary {
		dst = append(dst, `,"temporary":true`...)
	}
	return append(dst, "}}"...)
}

func appendReply(dst []byte, id uint32, m Method) []byte {
	dst = appendUint(append(dst, `{"id":`...), id)
	dst = append(append(dst, `,"`...), m.String()...)
	return append(dst, `":`...)
}

// AppendSubRefresh appends the reply to a SubRefresh command: the subscription now ends in ttl
// seconds.
func AppendSubRefresh(dst []byte, id uint32, ttl uint32) []byte {
	dst = appendUint(append(appendReply(dst, id, SubRefresh), `{"expires":true,"ttl":`...), ttl)
	return append(dst, "}}"...)
}

// SubscribeResult is the answer to Subscribe. Zero members are left out.
type SubscribeResult struct {
	Expires bool   // the subscription ends TTL seconds from now unless the client refreshes its token
	TTL     uint32 // seconds

	Recoverable   bool   // the client may reconnect and recover
	Position             // the channel's position, if Recoverable
	WasRecovering bool   // the client requested recovery
	Recovered     bool   // Publications is everything that the client has missed
	Publications  []byte // from AppendPublications; nil if there are none
}

// AppendSubscribe appends the reply to a Subscribe command.
func AppendSubscribe(dst []byte, id uint32, r SubscribeResult) []byte {
	dst = append(appendReply(dst, id, Subscribe), '{')
	start := len(dst)
	dst = appendTTL(dst, r.Expires, r.TTL)
	if r.Recoverable {
		dst = AppendString(append(dst, `,"recoverable":true,"epoch":`...), r.Epoch)
	}
	if r.Publications != nil {
		dst = append(append(dst, `,"publications":`...), r.Publications...)
	}
	if r.Recovered {
		dst = append(dst, `,"recovered":true`...)
	}
	if r.Offset > 0 {
		dst = appendUint64(append(dst, `,"offset":`...), r.Offset)
	}
	if r.Recoverable {
		dst = append(dst, `,"positioned":true`...)
	}
	if r.WasRecovering {
		dst = append(dst, `,"was_recovering":true`...)
	}
	return append(withoutComma(dst, start), "}}"...)
}

// withoutComma removes the comma before the first member of an object.
func withoutComma(dst []byte, start int) []byte {
	if len(dst) == start {
		return dst
	}
	return append(dst[:start], dst[start+1:]...)
}

// AppendHistory appends the reply to a History command. publications comes from AppendPublications.
func AppendHistory(dst []byte, id uint32, publications []byte, top Position) []byte {
	return append(AppendHistoryResult(appendReply(dst, id, History), publications, top), '}')
}

// AppendHistoryResult appends the result object of that reply.
func AppendHistoryResult(dst, publications []byte, top Position) []byte {
	dst = append(append(dst, `{"publications":`...), publications...)
	dst = AppendString(append(dst, `,"epoch":`...), top.Epoch)
	dst = appendUint64(append(dst, `,"offset":`...), top.Offset)
	return append(dst, '}')
}

// A ClientInfo is what one subscriber may learn of another. ConnInfo and ChanInfo are JSON or nil.
type ClientInfo struct {
	Client, User       string
	ConnInfo, ChanInfo []byte
}

func appendInfo(dst []byte, i ClientInfo) []byte {
	dst = AppendString(append(dst, `{"user":`...), i.User)
	dst = AppendString(append(dst, `,"client":`...), i.Client)
	if i.ConnInfo != nil {
		dst = append(append(dst, `,"conn_info":`...), i.ConnInfo...)
	}
	if i.ChanInfo != nil {
		dst = append(append(dst, `,"chan_info":`...), i.ChanInfo...)
	}
	return append(dst, '}')
}

// AppendPresence appends the reply to a Presence command.
func AppendPresence(dst []byte, id uint32, list []ClientInfo) []byte {
	return append(AppendPresenceResult(appendReply(dst, id, Presence), list), '}')
}

// AppendPresenceResult appends the result object of that reply.
func AppendPresenceResult(dst []byte, list []ClientInfo) []byte {
	dst = append(dst, `{"presence":{`...)
	for i, info := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendInfo(append(AppendString(dst, info.Client), ':'), info)
	}
	return append(dst, "}}"...)
}

// AppendPresenceStats appends the reply to a PresenceStats command.
func AppendPresenceStats(dst []byte, id uint32, clients, users int) []byte {
	return append(AppendPresenceStatsResult(appendReply(dst, id, PresenceStats), clients, users), '}')
}

// AppendPresenceStatsResult appends the result object of that reply.
func AppendPresenceStatsResult(dst []byte, clients, users int) []byte {
	dst = appendUint64(append(dst, `{"num_clients":`...), uint64(clients))
	dst = appendUint64(append(dst, `,"num_users":`...), uint64(users))
	return append(dst, '}')
}

// A Publication is one message of a channel. Data is valid JSON in UTF-8, without newlines. Client
// and User name the connection that published it; they are empty for a publication from the
// server's API. Offset is its place in the channel's history, 0 if there is none. Tags are left out
// if there are none.
type Publication struct {
	Data         []byte
	Client, User string
	Offset       uint64
	Tags         map[string]string
}

// AppendPublication appends the push of p to a subscriber of channel.
func AppendPublication(dst []byte, channel string, p Publication) []byte {
	return append(appendBare(append(appendPush(dst, channel), `"pub":`...), p), "}}"...)
}

// AppendPublications appends list in the form that replies contain.
func AppendPublications(dst []byte, list []Publication) []byte {
	dst = append(dst, '[')
	for i, p := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendBare(dst, p)
	}
	return append(dst, ']')
}

func appendBare(dst []byte, p Publication) []byte {
	dst = append(append(dst, `{"data":`...), p.Data...)
	if p.Client != "" {
		dst = appendInfo(append(dst, `,"info":`...), ClientInfo{Client: p.Client, User: p.User})
	}
	if p.Offset > 0 {
		dst = appendUint64(append(dst, `,"offset":`...), p.Offset)
	}
	if len(p.Tags) > 0 {
		dst = appendTags(append(dst, `,"tags":`...), p.Tags)
	}
	return append(dst, '}')
}

// appendTags appends tags sorted by name, so that equal publications have equal bytes.
func appendTags(dst []byte, tags map[string]string) []byte {
	open := byte('{')
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		dst = AppendString(append(dst, open), name)
		dst = AppendString(append(dst, ':'), tags[name])
		open = ','
	}
	return append(dst, '}')
}

// AppendJoin appends the push that announces to subscribers of channel that a client has joined.
func AppendJoin(dst []byte, channel string, client ClientInfo) []byte {
	return append(appendInfo(append(appendPush(dst, channel), `"join":{"info":`...), client), "}}}"...)
}

// AppendLeave appends the push that announces that a client has left.
func AppendLeave(dst []byte, channel string, client ClientInfo) []byte {
	return append(appendInfo(append(appendPush(dst, channel), `"leave":{"info":`...), client), "}}}"...)
}

// AppendUnsubscribe appends the push for a client whose subscription the server has ended.
func AppendUnsubscribe(dst []byte, channel string, u Unsubscribed) []byte {
	dst = append(appendPush(dst, channel), `"unsubscribe":{"code":`...)
	dst = AppendString(append(appendUint(dst, u.Code), `,"reason":`...), u.Reason)
	return append(dst, "}}}"...)
}

// AppendDisconnect appends the push that announces a disconnect, for transports without a close
// frame.
func AppendDisconnect(dst []byte, d Disconnect) []byte {
	dst = append(dst, `{"push":{"disconnect":{"code":`...)
	dst = appendUint(dst, uint32(d.Code))
	dst = AppendString(append(dst, `,"reason":`...), d.Reason)
	return append(dst, "}}}"...)
}

func appendPush(dst []byte, channel string) []byte {
	dst = AppendString(append(dst, `{"push":{"channel":`...), channel)
	return append(dst, ',')
}

func appendUint(dst []byte, n uint32) []byte { return appendUint64(dst, uint64(n)) }

func appendUint64(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become the replacement
// character, because a frame must be valid text. U+2028 and U+2029, which JSON allows, stay.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r) // RuneError for a byte that is not UTF-8
			i += size
			continue
		}
		i++
	}
	return append(dst, '"')
}
