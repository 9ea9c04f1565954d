package websocket

import (
	"unicode/utf8"

	"github.com/myriad-go/myriad/buf"
)

// readRules is what many readers have in common. They share one value, which is not changed once in
// use.
type readRules struct {
	fromClient  bool // the peer is a client: its frames are masked
	compression bool // permessage-deflate was negotiated: rsv1 may be set on the first frame of a message
	// of a message's payload in bytes, at most buf.MaxBlock; above it the peer is told
	// StatusMessageTooBig
	limit    int
	terms    deflateTerms
	settings *settings // of the connections that have the rules
}

// limitOf is the limit of a message as it arrives. It leaves room for what DEFLATE may add to one
// that does not get smaller.
func (r *readRules) limitOf(packed bool) int {
	if packed {
		return min(r.limit+r.limit>>8+64, buf.MaxBlock)
	}
	return r.limit
}

// reader turns received bytes into messages and control frames, RFC 6455 §5.4 and §5.5. Every
// connection has one. It belongs to the goroutine that feeds it, one at a time. Between messages it
// holds no memory but itself.
type reader struct {
	rules *readRules
	part  *partial // what has begun and is not complete, else nil; over: a close frame or a violation was returned
}

// over stands for what comes when nothing counts any more.
var over = new(partial)

// partial is allocated when a frame ends behind the bytes received so far, or a message behind its
// frame.
type partial struct {
	frame   frameHeader // the frame that is being received, if inFrame; length counts down and key rotates
	data    *buf.Block  // the payload of the open message so far; nil while that is empty
	control *buf.Block  // the same for a control frame
	text    utf8State
	head    [maxHeader]byte // the beginning of a header, if headLen > 0
	headLen uint8
	inFrame bool
	op      Op   // of the open message; opContinuation: none is open
	rsv1    bool // of the open message
}

// A message is a whole message or one control frame.
//
// If block is nil, payload is a view of the bytes that were fed and ends with them. Otherwise it is
// memory of its own: the receiver of the message holds the only reference, and releases it on any
// goroutine.
type message struct {
	op         Op   // opContinuation: no message
	compressed bool // payload is to be inflated, and if text then checked, before it is of use
	payload    []byte
	block      *buf.Block
}

func (m message) release() {
	if m.block != nil {
		m.block.Release()
	}
}

// feed consumes n bytes of p and returns the first message that is complete with them, if any. The
// caller repeats with p[n:] as long as there is something left; it may also stop in between and
// come back later with the same bytes. Payloads are unmasked in place, so p must be writable.
//
// A message or control frame that is whole in p is returned without a copy. The payload of a close
// frame has been checked and parseCloseBody will not fail on it. An error is a *violation. After a
// close frame and after an error the rest of the input is void: feed consumes it and returns
// nothing.
func (r *reader) feed(p []byte) (n int, m message, err error) {
	for n < len(p) && m.op == opContinuation && err == nil {
		if r.part == over {
			return len(p), message{}, nil
		}
		var k int
		if r.part != nil && r.part.inFrame {
			k, m, err = r.payload(p[n:])
		} else {
			k, m, err = r.frame(p[n:])
		}
		n += k
	}
	if err != nil || m.op == OpClose {
		r.release()
		r.part = over
	}
	return n, m, err
}

// release gives up what is incomplete. It must be called when the connection ends, and may be
// called repeatedly.
func (r *reader) release() {
	if r.part == nil || r.part == over {
		return
	}
	message{block: r.part.data}.release()
	message{block: r.part.control}.release()
	r.part = nil
}

// frame takes a frame's header and as much of its payload as p has.
func (r *reader) frame(p []byte) (n int, m message, err error) {
	n, h, err := r.header(p)
	if err != nil || n == 0 {
		return len(p), message{}, err
	}
	if err = r.admit(h); err != nil {
		return n, message{}, err
	}
	body := p[n:]
	single := h.op.isControl() || h.fin && h.op != opContinuation
	if single && h.length <= int64(len(body)) {
		r.forgetIdle()
		m, err = whole(h, body[:h.length:h.length])
		return n + int(h.length), m, err
	}
	r.open(h)
	k, m, err := r.payload(body)
	return n + k, m, err
}

// header returns the header that is complete with the first n bytes of p, or n == 0 when all of p
// was kept for later.
func (r *reader) header(p []byte) (n int, h frameHeader, err error) {
	if r.part == nil || r.part.headLen == 0 {
		n, h, err = parseHeader(p, r.rules.fromClient, r.rules.compression)
		if n == 0 && err == nil {
			r.need().headLen = uint8(copy(r.part.head[:], p))
		}
		return n, h, err
	}
	part := r.part
	kept := int(part.headLen)
	total := kept + copy(part.head[kept:], p)
	n, h, err = parseHeader(part.head[:total], r.rules.fromClient, r.rules.compression)
	if err != nil || n == 0 {
		part.headLen = uint8(total)
		return 0, h, err
	}
	part.headLen = 0
	return n - kept, h, nil
}

// admit checks what a header alone cannot say: the order of frames and the size of the message,
// before any memory is spent on it.
func (r *reader) admit(h frameHeader) error {
	if h.op.isControl() {
		return nil
	}
	size := int64(0)
	open := r.part != nil && r.part.op != opContinuation
	switch {
	case open && h.op != opContinuation:
		// "The fragments of one message MUST NOT be interleaved between the fragments of another
		// message", §5.4.
		return violated(StatusProtocolError, "began a %v message inside another", h.op)
	case !open && h.op == opContinuation:
		return violated(StatusProtocolError, "sent a continuation frame without a message to continue")
	case open && r.part.data != nil:
		size = int64(r.part.data.Len())
	}
	packed := h.rsv1 || open && r.part.rsv1
	if h.length > int64(r.rules.limitOf(packed))-size {
		return violated(StatusMessageTooBig, "sent a message above the limit of %d bytes", r.rules.limit)
	}
	return nil
}

// whole returns the message in p, the complete payload of a frame that stands for itself.
func whole(h frameHeader, p []byte) (message, error) {
	if h.masked {
		mask(p, h.key)
	}
	m := message{op: h.op, compressed: h.rsv1, payload: p}
	switch {
	case h.op == OpText && !h.rsv1 && !utf8.Valid(p):
		return message{}, notUTF8()
	case h.op == OpClose:
		if _, _, err := parseCloseBody(p); err != nil {
			return message{}, err
		}
	}
	return m, nil
}

// notUTF8: "When an endpoint is to interpret a byte stream as UTF-8 but finds that the byte stream
// is not, in fact, a valid UTF-8 stream, that endpoint MUST _Fail the WebSocket Connection_", §8.1.
func notUTF8() error {
	return violated(StatusInvalidFramePayloadData, "sent text that is not UTF-8")
}

func (r *reader) open(h frameHeader) {
	part := r.need()
	part.frame, part.inFrame = h, true
	if h.op == OpText || h.op == OpBinary {
		part.op, part.rsv1 = h.op, h.rsv1
	}
}

// payload takes what p has of the current frame's payload.
func (r *reader) payload(p []byte) (n int, m message, err error) {
	part := r.part
	n = int(min(part.frame.length, int64(len(p))))
	p = p[:n]
	if part.frame.masked {
		part.frame.key = mask(p, part.frame.key)
	}
	part.frame.length -= int64(n)
	if part.frame.op.isControl() {
		part.control = gather(part.control, p, maxControl)
	} else if err = part.gatherData(p, r.rules.limitOf(part.rsv1)); err != nil {
		return n, message{}, err
	}
	if part.frame.length > 0 {
		return n, message{}, nil
	}
	part.inFrame = false
	m, err = r.frameEnded()
	return n, m, err
}

// gatherData appends to the open message. Text fails here at its first bad byte, however much of
// the frame and the message is still to come.
func (part *partial) gatherData(p []byte, limit int) error {
	if part.op == OpText && !part.rsv1 && !part.text.feed(p) {
		return notUTF8()
	}
	if part.frame.fin && part.data != nil {
		limit = part.data.Len() + len(p) + int(part.frame.length)
	}
	part.data = gather(part.data, p, limit)
	return nil
}

// gather appends p to b, in a larger block where it has to be. The size of the blocks follows what
// has arrived, at most twice that, and not what a header announced; it does not grow on speculation
// above bound.
func gather(b *buf.Block, p []byte, bound int) *buf.Block {
	switch {
	case len(p) == 0:
		return b
	case b == nil:
		b = buf.Get(len(p))
	case b.Free() < len(p):
		larger := buf.Get(max(b.Len()+len(p), min(2*b.Cap(), bound)))
		larger.Append(b.Bytes())
		b.Release()
		b = larger
	}
	b.Append(p)
	return b
}

// frameEnded returns what the current frame has completed.
func (r *reader) frameEnded() (m message, err error) {
	part := r.part
	if part.frame.op.isControl() {
		m = assembled(part.frame.op, part.control)
		if m.op == OpClose {
			if _, _, err = parseCloseBody(m.payload); err != nil {
				return message{}, err
			}
		}
		part.control = nil
		r.forgetIdle()
		return m, nil
	}
	if !part.frame.fin {
		return message{}, nil
	}
	if part.op == OpText && !part.rsv1 && !part.text.complete() {
		return message{}, notUTF8()
	}
	m = assembled(part.op, part.data)
	m.compressed = part.rsv1
	r.part = nil
	return m, nil
}

func assembled(op Op, b *buf.Block) message {
	if b == nil {
		return message{op: op, payload: []byte{}}
	}
	return message{op: op, payload: b.Bytes(), block: b}
}

func (r *reader) need() *partial {
	if r.part == nil {
		r.part = new(partial)
	}
	return r.part
}

// forgetIdle runs between frames and drops the partial if no message is open.
func (r *reader) forgetIdle() {
	if r.part != nil && r.part.op == opContinuation {
		r.part = nil
	}
}
