package h1

import (
	"strings"
	"testing"
	"unsafe"
)

// decodeAll decodes p, offered in pieces, and returns the data, how many bytes were used, and how
// it ended.
func decodeAll(p []byte, piece func() int) (data string, used int, done bool, err error) {
	var d Chunked
	var out strings.Builder
	for have := 0; have < len(p) && !done && err == nil; {
		have = min(have+piece(), len(p))
		for used < have && !done && err == nil {
			n, part, end, e := d.Decode(p[used:have])
			out.Write(part)
			used, done, err = used+n, end, e
		}
	}
	return out.String(), used, done, err
}

func allAtOnce() int { return 1 << 30 }

func TestChunkedLeavesTheRest(t *testing.T) {
	in := []byte("3\r\nabc\r\n0\r\n\r\nGET /")
	var d Chunked
	n, data, done, err := d.Decode(in)
	if n != 6 || string(data) != "abc" || done || err != nil || cap(data) != 3 {
		t.Fatal(n, string(data), done, err, cap(data))
	}
	m, data, done, err := d.Decode(in[n:])
	if m != 5 || len(data) != 0 || !done || err != nil || !d.Done() {
		t.Fatal(m, data, done, err)
	}
	if m, _, done, err = d.Decode(in[n+m:]); m != 0 || !done || err != nil {
		t.Fatal("after the end Decode took more:", m, done, err)
	}
}

func TestChunkedErrorStays(t *testing.T) {
	var d Chunked
	n, _, _, err := d.Decode([]byte("5\n"))
	if n != 1 || err != error(errChunkLF) {
		t.Fatal(n, err)
	}
	if n, _, _, err = d.Decode([]byte("\n")); n != 0 || err != error(errChunkLF) {
		t.Fatal(n, err)
	}
}

func TestChunkedLeft(t *testing.T) {
	var d Chunked
	if _, _, _, err := d.Decode([]byte("10\r\nabc")); err != nil || d.Left() != 0x10-3 || !d.InData() {
		// One Decode ends behind the data it returns.
		t.Fatal(err, d.Left(), d.InData())
	}
	d = Chunked{}
	if _, data, _, err := d.Decode([]byte("3\r\nabc")); err != nil || string(data) != "abc" || d.Left() != 0 ||
		d.InData() {
		t.Fatal(err, data, d.Left(), d.InData())
	}
	if size := unsafe.Sizeof(d); size != 16 {
		t.Errorf("a Chunked has %d bytes, want 16", size)
	}
}
