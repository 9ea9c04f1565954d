package client

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/h2"
)

// userAgent is what net/http sends, which servers know.
const userAgent = "Go-http-client/1.1"

// appendHead writes a request's head as net/http does: the fields of the connection and the body
// first, then the caller's in order of their names.
func (u *upload) appendHead(dst []byte) []byte {
	x, r := u.x, u.x.req
	host := hostOf(r)
	if dst == nil {
		dst = make([]byte, 0, 512)
	}
	dst = h1.AppendRequestLine(dst, x.method(), u.target(host))
	dst = u.field(dst, "Host", host)
	if agent, set := r.Header["User-Agent"]; !set {
		dst = u.field(dst, "User-Agent", userAgent)
	} else if len(agent) > 0 && agent[0] != "" {
		dst = u.field(dst, "User-Agent", agent[0])
	}
	if closes(r, x.t) {
		dst = u.field(dst, "Connection", "close")
	}
	switch {
	case u.chunked:
		dst = u.field(dst, "Transfer-Encoding", "chunked")
		if names := trailerNames(r.Trailer); names != "" {
			dst = u.field(dst, "Trailer", names)
		}
	case u.length > 0, u.length == 0 && sendsZero(x.method()):
		dst = u.field(dst, "Content-Length", strconv.FormatInt(u.length, 10))
	}
	dst = appendFields(dst, r.Header, x.trace, true)
	if x.gzip = x.wantsGzip(); x.gzip {
		dst = u.field(dst, "Accept-Encoding", "gzip")
	}
	if u.pc.auth != "" && len(r.Header["Proxy-Authorization"]) == 0 {
		dst = u.field(dst, "Proxy-Authorization", u.pc.auth)
	}
	return append(dst, "\r\n"...)
}

func (u *upload) field(dst []byte, name, value string) []byte {
	u.x.trace.wroteField(name, value)
	return h1.AppendField(dst, name, value)
}

// hostOf is the Host field: an invalid one is left empty, as in net/http.
func hostOf(r *http.Request) string {
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	if ascii, err := httpguts.PunycodeHostPort(host); err == nil {
		host = ascii
	}
	if !httpguts.ValidHostHeader(host) {
		return ""
	}
	return withoutZone(host)
}

// withoutZone removes an IPv6 zone (RFC 6874 section 4).
func withoutZone(host string) string {
	if !strings.HasPrefix(host, "[") {
		return host
	}
	end := strings.LastIndexByte(host, ']')
	if end < 0 {
		return host
	}
	if zone := strings.LastIndexByte(host[:end], '%'); zone >= 0 {
		return host[:zone] + host[end:]
	}
	return host
}

// target is the request's target (RFC 9112 section 3.2).
func (u *upload) target(host string) string {
	url := u.x.req.URL
	target := url.RequestURI()
	switch {
	case u.pc.plain && url.Opaque == "":
		return url.Scheme + "://" + host + target
	case u.x.isConnect && url.Path == "":
		if url.Opaque != "" {
			return url.Opaque
		}
		return host
	}
	return target
}

// closes reports whether the connection is to be closed behind the request.
func closes(r *http.Request, t *Transport) bool {
	if !r.Close && !(t.DisableKeepAlives && !upgrades(r)) {
		return false
	}
	return !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "close")
}

// wantsClose reports whether the caller wants a connection for this request alone.
func wantsClose(r *http.Request) bool {
	return r.Close || httpguts.HeaderValuesContainsToken(r.Header["Connection"], "close")
}

func sendsZero(method string) bool { return method == "POST" || method == "PUT" || method == "PATCH" }

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func trailerNames(trailer http.Header) string {
	names := make([]string, 0, len(trailer))
	for name := range trailer {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// appendFields appends a caller's fields in order of their names. Those of a head are without the
// ones that the Transport writes itself.
func appendFields(dst []byte, h http.Header, t trace, ofHead bool) []byte {
	var few [16]string
	names := few[:0]
	for name := range h {
		if !ofHead || !ours(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range h[name] {
			dst = h1.AppendField(dst, name, v)
		}
		t.wroteField(name, h[name]...)
	}
	return dst
}

// ours reports whether the Transport writes the field itself. net/http compares the usual spelling
// only, by which a second Content-Length could be smuggled in.
func ours(name string) bool {
	switch len(name) {
	case len("Host"):
		return strings.EqualFold(name, "Host")
	case len("User-Agent"):
		return strings.EqualFold(name, "User-Agent")
	case len("Trailer"):
		return strings.EqualFold(name, "Trailer")
	case len("Content-Length"):
		return strings.EqualFold(name, "Content-Length")
	case len("Transfer-Encoding"):
		return strings.EqualFold(name, "Transfer-Encoding")
	}
	return false
}

// A pseudo is what the pseudo-fields of a request say of its target (RFC 9113 section 8.3.1).
type pseudo struct{ authority, path string }

// pseudoTarget is the target of a request, with the errors of net/http. A host in URL.Opaque is cut
// off: it is the authority.
func pseudoTarget(r *http.Request) (to pseudo, err error) {
	if to.authority = hostOf(r); to.authority == "" {
		return to, errors.New("http2: invalid Host header")
	}
	if r.Method == "CONNECT" {
		return to, nil
	}
	uri := r.URL.RequestURI()
	if to.path = uri; !isPath(uri) {
		to.path = strings.TrimPrefix(uri, r.URL.Scheme+"://"+to.authority)
	}
	switch {
	case isPath(to.path):
		return to, nil
	case r.URL.Opaque != "":
		return to, fmt.Errorf("http2: invalid request :path %q from URL.Opaque = %q", uri, r.URL.Opaque)
	}
	return to, fmt.Errorf("http2: invalid request :path %q", uri)
}

func isPath(s string) bool { return strings.HasPrefix(s, "/") || s == "*" }

// appendPairs is appendHead for HTTP/2.
func (u *upload) appendPairs(dst []byte, to pseudo) []byte {
	x, r := u.x, u.x.req
	dst = h2.AppendPair(dst, ":method", x.method(), false)
	if r.Method == "CONNECT" {
		dst = h2.AppendPair(dst, ":authority", to.authority, false)
	} else {
		dst = h2.AppendPair(dst, ":scheme", r.URL.Scheme, false)
		dst = h2.AppendPair(dst, ":authority", to.authority, false)
		dst = h2.AppendPair(dst, ":path", to.path, false)
	}
	if agent, set := r.Header["User-Agent"]; !set {
		dst = u.pair(dst, "user-agent", "Go-http-client/2.0")
	} else if len(agent) > 0 && agent[0] != "" {
		dst = u.pair(dst, "user-agent", agent[0])
	}
	if u.length > 0 || u.length == 0 && sendsZero(x.method()) {
		dst = u.pair(dst, "content-length", strconv.FormatInt(u.length, 10))
	}
	if names := trailerNames(r.Trailer); names != "" && u.body != nil {
		dst = u.pair(dst, "trailer", names)
	}
	dst = u.appendFieldPairs(dst, r.Header)
	x.gzip = x.wantsGzip() && len(r.Header["Accept-Encoding"]) == 0 && len(r.Header["Range"]) == 0
	if x.gzip {
		dst = u.pair(dst, "accept-encoding", "gzip")
	}
	return dst
}

func (u *upload) pair(dst []byte, name, value string) []byte {
	u.x.trace.wroteField(name, value)
	sensitive := name == "authorization" || name == "cookie" && len(value) < 20 // guessed by their length
	return h2.AppendPair(dst, name, strings.TrimSpace(value), sensitive)
}

// appendFieldPairs leaves out what belongs to connections of HTTP/1 (section 8.2.2).
func (u *upload) appendFieldPairs(dst []byte, header http.Header) []byte {
	names := make([]string, 0, len(header))
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		lower := strings.ToLower(name)
		switch lower {
		case "connection", "proxy-connection", "transfer-encoding", "upgrade", "keep-alive":
			continue
		}
		if ours(name) {
			continue
		}
		for _, v := range header[name] {
			switch {
			case lower != "te":
				dst = u.pair(dst, lower, v)
			case strings.EqualFold(v, "trailers"): // its only value here
				dst = u.pair(dst, lower, "trailers")
			}
		}
	}
	return dst
}

func appendTrailer(dst []byte, trailer http.Header) []byte {
	for name, values := range trailer {
		if h2.OfConnection(strings.ToLower(name)) {
			continue
		}
		for _, v := range values {
			dst = h2.AppendPair(dst, strings.ToLower(name), strings.TrimSpace(v), false)
		}
	}
	return dst
}
