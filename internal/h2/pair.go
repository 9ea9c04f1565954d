package h2

import (
	"encoding/binary"
	"slices"
)

// lengthBytes is what the lengths of a field take, unless they are 16 KiB or more.
const lengthBytes = 4

// AppendPair appends a field of a head or a trailer that waits to be compressed. Names are in lower
// case.
func AppendPair(dst []byte, name, value string, sensitive bool) []byte {
	n := uint64(len(name)) << 1
	if sensitive {
		n |= 1
	}
	dst = binary.AppendUvarint(slices.Grow(dst, lengthBytes+len(name)+len(value)), n)
	dst = append(dst, name...)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// NextPair takes off the first field of what AppendPair has made.
func NextPair(p []byte) (name, value []byte, sensitive bool, rest []byte) {
	n, k := binary.Uvarint(p)
	sensitive = n&1 != 0
	p = p[k:]
	name, p = p[:n>>1], p[n>>1:]
	n, k = binary.Uvarint(p)
	return name, p[k : k+int(n)], sensitive, p[k+int(n):]
}

// fieldOverhead is what each field counts beside its name and value (section 6.5.2).
const fieldOverhead = 32

// ListSize is the size of fields that AppendPair has made, pseudo-fields included, as
// SETTINGS_MAX_HEADER_LIST_SIZE counts it (section 6.5.2): before compression, and 32 bytes more
// for each field.
func ListSize(pairs []byte) (size int64) {
	for len(pairs) > 0 {
		name, value, _, rest := NextPair(pairs)
		size += int64(len(name) + len(value) + fieldOverhead)
		pairs = rest
	}
	return size
}

// ListExceeds reports whether ListSize is larger than limit. A short list is not walked.
func ListExceeds(pairs []byte, limit int64) bool {
	most := int64(len(pairs)) * (fieldOverhead / 2) // a pair takes two bytes at least
	return most > limit && ListSize(pairs) > limit
}
