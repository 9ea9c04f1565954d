package centrifuge

import (
	"strconv"
	"unicode/utf8"
)

// PingFrame is what the server sends to learn whether a client is there, and what the client sends back.
const PingFrame = "{}"

// ConnectResult is the answer to Connect. Zero members are left out.
type ConnectResult struct {
	Client  string // id of the connection, unique in the cluster
	Version string // of the server
	Expires bool   // the connection ends TTL seconds from now unless the client refreshes its token
	TTL     uint32 // seconds
	Ping    uint32 // seconds between the server's pings
	Pong    bool   // the client has to answer them
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

// AppendRefresh appends the reply to a Refresh command: the connection of that client now ends in ttl seconds.
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

// AppendDone appends a reply whose result is an empty object, as it is for Subscribe without recovery, for Unsubscribe,
// Publish and Ping.
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

// A Publication is one message of a channel. Data is valid JSON in UTF-8, without newlines. Client and User name the connection that
// published it, and are empty when the server's own API did.
type Publication struct {
	Data         []byte
	Client, User string
}

// AppendPublication appends the push of p to a subscriber of channel.
func AppendPublication(dst []byte, channel string, p Publication) []byte {
	dst = append(appendPush(dst, channel), `"pub":{"data":`...)
	dst = append(dst, p.Data...)
	if p.Client != "" {
		dst = AppendString(append(dst, `,"info":{"user":`...), p.User)
		dst = AppendString(append(dst, `,"client":`...), p.Client)
		dst = append(dst, '}')
	}
	return append(dst, "}}}"...)
}

// AppendUnsubscribe appends the push that tells a client that the server has ended its subscription. Codes from 2500 make it
// subscribe again, lower ones do not.
func AppendUnsubscribe(dst []byte, channel string, code uint32, reason string) []byte {
	dst = append(appendPush(dst, channel), `"unsubscribe":{"code":`...)
	dst = AppendString(append(appendUint(dst, code), `,"reason":`...), reason)
	return append(dst, "}}}"...)
}

// AppendDisconnect appends the push that announces a disconnect where the transport has no close frame of its own to say it.
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

func appendUint(dst []byte, n uint32) []byte { return strconv.AppendUint(dst, uint64(n), 10) }

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become the replacement character, because the frame must
// be valid text whatever a channel is called. U+2028 and U+2029 are legal in JSON and left alone.
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
