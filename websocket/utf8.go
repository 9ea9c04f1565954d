package websocket

import "unicode/utf8"

// utf8State checks text that arrives in pieces: "endpoints MUST check that the text is valid
// UTF-8", RFC 6455 §8.1. It remembers only the start of a sequence that the last piece left
// unfinished. The zero value is a text of no bytes.
//
// https://www.rfc-editor.org/rfc/rfc6455#section-8.1
type utf8State struct {
	begun [utf8.UTFMax - 1]byte // the first bytes of an unfinished sequence
	n     uint8                 // how many of them there are
}

// feed takes the next piece and reports whether the text so far can still become valid. It fails
// with the first byte that no continuation could repair, and must not be called again after that.
func (s *utf8State) feed(p []byte) bool {
	for s.n > 0 {
		if len(p) == 0 {
			return true
		}
		if !s.extend(p[0]) {
			return false
		}
		p = p[1:]
	}
	cut := unfinishedTail(p)
	s.n = uint8(copy(s.begun[:], p[cut:]))
	return utf8.Valid(p[:cut])
}

// complete reports whether the text may end here.
func (s *utf8State) complete() bool { return s.n == 0 }

// extend adds one byte to the unfinished sequence. FullRune also calls a prefix full that cannot
// become a rune, such as an overlong form or a surrogate, which makes this fail at the earliest
// byte.
func (s *utf8State) extend(b byte) bool {
	var seq [utf8.UTFMax]byte
	n := copy(seq[:], s.begun[:s.n])
	seq[n] = b
	n++
	if !utf8.FullRune(seq[:n]) {
		s.begun[n-1] = b
		s.n++
		return true
	}
	s.n = 0
	_, size := utf8.DecodeRune(seq[:n])
	return size == n
}

// unfinishedTail returns where the sequence begins that p ends in the middle of, or len(p).
func unfinishedTail(p []byte) int {
	for i := len(p) - 1; i >= 0 && i > len(p)-utf8.UTFMax; i-- {
		if !utf8.RuneStart(p[i]) {
			continue
		}
		if !utf8.FullRune(p[i:]) {
			return i
		}
		break
	}
	return len(p)
}
