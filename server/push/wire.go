package push

import (
	"strconv"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// A wire is the encoding of a subscriber's messages.
type wire uint8

const (
	wireCentrifuge  wire = iota // text messages of the Centrifuge protocol over WebSocket
	wireSSE                     // events with the data, without a name
	wireSSENamed                // the same, named after the channel
	wireSSENumbered             // with an id, which is the position: for streams of one channel
	wireSSENamedNumbered
	wires
)

func (w wire) named() bool    { return w == wireSSENamed || w == wireSSENamedNumbered }
func (w wire) numbered() bool { return w == wireSSENumbered || w == wireSSENamedNumbered }

// A message is encoded once for each wire, for any number of subscribers. Transports queue its
// shared form by reference. A message for one client has no shared form.
type message struct {
	payload []byte              // a receiver of the message must not keep it
	text    *websocket.Prepared // for wireCentrifuge, if shared
	chunk   *web.Chunk          // for the SSE wires, if shared
}

// share returns a message for several subscribers. The caller calls release after it has offered
// the message to all of them.
func (w wire) share(payload []byte) *message {
	if w != wireCentrifuge {
		return &message{payload: payload, chunk: web.NewChunk(payload)}
	}
	text, err := websocket.Prepare(websocket.OpText, payload)
	if err != nil {
		panic("push: a message is larger than every limit allows: " + err.Error())
	}
	return &message{payload: payload, text: text}
}

func (m *message) release() {
	if m.chunk != nil {
		m.chunk.Release()
	}
	if m.text != nil {
		m.text.Release()
	}
}

// envelope estimates the bytes of a message besides its data, channel and user.
const envelope = 128

// publications encodes list as one message.
func (w wire) publications(channel string, list []Publication) []byte {
	size := 0
	for _, p := range list {
		size += envelope + len(channel) + len(p.User) + p.size()
	}
	dst := make([]byte, 0, size)
	for i, p := range list {
		if i > 0 && w == wireCentrifuge {
			dst = append(dst, '\n')
		}
		dst = w.appendPublication(dst, channel, p)
	}
	return dst
}

// appendPublication appends p in the encoding of w.
func (w wire) appendPublication(dst []byte, channel string, p Publication) []byte {
	if w == wireCentrifuge {
		return centrifuge.AppendPublication(dst, channel, p.forClients())
	}
	if w.numbered() && p.Epoch != "" {
		dst = appendID(dst, p.Position)
	}
	if w.named() {
		dst = append(append(append(dst, "event: "...), channel...), '\n')
	}
	return append(append(append(dst, "data: "...), p.json()...), "\n\n"...)
}

func (p *Publication) forClients() centrifuge.Publication {
	return centrifuge.Publication{Data: p.json(), Client: p.Client, User: p.User, Offset: p.Offset, Tags: p.Tags}
}

// appendID appends the id field, which an EventSource returns as Last-Event-ID.
func appendID(dst []byte, at Position) []byte {
	dst = append(append(append(dst, "id: "...), at.Epoch...), ':')
	return append(strconv.AppendUint(dst, at.Offset, 10), '\n')
}

// ping returns w's ping message.
func (w wire) ping() *message {
	if w == wireCentrifuge {
		return w.share([]byte(centrifuge.PingFrame))
	}
	return w.share([]byte(":\n\n"))
}
