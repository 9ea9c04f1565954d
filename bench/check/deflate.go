package check

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/myriad-go/myriad/bench/load"
)

const (
	offer = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; " +
		"client_no_context_takeover\r\n"
	syncFlush = "\x00\x00\xff\xff" // what RFC 7692 §7.2.1 has a sender leave out
	rsv1      = 0x40
)

// WebSocketDeflate is for servers that negotiate permessage-deflate (RFC 7692) without context
// takeover, and echo every message of size bytes of text, compressed.
func WebSocketDeflate(size int) Check {
	message := payload(size)
	return func(addr string) (load.Talk, error) {
		request := load.ClientFrame(deflated(message))
		request[0] |= rsv1
		talk := load.Talk{
			Hello: []byte(strings.TrimSuffix(hello, "\r\n") + offer + "\r\n"), Welcome: []byte("HTTP/1.1 101 "),
			Request: request, Requests: 1,
		}
		c, err := dial(addr)
		if err != nil {
			return talk, err
		}
		defer c.Close()
		if _, err := c.Write(talk.Hello); err != nil {
			return talk, err
		}
		head, err := upTo(c, "\r\n\r\n")
		if err != nil || !strings.HasPrefix(head, string(talk.Welcome)) ||
			!strings.Contains(head, "permessage-deflate") {
			return talk, fmt.Errorf("compression is not agreed to: %.400q: %w", head, err)
		}
		var first []byte
		for range 2 {
			if _, err := c.Write(talk.Request); err != nil {
				return talk, err
			}
			frame, err := compressed(c, message)
			if err != nil {
				return talk, fmt.Errorf("echo: %w", err)
			}
			if first != nil && !bytes.Equal(frame, first) {
				return talk, fmt.Errorf("the same message came back as %.100x and as %.100x: context takeover", first,
					frame)
			}
			first = frame
		}
		talk.Reply = whole(first)
		return talk, quiet(c)
	}
}

func deflated(p []byte) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.DefaultCompression) // the level is valid
	_, _ = w.Write(p)                                     // a Buffer takes everything
	_ = w.Flush()
	return bytes.TrimSuffix(b.Bytes(), []byte(syncFlush))
}

// compressed reads a frame that has the message in it, and returns it.
func compressed(c net.Conn, message []byte) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(c, frame[:2]); err != nil {
		return nil, err
	}
	n, size := int(frame[1]), 2
	if n == 126 {
		if _, err := io.ReadFull(c, frame[2:]); err != nil {
			return nil, err
		}
		n, size = int(binary.BigEndian.Uint16(frame[2:])), 4
	}
	if frame[0] != 0x81|rsv1 || n > 64<<10 {
		return nil, fmt.Errorf("a frame that begins with %x, and not one compressed text message", frame)
	}
	frame = append(frame[:size], make([]byte, n)...)
	if _, err := io.ReadFull(c, frame[size:]); err != nil {
		return nil, err
	}
	// The empty block that is last ends the stream.
	got, err := io.ReadAll(flate.NewReader(io.MultiReader(bytes.NewReader(frame[size:]),
		strings.NewReader(syncFlush+"\x01\x00\x00\xff\xff"))))
	if err != nil || !bytes.Equal(got, message) {
		return nil, fmt.Errorf("%.100q came back: %w", got, err)
	}
	return frame, nil
}
