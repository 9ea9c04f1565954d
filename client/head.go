package client

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad/internal/h1"
)

// userAgent is what net/http sends, which servers know.
const userAgent = "Go-http-client/1.1"

// appendHead writes a request's head as net/http does: the fields of the connection and the body
// first, then the caller's in order of their names.
func (x *Call) appendHead(dst []byte, u *upload) []byte {
	r := x.req
	host := hostOf(r)
	if dst == nil {
		dst = make([]byte, 0, 512)
	}
	dst = h1.AppendRequestLine(dst, x.method(), x.target(host, u.pc))
	dst = x.field(dst, "Host", host)
	if agent, set := r.Header["User-Agent"]; !set {
		dst = x.field(dst, "User-Agent", userAgent)
	} else if len(agent) > 0 && agent[0] != "" {
		dst = x.field(dst, "User-Agent", agent[0])
	}
	if closes(r, x.t) {
		dst = x.field(dst, "Connection", "close")
	}
	switch {
	case u.chunked:
		dst = x.field(dst, "Transfer-Encoding", "chunked")
		if names := trailerNames(r.Trailer); names != "" {
			dst = x.field(dst, "Trailer", names)
		}
	case u.length > 0, u.length == 0 && sendsZero(x.method()):
		dst = x.field(dst, "Content-Length", strconv.FormatInt(u.length, 10))
	}
	dst = appendFields(dst, r.Header, x.trace, true)
	if x.gzip = x.wantsGzip(); x.gzip {
		dst = x.field(dst, "Accept-Encoding", "gzip")
	}
	if u.pc.auth != "" && len(r.Header["Proxy-Authorization"]) == 0 {
		dst = x.field(dst, "Proxy-Authorization", u.pc.auth)
	}
	return append(dst, "\r\n"...)
}

func (x *Call) field(dst []byte, name, value string) []byte {
	x.trace.wroteField(name, value)
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
func (x *Call) target(host string, pc *conn) string {
	u := x.req.URL
	target := u.RequestURI()
	switch {
	case pc.plain && u.Opaque == "":
		return u.Scheme + "://" + host + target
	case x.req.Method == "CONNECT" && u.Path == "":
		if u.Opaque != "" {
			return u.Opaque
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

// wantsGzip is net/http's rule: not for HEAD, nor for a part, nor if the caller has a wish of its
// own. Do is left out, whose caller may not be able to wait in a Read.
func (x *Call) wantsGzip() bool {
	h := x.req.Header
	return !x.t.DisableCompression && x.done == nil && first(h["Accept-Encoding"]) == "" && first(h["Range"]) == "" &&
		x.req.Method != "HEAD"
}

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

// appendFields appends a caller's fields in order of their names. Those of a head are without the ones
// that the Transport writes itself.
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
