package web

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web/internal/exchange"
)

// A decided thing is done otherwise than by net/http: what of the answer to a request tells so.
type decided struct {
	name, request string
	handle        http.HandlerFunc
	std, ours     string // what the whole answer has, and only there
}

// withFields answers with fields, and "hello" in two pieces; to the last request without.
func withFields(pairs ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/last" {
			_, _ = io.WriteString(w, "last")
			return
		}
		for i := 0; i < len(pairs); i += 2 {
			w.Header().Add(pairs[i], pairs[i+1])
		}
		_, _ = io.WriteString(w, "hel")
		_, _ = io.WriteString(w, "lo")
	}
}

var decidedAnswers = []decided{
	{"an invalid length of HTTP/1.0", h10 + end, withFields("Content-Length", "five"), "Content-Length: five\r\n",
		"Content-Length: 5\r\n"},
	{"an invalid length for HEAD", "HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		withFields("Content-Length", "-5"), "Content-Length: -5\r\n", "Content-Length: 5\r\n"},
	{"a length beside a coding", get + "Connection: close\r\n\r\n", withFields("Transfer-Encoding", "chunked",
		"Content-Length", "4"), "\r\n\r\n3\r\nhel\r\n0", "\r\n\r\n5\r\nhello\r\n0"},
	{"close in a list", get + end + last, withFields("Connection", "x-hop, close"), "\r\n\r\nlast$", "\r\n\r\nhello$"},
	{"what is copied", get + "Connection: close\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader(strings.Repeat("x", 600)), 1000))
	}, "\r\n\r\n200\r\n", "Content-Length: 600\r\n"},
	{"copied beyond a length", get + "Connection: close\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader("hello"), 1000))
	}, "\r\n\r\nhello$", "\r\n\r\n$"},
	{"a body in place of an expected one", post + "Content-Length: 2\r\nExpect: 100-continue\r\n\r\nab" + last,
		func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 10)
			_, _ = io.WriteString(w, r.URL.Path)
		}, "/last$", "\r\n\r\n/$"},
	{"written before Hijack", h10 + end, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello")
		nc, _, _ := http.NewResponseController(w).Hijack()
		nc.Close()
	}, "\r\n\r\n$", "\r\n\r\nhello$"},
	{"a body behind Hijack", post + "Content-Length: 2\r\n\r\nab", func(w http.ResponseWriter, r *http.Request) {
		nc, _, _ := http.NewResponseController(w).Hijack()
		p, err := io.ReadAll(r.Body)
		fmt.Fprintf(nc, "%q %v", p, err)
		nc.Close()
	}, `"ab" <nil>$`, `"" ` + http.ErrHijacked.Error() + "$"},
	{"a read deadline", get + "Connection: close\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Millisecond))
		ended := "goes on"
		select {
		case <-r.Context().Done():
			ended = "ended"
		case <-time.After(hangs):
		case <-ours(w):
			time.Sleep(10 * time.Millisecond) // it can only fail to find the fault
		}
		_, _ = io.WriteString(w, ended)
	}, "ended$", "goes on$"},
	{"a changed method", get + "Connection: close\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
		r.Method = http.MethodHead
		_, _ = io.WriteString(w, "hello")
	}, "\r\n\r\n$", "\r\n\r\nhello$"},
	{"a panic behind more than is gathered", get + "Connection: close\r\n\r\n",
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 3000))
			panic(http.ErrAbortHandler)
		}, "\r\n\r\n800\r\n", "\r\n\r\nbb8\r\n"},
	{"a prefixed trailer of a small answer", get + "Connection: close\r\n\r\n",
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "hello")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "5")
		}, "Content-Length: 5\r\n", "\r\nX-Sum: 5\r\n"},
	{"a NUL in a field", get + "Connection: close\r\n\r\n", withFields("X", "a\x00b"), "X: a\x00b\r\n", "X: a b\r\n"},
}

// ours is ready for this server's ResponseWriter.
func ours(w http.ResponseWriter) <-chan struct{} {
	ready := make(chan struct{})
	if _, yes := w.(*exchange.Given); yes {
		close(ready)
	}
	return ready
}

// What the package's documentation names is so, here and there.
func TestDecidedAnswers(t *testing.T) {
	for _, c := range decidedAnswers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for i, serve := range []func(testing.TB, *Server) *fixture{serveStandard, serve} {
				got, _ := sent(t, serve(t, &Server{Handler: c.handle}), c.request, false)
				want, not := c.std, c.ours
				if i == 1 {
					want, not = not, want
				}
				if got += "$"; !strings.Contains(got, want) || strings.Contains(got, not) {
					t.Errorf("%s: got %q, want %q", []string{"net/http", "here"}[i], got, want)
				}
			}
		})
	}
}
