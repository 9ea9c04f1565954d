package websocket

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"
)

// maxHead bounds the head of a request on a raw connection, in bytes: 431 above it.
const maxHead = 8 << 10

// parseRequest reads the head of a request from the start of p. It returns n == 0 and no refusal when it needs more bytes. from
// is how many bytes an earlier call has seen. What it returns are views of p. It is strict: what HTTP/1.1 does not allow in a head
// is refused with 400, bare line feeds and folded lines included (RFC 9112 §2.2, §5.2).
//
// https://www.rfc-editor.org/rfc/rfc9112#section-3
func parseRequest(p []byte, from int, o *opening[[]byte]) (n int, bad *refusal) {
	if len(p) > 0 && (p[0] < 'A' || p[0] > 'Z') {
		return 0, badHead("it does not begin with a method")
	}
	n = headEnd(p[:min(len(p), maxHead)], from)
	if n < 0 {
		if len(p) >= maxHead {
			return 0, &refusal{http.StatusRequestHeaderFieldsTooLarge, "", "the head of the request is above 8 KiB"}
		}
		return 0, nil
	}
	line, head := cutLine(p[:n-2])
	if !o.requestLine(line) {
		return 0, badHead("its first line is not METHOD TARGET HTTP/1.1")
	}
	for len(head) > 0 {
		line, head = cutLine(head)
		name, value, ok := cutField(line)
		if !ok {
			return 0, badHead("a header line is malformed")
		}
		o.field(name, value)
	}
	return n, nil
}

// headEnd returns where the first empty line behind another one ends, or -1. It looks at line feeds from at on.
func headEnd(p []byte, at int) int {
	for {
		i := bytes.IndexByte(p[at:], '\n')
		if i < 0 {
			return -1
		}
		at += i + 1
		if at >= 4 && string(p[at-4:at]) == "\r\n\r\n" {
			return at
		}
	}
}

func badHead(why string) *refusal {
	return &refusal{http.StatusBadRequest, "", "not a request of HTTP/1.1: " + why}
}

// cutLine cuts at the first CRLF, of which there is one.
func cutLine(p []byte) (line, rest []byte) {
	i := bytes.IndexByte(p, '\n')
	if i < 1 || p[i-1] != '\r' {
		return p, nil // the bare line feed is found in the line
	}
	return p[:i-1], p[i+1:]
}

// requestLine takes "GET /path HTTP/1.1".
func (o *opening[T]) requestLine(line []byte) bool {
	method, rest, ok1 := bytes.Cut(line, []byte(" "))
	target, version, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 || len(target) == 0 || !isToken(method) || len(version) != 8 || string(version[:5]) != "HTTP/" ||
		!isDigit(version[5]) || version[6] != '.' || !isDigit(version[7]) {
		return false
	}
	for _, b := range target {
		if b <= ' ' || b >= 0x7f {
			return false
		}
	}
	o.get = string(method) == "GET"
	o.http11 = version[5] == '1' && version[7] >= '1'
	return true
}

// cutField splits a header line, RFC 9112 §5: no space before the colon, no control characters, no folding.
func cutField(line []byte) (name, value []byte, ok bool) {
	colon := 0
	for colon < len(line) && tokenBytes[line[colon]] {
		colon++
	}
	if colon == 0 || colon == len(line) || line[colon] != ':' {
		return nil, nil, false
	}
	name, value = line[:colon], line[colon+1:]
	for len(value) > 0 && isBlank(value[0]) {
		value = value[1:]
	}
	for len(value) > 0 && isBlank(value[len(value)-1]) {
		value = value[:len(value)-1]
	}
	return name, value, isFieldValue(value)
}

// isFieldValue looks at eight bytes at a time, and one by one at eight that have something unusual.
func isFieldValue(p []byte) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(p) >= 8; p = p[8:] {
		w := binary.LittleEndian.Uint64(p)
		control, del := (w-' '*ones)&^w, w^0x7f*ones
		if (control|(del-ones)&^del)&tops != 0 && !areFieldBytes(p[:8]) {
			return false
		}
	}
	return areFieldBytes(p)
}

func areFieldBytes(p []byte) bool {
	for _, b := range p {
		if !fieldBytes[b] {
			return false
		}
	}
	return true
}

// field notes a header line that matters. Its length tells most of those that do not.
func (o *opening[T]) field(name, value []byte) {
	v := T(value)
	switch len(name) {
	case len("host"):
		if isNamed(name, "host") {
			o.host, o.hosts = v, o.hosts+1
		}
	case len("origin"):
		if isNamed(name, "origin") {
			o.origin, o.origins = v, o.origins+1
		}
	case len("upgrade"):
		o.upgrade = o.upgrade || isNamed(name, "upgrade") && hasToken(value, "websocket")
	case len("connection"):
		o.connection = o.connection || isNamed(name, "connection") && hasToken(value, "upgrade")
	case len("content-length"):
		o.body = o.body || isNamed(name, "content-length") && string(value) != "0"
	case len("transfer-encoding"): // and "sec-websocket-key"
		if isNamed(name, "sec-websocket-key") {
			o.key, o.keys = v, o.keys+1
		}
		o.body = o.body || isNamed(name, "transfer-encoding")
	case len("sec-websocket-version"):
		if isNamed(name, "sec-websocket-version") {
			o.version, o.versions = v, o.versions+1
		}
	case len("sec-websocket-protocol"):
		if o.choosing && isNamed(name, "sec-websocket-protocol") {
			o.offered = append(o.offered, string(value))
		}
	case len("sec-websocket-extensions"):
		if isNamed(name, "sec-websocket-extensions") {
			o.extensions(v)
		}
	}
}

// isNamed compares a token without regard to case with lower, letters in lower case and hyphens: no other byte of a token becomes one of
// these.
func isNamed(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i := range name {
		if name[i]|('a'-'A') != lower[i] {
			return false
		}
	}
	return true
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// isToken is RFC 9110 §5.6.2.
func isToken[T text](s T) bool {
	if len(s) == 0 {
		return false
	}
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return true
}

// tokenBytes are the characters of a token, and fieldBytes those that a field's value may have: neither a control character but the
// tab, nor DEL.
var tokenBytes, fieldBytes = byteSets()

func byteSets() (token, field [256]bool) {
	for i := range 256 {
		c := byte(i)
		token[c] = isAlphanumeric(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
		field[c] = c >= ' ' && c != 0x7f || c == '\t'
	}
	return token, field
}
