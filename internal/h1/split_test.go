package h1

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// corpus are requests good and bad that splits and fuzzers start from.
var corpus = []string{
	smallRequest,
	browserRequest,
	get("Content-Length: 5\r\n") + "hello",
	get("Transfer-Encoding: chunked\r\nTrailer: X\r\n") + "5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
	get("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
	get("Content-Length: 5\r\nContent-Length: 5\r\n") + "12345",
	get("Content-Length: +5\r\n"),
	get("X: a\r\n b\r\n"),
	get("X : a\r\n"),
	get("X: a\rb\r\n"),
	get("X: \x00\r\n"),
	get("Connection: Upgrade\r\nUpgrade: websocket\r\n"),
	get("Expect: 100-continue\r\nContent-Length: 1\r\n") + "x",
	"\r\n\r\nGET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	"\r\n\r\n\r\n\r\n\r\n\r\n",
	"GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n",
	"CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n",
	"CONNECT /rpc HTTP/1.0\n\nabc",
	"CONNECT /" + strings.Repeat("a", tight.LineBytes-len("CONNECT / HTTP/1.0")) + " HTTP/1.0\n\n",
	"CONNECT /" + strings.Repeat("a", tight.LineBytes-len("CONNECT / HTTP/1.0")+1) + " HTTP/1.0\n\n",
	"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"GET / HTTP/3.0\r\n\r\n",
	"GET / HTTP/1.1\nHost: a\n\n",
	"GET /" + strings.Repeat("a", 200) + " HTTP/1.1\r\nHost: a\r\n\r\n",
	strings.Repeat("a", 300),
	get(strings.Repeat("X: y\r\n", 12)),
	get("X: " + strings.Repeat("y", 400) + "\r\n"),
}

var tight = Limits{HeadBytes: 320, LineBytes: 120, Fields: 10}

// whole and inPieces return the same for every input and every way to cut it.
func whole(p []byte, lim Limits) (string, int, error) {
	var h Head
	n, err := ParseRequest(p, lim, &h)
	if n == 0 {
		return "", 0, err
	}
	return describe(&h), n, nil
}

func inPieces(p []byte, lim Limits, piece func() int) (string, int, error) {
	var s Scan
	for have := 0; have < len(p); {
		have = min(have+piece(), len(p))
		moved := append([]byte(nil), p[:have]...) // a Scan must not care where the bytes are
		ready, err := s.Request(moved, lim)
		if err != nil {
			return "", 0, err
		}
		if ready {
			return whole(moved, lim)
		}
	}
	return "", 0, nil
}

func TestAnySplitOfARequestIsTheSame(t *testing.T) {
	for _, lim := range []Limits{{}, tight} {
		for _, in := range corpus {
			p := []byte(in)
			want, wantN, wantErr := whole(p, lim)
			check := func(how string, piece func() int) {
				got, n, err := inPieces(p, lim, piece)
				if got != want || n != wantN || err != wantErr {
					t.Errorf("%q %s: got %s, %d, %v; whole: %s, %d, %v", in, how, got, n, err, want, wantN, wantErr)
				}
			}
			check("byte by byte", func() int { return 1 })
			for cut := 1; cut < len(p); cut++ {
				first := true
				check("cut once", func() int {
					if first {
						first = false
						return cut
					}
					return len(p)
				})
			}
		}
	}
}

func TestScanLooksAtEachByteOnce(t *testing.T) {
	p := []byte(get("X: " + strings.Repeat("y", 1000) + "\r\n"))
	var s Scan
	for i := 1; i < len(p); i++ {
		if ready, err := s.Request(p[:i], Limits{}); ready || err != nil {
			t.Fatal(i, ready, err)
		}
		if s.next < i-1 { // one byte back for a CR that waits for its LF
			t.Fatalf("after %d bytes the scan would go on at %d", i, s.next)
		}
	}
}

// pieces draws sizes of 1 to 8 bytes.
func pieces(seed uint64) func() int {
	r := rand.New(rand.NewPCG(seed, 1))
	return func() int { return 1 + r.IntN(8) }
}
