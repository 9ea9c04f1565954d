package websocket

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/myriad-go/myriad/buf"
)

// Op is the opcode of a frame, RFC 6455 §5.2. Messages are OpText or OpBinary; the others are
// control frames.
type Op byte

// The opcodes. The values not listed are reserved and refused.
const (
	opContinuation Op = 0
	OpText         Op = 1 // UTF-8, checked on arrival
	OpBinary       Op = 2
	OpClose        Op = 8
	OpPing         Op = 9
	OpPong         Op = 10
)

// String is the name the RFC uses.
func (op Op) String() string {
	switch op {
	case opContinuation:
		return "continuation"
	case OpText:
		return "text"
	case OpBinary:
		return "binary"
	case OpClose:
		return "close"
	case OpPing:
		return "ping"
	case OpPong:
		return "pong"
	}
	return "reserved"
}

func (op Op) isControl() bool { return op >= OpClose }

const (
	finBit  = 0x80
	rsv1Bit = 0x40
	rsvBits = 0x70
	opBits  = 0x0f
	maskBit = 0x80

	length16 = 126 // the 7-bit length that says: two bytes of length follow
	length64 = 127 // eight bytes follow

	// maxHeader is two bytes, a 64-bit length and a key.
	maxHeader = 14
)

// frameHeader is the start of a frame, §5.2.
//
// https://www.rfc-editor.org/rfc/rfc6455#section-5.2
type frameHeader struct {
	fin    bool
	rsv1   bool // the message is compressed, RFC 7692 §6
	masked bool
	op     Op
	key    uint32 // see mask; meaningful if masked
	length int64  // of the payload, never negative
}

// parseHeader reads a frame header from the start of p. It returns n == 0 without an error when it
// needs more bytes, and fails with the first byte that is wrong. fromClient says which side sent p,
// compression whether permessage-deflate was negotiated.
func parseHeader(p []byte, fromClient, compression bool) (n int, h frameHeader, err error) {
	if len(p) == 0 {
		return 0, frameHeader{}, nil
	}
	first := p[0]
	h = frameHeader{fin: first&finBit != 0, rsv1: first&rsv1Bit != 0, op: Op(first & opBits)}
	control := h.op >= OpClose
	// "MUST be 0 unless an extension is negotiated that defines meanings for non-zero values."
	reserved := first & rsvBits
	if compression && (h.op == OpText || h.op == OpBinary) {
		reserved &^= rsv1Bit
	}
	switch {
	case reserved != 0:
		err = violated(StatusProtocolError, "set reserved bits %#02x in a %v frame", reserved, h.op)
	case h.op > OpPong || h.op > OpBinary && !control:
		err = violated(StatusProtocolError, "sent reserved opcode %#x", byte(h.op))
	case control && !h.fin: // "All control frames ... MUST NOT be fragmented", §5.5.
		err = violated(StatusProtocolError, "sent a fragmented %v frame", h.op)
	}
	if err != nil || len(p) < 2 {
		return 0, frameHeader{}, err
	}
	// "The server MUST close the connection upon receiving a frame that is not masked. ... A client
	// MUST close a connection if it detects a masked frame.", §5.1.
	h.masked = p[1]&maskBit != 0
	short := p[1] &^ maskBit
	switch {
	case !h.masked && fromClient:
		err = violated(StatusProtocolError, "sent a frame without a mask to a server")
	case h.masked && !fromClient:
		err = violated(StatusProtocolError, "sent a masked frame to a client")
	case control && short > maxControl:
		err = violated(StatusProtocolError, "sent a %v frame with a payload above 125 bytes", h.op)
	}
	if err != nil {
		return 0, frameHeader{}, err
	}
	// "The minimal number of bytes MUST be used to encode the length", and the top bit of 64 is 0.
	n = 2
	h.length = int64(short)
	switch {
	case short == length16 && len(p) < 4 || short == length64 && len(p) < 10:
		return 0, frameHeader{}, nil
	case short == length16:
		n = 4
		if h.length = int64(binary.BigEndian.Uint16(p[2:])); h.length < length16 {
			err = violated(StatusProtocolError, "encoded payload length %d in 16 bits", h.length)
		}
	case short == length64:
		n = 10
		if h.length = int64(binary.BigEndian.Uint64(p[2:])); h.length < 0 {
			err = violated(StatusProtocolError, "sent payload length %#x, above 63 bits", uint64(h.length))
		} else if h.length < 1<<16 {
			err = violated(StatusProtocolError, "encoded payload length %d in 64 bits", h.length)
		}
	}
	switch {
	case err != nil:
		return 0, frameHeader{}, err
	case !h.masked:
		return n, h, nil
	case len(p) < n+4:
		return 0, frameHeader{}, nil
	}
	h.key = binary.LittleEndian.Uint32(p[n:])
	return n + 4, h, nil
}

// appendHeader encodes h with the shortest form of its length. It writes what it is told: that a
// control frame is final and short is up to the caller.
func appendHeader(dst []byte, h frameHeader) []byte {
	first, second := byte(h.op), byte(0)
	if h.fin {
		first |= finBit
	}
	if h.rsv1 {
		first |= rsv1Bit
	}
	if h.masked {
		second = maskBit
	}
	switch {
	case h.length < length16:
		dst = append(dst, first, second|byte(h.length))
	case h.length < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, first, second|length16), uint16(h.length))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, first, second|length64), uint64(h.length))
	}
	if h.masked {
		dst = binary.LittleEndian.AppendUint32(dst, h.key)
	}
	return dst
}

// appendFrame encodes h with the length of payload, and payload, masked if h says so. payload
// itself is not changed.
func appendFrame(dst []byte, h frameHeader, payload []byte) []byte {
	h.length = int64(len(payload))
	dst = append(appendHeader(dst, h), payload...)
	if h.masked {
		mask(dst[len(dst)-len(payload):], h.key)
	}
	return dst
}

// frameOf is a block with a frame.
func frameOf(h frameHeader, p []byte) *buf.Block {
	b := buf.Get(maxHeader + len(p))
	b.Commit(len(appendFrame(b.Extend()[:0], h, p)))
	return b
}

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

// mask applies the masking of RFC 6455 §5.3 to p in place. The same call masks and unmasks. The key
// holds the four wire bytes in little-endian order: its lowest byte belongs to p[0]. The result is
// the key for the byte after p, so that a payload which arrives in pieces is unmasked piece by
// piece.
//
// https://www.rfc-editor.org/rfc/rfc6455#section-5.3
func mask(p []byte, key uint32) uint32 {
	next := bits.RotateLeft32(key, -8*(len(p)&3))
	wide := uint64(key)<<32 | uint64(key)
	p = maskBlocks(p, wide)
	for len(p) >= 8 {
		xorWord(p, wide)
		p = p[8:]
	}
	for i := range p {
		p[i] ^= byte(wide)
		wide >>= 8
	}
	return next
}

// maskBlocks takes 64 bytes a turn and returns the rest. Eight independent words keep the load and
// store units busy; going through an array pointer leaves a single bounds check for all of them.
func maskBlocks(p []byte, wide uint64) []byte {
	for len(p) >= 64 {
		b := (*[64]byte)(p)
		xorWord(b[0:8], wide)
		xorWord(b[8:16], wide)
		xorWord(b[16:24], wide)
		xorWord(b[24:32], wide)
		xorWord(b[32:40], wide)
		xorWord(b[40:48], wide)
		xorWord(b[48:56], wide)
		xorWord(b[56:64], wide)
		p = p[64:]
	}
	return p
}

func xorWord(p []byte, wide uint64) {
	binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)^wide)
}
