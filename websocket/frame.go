package websocket

import "encoding/binary"

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

	// maxControl: "All control frames MUST have a payload length of 125 bytes or less", §5.5.
	maxControl = 125
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
	if len(p) > 0 {
		if h, err = parseFirst(p[0], compression); err != nil {
			return 0, frameHeader{}, err
		}
	}
	if len(p) < 2 {
		return 0, frameHeader{}, nil
	}
	h.masked = p[1]&maskBit != 0
	if h.masked != fromClient {
		return 0, frameHeader{}, wrongMask(fromClient)
	}
	n, h.length, err = parseLength(p, h.op)
	if err != nil || n == 0 {
		return 0, frameHeader{}, err
	}
	if !h.masked {
		return n, h, nil
	}
	if len(p) < n+4 {
		return 0, frameHeader{}, nil
	}
	h.key = binary.LittleEndian.Uint32(p[n:])
	return n + 4, h, nil
}

func parseFirst(b byte, compression bool) (h frameHeader, err error) {
	h = frameHeader{fin: b&finBit != 0, rsv1: b&rsv1Bit != 0, op: Op(b & opBits)}
	// "MUST be 0 unless an extension is negotiated that defines meanings for non-zero values."
	allowed := byte(0)
	if compression && (h.op == OpText || h.op == OpBinary) {
		allowed = rsv1Bit
	}
	switch {
	case b&rsvBits&^allowed != 0:
		return h, violated(StatusProtocolError, "set reserved bits %#02x in a %v frame", b&rsvBits&^allowed, h.op)
	case h.op > OpPong || h.op > OpBinary && h.op < OpClose:
		return h, violated(StatusProtocolError, "sent reserved opcode %#x", byte(h.op))
	case h.op.isControl() && !h.fin:
		// "All control frames ... MUST NOT be fragmented", §5.5.
		return h, violated(StatusProtocolError, "sent a fragmented %v frame", h.op)
	}
	return h, nil
}

// wrongMask: "The server MUST close the connection upon receiving a frame that is not masked. ... A
// client MUST close a connection if it detects a masked frame.", §5.1.
func wrongMask(fromClient bool) error {
	if fromClient {
		return violated(StatusProtocolError, "sent a frame without a mask to a server")
	}
	return violated(StatusProtocolError, "sent a masked frame to a client")
}

// parseLength reads the length after the first byte and returns where it ends, or 0 when it needs
// more bytes. "The minimal number of bytes MUST be used to encode the length", and the top bit of
// 64 is 0.
func parseLength(p []byte, op Op) (n int, length int64, err error) {
	short := p[1] &^ maskBit
	if op.isControl() && short > maxControl {
		return 0, 0, violated(StatusProtocolError, "sent a %v frame with a payload above 125 bytes", op)
	}
	n = 2
	switch short {
	default:
		return n, int64(short), nil
	case length16:
		if len(p) < n+2 {
			return 0, 0, nil
		}
		length = int64(binary.BigEndian.Uint16(p[n:]))
		if length < length16 {
			return 0, 0, violated(StatusProtocolError, "encoded payload length %d in 16 bits", length)
		}
		return n + 2, length, nil
	case length64:
		if len(p) < n+8 {
			return 0, 0, nil
		}
		length = int64(binary.BigEndian.Uint64(p[n:]))
		if length < 0 {
			return 0, 0, violated(StatusProtocolError, "sent payload length %#x, above 63 bits", uint64(length))
		}
		if length < 1<<16 {
			return 0, 0, violated(StatusProtocolError, "encoded payload length %d in 64 bits", length)
		}
		return n + 8, length, nil
	}
}

// headerSize is how many bytes appendHeader writes for a payload of length bytes.
func headerSize(length int64, masked bool) int {
	n := 2
	switch {
	case length >= 1<<16:
		n += 8
	case length >= length16:
		n += 2
	}
	if masked {
		n += 4
	}
	return n
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
