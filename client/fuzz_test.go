package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// responses are a server's bytes of each kind: the seeds of fuzzers, and what TestResponseSplits
// cuts at each place.
var responses = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbo",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyHTTP/1.1 200 OK\r\n\r\n",
	"HTTP/1.1 103 Hi\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n" +
		"3;x=\"y\"\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\nB: c\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nBad Name: x\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
	"HTTP/1.0 204 None\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nrest",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
	"HTTP/1.1 200 OK\nX: y\n\n", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "\r\nHTTP/1.1 200 OK\r\n\r\n",
	"HTTP/1.1 200",
}

// However a response is cut into pieces, its caller sees the same; and what the client accepts
// net/http reads as the same body.
func FuzzResponse(f *testing.F) {
	for i, s := range responses {
		f.Add([]byte(s), uint16(i*7))
	}
	f.Fuzz(func(t *testing.T, wire []byte, at uint16) {
		if len(wire) > 300 {
			return
		}
		whole := exchangeOf(wire)
		cut := int(at) % (len(wire) + 1)
		if got := exchangeOf(wire[:cut], wire[cut:]); got != whole {
			t.Fatalf("cut at %d:\n%+v\nwhole:\n%+v", cut, got, whole)
		}
		for _, n := range []int{1, 2, 3, 7} {
			if got := exchangeOf(inPieces(wire, n)...); got != whole {
				t.Fatalf("in pieces of %d:\n%+v\nwhole:\n%+v", n, got, whole)
			}
		}
		if whole.complete && whole.status != http.StatusSwitchingProtocols {
			likeNetHTTP(t, wire, whole)
		}
	})
}

// likeNetHTTP compares a complete response with what http.ReadResponse finds behind the interim
// ones.
func likeNetHTTP(t *testing.T, wire []byte, own outcome) {
	in := bufio.NewReader(bytes.NewReader(wire))
	for {
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			if strings.Contains(err.Error(), "railer") {
				return // it checks the names that a response announces
			}
			t.Fatalf("net/http: %v; ours: %+v", err, own)
		}
		if r.StatusCode < 200 {
			continue
		}
		p, err := io.ReadAll(r.Body)
		if err != nil && strings.Contains(err.Error(), "chunk") {
			return // white space and extensions: internal/h1 has the exact comparison
		}
		if r.StatusCode != own.status || err != nil || string(p) != own.body {
			t.Fatalf("net/http: %d, %q, %v; ours: %+v", r.StatusCode, p, err, own)
		}
		return
	}
}

// Each of the responses gives the same, cut in two at each place and into pieces of each size.
func TestResponseSplits(t *testing.T) {
	for _, s := range responses {
		wire := []byte(s)
		whole := exchangeOf(wire)
		for n := 1; n < len(wire); n++ {
			if got := exchangeOf(wire[:n], wire[n:]); got != whole {
				t.Fatalf("%q cut at %d:\n%+v\nwhole:\n%+v", s, n, got, whole)
			}
			if n > 8 {
				continue
			}
			if got := exchangeOf(inPieces(wire, n)...); got != whole {
				t.Fatalf("%q in pieces of %d:\n%+v\nwhole:\n%+v", s, n, got, whole)
			}
		}
	}
	long := exchangeOf([]byte(responses[4]))
	if long.body != "abc0123456789abcdef" || !strings.Contains(long.end, "B:[c]") {
		t.Errorf("got %+v", long)
	}
}

func gunzip(p []byte, limit int64, read int) (string, error) {
	g := &gzipBody{body: io.NopCloser(bytes.NewReader(p)), left: limit, bounded: limit > 0}
	var all []byte
	for buffer := make([]byte, read); ; {
		n, err := g.Read(buffer)
		if all = append(all, buffer[:n]...); err != nil {
			return string(all), err
		}
		if len(all) > 1<<20 { // as far as the fuzzer looks
			return string(all), nil
		}
	}
}

// A bounded body is the beginning of the unbounded one, never above its limit, and too large if
// there is more; whatever the size of the reads.
func FuzzGzip(f *testing.F) {
	for _, text := range []string{"", "a", "hello, hello, hello", strings.Repeat("0", 5000)} {
		var p bytes.Buffer
		z := gzip.NewWriter(&p)
		io.WriteString(z, text)
		z.Close()
		f.Add(p.Bytes(), uint16(len(text)), uint16(7))
		f.Add(p.Bytes()[:p.Len()-3], uint16(len(text)-1), uint16(100))
		f.Add(append(p.Bytes(), p.Bytes()...), uint16(len(text)+1), uint16(1))
	}
	f.Fuzz(func(t *testing.T, p []byte, limit, read uint16) {
		bound, size := int64(limit)+1, int(read)+1
		all, end := gunzip(p, 0, 4096)
		got, err := gunzip(p, bound, size)
		switch {
		case int64(len(all)) > bound && (len(got) != int(bound) || !errors.Is(err, ErrBodyTooLarge)):
			t.Fatalf("%d bytes of %d, limit %d: %v", len(got), len(all), bound, err)
		case int64(len(all)) <= bound && end != nil && (got != all || errors.Is(err, ErrBodyTooLarge) ||
			(err == io.EOF) != (end == io.EOF)):
			t.Fatalf("%d bytes and %v, without a limit %d and %v", len(got), err, len(all), end)
		case !strings.HasPrefix(all, got):
			t.Fatalf("%q is no beginning of %q", got, all)
		}
	})
}
