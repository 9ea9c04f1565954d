package push

import (
	"strconv"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// A wire is what messages look like to a subscriber.
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

// A message is encoded once for a wire, however many subscribers it goes to. Transports queue its
// shared form by reference; what goes to one client only has none.
type message struct {
	payload []byte              // borrowed by whoever is given the message
	text    *websocket.Prepared // for wireCentrifuge, if shared
	chunk   *web.Chunk          // for the SSE wires, if shared
}

// share returns a message that goes to many. release it when it has been offered to all.
func (w wire) share(payload []byte) *message {
	if w != wireCentrifuge {
		return &message{payload: payload, chunk: web.NewChunk(payload)}
	}
	text, err := websocket.Prepare(websocket.OpText, payload)
	if err != nil {
		panic("push: a message beyond every limit: " + err.Error())
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

// envelope is room for what stands around data, a channel's name and a user's.
const envelope = 128

// publications encodes them, in one piece.
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

// appendPublication appends p as w shows it.
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
	return append(append(append(dst, "data: "...), p.Data...), "\n\n"...)
}

func (p *Publication) forClients() centrifuge.Publication {
	return centrifuge.Publication{Data: p.Data, Client: p.Client, User: p.User, Offset: p.Offset, Tags: p.Tags}
}

// appendID appends the field that an EventSource gives back as Last-Event-ID.
func appendID(dst []byte, at Position) []byte {
	dst = append(append(append(dst, "id: "...), at.Epoch...), ':')
	return append(strconv.AppendUint(dst, at.Offset, 10), '\n')
}

// ping returns what tells a client of w that the server is there.
func (w wire) ping() *message {
	if w == wireCentrifuge {
		return w.share([]byte(centrifuge.PingFrame))
	}
	return w.share([]byte(":\n\n"))
}
