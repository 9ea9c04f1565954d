package web

import (
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/h2"
)

// This file makes an *http.Request of the head of an HTTP/2 stream.

// fill fills in the request of x. It reports false if no handler could make sense of the head,
// which is malformed then. last: there is no body.
func (x *h2stream) fill(head *h2.Head, last bool) bool {
	req := &x.given.request
	req.Method, req.Host, req.RequestURI = head.Method, head.Authority, head.Path
	req.Proto, req.ProtoMajor = "HTTP/2.0", 2
	switch {
	case head.Scheme != "" && head.Scheme != "http" && head.Scheme != "https": // net/http has no other
		return false
	case head.Method == http.MethodConnect && head.Protocol == "":
		req.URL, req.RequestURI = &x.given.url, head.Authority
		req.URL.Host = head.Authority
	case plainTarget(head.Path):
		path, query, has := strings.Cut(head.Path, "?")
		req.URL = &x.given.url
		req.URL.Path, req.URL.RawQuery, req.URL.ForceQuery = path, query, has && query == ""
	default:
		u, err := url.ParseRequestURI(head.Path)
		if err != nil {
			return false
		}
		req.URL = u
	}
	x.fields = headerOf(head, x.fields)
	req.Header = x.fields
	if head.Protocol != "" {
		req.Header[":protocol"] = []string{head.Protocol} // as in net/http
		x.pipe = &Pipe{x: x}
	}
	expects := httpguts.HeaderValuesContainsToken(req.Header["Expect"], "100-continue")
	if expects {
		delete(req.Header, "Expect")
	}
	req.Trailer = announcedTrailer(req.Header)
	req.RemoteAddr = x.lane.addressOf(&x.h.link)
	req.TLS = x.h.tlsState()
	x.out.framing = framingStream
	x.out.noBody = req.Method == http.MethodHead
	x.setBody(head, last, expects)
	return true
}

// setBody says how the request's body comes.
func (x *h2stream) setBody(head *h2.Head, last, expects bool) {
	req := &x.given.request
	if last {
		req.Body = http.NoBody
		return
	}
	req.ContentLength = head.Length
	x.body = new(body)
	x.body.init(&x.exchange, head.Length, expects)
	x.body.in.Reset(int(x.lane.st.window), true)
	req.Body = x.body
}

// headerOf makes the map; all values share one slice. m is an empty map to be used again, or nil.
func headerOf(head *h2.Head, m http.Header) http.Header {
	if m == nil {
		m = make(http.Header, len(head.Fields))
	}
	if len(head.Fields) == 0 {
		return m
	}
	var scratch [64]byte
	values := make([]string, 0, len(head.Fields))
	for i := range head.Fields {
		f := &head.Fields[i]
		name := h1.CanonicalName(append(scratch[:0], f.Name...))
		if own := m[name]; own != nil {
			m[name] = append(own, f.Value)
			continue
		}
		values = append(values, f.Value)
		m[name] = values[len(values)-1 : len(values) : len(values)]
	}
	return m
}
