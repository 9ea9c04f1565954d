package client

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// An incoming is a response that both Transports get, as bytes.
type incoming struct {
	name   string
	method string // "": GET
	bytes  string // the head has CRLF in place of each "|"
	// differs: by a row of docs/net-http.md, or by a fault of http.Transport.
	differs bool
}

const (
	okLine = "HTTP/1.1 200 OK|"
	length = "Content-Length: 2|"
)

func incomings() []incoming {
	return []incoming{
		{name: "plain", bytes: okLine + length + "|hi"},
		{name: "no reason", bytes: "HTTP/1.1 200|" + length + "|hi"},
		{name: "empty reason", bytes: "HTTP/1.1 200 |" + length + "|hi"},
		{name: "reason with blanks", bytes: "HTTP/1.1 200  all fine |" + length + "|hi"},
		{name: "reason with no ASCII", bytes: "HTTP/1.1 200 \xc3\xa9\xff|" + length + "|hi"},
		{name: "reason with a control character", bytes: "HTTP/1.1 200 a\x01b|" + length + "|hi", differs: true},
		{name: "two spaces before the status", bytes: "HTTP/1.1  200 OK|" + length + "|hi", differs: true},
		{name: "status of two digits", bytes: "HTTP/1.1 20 OK|" + length + "|hi"},
		{name: "status of four digits", bytes: "HTTP/1.1 2000 OK|" + length + "|hi"},
		{name: "status below 100", bytes: "HTTP/1.1 099 x|" + length + "|hi", differs: true},
		{name: "status with a sign", bytes: "HTTP/1.1 +20 x|" + length + "|hi", differs: true},
		{name: "status 999", bytes: "HTTP/1.1 999 x|" + length + "|hi"},
		{name: "version in lower case", bytes: "http/1.1 200 OK|" + length + "|hi"},
		{name: "HTTP/1.0", bytes: "HTTP/1.0 200 OK|" + length + "|hi"},
		{name: "HTTP/1.2", bytes: "HTTP/1.2 200 OK|" + length + "|hi"},
		{name: "HTTP/1.10", bytes: "HTTP/1.10 200 OK|" + length + "|hi"},
		{name: "HTTP/2.0 in a line", bytes: "HTTP/2.0 200 OK|" + length + "|hi", differs: true},
		{name: "HTTP/0.9 in a line", bytes: "HTTP/0.9 200 OK|" + length + "|hi", differs: true},
		{name: "ICY", bytes: "ICY 200 OK|" + length + "|hi"},
		{name: "empty line first", bytes: "|HTTP/1.1 200 OK|" + length + "|hi"},
		{name: "no HTTP", bytes: "SSH-2.0-OpenSSH_9.6|"},

		{name: "length twice", bytes: okLine + length + length + "|hi"},
		{name: "lengths that differ", bytes: okLine + length + "Content-Length: 3||hi"},
		{name: "lengths that differ in digits", bytes: okLine + length + "Content-Length: 02||hi"},
		{name: "length as a list", bytes: okLine + "Content-Length: 2, 2||hi"},
		{name: "length with a sign", bytes: okLine + "Content-Length: +2||hi"},
		{name: "negative length", bytes: okLine + "Content-Length: -2||hi"},
		{name: "hexadecimal length", bytes: okLine + "Content-Length: 0x2||hi"},
		{name: "length beyond 63 bits", bytes: okLine + "Content-Length: 9223372036854775808||hi"},
		{name: "empty length", bytes: okLine + "Content-Length:||hi"},
		{name: "length and chunks",
			bytes: okLine + length + "Transfer-Encoding: chunked||2\r\nhi\r\n0\r\n\r\n", differs: true},
		{name: "no length", bytes: okLine + "|hi"},
		{name: "no length, keep-alive", bytes: okLine + "Connection: keep-alive||hi"},
		{name: "too short a body", bytes: okLine + "Content-Length: 5||hi"},
		{name: "too long a body", bytes: okLine + "Content-Length: 1||hi"},
		{name: "HEAD", method: "HEAD", bytes: okLine + length + "|"},
		{name: "HEAD and chunks", method: "HEAD", bytes: okLine + "Transfer-Encoding: chunked||"},
		{name: "HEAD without a length", method: "HEAD", bytes: okLine + "|"},
		{name: "204 with a length", bytes: "HTTP/1.1 204 No Content|" + length + "|"},
		{name: "204 with chunks", bytes: "HTTP/1.1 204 No Content|Transfer-Encoding: chunked||"},
		{name: "304 with a length", bytes: "HTTP/1.1 304 Not Modified|" + length + "|"},
		{name: "304 to HEAD", method: "HEAD", bytes: "HTTP/1.1 304 Not Modified|" + length + "|"},
		{name: "304 with lengths twice", bytes: "HTTP/1.1 304 Not Modified|" + length + length + "|"},
		{name: "205", bytes: "HTTP/1.1 205 Reset Content|Content-Length: 0||"},

		{name: "chunks", bytes: okLine + "Transfer-Encoding: chunked||2\r\nhi\r\n0\r\n\r\n"},
		{name: "chunked in upper case", bytes: okLine + "Transfer-Encoding: CHUNKED||2\r\nhi\r\n0\r\n\r\n"},
		{name: "chunks of HTTP/1.0",
			bytes: "HTTP/1.0 200 OK|Transfer-Encoding: chunked||2\r\nhi\r\n0\r\n\r\n", differs: true},
		{name: "identity", bytes: okLine + "Transfer-Encoding: identity||hi"},
		{name: "gzip as a coding", bytes: okLine + "Transfer-Encoding: gzip, chunked||2\r\nhi\r\n0\r\n\r\n"},
		{name: "leading zeros", bytes: okLine + "Transfer-Encoding: chunked||0002\r\nhi\r\n000\r\n\r\n"},
		{name: "chunk extensions", bytes: okLine + "Transfer-Encoding: chunked||2;a=b;c=\"d;e\"\r\nhi\r\n0;f\r\n\r\n"},
		{name: "chunk extension beyond the grammar", differs: true,
			bytes: okLine + "Transfer-Encoding: chunked||2;=\r\nhi\r\n0\r\n\r\n"},
		{name: "blanks behind a size", bytes: okLine + "Transfer-Encoding: chunked||2 \t\r\nhi\r\n0\r\n\r\n"},
		{name: "blank before a size", bytes: okLine + "Transfer-Encoding: chunked|| 2\r\nhi\r\n0\r\n\r\n"},
		{name: "size with 0x", bytes: okLine + "Transfer-Encoding: chunked||0x2\r\nhi\r\n0\r\n\r\n"},
		{name: "size beyond 64 bits", bytes: okLine + "Transfer-Encoding: chunked||fffffffffffffffff\r\nhi"},
		{name: "no CRLF behind a chunk", bytes: okLine + "Transfer-Encoding: chunked||2\r\nhi0\r\n\r\n"},
		{name: "chunks without an end", bytes: okLine + "Transfer-Encoding: chunked||2\r\nhi\r\n"},
		{name: "trailer",
			bytes: okLine + "Trailer: X-A|Transfer-Encoding: chunked||2\r\nhi\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n"},
		{name: "trailer without an end", bytes: okLine + "Transfer-Encoding: chunked||2\r\nhi\r\n0\r\nX-A: 1\r\n"},
		{name: "trailer of framing is announced",
			bytes: okLine + "Trailer: Content-Length|Transfer-Encoding: chunked||2\r\nhi\r\n0\r\n\r\n"},
		{name: "trailer of framing", differs: true,
			bytes: okLine + "Transfer-Encoding: chunked||2\r\nhi\r\n0\r\nContent-Length: 5\r\n\r\n"},
		{name: "trailer with a space before its colon", differs: true,
			bytes: okLine + "Transfer-Encoding: chunked||2\r\nhi\r\n0\r\nX-A : 5\r\n\r\n"},
		{name: "Trailer without chunks", bytes: okLine + "Trailer: X-A|" + length + "|hi"},

		{name: "closes", bytes: okLine + "Connection: Close|" + length + "|hi"},
		{name: "closes among other options", bytes: okLine + "Connection: x, close|" + length + "|hi"},
		{name: "closes, in HTTP/1.0", bytes: "HTTP/1.0 200 OK|Connection: close|" + length + "|hi"},
		{name: "keep-alive in HTTP/1.0", bytes: "HTTP/1.0 200 OK|Connection: keep-alive|" + length + "|hi"},

		{name: "cookies", bytes: okLine + "Set-Cookie: a=1|set-cookie: b=2|" + length + "|hi"},
		{name: "blanks around a value", bytes: okLine + "X-A: \t a \t|" + length + "|hi"},
		{name: "no blank before a value", bytes: okLine + "X-A:a|" + length + "|hi"},
		{name: "empty value", bytes: okLine + "X-A:|" + length + "|hi"},
		{name: "name with an underscore", bytes: okLine + "x_a: a|" + length + "|hi"},
		{name: "value of Latin-1", bytes: okLine + "X-A: \xe9|" + length + "|hi"},
		{name: "value with a control character", bytes: okLine + "X-A: a\x01b|" + length + "|hi"},
		{name: "value with NUL", bytes: okLine + "X-A: a\x00b|" + length + "|hi"},
		{name: "value with CR", bytes: okLine + "X-A: a\rb|" + length + "|hi"},
		{name: "name with a space", bytes: okLine + "X A: 1|" + length + "|hi", differs: true},
		{name: "space before a colon", bytes: okLine + "X-A : 1|" + length + "|hi", differs: true},
		{name: "folded line", bytes: okLine + "X-A: 1| 2|" + length + "|hi", differs: true},
		{name: "name with no ASCII", bytes: okLine + "X-\xff: 1|" + length + "|hi"},
		{name: "empty name", bytes: okLine + ": 1|" + length + "|hi"},
		{name: "no colon", bytes: okLine + "X-A|" + length + "|hi"},
		{name: "no-cache", bytes: okLine + "Pragma: no-cache|" + length + "|hi"},
		{name: "cut in the head", bytes: okLine + "Content-Le"},
		{name: "nothing", bytes: ""},

		{name: "interim responses",
			bytes: "HTTP/1.1 103 Early Hints|Link: x||HTTP/1.1 102 Processing||" + okLine + length + "|hi"},
		{name: "100 that was not asked for", bytes: "HTTP/1.1 100 Continue||" + okLine + length + "|hi"},
		{name: "interim response with a body",
			bytes: "HTTP/1.1 100 Continue|" + length + "|hi" + okLine + length + "|hi"},
		{name: "interim response and no other", bytes: "HTTP/1.1 100 Continue||"},
		{name: "101", bytes: "HTTP/1.1 101 Switching|Connection: upgrade|Upgrade: x||hi"},
		{name: "101 without Upgrade", bytes: "HTTP/1.1 101 Switching|Connection: upgrade||"},
		{name: "101 without Connection", bytes: "HTTP/1.1 101 Switching|Upgrade: x||"},
		{name: "101 with a length alone", bytes: "HTTP/1.1 101 Switching|" + length + "|hi"},
		{name: "CONNECT", method: "CONNECT", bytes: okLine + "|hi"},
		{name: "CONNECT and a length", method: "CONNECT", bytes: okLine + length + "|hithere", differs: true},
		{name: "CONNECT is refused", method: "CONNECT", bytes: "HTTP/1.1 407 Who|" + length + "|hi"},
	}
}

// What a response's bytes mean is the same to both Transports.
func TestResponsesLikeNetHTTP(t *testing.T) {
	std := &http.Transport{}
	defer std.CloseIdleConnections()
	own := likeOf(t, std)
	for _, in := range incomings() {
		t.Run(in.name, func(t *testing.T) {
			bytes := strings.ReplaceAll(in.bytes, "|", "\r\n")
			url := scripted(t, func(c net.Conn, r *bufio.Reader) {
				readHead(r)
				io.WriteString(c, bytes)
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, r)
			})
			method := in.method
			if method == "" {
				method = "GET"
			}
			want, got := meaning(t, std, method, url), meaning(t, own, method, url)
			if (got != want) != in.differs {
				t.Errorf("they differ: %v, want %v\nhttp.Transport: %s\n     Transport: %s", got != want, in.differs,
					want, got)
			}
		})
	}
}

// meaning shows a response. Errors of heads and of bodies have no text here.
func meaning(t *testing.T, rt http.RoundTripper, method, url string) string {
	t.Helper()
	r, err := rt.RoundTrip(request(t, method, url, nil))
	if err != nil {
		return "an error"
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	var fields []string
	for name, values := range r.Header {
		fields = append(fields, fmt.Sprintf("%s=%q", name, values))
	}
	slices.Sort(fields)
	_, writes := r.Body.(io.Writer)
	return fmt.Sprintf("%q %s, %d bytes, coding %v, close %v, %v: %q, error %v, trailer %v, writes %v", r.Status,
		r.Proto, r.ContentLength, r.TransferEncoding, r.Close, fields, p, err != nil, r.Trailer, writes)
}

// A 101 that does not say to which protocol it switches ends its connection. http.Transport would
// take what follows for the next response.
func TestOddSwitchEndsTheConnection(t *testing.T) {
	for name, fields := range map[string]string{
		"neither": "", "Connection alone": "Connection: upgrade\r\n", "Upgrade alone": "Upgrade: x\r\n",
	} {
		conns := make(chan bool, 2)
		url := scripted(t, func(c net.Conn, r *bufio.Reader) {
			conns <- true
			for {
				if _, err := readHead(r); err != nil {
					return
				}
				io.WriteString(c, "HTTP/1.1 101 Switching\r\n"+fields+"\r\n")
			}
		})
		own := fresh(t, &Transport{})
		for range 2 {
			if r, body := get(t, own, url); r.StatusCode != http.StatusSwitchingProtocols || body != "" {
				t.Errorf("%s: status %d, body %q", name, r.StatusCode, body)
			}
		}
		if len(conns) != 2 {
			t.Errorf("%s: %d connections for two requests", name, len(conns))
		}
	}
}
