package push

import (
	"net/http"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/resp/wire"
)

// redisDoor is the channels of Redis: PUBLISH, SUBSCRIBE and what belongs to them. It has no path;
// Server.Redis gives it a listener.
func redisDoor() door {
	d := door{open: func(*Server) func(*http.ServeMux) { return func(*http.ServeMux) {} }}
	for _, protocol := range []resp.Protocol{resp.RESP2, resp.RESP3} {
		for _, sharded := range []bool{false, true} {
			d.forms = append(d.forms, redisForm{protocol, sharded})
		}
	}
	return d
}

// A redisForm writes each publication as a push message with its data. Sharded messages are for
// SSUBSCRIBE; they differ in one word.
type redisForm struct {
	protocol resp.Protocol
	sharded  bool
}

func (f redisForm) kind() (transport, protocol string) {
	if f.protocol == resp.RESP3 {
		return "redis", "resp3"
	}
	return "redis", "resp2"
}

func (f redisForm) publications(channel string, list []Publication) []byte {
	word := "message"
	if f.sharded {
		word = "smessage"
	}
	dst := make([]byte, 0, encodedSize(channel, list))
	for _, p := range list {
		dst = wire.AppendBulk(wire.AppendBulk(wire.AppendPush(dst, 3, f.protocol), word), channel)
		dst = wire.AppendBulk(dst, p.Data)
	}
	return dst
}

// matches returns publications for a subscriber of a pattern.
func (f redisForm) matches(pattern, channel string, list []Publication) (dst []byte) {
	for _, p := range list {
		dst = wire.AppendBulk(wire.AppendBulk(wire.AppendPush(dst, 4, f.protocol), "pmessage"), pattern)
		dst = wire.AppendBulk(wire.AppendBulk(dst, channel), p.Data)
	}
	return dst
}

func (f redisForm) notice(string, Notice) []byte { return nil }

// Clients of Redis do not expect subscriptions that they have not asked for.
func (f redisForm) subscribed(string, welcome) []byte { return nil }

// The message of Redis for that counts what is left, which a form does not know.
func (f redisForm) unsubscribed(string, unsubscription) []byte { return nil }

func (f redisForm) refreshed(uint32) []byte { return nil }

// Clients of Redis do not expect a message that they have not asked for; they ping by themselves.
func (f redisForm) ping() (payload []byte, answered bool) { return nil, false }

func (f redisForm) share(payload []byte) shared { return buf.From(payload) }

// redisTransport writes to a connection of package resp.
type redisTransport struct{ *resp.Conn }

func (t redisTransport) send(m *message) error {
	if len(m.payload) == 0 {
		return nil // a ping
	}
	if b, ok := m.shared.(*buf.Block); ok {
		return full(t.TryPush(b.Retain()))
	}
	return full(t.TryPush(buf.From(m.payload)))
}

func (t redisTransport) queued() int { return t.Queued() }

func (t redisTransport) remote() string { return t.RemoteAddr().String() }

// close ends the connection. Redis has no message for the reason.
func (t redisTransport) close(why ending) {
	if why == endSlow {
		t.Abort(why)
		return
	}
	t.Close()
}
