package hub

import (
	"encoding/base64"
	"encoding/json"

	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// KindOf returns the kind of bytes that a client or backend publishes without naming one: JSON if
// they are, else Binary.
func KindOf(data []byte) bus.Kind {
	if json.Valid(data) {
		return bus.JSON
	}
	return bus.Binary
}

// JSONOf returns the data of p as one JSON value without newlines, for doors that carry nothing
// else: text as a string, bytes as a string in base64 (RFC 4648 §4).
func JSONOf(p *bus.Publication) []byte {
	switch p.Kind {
	case bus.Text:
		return centrifuge.AppendString(nil, string(p.Data))
	case bus.Binary:
		dst := make([]byte, 0, base64.StdEncoding.EncodedLen(len(p.Data))+2)
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), p.Data), '"')
	}
	return p.Data
}
