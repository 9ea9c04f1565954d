package h1

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httputil"
	"testing"
)

// FuzzRequest: the parser keeps within its input, gives the same for every split, and what it
// accepts means the same after it has been written again.
func FuzzRequest(f *testing.F) {
	for i, in := range corpus {
		f.Add([]byte(in), uint64(i))
	}
	f.Fuzz(func(t *testing.T, p []byte, seed uint64) {
		for _, lim := range []Limits{{}, tight} {
			want, n, err := whole(p, lim)
			if n < 0 || n > len(p) || n > 0 && err != nil {
				t.Fatalf("n = %d of %d, err = %v", n, len(p), err)
			}
			got, m, splitErr := inPieces(p, lim, pieces(seed))
			if got != want || m != n || splitErr != err {
				t.Fatalf("whole: %s, %d, %v\nin pieces: %s, %d, %v", want, n, err, got, m, splitErr)
			}
		}
		var h Head
		if n, _ := ParseRequest(p, Limits{}, &h); n > 0 {
			again := serialise(&h)
			var h2 Head
			m, err := ParseRequest(again, Limits{HeadBytes: MaxHeadBytes}, &h2)
			if m != len(again) || err != nil || describe(&h) != describe(&h2) {
				t.Fatalf("%q parses to %s, written again to %s, %d, %v", p[:n], describe(&h), describe(&h2), m, err)
			}
		}
	})
}

func serialise(h *Head) []byte {
	p := fmt.Appendf(nil, "%s %s HTTP/1.%d\r\n", h.Method, h.Target, h.Minor)
	for _, f := range h.Fields {
		p = AppendField(p, string(f.Name), string(f.Value))
	}
	return append(p, "\r\n"...)
}

// FuzzChunked: every split gives the same, and what is accepted net/http's decoder reads as the
// same data.
func FuzzChunked(f *testing.F) {
	for i, in := range inputs(f, "chunks.txt") {
		if len(in) < 100 {
			f.Add([]byte(in), uint64(i))
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, seed uint64) {
		data, used, done, err := decodeAll(p, allAtOnce)
		if used < 0 || used > len(p) || done && err != nil {
			t.Fatalf("used %d of %d, done %t, err %v", used, len(p), done, err)
		}
		data2, used2, done2, err2 := decodeAll(p, pieces(seed))
		if data2 != data || used2 != used || done2 != done || err2 != err {
			t.Fatalf("whole: %q, %d, %t, %v\nin pieces: %q, %d, %t, %v", data, used, done, err, data2, used2, done2,
				err2)
		}
		if done && !spaceBeforeExtension(p) {
			std, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(p)))
			if err != nil || string(std) != data {
				t.Fatalf("net/http reads %q, %v; ours %q", std, err, data)
			}
		}
	})
}

func FuzzAgainstNetHTTP(f *testing.F) {
	for _, in := range corpus {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) < 4000 { // net/http's buffer limits trailers
			compareWithNetHTTP(t, p)
		}
	})
}
