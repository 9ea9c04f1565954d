package crowd

import "encoding/binary"

// channel is what all clients subscribe to.
const channel = "news"

// upgrade asks for a WebSocket (RFC 6455 §4.1).
func upgrade(path string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
}

// The talks of clients.
var (
	// JSON is the Centrifuge client protocol over WebSocket.
	JSON = Talk{
		Hello: upgrade("/connection/websocket"), Welcome: []byte("HTTP/1.1 101 "), Socket: true,
		Join: append(Frame(text, []byte(`{"id":1,"connect":{}}`)),
			Frame(text, []byte(`{"id":2,"subscribe":{"channel":"`+channel+`"}}`))...),
		Joined: []byte(`{"id":2,"subscribe":{`),
		Ping:   []byte("{}"), Pong: Frame(text, []byte("{}")),
	}
	// Protobuf is the same protocol in Protobuf. The empty message is the length 0.
	Protobuf = Talk{
		Hello: upgrade("/connection/websocket?cf_protocol=protobuf"), Welcome: []byte("HTTP/1.1 101 "), Socket: true,
		Join: append(Frame(binaryFrame, []byte("\x04\x08\x01\x22\x00")),
			Frame(binaryFrame, append([]byte{6 + byte(len(channel)), 8, 2, 0x2a, 2 + byte(len(channel)), 0x0a,
				byte(len(channel))}, channel...))...),
		Joined: []byte("\x08\x02\x32"),
		Ping:   []byte{0}, Pong: Frame(binaryFrame, []byte{0}),
	}
	// Events are Server-Sent Events, whose clients answer nothing.
	Events = Talk{
		Hello: []byte("GET /events?channel=" + channel + " HTTP/1.1\r\nHost: localhost\r\n" +
			"Accept: text/event-stream\r\n\r\n"),
		Welcome: []byte("HTTP/1.1 200 "),
	}
)

// The opcodes of frames (RFC 6455 §5.2).
const (
	text        = 1
	binaryFrame = 2
	closing     = 8
	ping        = 9
	pong        = 10
)

// Frame is a whole message of a client, masked with a fixed key. RFC 6455 §5.3 wants keys that
// cannot be foreseen, to protect proxies, and here is none.
func Frame(opcode byte, payload []byte) []byte {
	key := [4]byte{0x21, 0x5d, 0xc3, 0x7e}
	frame := []byte{0x80 | opcode}
	if len(payload) < 126 {
		frame = append(frame, 0x80|byte(len(payload)))
	} else {
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(len(payload)))
	}
	frame = append(frame, key[:]...)
	for i, b := range payload {
		frame = append(frame, b^key[i%4])
	}
	return frame
}
