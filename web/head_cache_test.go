package web

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/web/internal/exchange"
	"github.com/myriad-go/myriad/web/internal/http1"
)

// spoiler answers with what it was asked, and spoils what it was given.
func spoiler(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(w, "%s: %q\n", name, r.Header[name])
		r.Header[name][0] = "spoilt"
		r.Header[name] = append(r.Header[name], "more")
	}
	fmt.Fprintf(w, "%s %s %s %d %v %q", r.Method, r.Host, r.URL, r.ContentLength, r.TransferEncoding, body)
	r.Header.Set("X-Left", "over")
	r.URL.Path, r.URL.RawQuery, r.URL.Fragment, r.RequestURI, r.Host = "/spoilt", "s=p", "f", "/", "spoilt"
}

// Each of these requests means the same whatever came before: the same fields, others of the same
// length, or fields that a handler has changed.
func TestCachedFields(t *testing.T) {
	t.Parallel()
	requests := []string{
		"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /1 HTTP/1.1\r\nHost: g\r\n\r\n",
		"PUT /2 HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /1?a=b HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /1? HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /%31 HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /1 HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
		"GET /2 HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nX-B: 2\r\n\r\n",
		"PUT /3 HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nX-B: 3\r\n\r\n",
		"GET /4 HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nX-A: 2\r\n\r\n",
		"GET /5 HTTP/1.1\r\nHost: h\r\nPragma: no-cache\r\n\r\n",
		"GET /6 HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nX-A: 2\r\nPragma: no-cache\r\n\r\n",
		"PUT /7 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
		"PUT /8 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
		"PUT /9 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\nX-A: 1\r\nX-A: 2\r\n\r\nabc",
		"PUT /10 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"GET http://other/11 HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nX-B: 2\r\n\r\n",
		"GET /12 HTTP/1.1\r\nHost: h\r\nX-Long: " + strings.Repeat("x", http1.MaxCachedBytes) + "\r\n\r\n",
		"GET /13 HTTP/1.1\r\nHost: h\r\n" + manyFields(http1.MaxCachedFields) + "\r\n",
		"GET /14 HTTP/1.1\r\nHost: h\r\n" + manyFields(http1.MaxCachedFields+1) + "\r\n",
	}
	// At the usual size each request comes first in a third of the runs, and in each run behind
	// others.
	every, part := soak.Size(t, 3, 1), 0
	eachDispatchAndDepth(t, func(t *testing.T, s *Server) {
		s.Handler = http.HandlerFunc(spoiler)
		f := serve(t, s)
		want := make([]string, len(requests))
		for i, request := range requests { // each after one that is not of its length
			c := dial(t, f)
			io.WriteString(c, "GET /first/of/all HTTP/1.1\r\nHost: somebody.else\r\n\r\n"+request)
			r := bufio.NewReader(c)
			for range 2 {
				resp, err := http.ReadResponse(r, nil)
				want[i] = mustBody(t, resp, err)
			}
		}
		if !strings.HasPrefix(want[7], "X-A: [\"1\"]\nX-B: [\"2\"]\nGET h /2 0 []") ||
			!strings.HasPrefix(want[10], "Cache-Control: [\"no-cache\"]\nPragma") {
			t.Fatalf("answers %q, %q", want[7], want[10])
		}
		for _, reuse := range []bool{false, true} {
			f := serve(t, &Server{Handler: s.Handler, Dispatch: s.Dispatch, PipelineDepth: s.PipelineDepth,
				ReuseRequests: reuse})
			part++
			for first := part % every; first < len(requests); first += every {
				var order []int
				for second := range requests {
					order = append(order, first, first, first, first, first, second, second, first)
				}
				inTurn(t, f, requests, want, order)
			}
		}
	})
}

// A request line is cached from the second line of its length before cached fields on.
func TestCachedLines(t *testing.T) {
	mux := http.NewServeMux()
	var again atomic.Int32
	mux.HandleFunc("GET /{path}", func(w http.ResponseWriter, r *http.Request) {
		if w.(*exchange.Given).Out.Load().X.Carrier.(*http1.Stream).H.Own.Head.LineCached {
			again.Add(1)
		}
		fmt.Fprint(w, r.Method, r.URL, r.RequestURI, r.PathValue("path"))
	})
	f := serve(t, &Server{Handler: mux, Dispatch: DispatchInline})
	c := dial(t, f)
	r := bufio.NewReader(c)
	for i, path := range strings.Fields("/a /a /a /a /a /a /b /a /a?q=1 /a?q=2 /a?q=2 /a?q=2") {
		io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if got, want := mustBody(t, resp, err), "GET"+path+path+path[1:2]; got != want {
			t.Errorf("%d: got %q, want %q", i, got, want)
		}
	}
	if n := again.Load(); n != 4 {
		t.Errorf("%d lines were cached, want 4", n)
	}
}

// Long fields are not cached, nor are fields of a length that came once.
func TestHeadCacheIsBounded(t *testing.T) {
	var k http1.HeadCache
	for _, tc := range []struct {
		length int
		again  bool
	}{{http1.MaxCachedBytes, false}, {http1.MaxCachedBytes, true}, {http1.MaxCachedBytes + 1, false},
		{http1.MaxCachedBytes + 1, false},
		{2, false}, {3, false}, {3, true}} {
		if got := k.WorthCaching(strings.Repeat("x", tc.length)); got != tc.again {
			t.Errorf("%d bytes are worth caching: %v", tc.length, got)
		}
	}
}

func manyFields(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "X-%02d: %d\r\n", i, i)
	}
	return all.String()
}

// inTurn sends requests on one connection in the given order, without waiting.
func inTurn(t *testing.T, f *fixture, requests, want []string, order []int) {
	t.Helper()
	c := dial(t, f)
	defer c.Close()
	go func() {
		for _, i := range order {
			io.WriteString(c, requests[i])
		}
	}()
	r := bufio.NewReader(c)
	for n, i := range order {
		resp, err := http.ReadResponse(r, nil)
		if got := mustBody(t, resp, err); got != want[i] {
			t.Fatalf("request %d, %q: got\n%s\nwant\n%s", n, requests[i], got, want[i])
		}
	}
}
