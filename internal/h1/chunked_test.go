package h1

import (
	"errors"
	"fmt"
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

var chunkedBodies = []struct {
	name, in string
	data     string
	want     *Error // nil: accepted
}{
	{"9112-7.1 one chunk", "5\r\nhello\r\n0\r\n", "hello", nil},
	{"9112-7.1 no chunk", "0\r\n", "", nil},
	{"9112-7.1 many zeros end", "000\r\n", "", nil},
	{"9112-7.1 hex in both cases", "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n", "01234567890123456789", nil},
	{"9112-7.1 leading zeros", "0000000000000001\r\nx\r\n0\r\n", "x", nil},
	{"9112-7.1 data may look like framing", "4\r\n\r\n0\r\r\n0\r\n", "\r\n0\r", nil},
	{"9112-7.1.1 CR in quotes", "5;a;b=c;d=\"e;\\\"\r\"\r\nhello\r\n0\r\n", "", errChunkExt},
	{"9112-7.1.1 quoted extension", "5;ext=\"some \\\"quoted; string\"\r\nhello\r\n0;last=1\r\n", "hello", nil},
	{"9112-7.1.1 spaces around", "5 ; a = b ;c\t\r\nhello\r\n0 \r\n", "hello", nil},
	{"net/http spaces after the size", "5  \r\nhello\r\n0\r\n", "hello", nil},
	{"9112-7.1 no size", "\r\nhello", "", errChunkEmpty},
	{"9112-7.1 no size but extension", ";a\r\nhello", "", errChunkEmpty},
	{"9112-7.1 sign", "+5\r\nhello\r\n0\r\n", "", errChunkByte},
	{"9112-7.1 0x", "0x5\r\nhello\r\n0\r\n", "", errChunkByte},
	{"9112-7.1 space before", " 5\r\nhello\r\n0\r\n", "", errChunkByte},
	{"9112-7.1 space inside", "1 0\r\nhello\r\n0\r\n", "", errChunkByte},
	{"9112-7.1 not hex", "g\r\n", "", errChunkByte},
	{"9112-7.1 2^63", "8000000000000000\r\n", "", errChunkLarge},
	{"9112-7.1 junk after the size", "1 x\r\na\r\n0\r\n", "", errChunkByte},
	{"9112-7.1 17 digits", "00000000000000001\r\nx", "", errChunkLarge},
	{"9112-2.2 bare LF after the size", "1\na\r\n0\r\n", "", errChunkLF},
	{"9112-2.2 bare CR in the size", "1\r\r\na\r\n0\r\n", "", errChunkCR},
	{"9112-2.2 bare LF in an extension", "1;\na\r\n0\r\n", "", errChunkLF},
	{"9112-2.2 bare LF in a quoted extension", "1;a=\"\n\"\r\na\r\n0\r\n", "", errChunkLF},
	{"9112-2.2 bare CR in an extension", "1;a\rb\r\na\r\n0\r\n", "", errChunkCR},
	{"9112-7.1 bare LF after data", "1\r\na\n0\r\n", "a", errChunkEnd},
	{"9112-7.1 data longer than the chunk", "1\r\nab\r\n0\r\n", "a", errChunkEnd},
	{"9112-7.1 CR CR after data", "1\r\na\r\r\n0\r\n", "a", errChunkEnd},
	{"9112-7.1.1 extension without name", "1;\r\na\r\n0\r\n", "", errChunkExt},
	{"9112-7.1.1 extension without value", "1;a=\r\na\r\n0\r\n", "", errChunkExt},
	{"9112-7.1.1 value without name", "1;=b\r\na\r\n0\r\n", "", errChunkExt},
	{"9112-7.1.1 two values", "1;a=b=c\r\na\r\n0\r\n", "", errChunkExt},
	{"9112-7.1.1 words after a quoted value", "1;a=\"b\"c\r\na\r\n0\r\n", "", errChunkExt},
	{"9112-7.1.1 NUL", "1;a\x00\r\na\r\n0\r\n", "", errChunkExt},
	{"9112-7.1.1 NUL in quotes", "1;a=\"\x00\"\r\na\r\n0\r\n", "", errChunkExt},
	{"limit on one line", "1;" + strings.Repeat("a", 4094) + "\r\na\r\n0\r\n", "", ErrChunkLine},
	{"line that just fits", "1;" + strings.Repeat("a", 4093) + "\r\na\r\n0\r\n", "a", nil},
	{"limit on all extensions", strings.Repeat("1;"+strings.Repeat("a", 4000)+"\r\na\r\n", 5) + "0\r\n", "aaaa",
		errChunkOver},
	{"a byte a chunk is fair", strings.Repeat("1\r\na\r\n", 20000) + "0\r\n", strings.Repeat("a", 20000), nil},
}

func TestChunked(t *testing.T) {
	for _, tt := range chunkedBodies {
		t.Run(tt.name, func(t *testing.T) {
			for how, piece := range map[string]func() int{
				"at once": allAtOnce, "byte by byte": func() int { return 1 }, "in pieces": pieces(7)} {
				data, used, done, err := decodeAll([]byte(tt.in), piece)
				if tt.want != nil && (!errors.Is(err, tt.want) || done) {
					t.Errorf("%s: err = %v, done = %t; want %v", how, err, done, tt.want)
				}
				if tt.want == nil && (err != nil || !done || used != len(tt.in)) {
					t.Errorf("%s: err = %v, done = %t, used %d of %d", how, err, done, used, len(tt.in))
				}
				if data != tt.data {
					t.Errorf("%s: data = %.40q, want %.40q", how, data, tt.data)
				}
			}
		})
	}
}

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

func TestParseTrailer(t *testing.T) {
	long := "X: " + strings.Repeat("y", 100) + "\r\n\r\n"
	tests := []struct {
		name, in string
		lim      Limits
		n        int
		want     string
		err      *Error
	}{
		{"9112-7.1.2 none", "\r\nGET", Limits{}, 2, "", nil},
		{"9112-7.1.2 two", "A: b\r\nc:  d \r\n\r\nGET", Limits{}, 16, "A=b c=d ", nil},
		{"9112-7.1.2 incomplete", "A: b\r\n\r", Limits{}, 0, "", nil},
		{"9110-6.5.1 forbidden are dropped", "A: b\r\ncontent-length: 3\r\nHost: x\r\nIf-Match: y\r\nTE: z\r\n\r\n",
			Limits{}, 56, "A=b ", nil},
		{"9112-5.2 obs-fold", "A: b\r\n c\r\n\r\n", Limits{}, 0, "", errFold},
		{"9112-2.2 bare LF", "A: b\n\r\n", Limits{}, 0, "", errBareLF},
		{"9112-2.2 bare LF at once", "\n", Limits{}, 0, "", errBareLF},
		{"9112-2.2 bare CR", "\rA: b\r\n\r\n", Limits{}, 0, "", errBareCR},
		{"9110-5.1 name", "A b: c\r\n\r\n", Limits{}, 0, "", errNameSpace},
		{"too long", long, Limits{HeadBytes: 50}, 0, "", errHeadLong},
		{"just fits", long, Limits{HeadBytes: len(long)}, len(long), "X=" + strings.Repeat("y", 100) + " ", nil},
		{"too many, dropped ones count", "Host: a\r\nHost: a\r\nHost: a\r\n\r\n", Limits{Fields: 2}, 0, "",
			errFieldsMany},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := []byte(tt.in)
			n, fields, err := ParseTrailer(p, tt.lim, []Field{{Name: []byte("kept")}})
			if n != tt.n || !sameError(err, tt.err) {
				t.Fatalf("ParseTrailer = %d, %v; want %d, %v", n, err, tt.n, tt.err)
			}
			got := ""
			for _, f := range fields[1:] {
				got += fmt.Sprintf("%s=%s ", f.Name, f.Value)
			}
			if got != tt.want {
				t.Errorf("fields %q, want %q", got, tt.want)
			}
			var s Scan
			ready, scanErr := false, error(nil)
			for i := 1; i <= len(p) && !ready && scanErr == nil; i++ {
				ready, scanErr = s.Trailer(p[:i], tt.lim)
			}
			if ready != (n > 0) || !sameError(scanErr, tt.err) {
				t.Errorf("byte by byte: ready %t, %v", ready, scanErr)
			}
		})
	}
}

func sameError(got error, want *Error) bool {
	if want == nil {
		return got == nil
	}
	return errors.Is(got, want)
}
