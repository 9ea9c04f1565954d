package h1

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
)

func FuzzResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"))
	f.Add([]byte("HTTP/1.0 304 \r\nConnection: keep-alive\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\nX: y\n\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		var h ResponseHead
		n, err := ParseResponse(p, Limits{}, &h)
		if n < 0 || n > len(p) || n > 0 && err != nil {
			t.Fatalf("n = %d of %d, err = %v", n, len(p), err)
		}
		var s Scan
		ready, scanErr := false, error(nil)
		for i := 1; i <= len(p) && !ready && scanErr == nil; i++ {
			ready, scanErr = s.Response(p[:i], Limits{})
		}
		if ready != (n > 0) || scanErr != err {
			t.Fatalf("whole: %d, %v; byte by byte: %t, %v", n, err, ready, scanErr)
		}
		if n == 0 {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(p[:n]))), nil)
		if err != nil {
			if strings.Contains(err.Error(), "trailer") {
				return // net/http checks announced trailers in responses too
			}
			t.Fatalf("net/http refuses what ParseResponse accepts: %v", err)
		}
		if resp.StatusCode != h.Status || h.ContentLength >= 0 && !h.NoBody && resp.ContentLength != h.ContentLength {
			t.Fatalf("net/http: %d, length %d; ours: %d, %+v", resp.StatusCode, resp.ContentLength, h.Status, h.Framing)
		}
	})
}
