package client

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// likeOf is a Transport with the fields of std.
func likeOf(t testing.TB, std *http.Transport) *Transport {
	t.Helper()
	own := &Transport{}
	from, to := reflect.ValueOf(std).Elem(), reflect.ValueOf(own).Elem()
	for i := range from.NumField() {
		if f := from.Type().Field(i); f.IsExported() && to.FieldByName(f.Name).IsValid() {
			to.FieldByName(f.Name).Set(from.Field(i))
		}
	}
	return fresh(t, own)
}

// An outgoing is a request that both Transports are given.
type outgoing struct {
	name    string
	method  string           // "": GET
	body    func() io.Reader // nil: none
	change  func(r *http.Request)
	refused bool // by both, before anything is sent

	// The carriers over which the two differ, by a row of docs/net-http.md or a fault of
	// http.Transport.
	differs  []string
	unsteady bool // http.Transport does one thing or the other
	hangs    bool // http.Transport does not end the request over HTTP/2
}

func text() io.Reader     { return strings.NewReader("hello") }
func trickled() io.Reader { return &trickle{"hello"} }

func withHeader(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = values }
}

func withURL(change func(u *url.URL)) func(*http.Request) {
	return func(r *http.Request) { change(r.URL) }
}

func withHost(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }

func withTrailer(h http.Header) func(*http.Request) { return func(r *http.Request) { r.Trailer = h } }

func withCoding(name string) func(*http.Request) {
	return func(r *http.Request) { r.TransferEncoding = []string{name} }
}

// The ways of a request to a server.
const (
	overHTTP1 = "HTTP/1"
	byProxy   = "proxy"
	overHTTP2 = "HTTP/2"
)

func outgoings() []outgoing {
	return []outgoing{
		// Nothing of a URL may end the line of the request, or be read as another one.
		{name: "CR and LF in the query", refused: true, differs: []string{overHTTP2},
			change: withURL(func(u *url.URL) { u.RawQuery = "a HTTP/1.1\r\nX: y" })},
		{name: "LF in the query", change: withURL(func(u *url.URL) { u.RawQuery = "a\nb" }), refused: true,
			differs: []string{overHTTP2}},
		{name: "NUL in the query", change: withURL(func(u *url.URL) { u.RawQuery = "a\x00" }), refused: true,
			differs: []string{overHTTP2}},
		{name: "tab in the query", change: withURL(func(u *url.URL) { u.RawQuery = "a\tb" }), refused: true,
			differs: []string{overHTTP2}},
		{name: "DEL in the query", change: withURL(func(u *url.URL) { u.RawQuery = "a\x7f" }), refused: true,
			differs: []string{overHTTP2}},
		{name: "CR and LF in Opaque",
			change: withURL(func(u *url.URL) { u.Opaque = "/ HTTP/1.1\r\nX: y" }), refused: true,
			differs: []string{overHTTP2}},
		{name: "CR and LF in Opaque of CONNECT", method: "CONNECT", refused: true, differs: []string{overHTTP2},
			change: withURL(func(u *url.URL) { u.Opaque = "a:1 HTTP/1.1\r\nX: y" })},
		{name: "CR and LF in Host", change: withHost("a\r\nX: y")},
		{name: "NUL in Host", change: withHost("a\x00b")},
		{name: "space in Host", change: withHost("a b")},
		{name: "slash in Host", change: withHost("a/b")},
		{name: "user information in Host", change: withHost("user@h")},

		{name: "CR and LF in the path", change: withURL(func(u *url.URL) { u.Path = "/a\r\nb" })},
		{name: "space in the path", change: withURL(func(u *url.URL) { u.Path = "/a b" })},
		{name: "space in the query", change: withURL(func(u *url.URL) { u.RawQuery = "a b" })},
		{name: "no ASCII", change: withURL(func(u *url.URL) { u.Path, u.RawQuery = "/é", "é" })},
		{name: "escaped slash", change: withURL(func(u *url.URL) { u.Path, u.RawPath = "/a/b", "/a%2Fb" })},
		{name: "other RawPath", change: withURL(func(u *url.URL) { u.Path, u.RawPath = "/a/b", "/c%2Fd" })},
		{name: "no path", change: withURL(func(u *url.URL) { u.Path = "" })},
		{name: "path without a slash", change: withURL(func(u *url.URL) { u.Path = "x" })},
		{name: "two slashes", change: withURL(func(u *url.URL) { u.Path = "//x" })},
		{name: "asterisk", method: "OPTIONS", change: withURL(func(u *url.URL) { u.Path = "*" })},
		{name: "forced query", change: withURL(func(u *url.URL) { u.ForceQuery = true })},
		{name: "fragment", change: withURL(func(u *url.URL) { u.Fragment = "f" })},
		{name: "user information", change: withURL(func(u *url.URL) { u.User = url.UserPassword("u", "p") })},
		{name: "Opaque path", change: withURL(func(u *url.URL) { u.Opaque = "/o%2Fp" })},
		{name: "Opaque of the host", change: withURL(func(u *url.URL) { u.Opaque = "//" + u.Host + "/o%2Fp" })},
		{name: "Opaque and a query",
			change: withURL(func(u *url.URL) { u.Opaque, u.RawQuery = "//"+u.Host+"/o?q", "z" })},
		{name: "Opaque of another host", change: withURL(func(u *url.URL) { u.Opaque = "//other/x" })},
		{name: "Opaque without a slash", change: withURL(func(u *url.URL) { u.Opaque = "o" })},

		{name: "CONNECT", method: "CONNECT"},
		{name: "CONNECT without a path", method: "CONNECT", change: withURL(func(u *url.URL) { u.Path = "" })},
		{name: "method in lower case", method: "get"},
		{name: "method of one's own", method: "FOO", body: text},
		{name: "no method", method: "-"},
		{name: "method that is no token", method: "A B", refused: true},

		{name: "host in upper case", change: withHost("EXAMPLE.com")},
		{name: "host with a port", change: withHost("example.com:80")},
		{name: "host of another alphabet", change: withHost("bücher.example")},
		{name: "host in punycode", change: withHost("xn--bcher-kva.example")},
		{name: "host with a dot at the end", change: withHost("example.com.")},
		{name: "IPv6 host", change: withHost("[::1]:99")},
		{name: "IPv6 host with a zone", change: withHost("[fe80::1%25en0]:80"), differs: []string{overHTTP2}},

		{name: "body in memory", method: "POST", body: text},
		{name: "body that is read", method: "POST", body: trickled},
		{name: "body of GET", body: text},
		{name: "body of GET that is read", body: trickled},
		{name: "empty body", method: "POST", body: func() io.Reader { return strings.NewReader("") }},
		{name: "empty body that is read", method: "POST", body: func() io.Reader { return &trickle{} }},
		{name: "empty body of GET that is read", body: func() io.Reader { return &trickle{} }},
		{name: "empty body of DELETE that is read", method: "DELETE", body: func() io.Reader { return &trickle{} }},
		{name: "NoBody", method: "PUT", body: func() io.Reader { return http.NoBody }},
		{name: "NoBody of unknown length", method: "PUT", body: func() io.Reader { return http.NoBody },
			change: func(r *http.Request) { r.ContentLength = -1 }},
		{name: "body of a length", method: "POST", body: trickled,
			change: func(r *http.Request) { r.ContentLength = 5 }},
		{name: "body that is too long", method: "POST", body: trickled, refused: true, unsteady: true,
			change: func(r *http.Request) { r.ContentLength = 3 }},
		{name: "body that is too short", method: "POST", body: trickled, refused: true,
			differs: []string{overHTTP2},
			change:  func(r *http.Request) { r.ContentLength = 7 }},
		{name: "length without a body", method: "POST", refused: true, differs: []string{overHTTP2},
			change: func(r *http.Request) { r.ContentLength = 7 }},
		{name: "chunked", method: "POST", body: text, change: withCoding("chunked")},
		{name: "identity", method: "POST", body: text, change: withCoding("identity")},
		{name: "gzip as a coding", method: "POST", body: text, change: withCoding("gzip")},
		{name: "closes", method: "POST", body: text, change: func(r *http.Request) { r.Close = true }},

		{name: "trailer", method: "POST", body: trickled, change: withTrailer(http.Header{"X-A": {"1", "2"}})},
		{name: "trailer in lower case", method: "POST", body: trickled, change: withTrailer(http.Header{"x-b": {"3"}})},
		{name: "trailer of a body in memory", method: "POST", body: text,
			change: withTrailer(http.Header{"X-A": {"1"}})},
		{name: "trailer without values", method: "POST", body: trickled, change: withTrailer(http.Header{"X-A": nil})},
		{name: "trailer without a body", method: "POST", change: withTrailer(http.Header{"X-A": {"1"}}),
			differs: []string{overHTTP2}, hangs: true},
		{name: "trailer of framing", method: "POST", body: trickled, refused: true,
			change: withTrailer(http.Header{"Content-Length": {"1"}})},
		{name: "trailer of framing in lower case", method: "POST", body: trickled, refused: true,
			change: withTrailer(http.Header{"transfer-encoding": {"1"}})},
		{name: "trailer of framing and a body in memory", method: "POST", body: text,
			change: withTrailer(http.Header{"Content-Length": {"1"}})},
		{name: "trailer with a line end", method: "POST", body: trickled, refused: true,
			change: withTrailer(http.Header{"X-A": {"a\nb"}})},

		{name: "Host as a field", change: withHeader("Host", "other")},
		{name: "Content-Length as a field", method: "POST", body: text, change: withHeader("Content-Length", "99")},
		{name: "Content-Length in lower case", method: "POST", body: text, change: withHeader("content-length", "99"),
			differs: []string{overHTTP1, byProxy}},
		{name: "Transfer-Encoding as a field", method: "POST", body: text,
			change: withHeader("Transfer-Encoding", "chunked")},
		{name: "Trailer as a field", change: withHeader("Trailer", "X-Q"), differs: []string{overHTTP2}},
		{name: "User-Agent", change: withHeader("User-Agent", "me")},
		{name: "no User-Agent", change: withHeader("User-Agent", "")},
		{name: "nil User-Agent", change: withHeader("User-Agent")},
		{name: "blanks around User-Agent", change: withHeader("User-Agent", " me "), differs: []string{overHTTP2}},
		{name: "blanks around a value", change: withHeader("X-A", "\t a "), differs: []string{overHTTP2}},
		{name: "empty value", change: withHeader("X-A", "")},
		{name: "field of several values", change: withHeader("X-A", "1", "2")},
		{name: "field without values", change: withHeader("X-A")},
		{name: "field in lower case", change: withHeader("x-a", "1")},
		{name: "value of UTF-8", change: withHeader("X-A", "é")},
		{name: "value of Latin-1", change: withHeader("X-A", "\xe9")},
		{name: "name with a space", change: withHeader("X A", "1"), refused: true},
		{name: "empty name", change: withHeader("", "1"), refused: true},
		{name: "pseudo-field", change: withHeader(":path", "/x"), refused: true},
		{name: "value with a line end", change: withHeader("X-A", "a\nb"), refused: true},
		{name: "value with NUL", change: withHeader("X-A", "a\x00b"), refused: true},
		{name: "cookies", change: withHeader("Cookie", "a=b; c=d")},
		{name: "Proxy-Authorization", change: withHeader("Proxy-Authorization", "mine"), differs: []string{byProxy}},
		{name: "Accept-Encoding", change: withHeader("Accept-Encoding", "identity")},
		{name: "empty Accept-Encoding", change: withHeader("Accept-Encoding", "")},
		{name: "Range", change: withHeader("Range", "bytes=0-1")},
		{name: "empty Range", change: withHeader("Range", "")},
		{name: "gzip is not for HEAD", method: "HEAD"},
		{name: "Connection: close", change: withHeader("Connection", "close")},
		{name: "Connection: keep-alive", change: withHeader("Connection", "keep-alive")},
		{name: "Connection with an option", change: withHeader("Connection", "x"), differs: []string{overHTTP2}},
		{name: "Keep-Alive", change: withHeader("Keep-Alive", "timeout=5")},
		{name: "Upgrade", change: withHeader("Upgrade", "h2c"), differs: []string{overHTTP2}},
		{name: "TE: trailers", change: withHeader("Te", "trailers")},
		{name: "TE: gzip", change: withHeader("Te", "gzip"), differs: []string{overHTTP2}},
	}
}

// What both Transports send for a request is the same, and so is why they refuse it.
func TestRequestsLikeNetHTTP(t *testing.T) {
	seen := make(chan string, 100)
	line, frames := linesSeen(t, seen), framesSeen(t, seen)
	proxy, err := url.Parse(strings.Replace(line, "http://", "http://user:secret@", 1))
	if err != nil {
		t.Fatal(err)
	}
	h2 := new(http.Protocols)
	h2.SetUnencryptedHTTP2(true)
	for over, c := range map[string]struct {
		url string
		std *http.Transport
	}{
		overHTTP1: {line, &http.Transport{}},
		byProxy:   {"http://origin.example:81", &http.Transport{Proxy: http.ProxyURL(proxy)}},
		overHTTP2: {frames, &http.Transport{Protocols: h2}},
	} {
		own := likeOf(t, c.std)
		defer c.std.CloseIdleConnections()
		for _, o := range outgoings() {
			t.Run(over+"/"+o.name, func(t *testing.T) {
				got, want := o.send(t, own, c.url, seen), ""
				differs := slices.Contains(o.differs, over)
				if !o.hangs || over != overHTTP2 {
					// If its write fails, it closes the connection, and its reader may report
					// that first.
					for want == "" || strings.HasSuffix(want, net.ErrClosed.Error()) {
						want = o.send(t, c.std, c.url, seen)
					}
				}
				if !o.unsteady && (got == want) == differs {
					t.Errorf("they differ: %v, want %v\nhttp.Transport: %s\n     Transport: %s", !differs, differs,
						want, got)
				}
				if o.refused && !strings.HasPrefix(got, "refused: ") {
					t.Errorf("it was sent: %s", got)
				}
			})
		}
	}
}

// sent numbers the requests.
var sent atomic.Int64

// send shows what a server sees of the request, or why it is refused.
func (o *outgoing) send(t *testing.T, rt http.RoundTripper, to string, seen chan string) string {
	t.Helper()
	var body io.Reader
	if o.body != nil {
		body = o.body()
	}
	r := request(t, "GET", to+"/", body)
	if r.Method = o.method; o.method == "" {
		r.Method = "GET"
	} else if o.method == "-" {
		r.Method = ""
	}
	if o.change != nil {
		o.change(r)
	}
	id := fmt.Sprint(sent.Add(1)) // what a server has seen of a request that failed may come later
	r.Header["X-Sent"] = []string{id}
	res, err := rt.RoundTrip(r)
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "net/http: HTTP/1.x transport connection broken: ")
		return "refused: " + text
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	for limit := time.After(patience); ; {
		select {
		case text := <-seen:
			if strings.Contains(text, "X-Sent: "+id+`\r\n`) || strings.Contains(text, `"x-sent=`+id+`"`) {
				text = strings.NewReplacer("X-Sent: "+id, "X-Sent: N", "x-sent="+id, "x-sent=N").Replace(text)
				return strings.ReplaceAll(text, strings.TrimPrefix(to, "http://"), "HOST")
			}
		case <-limit:
			return "the server has not seen its end"
		}
	}
}

// linesSeen is a server that shows each request of HTTP/1. It reads until the client closes.
func linesSeen(t *testing.T, seen chan<- string) string {
	return scripted(t, func(c net.Conn, r *bufio.Reader) {
		head, err := readHead(r)
		if err != nil {
			return
		}
		var body bytes.Buffer
		fields := "\r\n" + strings.ToLower(head)
		if strings.Contains(fields, "\r\ntransfer-encoding: chunked\r\n") {
			readChunked(r, &body)
		} else if _, length, is := strings.Cut(fields, "\r\ncontent-length: "); is {
			length, _, _ = strings.Cut(length, "\r\n")
			n, _ := strconv.Atoi(length)
			io.CopyN(&body, r, int64(n))
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		c.(*net.TCPConn).CloseWrite() // for CONNECT, whose answer has no length here
		rest, _ := io.ReadAll(r)
		seen <- fmt.Sprintf("%q %q %q", head, body.String(), rest)
	})
}

// readChunked copies the data of a chunked body, and its trailer section.
func readChunked(r *bufio.Reader, to *bytes.Buffer) {
	for {
		line, err := r.ReadString('\n')
		n, bad := strconv.ParseInt(strings.TrimSpace(line), 16, 64)
		if err != nil || bad != nil {
			return
		}
		if n == 0 {
			break
		}
		io.CopyN(to, r, n)
		r.Discard(2)
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == "\r\n" {
			return
		}
		to.WriteString("|" + line)
	}
}

// framesSeen is the same for HTTP/2. It shows the pieces of Cookie as one field.
func framesSeen(t *testing.T, seen chan<- string) string {
	return scripted(t, func(c net.Conn, r *bufio.Reader) {
		io.ReadFull(r, make([]byte, len(http2.ClientPreface)))
		fr := http2.NewFramer(c, r)
		fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		fr.WriteSettings()
		shown, data := map[uint32][]string{}, map[uint32]string{}
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			id := f.Header().StreamID
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					fr.WriteSettingsAck()
				}
			case *http2.MetaHeadersFrame:
				cookie := ""
				for _, field := range f.Fields {
					if field.Name == "cookie" {
						cookie += "; " + field.Value
						continue
					}
					shown[id] = append(shown[id], field.Name+"="+field.Value)
				}
				shown[id] = append(shown[id], cookie)
			case *http2.DataFrame:
				data[id] += string(f.Data())
			}
			h := f.Header()
			ends := h.Type == http2.FrameData || h.Type == http2.FrameHeaders
			if ends && h.Flags.Has(http2.FlagDataEndStream) {
				slices.Sort(shown[id])
				text := fmt.Sprintf("%q %q", shown[id], data[id])
				answer(fr, id, "204", true)
				seen <- text
			}
		}
	})
}

// A proxy is asked for hosts only: what else URL.Host has does not get into the head of CONNECT.
func TestConnectAsksForAHost(t *testing.T) {
	heads := make(chan string, 10)
	proxy, err := url.Parse(scripted(t, func(_ net.Conn, r *bufio.Reader) {
		head, _ := readHead(r)
		heads <- head
	}))
	if err != nil {
		t.Fatal(err)
	}
	std := &http.Transport{Proxy: http.ProxyURL(proxy)}
	for name, rt := range map[string]http.RoundTripper{"http.Transport": std, "Transport": likeOf(t, std)} {
		for _, host := range []string{"a\r\nX: y", "a HTTP/1.1\r\nX: y\r\n", "a b"} {
			r := request(t, "GET", "https://origin.example/", nil)
			r.URL.Host = host
			if res, err := rt.RoundTrip(r); err == nil {
				res.Body.Close()
				t.Errorf("%s, %q: status %d", name, host, res.StatusCode)
			}
		}
		if _, err := rt.RoundTrip(request(t, "GET", "https://origin.example/", nil)); err == nil {
			t.Errorf("%s: the proxy closes, and there is a response", name)
		}
	}
	for len(heads) > 0 {
		if head := <-heads; strings.Contains(head, "X: y") {
			t.Errorf("%q", head)
		}
	}
}
