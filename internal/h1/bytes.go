package h1

import (
	"encoding/binary"
	"math/bits"
)

const (
	isToken      = 1 << iota // tchar, RFC 9110 section 5.6.2
	isUnreserved             // unreserved, RFC 3986 section 2.3
	isRegName                // unreserved or sub-delims, of which names of hosts are made beside percent-encoded bytes
	isColon                  // ":"
	isHex                    // HEXDIG
	isDecimal                // DIGIT
)

// class says what each byte may be part of.
var class = classes()

func classes() (t [256]uint8) {
	const (
		digits     = "0123456789"
		alnum      = digits + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		unreserved = alnum + "-._~"
	)
	for bytes, kind := range map[string]uint8{
		alnum + "!#$%&'*+-.^_`|~":  isToken,
		unreserved:                 isUnreserved,
		unreserved + "!$&'()*+,;=": isRegName,
		":":                        isColon,
		digits + "abcdefABCDEF":    isHex,
		digits:                     isDecimal,
	} {
		for _, c := range []byte(bytes) {
			t[c] |= kind
		}
	}
	return t
}

func allOf(p []byte, kind uint8) bool {
	for _, c := range p {
		if class[c]&kind == 0 {
			return false
		}
	}
	return true
}

// text returns the index of the first byte of p at or after i that no line of a head may hold
// inside: a control character other than the tab. That is also where a line ends. len(p) means
// there is none.
func text(p []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(p); i += 8 {
		// The lowest flagged byte of each term is exact; higher ones may be flagged by a borrow.
		x := binary.LittleEndian.Uint64(p[i:])
		del := x ^ 0x7f*ones
		hit := ((x-0x20*ones)&^x | (del-ones)&^del) & highs
		for hit != 0 {
			j := i + bits.TrailingZeros64(hit)/8
			if isControl(p[j]) {
				return j
			}
			hit &= hit - 1
		}
	}
	for ; i < len(p); i++ {
		if isControl(p[i]) {
			return i
		}
	}
	return i
}

func isControl(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

// lineEnd looks for the CRLF of the line that p[from:] is inside of. It returns where the CR is, or
// -1 and the index from which to look on when more bytes are there.
func lineEnd(p []byte, from int) (cr, next int, err *Error) {
	i := text(p, from)
	switch {
	case i == len(p):
		return -1, i, nil
	case p[i] == '\n':
		return -1, i, errBareLF
	case p[i] != '\r':
		return -1, i, errControl
	case i+1 == len(p):
		return -1, i, nil
	case p[i+1] != '\n':
		return -1, i, errBareCR
	}
	return i, i + 2, nil
}

// IsToken reports whether s is a token (RFC 9110 section 5.6.2).
func IsToken[T ~string | ~[]byte](s T) bool {
	for i := range len(s) {
		if class[s[i]]&isToken == 0 {
			return false
		}
	}
	return len(s) > 0
}

// IsTokenByte reports whether c may be part of a token.
func IsTokenByte(c byte) bool { return class[c]&isToken != 0 }

// IsFieldValue reports whether a field may have the value p: it has no control character but the
// tab (RFC 9110 section 5.5).
func IsFieldValue(p []byte) bool { return text(p, 0) == len(p) }

// fold reports whether p is lower apart from the case of letters. lower holds lower-case letters,
// digits and "-" only, and p no control characters.
func fold(p []byte, lower string) bool {
	if len(p) != len(lower) {
		return false
	}
	for i, c := range p {
		if c|0x20 != lower[i] {
			return false
		}
	}
	return true
}

// trim cuts optional whitespace (RFC 9110 section 5.6.3) from both ends.
func trim[T ~string | ~[]byte](p T) T {
	for len(p) > 0 && isSpace(p[0]) {
		p = p[1:]
	}
	for len(p) > 0 && isSpace(p[len(p)-1]) {
		p = p[:len(p)-1]
	}
	return p
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// element cuts the first element off a comma-separated list (RFC 9110 section 5.6.1), trimmed; it
// may be empty.
func element(list []byte) (first, rest []byte) {
	for i, c := range list {
		if c == ',' {
			return trim(list[:i]), list[i+1:]
		}
	}
	return trim(list), nil
}
