package load

import "encoding/binary"

// ClientFrame returns a whole text message, masked with a fixed key. RFC 6455 §5.3 requires
// unpredictable keys to protect proxies, and here is none.
func ClientFrame(payload []byte) []byte {
	key := [4]byte{0x12, 0x9a, 0x5c, 0xe7}
	frame := append(header(len(payload), 0x80), key[:]...)
	for i, b := range payload {
		frame = append(frame, b^key[i%4])
	}
	return frame
}

// ServerFrame is the same message as a server has to send it: in one frame, with the shortest
// length (§5.2).
func ServerFrame(payload []byte) []byte { return append(header(len(payload), 0), payload...) }

// The first bytes of messages of one frame: FIN and the opcode.
const (
	finalText   = 0x81
	finalBinary = 0x82
)

func header(n int, mask byte) []byte {
	switch {
	case n < 126:
		return []byte{finalText, mask | byte(n)}
	case n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{finalText, mask | 126}, uint16(n))
	}
	return binary.BigEndian.AppendUint64([]byte{finalText, mask | 127}, uint64(n))
}
