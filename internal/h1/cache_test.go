package h1

import (
	"fmt"
	"testing"
)

// ParseRequest says the same of a head whose fields are cached as of any other, behind each request
// line.
func TestCachedFields(t *testing.T) {
	lines := []string{
		"GET /a HTTP/1.1", "POST /bcd?e HTTP/1.1", "GET / HTTP/1.0", "GET / HTTP/1.2", "CONNECT /rpc HTTP/1.1",
		"\r\nGET /x HTTP/1.1",
		"GET http://other/ HTTP/1.1", "CONNECT other:80 HTTP/1.1", "OPTIONS * HTTP/1.1", "PRI * HTTP/2.0",
		"GET /a HTTP/1.1 ", "GET /",
	}
	sections := []string{
		"Host: h\r\n\r\n", "Host: h\r\nX: y\r\n\r\n", "Host: h\r\nX: z\r\n\r\n", "\r\n", "X: y\r\n\r\n",
		"Host: \r\n\r\n",
		"Host: h\r\nContent-Length: 5\r\n\r\n", "Host: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
		"Expect: other\r\nHost: h\r\nConnection: close, upgrade\r\nUpgrade: a\r\n\r\n",
		"Connection: keep-alive\r\nHost: h\r\n\r\n",
		"Host: h\r\nX", "Host: h\r\nX : y\r\n\r\n",
	}
	repeats := 0
	for _, line := range lines {
		for _, section := range sections {
			for _, behind := range lines {
				for _, next := range sections {
					repeats += repeat(t, line+"\r\n"+section, behind+"\r\n"+next, section == next)
				}
			}
		}
	}
	if repeats < 150 {
		t.Errorf("%d heads had cached fields, want 150 at least", repeats)
	}
}

// repeat parses first and caches it. It compares what is then said of second with what is said
// without a cache.
func repeat(t *testing.T, first, second string, same bool) (cached int) {
	var h, fresh Head
	if n, err := ParseRequest([]byte(first), Limits{}, &h); n == 0 || err != nil || !h.CacheFields(first[h.Section:n]) {
		h.CacheFields("")
	}
	for _, lim := range []Limits{{}, {HeadBytes: len(second)}, {HeadBytes: len(second) - 1}, {Fields: 1}} {
		p := []byte(second + "behind")
		wantN, want := ParseRequest(p, lim, &fresh)
		n, err := ParseRequest(p, lim, &h)
		if n != wantN || err != want {
			t.Fatalf("%q after %q: %d, %v; want %d, %v", second, first, n, err, wantN, want)
		}
		if n == 0 || err != nil {
			continue
		}
		if h.FieldsCached {
			cached++
			if !same || len(h.Fields) > 0 {
				t.Fatalf("%q after %q is cached, with %d fields", second, first, len(h.Fields))
			}
		}
		if got, want := described(&h), described(&fresh); got != want || !h.FieldsCached &&
			fmt.Sprintf("%q", h.Fields) != fmt.Sprintf("%q", fresh.Fields) {
			t.Fatalf("%q after %q:\n%s, want\n%s", second, first, got, want)
		}
	}
	return cached
}

// It says the same of a head that is cached as a whole.
func TestCachedLines(t *testing.T) {
	lines := []string{"GET /a HTTP/1.1", "GET /b HTTP/1.1", "PUT /a HTTP/1.1", "GET /a HTTP/1.0", "GET /ab?c HTTP/1.1",
		"\r\nGET /a HTTP/1.1", "GET http://h/ HTTP/1.1", "CONNECT h:1 HTTP/1.1"}
	sections := []string{"Host: h\r\n\r\n", "Host: h\r\nX: y\r\n\r\n", "Host: h\r\nContent-Length: 5\r\n\r\n", "\r\n",
		"Host: h\r\nX"}
	again := 0
	for _, line := range lines {
		for _, section := range sections {
			for _, next := range lines {
				for _, fields := range sections {
					again += repeatLine(t, line+"\r\n"+section, next+"\r\n"+fields)
				}
			}
		}
	}
	if want := 15*2 + 5 + 4*3; again != want { // within the first two limits, with one field, with a line of 15 bytes
		t.Errorf("%d heads were cached, want %d", again, want)
	}
}

// repeatLine parses first until all of it is cached. It compares what is then said of second with
// what is said without a cache.
func repeatLine(t *testing.T, first, second string) (cached int) {
	var h, fresh Head
	if n, _ := ParseRequest([]byte(first), Limits{}, &h); n == 0 || !h.CacheFields(first[h.Section:n]) {
		return 0
	}
	if ParseRequest([]byte(first), Limits{}, &h); h.FieldsCached {
		h.CacheLine(first[:h.Section])
	}
	for _, lim := range []Limits{{}, {HeadBytes: len(second)}, {HeadBytes: len(second) - 1}, {Fields: 1},
		{LineBytes: 15}, {LineBytes: 14}} {
		p := []byte(second + "behind")
		wantN, want := ParseRequest(p, lim, &fresh)
		n, err := ParseRequest(p, lim, &h)
		if n != wantN || err != want {
			t.Fatalf("%q after %q, %+v: %d, %v; want %d, %v", second, first, lim, n, err, wantN, want)
		}
		if n == 0 || err != nil {
			continue
		}
		if got, want := described(&h), described(&fresh); got != want {
			t.Fatalf("%q after %q:\n%s, want\n%s", second, first, got, want)
		}
		if h.LineCached {
			cached++
			if first != second || !h.FieldsCached {
				t.Fatalf("%q after %q is cached", second, first)
			}
		}
	}
	return cached
}

func described(h *Head) string {
	return fmt.Sprintf("%s %s %q %+v %v %v %v %d", h.Method, h.Target, h.Host, h.Framing, h.Form, h.Expect100,
		h.ExpectNot, h.Section)
}

// The head before another one in the same Head leaves no Section behind.
func TestSectionOfEachHead(t *testing.T) {
	var h Head
	for _, tt := range []struct{ line, rest string }{
		{"GET /longer/than/what/follows HTTP/1.1\r\n", "Host: h\r\n\r\n"},
		{"CONNECT /rpc HTTP/1.0\n\n", ""},
		{"\r\nGET / HTTP/1.0\r\n", "\r\n"},
	} {
		if n, err := ParseRequest([]byte(tt.line+tt.rest+"more"), Limits{}, &h); n != len(tt.line+tt.rest) ||
			h.Section != len(tt.line) || err != nil {
			t.Errorf("%q: %d bytes, Section %d, %v", tt.line+tt.rest, n, h.Section, err)
		}
	}
}
