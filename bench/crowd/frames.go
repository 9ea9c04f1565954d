package crowd

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// mostPayload is how long a frame of a server may be.
const mostPayload = 1 << 20

var errFrame = errors.New("a frame that no server sends")

// nextFrame takes the first frame off p. It returns size 0 if that is not complete.
func nextFrame(p []byte) (opcode byte, payload []byte, size int, err error) {
	if len(p) < 2 {
		return 0, nil, 0, nil
	}
	head, n := 2, uint64(p[1])
	switch {
	case p[1]&0x80 != 0 || p[0]&0x70 != 0:
		return 0, nil, 0, errFrame // masked, or with bits of an extension
	case n == 126:
		if head = 4; len(p) < head {
			return 0, nil, 0, nil
		}
		n = uint64(binary.BigEndian.Uint16(p[2:]))
	case n == 127:
		if head = 10; len(p) < head {
			return 0, nil, 0, nil
		}
		n = binary.BigEndian.Uint64(p[2:])
	}
	if n > mostPayload {
		return 0, nil, 0, errFrame
	}
	if size = head + int(n); len(p) < size {
		return 0, nil, 0, nil
	}
	return p[0] & 0x0f, p[head:size], size, nil
}

// nextMessage takes the first message off a payload: see Talk.Ping.
func nextMessage(opcode byte, p []byte) (message, rest []byte) {
	if opcode == text {
		message, rest, _ = bytes.Cut(p, []byte{'\n'})
		return message, rest
	}
	n, size := binary.Uvarint(p)
	if size <= 0 || n > uint64(len(p)-size) {
		return p, nil
	}
	return p[:size+int(n)], p[size+int(n):]
}
