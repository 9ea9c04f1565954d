package load

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The parts of HTTP/2's frames (RFC 9113 section 4.1) that a driver has to know.
const (
	streamHead   = 9 // bytes of a frame's header
	typeData     = 0
	typeHeaders  = 1
	typeReset    = 3
	typeGoAway   = 7
	lastOfStream = 1<<31 - 1
)

var errNoMoreStreams = errors.New("a connection has no more streams")

// streamFrame finds a frame of HTTP/2. Data that is not empty is a reply; other frames are skipped.
// The server must not pad it.
func streamFrame(p []byte) (frame, error) {
	if len(p) < streamHead {
		return frame{}, errPartial
	}
	n := int(p[0])<<16 | int(p[1])<<8 | int(p[2])
	if kind := p[3]; kind == typeReset || kind == typeGoAway {
		p = p[:min(len(p), streamHead+n)]
		return frame{}, fmt.Errorf("the server ends a stream or the connection: frame %x", p)
	}
	return frame{size: streamHead + n, head: streamHead, none: p[3] != typeData || n == 0}, nil
}

// request is what c sends next. In HTTP/2 each of its requests gets a stream of its own.
func (d *driver) request(c *conn) ([]byte, error) {
	if c.talk.Reply.Framing != Streams {
		return c.talk.Request, nil
	}
	p := append(d.scratch[:0], c.talk.Request...)
	d.scratch = p
	for rest := p; len(rest) > 0; {
		if rest[3] == typeHeaders {
			if c.stream == lastOfStream {
				return nil, errNoMoreStreams
			}
			c.stream = nextStream(c.stream)
		}
		binary.BigEndian.PutUint32(rest[5:], c.stream)
		rest = rest[streamHead+(int(rest[0])<<16|int(rest[1])<<8|int(rest[2])):]
	}
	return p, nil
}

// nextStream is the number that a client's next stream has (section 5.1.1).
func nextStream(stream uint32) uint32 {
	if stream == 0 {
		return 1
	}
	return stream + 2
}
