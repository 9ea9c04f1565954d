package h1

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestParseResponse(t *testing.T) {
	tests := []struct {
		name, in string
		want     string
	}{
		{"9112-4 with reason", "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n",
			"404 Not Found 3 false keep=true up=false none=false 1"},
		{"9112-4 empty reason", "HTTP/1.1 200 \r\n\r\n", "200  -1 false keep=true up=false none=false 0"},
		{"9112-4 no second space", "HTTP/1.1 200\r\n\r\n", "200  -1 false keep=true up=false none=false 0"},
		{"9112-4 blanks of the reason", "HTTP/1.1 200  fine \r\n\r\n",
			"200  fine  -1 false keep=true up=false none=false 0"},
		{"9112-9.3 HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n", "200 OK -1 false keep=false up=false none=false 0"},
		{"9112-9.6 close", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
			"200 OK -1 false keep=false up=false none=false 1"},
		{"9112-7.1 chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
			"200 OK -1 true keep=true up=false none=false 1"},
		{"9110-15.2 interim", "HTTP/1.1 100 Continue\r\n\r\n", "100 Continue -1 false keep=true up=false none=true 0"},
		{"9110-7.8 upgrade", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
			"101 Switching Protocols -1 false keep=true up=true none=true 2"},
		{"9110-15.4.5 304 with length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
			"304 Not Modified 9 false keep=true up=false none=true 1"},
		{"a response has no Host to miss and may repeat it", "HTTP/1.1 200 OK\r\nVia: a\r\n\r\n",
			"200 OK -1 false keep=true up=false none=false 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h ResponseHead
			n, err := ParseResponse([]byte(tt.in+"body"), Limits{}, &h)
			if n != len(tt.in) || err != nil {
				t.Fatalf("ParseResponse = %d, %v; want %d", n, err, len(tt.in))
			}
			got := fmt.Sprintf("%d %s %d %t keep=%t up=%t none=%t %d",
				h.Status, h.Reason, h.ContentLength, h.Chunked, h.KeepAlive, h.Upgrade, h.NoBody, len(h.Fields))
			if got != tt.want {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestParseResponseRefuses(t *testing.T) {
	tests := []struct {
		name, in string
		want     *Error
	}{
		{"9110-6.5.1 a trailer of framing",
			"HTTP/1.1 200 OK\r\nTrailer: a, Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n",
			errTrailerKey},
		{"9112-4 two digits", "HTTP/1.1 20 OK\r\n\r\n", errStatusLine},
		{"9112-4 four digits", "HTTP/1.1 2000 OK\r\n\r\n", errStatusLine},
		{"9112-4 letters", "HTTP/1.1 2x0 OK\r\n\r\n", errStatusLine},
		{"9112-4 below 100", "HTTP/1.1 099 OK\r\n\r\n", errStatusLine},
		{"9112-4 two spaces", "HTTP/1.1  200 OK\r\n\r\n", errStatusLine},
		{"9112-4 no code", "HTTP/1.1\r\n\r\n", errStatusLine},
		{"9112-4 empty line before", "\r\nHTTP/1.1 200 OK\r\n\r\n", errStatusLine},
		{"9112-2.3 version 2", "HTTP/2.0 200 OK\r\n\r\n", errVersionNew},
		{"9112-2.3 lower case", "http/1.1 200 OK\r\n\r\n", errVersion},
		{"9112-2.2 bare LF", "HTTP/1.1 200 OK\n\n", errBareLF},
		{"9112-6.3 both", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", errLengthAndTE},
		{"9112-6.3 length", "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n", errLength},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h ResponseHead
			if n, err := ParseResponse([]byte(tt.in), Limits{}, &h); n != 0 || !sameError(err, tt.want) {
				t.Errorf("ParseResponse(%q) = %d, %v; want %v", tt.in, n, err, tt.want)
			}
		})
	}
}

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
