package hpack

import (
	"strings"

	"golang.org/x/net/http2/hpack"
)

// AppendField appends a field that no dynamic table keeps: by its index if it is in the static
// table, else its name by index or literally, and its value. A sensitive one is marked so that
// proxies do not index it either (RFC 7541 section 6.2.3).
func AppendField(dst, name, value []byte, sensitive bool) []byte {
	at := staticNames[string(name)]
	for i := at; i > 0 && i <= len(staticTable) && staticTable[i-1].Name == string(name); i++ {
		if staticTable[i-1].Value == string(value) && len(value) > 0 && !sensitive {
			return appendInteger(dst, 0x80, 7, i)
		}
	}
	first := byte(0)
	if sensitive {
		first = 0x10
	}
	dst = appendInteger(dst, first, 4, at)
	if at == 0 {
		dst = appendString(dst, name)
	}
	return appendString(dst, value)
}

// AppendForget appends a size update to 0, which an encoder without a dynamic table sends once. It
// must be the first of a block. The peer frees its table, and any later SETTINGS_HEADER_TABLE_SIZE
// that is smaller than the one before needs it again (RFC 7541 section 4.2).
func AppendForget(dst []byte) []byte { return append(dst, 0x20) }

// staticNames has the first index of each name.
var staticNames = func() map[string]int {
	m := map[string]int{}
	for i, f := range staticTable {
		if m[f.Name] == 0 {
			m[f.Name] = i + 1
		}
	}
	return m
}()

// A code is a Huffman code of RFC 7541 appendix B.
type code struct {
	bits uint32
	n    uint8
}

// codes are found by what eight times a byte, which is a whole number of bytes, is encoded as.
var codes = func() (all [256]code) {
	for b := range all {
		p := hpack.AppendHuffmanString(nil, strings.Repeat(string([]byte{byte(b)}), 8))
		v := uint64(0)
		for i := range 4 {
			v = v<<8 | uint64(p[i])
		}
		all[b] = code{uint32(v >> (32 - len(p))), uint8(len(p))}
	}
	return all
}()

// appendInteger appends an integer with a prefix of n bits (RFC 7541 section 5.1).
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

// appendString appends a string in its shorter form.
func appendString(dst, s []byte) []byte {
	n := 0
	for _, b := range s {
		n += int(codes[b].n)
	}
	if n = (n + 7) / 8; n >= len(s) {
		return append(appendInteger(dst, 0, 7, len(s)), s...)
	}
	return appendHuffman(appendInteger(dst, 0x80, 7, n), s)
}

func appendHuffman(dst, s []byte) []byte {
	v, n := uint64(0), uint8(0)
	for _, b := range s {
		c := codes[b]
		v = v<<c.n | uint64(c.bits)
		for n += c.n; n >= 8; {
			n -= 8
			dst = append(dst, byte(v>>n))
		}
	}
	if n > 0 { // the rest of the byte is the beginning of EOS, all ones
		dst = append(dst, byte(v<<(8-n))|byte(1<<(8-n)-1))
	}
	return dst
}
