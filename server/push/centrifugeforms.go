package push

import (
	"net/http"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/websocket"
)

// centrifugeDoor is the Centrifuge client protocol over its transports.
func centrifugeDoor() door {
	return door{
		forms: []form{
			centrifugeForm{centrifuge.JSON, inSocket},
		},
		route: func(s *Server, mux *http.ServeMux) {
			sockets := newCentrifugeSockets(s.node, s.pool)
			mux.HandleFunc("/connection/websocket", s.unlessDraining(sockets.serve))
		},
	}
}

// A framing is how messages stand in a connection.
type framing uint8

const (
	inSocket framing = iota // a message is a WebSocket message
)

// A centrifugeForm writes replies and pushes.
type centrifugeForm struct {
	codec   centrifuge.Codec
	framing framing
}

func (f centrifugeForm) publications(channel string, list []Publication) []byte {
	dst := make([]byte, 0, encodedSize(channel, list))
	for i := range list {
		shown := f.shown(&list[i])
		dst = f.appendPush(dst, &centrifuge.Push{Channel: channel, Publication: &shown})
	}
	return f.frame(dst)
}

// shown returns p as clients see it. JSON has no bytes, so that other kinds of data become strings.
func (f centrifugeForm) shown(p *Publication) centrifuge.Publication {
	data := p.Data
	if f.codec == centrifuge.JSON {
		data = p.json()
	}
	return centrifuge.Publication{Data: data, Client: p.Client, User: p.User, Offset: p.Offset, Tags: p.Tags}
}

// listed returns publications for a reply.
func (f centrifugeForm) listed(list []Publication) []centrifuge.Publication {
	shown := make([]centrifuge.Publication, len(list))
	for i := range list {
		shown[i] = f.shown(&list[i])
	}
	return shown
}

func (f centrifugeForm) notice(channel string, n Notice) []byte {
	push, info := centrifuge.Push{Channel: channel}, centrifuge.ClientInfo(n.ClientInfo)
	if n.Joined {
		push.Join = &info
	} else {
		push.Leave = &info
	}
	return f.frame(f.appendPush(nil, &push))
}

func (f centrifugeForm) unsubscribed(channel string, why unsubscription) []byte {
	told := centrifuge.Unsubscribed(why)
	return f.frame(f.appendPush(nil, &centrifuge.Push{Channel: channel, Unsubscribe: &told}))
}

func (f centrifugeForm) ping() (payload []byte, answered bool) {
	return f.frame([]byte(f.codec.Ping())), true
}

func (f centrifugeForm) share(payload []byte) shared {
	return prepare(f.op(), payload)
}

func (f centrifugeForm) op() websocket.Op {
	return websocket.OpText
}

func (f centrifugeForm) appendPush(dst []byte, push *centrifuge.Push) []byte {
	return f.codec.AppendReply(dst, &centrifuge.Reply{Push: push})
}

// frame makes one message of the replies that the codec has appended. It may change them.
func (f centrifugeForm) frame(replies []byte) []byte {
	return replies
}
