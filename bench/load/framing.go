package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// A Framing is how the replies of a push server stand in the stream, where it may join several of
// them.
type Framing string

const (
	// Bare replies follow each other with nothing between them.
	Bare Framing = ""
	// Lines are the lines of text messages of a WebSocket, at least one in each, as in the
	// Centrifuge protocol in JSON. Messages are not fragmented.
	Lines Framing = "lines"
	// Messages are binary messages of a WebSocket with one reply or more each, whole, as in the
	// Centrifuge protocol in Protobuf. They are not fragmented.
	Messages Framing = "messages"
	// Chunks of a body (RFC 9112 §7.1) have one reply or more each, whole.
	Chunks Framing = "chunks"
	// Streams are of HTTP/2. A reply is a frame of data, in one piece; the others are skipped.
	Streams Framing = "streams"
	// Answers are HTTP responses with a Content-Length, whose size may change.
	Answers Framing = "answers"
	// Numbers are lines that end with CRLF, whose size may change, as the integers of RESP.
	Numbers Framing = "numbers"
)

// A frame describes the bytes around replies: head bytes before the first, gap between two, and
// tail bytes after the last.
type frame struct {
	size, head, tail int
	gap              []byte
	none             bool // there is no reply in it
}

// errPartial says that the end of a frame has not come.
var errPartial = errors.New("partial")

// next returns the first frame of p. size is the length of a reply, for framings of fixed size. It
// returns errPartial if the frame is incomplete.
func (f Framing) next(p []byte, size int) (one frame, err error) {
	switch f {
	case Lines:
		one, err = messageFrame(p, finalText)
		one.gap = newline
	case Messages:
		one, err = messageFrame(p, finalBinary)
	case Chunks:
		one, err = chunkFrame(p)
	case Streams:
		one, err = streamFrame(p)
	case Answers:
		one, err = answerFrame(p)
	case Numbers:
		one, err = lineFrame(p)
	default:
		one = frame{size: size}
	}
	if err == nil && one.size > len(p) {
		err = errPartial
	}
	return one, err
}

// each gives take the replies of that size, of which the frame p consists.
func (f frame) each(p []byte, size int, take func(reply []byte) error) error {
	if f.none {
		return nil
	}
	p = p[f.head : f.size-f.tail]
	if size == 0 {
		return f.eachLine(p, take)
	}
	if (len(p)+len(f.gap))%(size+len(f.gap)) != 0 {
		return fmt.Errorf("a frame of %d bytes does not consist of replies of %d: %.200q", len(p), size, p)
	}
	for {
		if err := take(p[:size]); err != nil || len(p) == size {
			return err
		}
		p = p[size:]
		if !bytes.HasPrefix(p, f.gap) {
			return fmt.Errorf("between two replies is %.20q, not %q", p, f.gap)
		}
		p = p[len(f.gap):]
	}
}

// eachLine gives take the replies of any size.
func (f frame) eachLine(p []byte, take func(reply []byte) error) error {
	for more := true; more; {
		reply := p
		if len(f.gap) > 0 {
			reply, p, more = bytes.Cut(p, f.gap)
		} else {
			more = false
		}
		if err := take(reply); err != nil {
			return err
		}
	}
	return nil
}

var newline = []byte("\n")

// lengthField is as servers write it (RFC 9110 §8.6).
var lengthField = []byte("\r\nContent-Length: ")

// answerFrame finds a response.
func answerFrame(p []byte) (frame, error) {
	head, _, found := bytes.Cut(p, []byte("\r\n\r\n"))
	if !found {
		return frame{}, errPartial
	}
	_, rest, found := bytes.Cut(head, lengthField)
	text, _, _ := bytes.Cut(rest, []byte("\r"))
	n, err := strconv.ParseUint(string(text), 10, 31)
	if !found || err != nil {
		return frame{}, fmt.Errorf("a response has no Content-Length: %.200q", head)
	}
	return frame{size: len(head) + 4 + int(n)}, nil
}

// lineFrame finds a line with its CRLF.
func lineFrame(p []byte) (frame, error) {
	const longest = 64
	end := bytes.Index(p, []byte("\r\n"))
	switch {
	case end >= 0:
		return frame{size: end + 2}, nil
	case len(p) > longest:
		return frame{}, fmt.Errorf("a line of more than %d bytes: %.100q", longest, p)
	}
	return frame{}, errPartial
}

// messageFrame finds an unmasked message of one frame, which begins with first (RFC 6455 §5.2).
func messageFrame(p []byte, first byte) (frame, error) {
	if len(p) < 2 {
		return frame{}, errPartial
	}
	head, n := 2, int(p[1])
	switch {
	case p[0] != first || n > 127:
		return frame{}, fmt.Errorf("a frame begins with %#x %#x: no unmasked message in one piece, %#x", p[0], p[1],
			first)
	case n == 126 && len(p) >= 4:
		head, n = 4, int(binary.BigEndian.Uint16(p[2:]))
	case n == 127 && len(p) >= 10:
		head, n = 10, int(min(binary.BigEndian.Uint64(p[2:]), inputSize))
	case n > 125:
		return frame{}, errPartial
	}
	return frame{size: head + n, head: head}, nil
}

// chunkFrame finds a chunk without extensions.
func chunkFrame(p []byte) (frame, error) {
	const longest = 10
	end := bytes.IndexByte(p[:min(len(p), longest)], '\n')
	if end < 0 && len(p) < longest {
		return frame{}, errPartial
	}
	if end < 1 || p[end-1] != '\r' {
		return frame{}, fmt.Errorf("a chunk begins with %.20q", p)
	}
	n, err := strconv.ParseUint(string(p[:end-1]), 16, 31)
	if err != nil || n == 0 {
		return frame{}, fmt.Errorf("a chunk begins with %.20q", p)
	}
	return frame{size: end + 1 + int(n) + 2, head: end + 1, tail: 2}, nil
}

// changes reports whether the size of replies may change.
func (f Framing) changes() bool { return f == Lines || f == Answers || f == Numbers }
