package h2

import (
	"encoding/binary"
	"iter"
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

// A Pair is a field that AppendPair has made. Name and Value are views.
type Pair struct {
	Name, Value []byte
	Sensitive   bool
}

// Pairs are the fields of what AppendPair has made, in order.
func Pairs(p []byte) iter.Seq[Pair] {
	return func(yield func(Pair) bool) {
		for rest := p; len(rest) > 0; {
			n, k := binary.Uvarint(rest)
			name, value := rest[k:k+int(n>>1)], rest[k+int(n>>1):]
			size, k := binary.Uvarint(value)
			value, rest = value[k:k+int(size)], value[k+int(size):]
			if !yield(Pair{name, value, n&1 != 0}) {
				return
			}
		}
	}
}

// fieldOverhead is what each field counts beside its name and value (section 6.5.2).
const fieldOverhead = 32

// ListSize is the size of fields that AppendPair has made, pseudo-fields included, as
// SETTINGS_MAX_HEADER_LIST_SIZE counts it (section 6.5.2): before compression, and 32 bytes more
// for each field.
func ListSize(pairs []byte) (size int64) {
	for f := range Pairs(pairs) {
		size += int64(len(f.Name) + len(f.Value) + fieldOverhead)
	}
	return size
}

// ListExceeds reports whether ListSize is larger than limit. A short list is not walked.
func ListExceeds(pairs []byte, limit int64) bool {
	most := int64(len(pairs)) * (fieldOverhead / 2) // a pair takes two bytes at least
	return most > limit && ListSize(pairs) > limit
}
