// Package fossil makes the deltas of the Fossil version control system, which clients of the push
// server apply to the previous publication of a channel:
//
//	delta := fossil.Append(nil, previous, current)
//	current, err := fossil.Apply(previous, delta, limit)
//
// https://fossil-scm.org/home/doc/trunk/www/delta_format.wiki defines the format: the size of the
// target and a newline, then segments, then a checksum. A segment copies bytes of the source
// ("COUNT@OFFSET,") or has bytes of its own ("COUNT:BYTES"). Numbers are written in base 64.
package fossil

import (
	"errors"
	"unicode/utf8"
)

// block is how many bytes must be equal before a copy is considered. Shorter copies cost as much as
// the bytes themselves.
const block = 16

// maxTries bounds the places that Append compares for one position of the target, so that content
// that repeats itself cannot make it slow.
const maxTries = 16

// Append appends a delta that turns source into target. Its time grows with the sizes of both,
// whatever they contain. If both are UTF-8, so is the delta: a segment does not cut a character.
func Append(dst, source, target []byte) []byte {
	dst = append(appendInt(dst, uint32(len(target))), '\n')
	e := encoder{source: source, target: target, text: utf8.Valid(source) && utf8.Valid(target)}
	done := 0 // of the target
	if len(source) >= block && len(target) >= block {
		e.index()
		for at := 0; at+block <= len(target); {
			from, begin, end := e.match(at, done)
			if end-begin < block {
				at++
				continue
			}
			dst = appendLiteral(dst, target[done:begin])
			dst = append(appendInt(dst, uint32(end-begin)), '@')
			dst = append(appendInt(dst, uint32(from)), ',')
			done, at = end, end
		}
	}
	dst = appendLiteral(dst, target[done:])
	return append(appendInt(dst, checksum(target)), ';')
}

func appendLiteral(dst, p []byte) []byte {
	if len(p) == 0 {
		return dst
	}
	return append(append(appendInt(dst, uint32(len(p))), ':'), p...)
}

// An encoder finds equal parts.
type encoder struct {
	source, target []byte
	text           bool    // both are UTF-8
	heads          []int32 // by hash: the last block of the source with that hash, counted from 1; 0: none
	next           []int32 // by block: another block with the same hash, counted from 1
	bits           uint
}

// index enters the blocks of the source.
func (e *encoder) index() {
	blocks := len(e.source) / block
	for e.bits = 4; 1<<e.bits < blocks; {
		e.bits++
	}
	e.heads, e.next = make([]int32, 1<<e.bits), make([]int32, blocks)
	for i := range blocks {
		h := e.hash(e.source[i*block:])
		e.next[i] = e.heads[h]
		e.heads[h] = int32(i + 1)
	}
}

func (e *encoder) hash(p []byte) uint32 {
	h := uint64(0)
	for _, c := range p[:block] {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return uint32((h ^ h>>32) * 0x9e3779b1 & 0xffffffff >> (32 - e.bits))
}

// match returns the longest part of the target around at, behind done, that is at from in the
// source.
func (e *encoder) match(at, done int) (from, begin, end int) {
	tries := maxTries
	for i := e.heads[e.hash(e.target[at:])]; i > 0 && tries > 0; i = e.next[i-1] {
		tries--
		source, first, last := int(i-1)*block, at, at
		for last < len(e.target) && source+last-at < len(e.source) && e.target[last] == e.source[source+last-at] {
			last++
		}
		for first > done && source-(at-first) > 0 && e.target[first-1] == e.source[source-(at-first)-1] {
			first--
		}
		if e.text {
			first, last = whole(e.target, first, last)
		}
		if last-first > end-begin {
			from, begin, end = source-(at-first), first, last
		}
	}
	return from, begin, end
}

// whole shortens a part of p, which is UTF-8, so that it begins and ends between two characters.
func whole(p []byte, begin, end int) (int, int) {
	for begin < end && !utf8.RuneStart(p[begin]) {
		begin++
	}
	for end > begin && end < len(p) && !utf8.RuneStart(p[end]) {
		end--
	}
	return begin, end
}

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"

func appendInt(dst []byte, n uint32) []byte {
	if n >= 64 {
		dst = appendInt(dst, n>>6)
	}
	return append(dst, digits[n&63])
}

// checksum is the sum of p's bytes as big-endian 32-bit words.
func checksum(p []byte) (sum uint32) {
	for i, c := range p {
		sum += uint32(c) << (24 - 8*(i&3))
	}
	return sum
}

// ErrDelta is returned by Apply for a delta that is malformed or does not fit the source, and for a
// target above the limit.
var ErrDelta = errors.New("fossil: the delta is malformed, too large or not for this source")

// Apply returns the target, of at most limit bytes.
func Apply(source, delta []byte, limit int) ([]byte, error) {
	size, op, delta, ok := segment(delta)
	if !ok || op != '\n' || uint64(size) > uint64(limit) {
		return nil, ErrDelta
	}
	target := make([]byte, 0, min(int(size), len(source)+len(delta)))
	for {
		var count, from uint32
		count, op, delta, ok = segment(delta)
		switch {
		case !ok:
			return nil, ErrDelta
		case op == ';':
			if len(delta) > 0 || len(target) != int(size) || checksum(target) != count {
				return nil, ErrDelta
			}
			return target, nil
		case uint64(len(target))+uint64(count) > uint64(size):
			return nil, ErrDelta
		case op == '@':
			from, op, delta, ok = segment(delta)
			if !ok || op != ',' || uint64(from)+uint64(count) > uint64(len(source)) {
				return nil, ErrDelta
			}
			target = append(target, source[from:from+count]...)
		case op == ':' && uint64(count) <= uint64(len(delta)):
			target = append(target, delta[:count]...)
			delta = delta[count:]
		default:
			return nil, ErrDelta
		}
	}
}

// segment parses a number and the character behind it.
func segment(p []byte) (n uint32, op byte, rest []byte, ok bool) {
	for i, c := range p {
		digit := value(c)
		if digit < 0 {
			return n, c, p[i+1:], i > 0
		}
		if n >= 1<<26 {
			break
		}
		n = n<<6 | uint32(digit)
	}
	return 0, 0, nil, false
}

func value(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'Z':
		return int(c-'A') + 10
	case c == '_':
		return 36
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 37
	case c == '~':
		return 63
	}
	return -1
}
