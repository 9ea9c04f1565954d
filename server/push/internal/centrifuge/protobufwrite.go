package centrifuge

import (
	"encoding/binary"
	"maps"
	"slices"
)

// This file encodes replies in Protobuf's wire format. Fields with the zero value are left out, as
// Protobuf 3 does; those that are messages are written even if they are empty.

// appendProtobufReply appends r after its length.
func appendProtobufReply(dst []byte, r *Reply) []byte {
	mark := len(dst)
	dst = append(dst, 0)
	dst = appendNumber(dst, 1, uint64(r.ID))
	switch {
	case r.Error != nil:
		dst = appendMessage(dst, 2, func(dst []byte) []byte {
			dst = appendNumber(dst, 1, uint64(r.Error.Code))
			return appendBool(appendText(dst, 2, r.Error.Message), 3, r.Error.Temporary)
		})
	case r.Push != nil:
		dst = appendMessage(dst, 4, func(dst []byte) []byte { return appendPushFields(dst, r.Push) })
	case r.Method != None:
		dst = append(appendKey(dst, resultNumbers[r.Method], wireBytes), 0)
	case r.Connect != nil:
		dst = appendMessage(dst, resultNumbers[Connect], func(dst []byte) []byte {
			return appendConnect(dst, r.Connect, false)
		})
	case r.Subscribe != nil:
		dst = appendSubscribe(dst, resultNumbers[Subscribe], r.Subscribe)
	case r.Presence != nil:
		dst = appendMessage(dst, resultNumbers[Presence], func(dst []byte) []byte {
			return appendPresence(dst, r.Presence)
		})
	case r.Stats != nil:
		dst = appendMessage(dst, resultNumbers[PresenceStats], func(dst []byte) []byte {
			return appendNumber(appendNumber(dst, 1, uint64(r.Stats.Clients)), 2, uint64(r.Stats.Users))
		})
	case r.History != nil:
		dst = appendMessage(dst, resultNumbers[History], func(dst []byte) []byte {
			dst = appendPublications(dst, 1, r.History.Publications)
			return appendNumber(appendText(dst, 2, r.History.Epoch), 3, r.History.Offset)
		})
	case r.RPC != nil:
		dst = appendMessage(dst, resultNumbers[RPC], func(dst []byte) []byte {
			return appendBytes(dst, 1, r.RPC.Data)
		})
	case r.Refresh != nil:
		dst = appendMessage(dst, resultNumbers[Refresh], func(dst []byte) []byte {
			dst = appendText(appendText(dst, 1, r.Refresh.Client), 2, r.Refresh.Version)
			return appendNumber(appendBool(dst, 3, r.Refresh.Expires), 4, uint64(r.Refresh.TTL))
		})
	case r.SubRefresh != nil:
		dst = appendMessage(dst, resultNumbers[SubRefresh], func(dst []byte) []byte {
			return appendNumber(appendBool(dst, 1, r.SubRefresh.Expires), 2, uint64(r.SubRefresh.TTL))
		})
	}
	return withLength(dst, mark)
}

// resultNumbers are the numbers of the fields of a Reply.
var resultNumbers = [...]int{Connect: 5, Subscribe: 6, Unsubscribe: 7, Publish: 8, Presence: 9, PresenceStats: 10,
	History: 11, Ping: 12, Send: 0, RPC: 13, Refresh: 14, SubRefresh: 15}

// appendProtobufPush appends p after its length.
func appendProtobufPush(dst []byte, p *Push) []byte {
	mark := len(dst)
	return withLength(appendPushFields(append(dst, 0), p), mark)
}

func appendPushFields(dst []byte, p *Push) []byte {
	dst = appendText(dst, 2, p.Channel)
	switch {
	case p.Publication != nil:
		return appendPublication(dst, 4, p.Publication)
	case p.Join != nil:
		return appendMessage(dst, 5, func(dst []byte) []byte { return appendInfo(dst, 1, p.Join) })
	case p.Leave != nil:
		return appendMessage(dst, 6, func(dst []byte) []byte { return appendInfo(dst, 1, p.Leave) })
	case p.Unsubscribe != nil:
		return appendMessage(dst, 7, func(dst []byte) []byte {
			return appendText(appendNumber(dst, 2, uint64(p.Unsubscribe.Code)), 3, p.Unsubscribe.Reason)
		})
	case p.Message != nil:
		return appendMessage(dst, 8, func(dst []byte) []byte { return appendBytes(dst, 1, p.Message) })
	case p.Subscribe != nil:
		return appendMessage(dst, 9, func(dst []byte) []byte {
			dst = appendText(appendBool(dst, 1, p.Subscribe.Recoverable), 4, p.Subscribe.Epoch)
			dst = appendBool(appendNumber(dst, 5, p.Subscribe.Offset), 6, p.Subscribe.Recoverable)
			return appendBytes(dst, 7, p.Subscribe.Data)
		})
	case p.Connect != nil:
		return appendMessage(dst, 10, func(dst []byte) []byte { return appendConnect(dst, p.Connect, true) })
	case p.Disconnect != nil:
		return appendMessage(dst, 11, func(dst []byte) []byte {
			dst = appendText(appendNumber(dst, 1, uint64(p.Disconnect.Code)), 2, p.Disconnect.Reason)
			return appendBool(dst, 3, p.Disconnect.Reconnect())
		})
	case p.Refresh != nil:
		return appendMessage(dst, 12, func(dst []byte) []byte {
			return appendNumber(appendBool(dst, 1, p.Refresh.Expires), 2, uint64(p.Refresh.TTL))
		})
	}
	return dst
}

// appendConnect appends the fields of ConnectResult, or of the push Connect, whose subs, data and
// expiry have other numbers.
func appendConnect(dst []byte, r *ConnectResult, push bool) []byte {
	expires, data, subs := 3, 5, 6
	if push {
		expires, data, subs = 5, 3, 4
	}
	dst = appendText(appendText(dst, 1, r.Client), 2, r.Version)
	dst = appendNumber(appendBool(dst, expires, r.Expires), expires+1, uint64(r.TTL))
	dst = appendBytes(dst, data, r.Data)
	for i := range r.Subs {
		dst = appendMessage(dst, subs, func(dst []byte) []byte {
			return appendSubscribe(appendText(dst, 1, r.Subs[i].Channel), 2, &r.Subs[i].SubscribeResult)
		})
	}
	dst = appendBool(appendNumber(dst, 7, uint64(r.Ping)), 8, r.Pong)
	return appendText(appendText(dst, 9, r.Session), 10, r.Node)
}

func appendSubscribe(dst []byte, number int, r *SubscribeResult) []byte {
	return appendMessage(dst, number, func(dst []byte) []byte {
		dst = appendNumber(appendBool(dst, 1, r.Expires), 2, uint64(r.TTL))
		dst = appendText(appendBool(dst, 3, r.Recoverable), 6, r.Epoch)
		dst = appendPublications(dst, 7, r.Publications)
		dst = appendNumber(appendBool(dst, 8, r.Recovered), 9, r.Offset)
		dst = appendBytes(appendBool(dst, 10, r.Recoverable), 11, r.Data)
		return appendBool(appendBool(dst, 12, r.WasRecovering), 13, r.Delta)
	})
}

func appendPresence(dst []byte, r *PresenceResult) []byte {
	for i := range r.Clients {
		dst = appendMessage(dst, 1, func(dst []byte) []byte {
			return appendInfo(appendText(dst, 1, r.Clients[i].Client), 2, &r.Clients[i])
		})
	}
	return dst
}

func appendInfo(dst []byte, number int, i *ClientInfo) []byte {
	return appendMessage(dst, number, func(dst []byte) []byte {
		dst = appendText(appendText(dst, 1, i.User), 2, i.Client)
		return appendBytes(appendBytes(dst, 3, i.ConnInfo), 4, i.ChanInfo)
	})
}

func appendPublications(dst []byte, number int, list []Publication) []byte {
	for i := range list {
		dst = appendPublication(dst, number, &list[i])
	}
	return dst
}

func appendPublication(dst []byte, number int, p *Publication) []byte {
	return appendMessage(dst, number, func(dst []byte) []byte {
		dst = appendBytes(dst, 4, p.Data)
		if p.Client != "" {
			dst = appendInfo(dst, 5, &ClientInfo{Client: p.Client, User: p.User})
		}
		dst = appendNumber(dst, 6, p.Offset)
		for _, name := range slices.Sorted(maps.Keys(p.Tags)) {
			dst = appendMessage(dst, 7, func(dst []byte) []byte {
				return appendText(appendText(dst, 1, name), 2, p.Tags[name])
			})
		}
		return appendBool(dst, 8, p.Delta)
	})
}

func appendKey(dst []byte, number int, wire uint64) []byte {
	return binary.AppendUvarint(dst, uint64(number)<<3|wire)
}

func appendNumber(dst []byte, number int, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendUvarint(appendKey(dst, number, wireVarint), v)
}

func appendBool(dst []byte, number int, v bool) []byte {
	if !v {
		return dst
	}
	return append(appendKey(dst, number, wireVarint), 1)
}

func appendBytes(dst []byte, number int, p []byte) []byte {
	if len(p) == 0 {
		return dst
	}
	return append(binary.AppendUvarint(appendKey(dst, number, wireBytes), uint64(len(p))), p...)
}

func appendText(dst []byte, number int, s string) []byte {
	if s == "" {
		return dst
	}
	return append(binary.AppendUvarint(appendKey(dst, number, wireBytes), uint64(len(s))), s...)
}

// appendMessage appends a field that is a message with the fields that body appends.
func appendMessage(dst []byte, number int, body func([]byte) []byte) []byte {
	dst = appendKey(dst, number, wireBytes)
	mark := len(dst)
	return withLength(body(append(dst, 0)), mark)
}

// withLength writes the length of what follows dst[mark] in front of it. The byte at mark is
// reserved; a longer length moves what follows.
func withLength(dst []byte, mark int) []byte {
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(len(dst)-mark-1))
	if n > 1 {
		dst = slices.Insert(dst, mark+1, length[1:n]...)
	}
	dst[mark] = length[0]
	return dst
}
