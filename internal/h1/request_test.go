package h1

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

const hostLine = "Host: a\r\n"

// get puts field lines into an otherwise good request.
func get(fields string) string { return "GET / HTTP/1.1\r\n" + hostLine + fields + "\r\n" }

var acceptedRequests = []struct {
	name, in string
	want     Head // without Fields; compared by describe
}{
	{"9112-3 simple", get(""), Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"),
		Framing: framed(1, -1, true)}},
	{"9112-2.2 empty lines before", "\r\n\r\n\r\n\r\n" + get(""), Head{Method: []byte("GET"), Target: []byte("/"),
		Host: []byte("a"), Framing: framed(1, -1, true)}},
	{"9112-3.2.1 origin-form with query", "PUT /a/b?c=%20&d=/? HTTP/1.1\r\n" + hostLine + "\r\n",
		Head{Method: []byte("PUT"), Target: []byte("/a/b?c=%20&d=/?"), Host: []byte("a"),
			Framing: framed(1, -1, true)}},
	{"9112-3.2.1 bytes that a URI escapes", "GET /\xc3\xa9|{} HTTP/1.1\r\n" + hostLine + "\r\n",
		Head{Method: []byte("GET"), Target: []byte("/\xc3\xa9|{}"), Host: []byte("a"),
			Framing: framed(1, -1, true)}},
	{"9112-3.2.2 absolute-form wins over Host", "GET http://b:81/x?y HTTP/1.1\r\n" + hostLine + "\r\n",
		Head{Method: []byte("GET"), Target: []byte("http://b:81/x?y"), Host: []byte("b:81"), Form: Absolute,
			Framing: framed(1, -1, true)}},
	{"9112-3.2.2 absolute-form without path", "GET http://b?y HTTP/1.1\r\n" + hostLine + "\r\n",
		Head{Method: []byte("GET"), Target: []byte("http://b?y"), Host: []byte("b"), Form: Absolute,
			Framing: framed(1, -1, true)}},
	{"9112-3.2.3 authority-form", "CONNECT b:443 HTTP/1.1\r\n" + hostLine + "\r\n",
		Head{Method: []byte("CONNECT"), Target: []byte("b:443"), Host: []byte("b:443"), Form: Authority,
			Framing: framed(1, -1, true)}},
	{"9112-3.2.3 CONNECT without Host, as net/http", "CONNECT [::1]:443 HTTP/1.1\r\n\r\n",
		Head{Method: []byte("CONNECT"), Target: []byte("[::1]:443"), Host: []byte("[::1]:443"), Form: Authority,
			Framing: framed(1, -1, true)}},
	{"net/rpc CONNECT with path", "CONNECT /_goRPC_ HTTP/1.0\r\n\r\n",
		Head{Method: []byte("CONNECT"), Target: []byte("/_goRPC_"), Framing: framed(0, -1, false)}},
	{"net/rpc CONNECT as package net/rpc sends it", "CONNECT /_goRPC_ HTTP/1.0\n\n",
		Head{Method: []byte("CONNECT"), Target: []byte("/_goRPC_"), Framing: framed(0, -1, false)}},
	{"asterisk-form with GET, as net/http", "GET * HTTP/1.1\r\n" + hostLine + "\r\n",
		Head{Method: []byte("GET"), Target: []byte("*"), Host: []byte("a"), Form: Asterisk,
			Framing: framed(1, -1, true)}},
	{"9112-3.2.4 asterisk-form", "OPTIONS * HTTP/1.1\r\n" + hostLine + "\r\n",
		Head{Method: []byte("OPTIONS"), Target: []byte("*"), Host: []byte("a"), Form: Asterisk,
			Framing: framed(1, -1, true)}},
	{"9110-9.1 any token is a method", "M-SEARCH!x /a HTTP/1.1\r\n" + hostLine + "\r\n",
		Head{Method: []byte("M-SEARCH!x"), Target: []byte("/a"), Host: []byte("a"), Framing: framed(1, -1, true)}},
	{"9112-3.2 empty Host", "GET / HTTP/1.1\r\nHost: \r\n\r\n", Head{Method: []byte("GET"), Target: []byte("/"),
		Framing: framed(1, -1, true)}},
	{"9110-2.5 higher minor version", "GET / HTTP/1.7\r\n" + hostLine + "\r\n",
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Framing: framed(7, -1, true)}},
	{"9112-9.3 HTTP/1.0 closes", "GET / HTTP/1.0\r\n\r\n", Head{Method: []byte("GET"), Target: []byte("/"),
		Framing: framed(0, -1, false)}},
	{"9112-9.3 HTTP/1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
		Head{Method: []byte("GET"), Target: []byte("/"), Framing: framed(0, -1, true)}},
	{"9112-9.6 close in a list", get("CONNECTION: foo ,\tClose\r\n"),
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Framing: framed(1, -1, false)}},
	{"close among words", get("Connection: x\tclose y\r\n"), Head{Method: []byte("GET"), Target: []byte("/"),
		Host: []byte("a"), Framing: framed(1, -1, false)}},
	{"9110-5.6.1 no list", get("Connection: x-close closed\r\n"), Head{Method: []byte("GET"), Target: []byte("/"),
		Host: []byte("a"), Framing: framed(1, -1, true)}},
	{"9112-9.6 close wins over keep-alive", get("Connection: keep-alive\r\nConnection: close\r\n"),
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Framing: framed(1, -1, false)}},
	{"9112-6.3 length", get("content-length:\t12 \r\n"), Head{Method: []byte("GET"), Target: []byte("/"),
		Host: []byte("a"), Framing: framed(1, 12, true)}},
	{"9112-6.3 largest length", get("Content-Length: 9223372036854775807\r\n"),
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Framing: framed(1, 1<<63-1, true)}},
	{"9110-8.6 padded length", get("Content-Length: 00000000000000000001\r\n"),
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Framing: framed(1, 1, true)}},
	{"9112-6.3 same length again", get("Content-Length: 7\r\nContent-Length: 7\r\n"),
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Framing: framed(1, 7, true)}},
	{"9112-7.1 chunked", get("Transfer-Encoding: CHUNKED\r\n"), Head{Method: []byte("GET"), Target: []byte("/"),
		Host: []byte("a"), Framing: Framing{Major: 1, Minor: 1, ContentLength: -1, Chunked: true,
			KeepAlive: true}}},
	{"9110-10.1.1 expect", get("Expect: 100-Continue\r\nContent-Length: 1\r\n"),
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Expect100: true,
			Framing: framed(1, 1, true)}},
	{"9110-10.1.1 no expect in HTTP/1.0", "GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n",
		Head{Method: []byte("GET"), Target: []byte("/"), Framing: framed(0, -1, false)}},
	{"9110-10.1.1 unknown expectation", get("Expect: 200-maybe\r\n"),
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), ExpectNot: true,
			Framing: framed(1, -1, true)}},
	{"9110-7.8 upgrade", get("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"),
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"),
			Framing: Framing{Major: 1, Minor: 1, ContentLength: -1, KeepAlive: true, Upgrade: true}}},
	{"9110-7.8 Upgrade without Connection", get("Upgrade: websocket\r\n"),
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Framing: framed(1, -1, true)}},
	{"9110-7.8 Connection without Upgrade", get("Connection: upgrade\r\n"),
		Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Framing: framed(1, -1, true)}},
	{"9110-7.8 no upgrade in HTTP/1.0", "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		Head{Method: []byte("GET"), Target: []byte("/"), Framing: framed(0, -1, false)}},
}

func TestParseRequestAccepts(t *testing.T) {
	for _, tt := range acceptedRequests {
		t.Run(tt.name, func(t *testing.T) {
			var h Head
			n, err := ParseRequest([]byte(tt.in+"rest"), Limits{}, &h)
			if n != len(tt.in) || err != nil {
				t.Fatalf("ParseRequest(%q) = %d, %v; want %d", tt.in, n, err, len(tt.in))
			}
			h.Fields = nil
			if got, want := describe(&h), describe(&tt.want); got != want {
				t.Errorf("ParseRequest(%q)\n got %s\nwant %s", tt.in, got, want)
			}
		})
	}
}

func framed(minor int, length int64, keepAlive bool) Framing {
	return Framing{Major: 1, Minor: minor, ContentLength: length, KeepAlive: keepAlive}
}

func describe(h *Head) string {
	s := fmt.Sprintf("%q %q host=%q form=%d %+v expect=%t/%t", h.Method, h.Target, h.Host, h.Form, h.Framing,
		h.Expect100, h.ExpectNot)
	for _, f := range h.Fields {
		s += fmt.Sprintf(" %q=%q", f.Name, f.Value)
	}
	return s
}

func TestParseRequestFields(t *testing.T) {
	in := "GET / HTTP/1.1\r\nhost:a\r\nX-Empty:\r\nX-Blank: \t \r\nx-y_z!: \t a b\tc \t\r\nX-High: \xff\xfe\r\n" +
		"X-Empty: again\r\n\r\n"
	want := [][2]string{{"host", "a"}, {"X-Empty", ""}, {"X-Blank", ""}, {"x-y_z!", "a b\tc"}, {"X-High", "\xff\xfe"},
		{"X-Empty", "again"}}
	var h Head
	if n, err := ParseRequest([]byte(in), Limits{}, &h); n != len(in) || err != nil {
		t.Fatal(n, err)
	}
	if len(h.Fields) != len(want) {
		t.Fatalf("got %d fields, want %d", len(h.Fields), len(want))
	}
	for i, f := range h.Fields {
		if got := [2]string{string(f.Name), string(f.Value)}; got != want[i] {
			t.Errorf("field %d is %q, want %q", i, got, want[i])
		}
	}
	h.Reset()
	if f := h.Fields[:1][0]; f.Name != nil || h.Method != nil {
		t.Error("Reset left a view of the input")
	}
}

var refusedRequests = []struct {
	name, in string
	want     *Error
}{
	{"a TLS client", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ErrTLS},
	{"a TLS client with a line end in its hello", "\x16\x03\x00\r\n\r\n", ErrTLS},
	{"a byte of a TLS client, and others", "\x16GET / HTTP/1.1\r\n", errControl},
	{"a TLS record that is no handshake", "\x15\x03\x01", errControl},
	{"a TLS client behind an empty line", "\r\n\x16\x03\x01", errControl},
	{"9112-2.2 bare LF ends the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", errBareLF},
	{"9112-2.2 bare LF ends a field", "GET / HTTP/1.1\r\nHost: a\n\r\n", errBareLF},
	{"9112-2.2 bare LF ends the head", "GET / HTTP/1.1\r\nHost: a\r\n\n", errBareLF},
	{"9112-2.2 bare LFs, not CONNECT", "POST /x HTTP/1.0\n\n", errBareLF},
	{"9112-2.2 bare LFs, CONNECT in HTTP/1.1", "CONNECT /x HTTP/1.1\n\n", errBareLF},
	{"9112-2.2 bare LFs, CONNECT to an authority", "CONNECT a:1 HTTP/1.0\n\n", errBareLF},
	{"9112-2.2 bare LFs, CONNECT with a field", "CONNECT /x HTTP/1.0\nX: y\n\n", errBareLF},
	{"9112-2.2 bare LF, then CRLF", "CONNECT /x HTTP/1.0\n\r\n", errBareLF},
	{"9112-2.2 CRLF, then a bare LF", "CONNECT /x HTTP/1.0\r\n\n", errBareLF},
	{"9112-3 two spaces and bare LFs", "CONNECT /x  HTTP/1.0\n\n", errVersion},
	{"9112-2.2 bare CR in the request line", "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", errBareCR},
	{"9112-2.2 bare CR in a value", get("X: a\rb\r\n"), errBareCR},
	{"9112-2.2 bare CR in a name", get("X\rY: a\r\n"), errBareCR},
	{"9112-2.2 CR CR LF", get("X: a\r\r\n"), errBareCR},
	{"9112-2.2 five empty lines", "\r\n\r\n\r\n\r\n\r\n" + get(""), ErrEmptyLines},
	{"9112-2.2 leading bare LF", "\n" + get(""), errBareLF},
	{"9112-2.3 no version", "GET /\r\n\r\n", errRequestLine},
	{"9112-2.3 lower case", "GET / http/1.1\r\n\r\n", errVersion},
	{"9112-2.3 two digits", "GET / HTTP/1.10\r\n\r\n", errVersion},
	{"9112-2.3 no minor", "GET / HTTP/1\r\n\r\n", errVersion},
	{"9112-2.3 comma", "GET / HTTP/1,1\r\n\r\n", errVersion},
	{"9112-2.3 space after", "GET / HTTP/1.1 \r\n\r\n", errVersion},
	{"9110-15.6.6 version 2", "GET / HTTP/2.0\r\n\r\n", errVersionNew},
	{"9110-15.6.6 version 3", "GET / HTTP/3.0\r\n\r\n", errVersionNew},
	{"9110-15.6.6 version 0.9", "GET / HTTP/0.9\r\n\r\n", errVersionNew},
	{"9113-3.4 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ErrPreface},
	{"9113-3.4 preface not at the start", "\r\nPRI * HTTP/2.0\r\n\r\n", errVersionNew},
	{"9112-3 leading space", " GET / HTTP/1.1\r\n\r\n", errMethod},
	{"9112-3 two spaces", "GET  / HTTP/1.1\r\n\r\n", errRequestLine},
	{"9112-3 tab", "GET\t/ HTTP/1.1\r\n\r\n", errMethod},
	{"9112-3 space in target", "GET /a b HTTP/1.1\r\n\r\n", errVersion},
	{"9110-9.1 method not a token", "G(T / HTTP/1.1\r\n\r\n", errMethod},
	{"9110-9.1 method alone", "GET\r\n\r\n", errMethod},
	{"9112-3.2 NUL in target", "GET /\x00 HTTP/1.1\r\n\r\n", errControl},
	{"9112-3.2 DEL in target", "GET /\x7f HTTP/1.1\r\n\r\n", errControl},
	{"9112-3.2 relative target", "GET a/b HTTP/1.1\r\n\r\n", errTarget},
	{"9112-3.2.2 no host", "GET http:///a HTTP/1.1\r\n\r\n", errTarget},
	{"9112-3.2.2 one slash", "GET http:/a HTTP/1.1\r\n\r\n", errTarget},
	{"9112-3.2.2 no scheme", "GET ://a HTTP/1.1\r\n\r\n", errTarget},
	{"9112-3.2.2 bad scheme", "GET h_p://a/ HTTP/1.1\r\n\r\n", errTarget},
	{"9110-4.2.4 user information", "GET http://u:p@a/ HTTP/1.1\r\n\r\n", errTarget},
	{"9112-3.2.3 authority-form with GET", "GET a:80 HTTP/1.1\r\n\r\n", errTarget},
	{"9110-9.3.6 CONNECT without port", "CONNECT a HTTP/1.1\r\n\r\n", errTarget},
	{"9110-9.3.6 CONNECT with empty port", "CONNECT a: HTTP/1.1\r\n\r\n", errTarget},
	{"9110-9.3.6 CONNECT with port 0", "CONNECT a:0 HTTP/1.1\r\n\r\n", errTarget},
	{"9110-9.3.6 CONNECT with port 65536", "CONNECT a:65536 HTTP/1.1\r\n\r\n", errTarget},
	{"9110-9.3.6 CONNECT with URL", "CONNECT http://a:80/ HTTP/1.1\r\n\r\n", errTarget},
	{"9112-3.2 no Host", "GET / HTTP/1.1\r\n\r\n", errHostMissing},
	{"9112-3.2 no Host, absolute-form", "GET http://a/ HTTP/1.1\r\n\r\n", errHostMissing},
	{"9112-3.2 two Hosts", get("host: a\r\n"), errHostMany},
	{"9112-3.2 two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", errHostMany},
	{"9112-3.2 Host with path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", errHost},
	{"9112-3.2 Host with space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", errHost},
	{"9112-3.2 Host with user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", errHost},
	{"9112-3.2 Host with high byte", "GET / HTTP/1.0\r\nHost: \xff\r\n\r\n", errHost},
	{"9112-5.1 space before colon", get("X : a\r\n"), errNameSpace},
	{"9112-5.1 tab before colon", get("X\t: a\r\n"), errNameSpace},
	{"9112-5.1 length with space before colon", get("Content-Length : 1\r\n"), errNameSpace},
	{"9112-5.1 no name", get(": a\r\n"), errName},
	{"9112-5.1 no colon", get("abc\r\n"), errName},
	{"9110-5.1 name not a token", get("X(Y: a\r\n"), errName},
	{"9110-5.1 high byte in name", get("X\xffY: a\r\n"), errName},
	{"9112-5.2 obs-fold", get("X: a\r\n b\r\n"), errFold},
	{"9112-5.2 obs-fold with tab", get("X: a\r\n\tb\r\n"), errFold},
	{"9112-2.2 space after the request line", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", errFold},
	{"9110-5.5 NUL in value", get("X: a\x00b\r\n"), errControl},
	{"9110-5.5 ESC in value", get("X: a\x1bb\r\n"), errControl},
	{"9110-5.5 DEL in value", get("X: a\x7fb\r\n"), errControl},
	{"9110-5.5 vertical tab before chunked", get("Transfer-Encoding: \x0bchunked\r\n"), errControl},
	{"9112-6.3 both", get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), errLengthAndTE},
	{"9112-6.3 both, other order", get("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), errLengthAndTE},
	{"9112-6.3 lengths differ", get("Content-Length: 1\r\nContent-Length: 2\r\n"), errLengths},
	{"9112-6.3 lengths equal but for a zero", get("Content-Length: 1\r\nContent-Length: 01\r\n"), errLengths},
	{"9112-6.3 length list", get("Content-Length: 1, 1\r\n"), errLength},
	{"9112-6.3 length signed", get("Content-Length: +1\r\n"), errLength},
	{"9112-6.3 length negative", get("Content-Length: -1\r\n"), errLength},
	{"9112-6.3 length with space", get("Content-Length: 1 0\r\n"), errLength},
	{"9112-6.3 length empty", get("Content-Length: \r\n"), errLength},
	{"9112-6.3 length hex", get("Content-Length: 0x1\r\n"), errLength},
	{"9112-6.3 length 2^63", get("Content-Length: 9223372036854775808\r\n"), errLength},
	{"9112-6.3 padded length 2^63", get("Content-Length: 009223372036854775808\r\n"), errLength},
	{"9112-6.3 length of 20 digits", get("Content-Length: 18446744073709551617\r\n"), errLength},
	{"9112-6.3 length 2^64", get("Content-Length: 18446744073709551616\r\n"), errLength},
	{"9112-6.1 TE in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", errTEOld},
	{"9112-6.1 unknown coding", get("Transfer-Encoding: fugazi\r\n"), errTEUnknown},
	{"9112-6.1 identity", get("Transfer-Encoding: identity\r\n"), errTEUnknown},
	{"9112-6.1 gzip, chunked", get("Transfer-Encoding: gzip, chunked\r\n"), errTEUnknown},
	{"9112-6.1 quoted chunked", get("Transfer-Encoding: \" chunked\"\r\n"), errTEUnknown},
	{"9112-6.1 chunked with parameter", get("Transfer-Encoding: chunked;q=1\r\n"), errTEUnknown},
	{"9112-7 chunked twice", get("Transfer-Encoding: chunked, chunked\r\n"), errTE},
	{"9112-7 chunked in two fields", get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), errTE},
	{"9112-6.1 chunked and gzip in two fields", get("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n"),
		errTEUnknown},
	{"9112-6.1 comma after chunked", get("Transfer-Encoding: chunked,\r\n"), errTE},
	{"9112-6.1 empty", get("Transfer-Encoding:\r\n"), errTE},
	{"9110-6.5.1 announced trailer", get("Transfer-Encoding: chunked\r\nTrailer: X, Content-Length\r\n"),
		errTrailerKey},
}

func TestParseRequestRefuses(t *testing.T) {
	for _, tt := range refusedRequests {
		t.Run(tt.name, func(t *testing.T) {
			var h Head
			n, err := ParseRequest([]byte(tt.in), Limits{}, &h)
			if n != 0 || !errors.Is(err, tt.want) {
				t.Errorf("ParseRequest(%q) = %d, %v; want %v", tt.in, n, err, tt.want)
			}
		})
	}
}

func TestParseRequestLimits(t *testing.T) {
	head := get("X: y\r\n")
	line := len("GET / HTTP/1.1")
	tests := []struct {
		name, in string
		lim      Limits
		want     *Error
	}{
		{"head just fits", head, Limits{HeadBytes: len(head)}, nil},
		{"head a byte too long", head, Limits{HeadBytes: len(head) - 1}, errHeadLong},
		{"head too long before its end has come", head[:30], Limits{HeadBytes: 30}, errHeadLong},
		{"line just fits", head, Limits{LineBytes: line}, nil},
		{"line a byte too long", head, Limits{LineBytes: line - 1}, errLineLong},
		{"line too long before its end has come", "GET /" + strings.Repeat("a", 95), Limits{LineBytes: 98},
			errLineLong},
		{"line longer than the whole head may be", "GET /aaaaaaa", Limits{HeadBytes: 12}, errLineLong},
		{"method too long", strings.Repeat("a", 100), Limits{LineBytes: 98}, errMethodLong},
		{"line with bare LF just fits", "CONNECT / HTTP/1.0\n\n", Limits{LineBytes: 18}, nil},
		{"line with bare LF a byte too long", "CONNECT / HTTP/1.0\n\n", Limits{LineBytes: 17}, errLineLong},
		{"head with bare LF a byte too long", "CONNECT / HTTP/1.0\n\n", Limits{HeadBytes: 19}, errLineLong},
		{"fields just fit", head, Limits{Fields: 2}, nil},
		{"a field too many", head, Limits{Fields: 1}, errFieldsMany},
		{"defaults hold", get("X: " + strings.Repeat("y", DefaultHeadBytes)), Limits{}, errHeadLong},
		{"default fields hold", get(strings.Repeat("X: y\r\n", DefaultFields)), Limits{}, errFieldsMany},
		{"largest numbers", head, Limits{math.MaxInt, math.MaxInt, math.MaxInt}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h Head
			n, err := ParseRequest([]byte(tt.in), tt.lim, &h)
			if tt.want == nil && (n != len(tt.in) || err != nil) || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("ParseRequest = %d, %v; want %v", n, err, tt.want)
			}
		})
	}
}

// Errors come with the byte that makes them certain, or with the end of their line at the latest.
func TestErrorsDoNotWaitForTheEnd(t *testing.T) {
	for _, in := range []string{"GET / HTTP/1.1\n", "GET / HTTP/3.0\r\n", "G@T / HTTP/1.1\r\n",
		"GET / HTTP/1.1\r\nX Y: a\r\n",
		"GET / HTTP/1.1\r\nX: \x00", "GET / HTTP/1.1\r\nX: a\rb", "PRI * HTTP/2.0\r\n",
		"GET / HTTP/1.1\r\nContent-Length: x\r\n"} {
		var h Head
		if n, err := ParseRequest([]byte(in), Limits{}, &h); err == nil {
			t.Errorf("ParseRequest(%q) = %d, want an error", in, n)
		}
		if n, err := ParseRequest([]byte(in[:len(in)-1]), Limits{}, &h); n != 0 || err != nil {
			t.Errorf("ParseRequest(%q) = %d, %v; want more", in[:len(in)-1], n, err)
		}
	}
}

func TestEmptyLines(t *testing.T) {
	for in, want := range map[string]int{"": 0, "\r": 0, "\r\n": 2, "\r\n\r": 2, "\r\n\r\nGET": 4, "\n": 0,
		"G\r\n": 0} {
		if got := EmptyLines([]byte(in)); got != want {
			t.Errorf("EmptyLines(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	var h Head
	for name, in := range map[string]string{"small": smallRequest, "browser": browserRequest} {
		p := []byte(in)
		parse := func() {
			if n, err := ParseRequest(p, Limits{}, &h); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		parse() // grows h.Fields once
		if allocs := testing.AllocsPerRun(100, parse); allocs != 0 {
			t.Errorf("%s request: %v allocations, want 0", name, allocs)
		}
	}
}
