package tlsloop

// The record layer's own limits (RFC 8446, section 5.1 and 5.2; RFC 5246, section 6.2.3).
const (
	headerLen     = 5
	maxPlaintext  = 16 << 10
	maxCiphertext = maxPlaintext + 2048 // of TLS 1.2; TLS 1.3 allows less

	typeHandshake = 22
)

// A framing tracks the position in a stream of records, so that a reader gets one record at a time.
// crypto/tls keeps what it has read ahead in a buffer that does not shrink.
type framing struct {
	left int32 // bytes of the current record's body that have not passed
	have uint8 // bytes of the next header that have passed
	size [2]byte
}

// next is how many bytes may pass before the header or the body that has begun is complete.
func (f *framing) next() int {
	if f.left > 0 {
		return int(f.left)
	}
	return headerLen - int(f.have)
}

// whole is the length of the record that begins with p, if a record begins there and all of it is
// in p; else 0.
func (f *framing) whole(p []byte) int {
	if f.left > 0 || f.have > 0 || len(p) < headerLen {
		return 0
	}
	n := headerLen + (int(p[3])<<8 | int(p[4]))
	if len(p) < n {
		return 0
	}
	return n
}

// passed takes note of bytes that were given to the reader, in any number.
func (f *framing) passed(p []byte) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(len(p), int(f.left))
			f.left -= int32(n)
			p = p[n:]
			continue
		}
		if f.have >= 3 {
			f.size[f.have-3] = p[0]
		}
		if f.have++; f.have == headerLen {
			f.have = 0
			f.left = int32(f.size[0])<<8 | int32(f.size[1])
		}
		p = p[1:]
	}
}

// firstComplete reports whether p, the first bytes of a handshake, holds the whole first record. It
// also returns true for bytes that cannot become one: crypto/tls then reports the error.
func firstComplete(p []byte) bool {
	if len(p) > 0 && p[0] != typeHandshake {
		return len(p) >= headerLen // so much it looks at
	}
	if len(p) < headerLen {
		return false
	}
	n := int(p[3])<<8 | int(p[4])
	return n > maxCiphertext || len(p) >= headerLen+n
}
