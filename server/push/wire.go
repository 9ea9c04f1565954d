package push

import (
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// A wire is what publications look like to a subscriber. A broadcast encodes each publication once for each wire, however
// many subscribers there are.
type wire uint8

const (
	wireCentrifuge wire = iota // a push of the Centrifuge protocol
	wireSSE                    // an event with the data, without a name
	wireSSENamed               // the same, named after the channel
	wires
)

// envelope is room for what stands around data, a channel's name and a client's info.
const envelope = 256

// publication returns p encoded for w, with one reference.
func (w wire) publication(channel string, p Publication) *buf.Block {
	// A name can grow sixfold when it is escaped. The block is not limited to this guess: see fill.
	b := buf.Get(envelope + len(channel) + len(p.User) + len(p.Data))
	return fill(b, func(dst []byte) []byte {
		if w == wireCentrifuge {
			return centrifuge.AppendPublication(dst, channel, centrifuge.Publication(p))
		}
		if w == wireSSENamed {
			dst = append(append(append(dst, "event: "...), channel...), '\n')
		}
		return append(append(append(dst, "data: "...), p.Data...), "\n\n"...)
	})
}

// ping returns what tells a client of w that the server is there.
func (w wire) ping() *buf.Block {
	if w == wireCentrifuge {
		return buf.From([]byte(centrifuge.PingFrame))
	}
	return buf.From([]byte(":\n\n"))
}

// fill appends to the empty b with encode, and to a larger block instead if b turns out too small.
func fill(b *buf.Block, encode func(dst []byte) []byte) *buf.Block {
	room := b.Extend()
	out := encode(room[:0])
	if len(out) <= len(room) {
		b.Commit(len(out))
		return b
	}
	b.Release()
	return buf.From(out)
}
