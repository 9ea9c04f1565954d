package push

import (
	"net/http"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/resp"
)

// newRedisDoor returns the door. It has no path; its Server method gives it a listener.
func newRedisDoor() *redisServer { return new(redisServer) }

// Forms implements Door.
func (*redisServer) Forms() (forms []Form) {
	for _, protocol := range []resp.Protocol{resp.RESP2, resp.RESP3} {
		for _, sharded := range []bool{false, true} {
			forms = append(forms, redisForm{protocol: protocol, sharded: sharded})
		}
	}
	return forms
}

// Open implements Door.
func (d *redisServer) Open(s *Server) (clients, admin func(*http.ServeMux)) {
	d.Server = s
	return nil, nil
}

// A redisForm writes each publication as a push message with its data. Sharded messages are for
// SSUBSCRIBE; they differ in one word. Clients of Redis do not expect subscriptions that they have
// not asked for; and the message for the end of one counts what is left, which a form does not know.
type redisForm struct {
	QuietForm
	protocol resp.Protocol
	sharded  bool
}

func (f redisForm) Kind() (transport, protocol string) {
	if f.protocol == resp.RESP3 {
		return "redis", "resp3"
	}
	return "redis", "resp2"
}

func (f redisForm) Publications(channel string, list []Publication) []byte {
	word := "message"
	if f.sharded {
		word = "smessage"
	}
	dst := make([]byte, 0, EncodedSize(channel, list))
	for _, p := range list {
		dst = resp.AppendBulk(resp.AppendBulk(resp.AppendPush(dst, 3, f.protocol), word), channel)
		dst = resp.AppendBulk(dst, p.Data)
	}
	return dst
}

// matches returns publications for a subscriber of a pattern.
func (f redisForm) matches(pattern, channel string, list []Publication) (dst []byte) {
	for _, p := range list {
		dst = resp.AppendBulk(resp.AppendBulk(resp.AppendPush(dst, 4, f.protocol), "pmessage"), pattern)
		dst = resp.AppendBulk(resp.AppendBulk(dst, channel), p.Data)
	}
	return dst
}

// Clients of Redis do not expect a message that they have not asked for; they ping by themselves.
func (f redisForm) Ping() (payload []byte, answered bool) { return nil, false }

func (f redisForm) Share(payload []byte) Shared { return buf.From(payload) }

// redisTransport writes to a connection of package resp.
type redisTransport struct{ *resp.Conn }

func (t redisTransport) Send(m *Message) error {
	if len(m.Payload) == 0 {
		return nil // a ping
	}
	if b, ok := m.Shared.(*buf.Block); ok {
		return FullOf(t.TryPush(b.Retain()))
	}
	return FullOf(t.TryPush(buf.From(m.Payload)))
}

func (t redisTransport) Queued() int { return t.Conn.Queued() }

func (t redisTransport) Remote() string { return t.RemoteAddr().String() }

// Close ends the connection. Redis has no message for the reason.
func (t redisTransport) Close(why Disconnect) {
	if why == DisconnectSlow {
		t.Conn.Abort(why)
		return
	}
	t.Conn.Close()
}
