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

const (
	get      = "GET / HTTP/1.1\r\nHost: h\r\n"
	post     = "POST / HTTP/1.1\r\nHost: h\r\n"
	chunked  = post + "Transfer-Encoding: chunked\r\n\r\n"
	smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
)

// ambiguous is what two servers could understand differently, or what no server should take, with
// its status; 0: any.
var ambiguous = []struct {
	what, request string
	status        int
}{
	{"both lengths", post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	{"both, the other way", post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
	{"lengths that differ", post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
	{"a list of lengths", post + "Content-Length: 3, 3\r\n\r\nabc", 400},
	{"a signed length", post + "Content-Length: +3\r\n\r\nabc", 400},
	{"a negative length", post + "Content-Length: -1\r\n\r\n", 400},
	{"a length in hexadecimal", post + "Content-Length: 0x3\r\n\r\nabc", 400},
	{"a length with a space inside", post + "Content-Length: 1 1\r\n\r\nabc", 400},
	{"a length beyond 63 bits", post + "Content-Length: 9223372036854775808\r\n\r\n", 400},
	{"an empty length", post + "Content-Length:\r\n\r\n", 400},
	{"an unknown coding", post + "Transfer-Encoding: gzip\r\n\r\n", 501},
	{"chunked not last", post + "Transfer-Encoding: chunked, gzip\r\n\r\n", 501},
	{"chunked twice", post + "Transfer-Encoding: chunked, chunked\r\n\r\n", 400},
	{"chunked in two fields", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
	{"an empty coding", post + "Transfer-Encoding:\r\n\r\n", 400},
	{"a coding with a vertical tab", post + "Transfer-Encoding: \x0bchunked\r\n\r\n", 400},
	{"a coding in 1.0", "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	{"bare LF", "GET / HTTP/1.1\nHost: h\n\n", 400},
	{"bare LF in the fields", get + "A: b\nC: d\r\n\r\n", 400},
	{"bare CR in a value", get + "A: b\rC: d\r\n\r\n", 400},
	{"bare CR at a line's end", get + "A: b\r\r\n\r\n", 400},
	{"a space before the colon", get + "Content-Length : 3\r\n\r\nabc", 400},
	{"a tab before the colon", get + "A\t: b\r\n\r\n", 400},
	{"obs-fold", get + "A: b\r\n c\r\n\r\n", 400},
	{"obs-fold at once", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400},
	{"NUL in a value", get + "A: b\x00c\r\n\r\n", 400},
	{"NUL in a name", get + "A\x00: b\r\n\r\n", 400},
	{"a line without a colon", get + "nonsense\r\n\r\n", 400},
	{"an empty name", get + ": b\r\n\r\n", 400},
	{"a name in brackets", get + "[A]: b\r\n\r\n", 400},
	{"a name beyond ASCII", get + "\xc3\xa4: b\r\n\r\n", 400},
	{"DEL in a value", get + "A: \x7f\r\n\r\n", 400},
	{"no host", "GET / HTTP/1.1\r\n\r\n", 400},
	{"two hosts", get + "Host: h\r\n\r\n", 400},
	{"two hosts in a list", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
	{"a path as host", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
	{"user information as host", "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", 400},
	{"a bracket as host", "GET / HTTP/1.1\r\nHost: [\r\n\r\n", 400},
	{"an IP literal without its end", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400},
	{"a host of three parts", "GET / HTTP/1.1\r\nHost: a:b:c\r\n\r\n", 400},
	{"a port of letters alone", "GET / HTTP/1.1\r\nHost: :a\r\n\r\n", 400},
	{"a port that is encoded", "GET / HTTP/1.1\r\nHost: 127.0.0.1:%0699\r\n\r\n", 400},
	{"an IPv6 address without brackets", "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", 400},
	{"user information in the target", "GET http://u:p@h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	{"a relative target", "GET x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	{"no target", "GET  HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	{"a space in the target", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	{"a tab in the line", "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	{"two spaces in the line", "GET /  HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	{"a space behind the line", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400},
	{"a space before the line", " GET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	{"a bad escape", "GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	{"a bad port", "GET http://h:99999999/ HTTP/1.1\r\nHost: h\r\n\r\n", 0}, // whether 400 or served, but in order
	{"CONNECT without a port", "CONNECT h HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	{"a method in brackets", "(GET) / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
	{"a version without a minor", "GET / HTTP/1\r\nHost: h\r\n\r\n", 400},
	{"a version in small letters", "GET / http/1.1\r\nHost: h\r\n\r\n", 400},
	{"a version of two digits", "GET / HTTP/1.10\r\nHost: h\r\n\r\n", 400},
	{"version 0.9", "GET / HTTP/0.9\r\nHost: h\r\n\r\n", 505},
	{"version 2.0", "GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505},
	{"no version", "GET /\r\n\r\n", 400},
	{"empty lines without end", strings.Repeat("\r\n", 4096) + "GET", 400},
	{"a long method", strings.Repeat("X", 13_000), 501},
	{"a long target", "GET /" + strings.Repeat("x", 13_000) + " HTTP/1.1\r\n", 414},
	{"a long field", get + "A: " + strings.Repeat("x", 13_000) + "\r\n\r\n", 431},
	{"many fields", "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: b\r\n", exchange.MaxFields+1) + "\r\n", 431},
	{"a large body", post + "Content-Length: 1001\r\n\r\n", 413},
	{"an expectation", get + "Expect: tea\r\n\r\n", 417},
	{"a trailer of framing", post + "Trailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	{"a chunk of no number", chunked + "zz\r\nabc\r\n0\r\n\r\n", 400},
	{"a signed chunk", chunked + "+3\r\nabc\r\n0\r\n\r\n", 400},
	{"a chunk with 0x", chunked + "0x3\r\nabc\r\n0\r\n\r\n", 400},
	{"a chunk of 2^64", chunked + "10000000000000003\r\nabc\r\n0\r\n\r\n", 400},
	{"a chunk of 2^63", chunked + "8000000000000000\r\nabc", 400},
	{"a chunk that is longer than it says", chunked + "2\r\nabc\r\n0\r\n\r\n", 400},
	{"a chunk line with bare LF", chunked + "3\nabc\r\n0\r\n\r\n", 400},
	{"a chunk line with bare CR", chunked + "3\rXabc\r\n0\r\n\r\n", 400},
	{"chunk data that ends with bare LF", chunked + "3\r\nabc\n0\r\n\r\n", 400},
	{"chunk data that ends with bare CR", chunked + "3\r\nabc\r0\r\n\r\n", 400},
	{"chunk data that ends with another byte and LF", chunked + "3\r\nabcX\n0\r\n\r\n", 400},
	{"chunk data that ends with CR and another byte", chunked + "3\r\nabc\rX0\r\n\r\n", 400},
	{"an underscore in a chunk size", chunked + "1_0\r\n", 400},
	{"an empty chunk size", chunked + "\r\nabc", 400},
	{"an empty chunk size as the last", chunked + "3\r\nabc\r\n\r\n\r\n", 400},
	{"a chunk size of spaces", chunked + "3\r\nabc\r\n \r\n\r\n", 400},
	{"a chunk size of 17 digits", chunked + "00000000000000003\r\nabc\r\n0\r\n\r\n", 400},
	{"junk behind a chunk size", chunked + "3 x\r\nabc\r\n0\r\n\r\n", 400},
	{"an extension without a name", chunked + "3;=b\r\nabc\r\n0\r\n\r\n", 400},
	{"an extension of two words", chunked + "3;a b\r\nabc\r\n0\r\n\r\n", 400},
	{"an extension of two values", chunked + "3;a=b c\r\nabc\r\n0\r\n\r\n", 400},
	{"NUL in an extension", chunked + "3;a=\"\x00\"\r\nabc\r\n0\r\n\r\n", 400},
	{"a quoted extension that does not end", chunked + "3;a=\"b\r\nabc\r\n0\r\n\r\n", 400},
	{"an extension without end", chunked + "3;" + strings.Repeat("a", 5000) + "\r\nabc\r\n0\r\n\r\n", 400},
	{"extensions that outweigh the data", chunked + strings.Repeat("1;"+strings.Repeat("a", 400)+"\r\nx\r\n", 100) +
		"0\r\n\r\n", 400},
	{"a trailer with a space before its colon", chunked + "0\r\nA : b\r\n\r\n", 400},
	{"a folded trailer", chunked + "0\r\nA: b\r\n c\r\n\r\n", 400},
	{"a trailer without a colon", chunked + "0\r\nnonsense\r\n\r\n", 400},
	{"NUL in a trailer", chunked + "0\r\nA: \x00\r\n\r\n", 400},
	{"many trailers", chunked + "0\r\n" + strings.Repeat("A: b\r\n", exchange.MaxFields+1) + "\r\n", 431},
	{"a trailer with bare LF", chunked + "0\r\nA: b\n\r\n", 400},
	{"a long trailer", chunked + "0\r\nA: " + strings.Repeat("x", 13_000) + "\r\n\r\n", 431},
}

// Everything that two servers could understand differently, as bytes over a socket: with its
// status, an answer that arrives and an end of the connection, so that nothing behind it is taken
// for a request.
func TestStrictness(t *testing.T) {
	for _, c := range ambiguous {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			f := serve(t, &Server{MaxHeaderBytes: 8 << 10, MaxBodyBytes: 1000,
				Handler: http.HandlerFunc(answerErrors(t, c.status))})
			if c.status == 431 && strings.Contains(c.what, "many") {
				f = serve(t, &Server{Handler: http.HandlerFunc(answerErrors(t, c.status))})
			}
			answer := raw(t, f, c.request+smuggled, true)
			if c.status == 0 {
				return
			}
			if want := fmt.Sprintf("HTTP/1.1 %d ", c.status); !strings.HasPrefix(answer, want) ||
				!strings.Contains(answer, "Connection: close\r\n") {
				t.Errorf("%.200q: got %.300q, want %s", c.request, answer, want)
			}
			if strings.Contains(answer, "EOF") {
				t.Errorf("%.200q: refused for its end only: %.300q", c.request, answer)
			}
			if n := strings.Count(answer, "HTTP/1.1 "); n != 1 {
				t.Errorf("%.200q: %d answers: %.400q", c.request, n, answer)
			}
		})
	}
}

// answerErrors answers what reading the body says, as handlers do: with its status if the error has
// one.
func answerErrors(t *testing.T, want int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/smuggled" && want != 0 {
			t.Error("what stood behind was taken for a request")
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			status := http.StatusBadRequest
			if want == 431 { // the handler cannot know; the connection still ends
				status = 431
			}
			http.Error(w, err.Error(), status)
		}
	}
}

// The row that takes time: a head, begun or hardly begun, that does not come to its end. A
// connection that has said nothing is closed without a word.
func TestRequestTimeout(t *testing.T) {
	for _, c := range []struct{ request, status string }{
		{"G", "408"}, {"GET / HTTP/1.1\r\n", "408"}, {get + "A: b\r\n", "408"}, {"", ""}, {get + "\r\n" + get, "200"},
		{"\r\n", ""},
	} {
		t.Run(fmt.Sprintf("%q", c.request), func(t *testing.T) {
			t.Parallel()
			f := serve(t, &Server{ReadHeaderTimeout: 50 * time.Millisecond,
				Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
			ask := inTime
			if c.status == "" {
				ask = func(t *testing.T, f *fixture, request string) string { return raw(t, f, request, false) }
			}
			answer := ask(t, f, c.request)
			if got := statusOf(answer); got != c.status {
				t.Errorf("got %q, want %s", answer, c.status)
			}
			if strings.Contains(answer, " 408 ") && !strings.Contains(answer, "Connection: close\r\n") {
				t.Errorf("got %q: no close", answer)
			}
		})
	}
}

// statusOf is the status of the first answer.
func statusOf(answer string) string {
	if fields := strings.Fields(answer); len(fields) > 1 {
		return fields[1]
	}
	return ""
}
