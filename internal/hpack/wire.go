package hpack

import (
	"errors"

	"golang.org/x/net/http2/hpack"
)

// These are the ways in which a field block can be wrong. Each ends the connection with
// COMPRESSION_ERROR (RFC 9113 section 4.3).
var (
	ErrTruncated  = errors.New("hpack: the field block ends in the middle of a field")
	ErrInteger    = errors.New("hpack: an integer is too large")
	ErrIndex      = errors.New("hpack: an index is in no table")
	ErrHuffman    = errors.New("hpack: a string is not a valid Huffman code")
	ErrSizeUpdate = errors.New("hpack: a size update is too large, or in the wrong place")
)

// ErrNames refuses a block whose list is too large, and whose names come from the table and go into
// it again: each takes few bytes and is copied.
var ErrNames = errors.New("hpack: a field block copies too many names inside of the table")

// maxInteger bounds the integers of a block; none can have a use for more.
const maxInteger = 1 << 28

// readInteger reads an integer with a prefix of n bits (RFC 7541 section 5.1).
func readInteger(p []byte, n uint) (v int, rest []byte, err error) {
	if len(p) == 0 {
		return 0, nil, ErrTruncated
	}
	most := 1<<n - 1
	v = int(p[0]) & most
	p = p[1:]
	if v < most {
		return v, p, nil
	}
	for shift := 0; ; shift += 7 {
		if len(p) == 0 {
			return 0, nil, ErrTruncated
		}
		b := p[0]
		p = p[1:]
		if shift > 28 {
			return 0, nil, ErrInteger // also if it adds nothing but zeros
		}
		if v += int(b&0x7f) << shift; v > maxInteger {
			return 0, nil, ErrInteger
		}
		if b&0x80 == 0 {
			return v, p, nil
		}
	}
}

func appendInteger(dst []byte, first byte, n uint, v int) []byte {
	most := 1<<n - 1
	if v < most {
		return append(dst, first|byte(v))
	}
	dst = append(dst, first|byte(most))
	for v -= most; v >= 0x80; v >>= 7 {
		dst = append(dst, byte(v)|0x80)
	}
	return append(dst, byte(v))
}

// An arena collects the strings of one block.
type arena []byte

func (a *arena) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}

// readString appends a string to the arena (RFC 7541 section 5.2).
func (a *arena) readString(p []byte) (rest []byte, err error) {
	if len(p) == 0 {
		return nil, ErrTruncated
	}
	coded := p[0]&0x80 != 0
	n, p, err := readInteger(p, 7)
	switch {
	case err != nil:
		return nil, err
	case n > len(p):
		return nil, ErrTruncated
	case !coded:
		*a = append(*a, p[:n]...)
		return p[n:], nil
	}
	// It refuses EOS, and padding that is no prefix of it or has more than seven bits.
	if _, err := hpack.HuffmanDecode(a, p[:n]); err != nil {
		return nil, ErrHuffman
	}
	return p[n:], nil
}
