package resp

import "math"

// parseInt parses the whole of p as Redis does: digits with an optional minus sign, without leading
// zeros, a plus sign or spaces.
func parseInt(p []byte) (v int64, ok bool) {
	digits := p
	negative := len(p) > 0 && p[0] == '-'
	if negative {
		digits = p[1:]
	}
	switch {
	case len(digits) == 0 || len(digits) > 19:
		return 0, false
	case digits[0] == '0':
		return 0, len(digits) == 1 && !negative
	}
	var u uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	switch {
	case negative && u <= 1<<63:
		return -int64(u), true // -(1<<63) overflows to itself
	case negative || u > math.MaxInt64:
		return 0, false
	}
	return int64(u), true
}

// quickDigits is how many digits header reads without looking for the line's end first.
const quickDigits = 9

// header reads a line of a type byte and a number at the start of p. n is the length of the line
// with its end, 0: it has not come completely. As in Redis the byte behind the CR may be any.
func header(p []byte) (v int64, n int, ok bool) {
	i := 1
	for ; i < len(p) && i <= quickDigits && p[i]-'0' <= 9; i++ {
		v = v*10 + int64(p[i]-'0')
	}
	if i > 1 && i+1 < len(p) && p[i] == '\r' && p[0] != 0 && (p[1] != '0' || i == 2) {
		return v, i + 2, true
	}
	end := lineEnd(p, 0)
	if end < 0 || end+1 >= len(p) {
		return 0, 0, false
	}
	if end == 0 {
		return 0, 2, false
	}
	v, ok = parseInt(p[1:end])
	return v, end + 2, ok
}

// lineEnd is the index of the first CR in p, which begins at or behind from, or -1. As in Redis a
// NUL before it hides it.
func lineEnd(p []byte, from int) int {
	for i := from; i < len(p) && i <= maxLine; i++ {
		if p[i] == '\r' {
			return i
		}
		if p[i] == 0 {
			break
		}
	}
	return -1
}
