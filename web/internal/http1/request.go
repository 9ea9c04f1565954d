package http1

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// newStream makes the exchange and its *http.Request out of a parsed head. raw is all of the head;
// what the request keeps is copied out of it in one piece. A status other than 0 is the answer to
// what cannot be served.
func newStream(h *Conn, raw []byte, head *h1.Head) (x *Stream, status int, reason string) {
	if head.ExpectNot {
		return nil, http.StatusExpectationFailed, ""
	}
	if max := h.Lane.Server.MaxBodyBytes; max > 0 && head.ContentLength > max {
		return nil, http.StatusRequestEntityTooLarge, ""
	}
	x = h.Own.obtain()
	x.H = h
	x.Attach(x, &h.Link)
	req := &x.Given.Request
	if head.LineCached {
		x.setCached(req)
	} else if err := x.setTexts(req, raw, head); err != nil {
		return nil, http.StatusBadRequest, "malformed request target"
	}
	req.Method = h1.Method(head.Method)
	req.Proto, req.ProtoMajor, req.ProtoMinor = protos[min(head.Minor, 1)], head.Major, head.Minor
	req.Header = x.Fields
	req.Close = !head.KeepAlive
	if head.Minor > 1 || head.Major > 1 {
		req.Proto = "HTTP/" + strconv.Itoa(head.Major) + "." + strconv.Itoa(head.Minor)
	}
	if head.Form == h1.Absolute || head.Form == h1.Authority {
		req.Host = req.URL.Host // without percent-encoding
	}
	if h.Secure {
		req.TLS = h.TLSState()
	}
	switch {
	case !head.KeepAlive:
		x.sequel = sequelNone
	case head.Upgrade || head.Form == h1.Authority || head.Major > 1:
		x.sequel = sequelOther
	}
	x.setBody(req, head)
	x.Out.NoBody = req.Method == http.MethodHead
	x.enc.minor = 1
	if head.Major <= 1 && head.Minor == 0 {
		x.enc.minor, x.Out.Framing = 0, exchange.FramingPlain
	}
	x.enc.closeAfter = !head.KeepAlive
	h.blank, h.posted = 0, req.Method == http.MethodPost
	return x, 0, ""
}

// setTexts fills in what the request has of its head's text, of which raw is all.
func (x *Stream) setTexts(req *http.Request, raw []byte, head *h1.Head) error {
	ln := x.Lane
	k := &x.H.Own.cache
	if head.FieldsCached {
		raw, x.rest = raw[:head.Section], k.text
	}
	text, address := ln.Texts(x.Given.Ctx.Link, raw)
	t := texts{raw, text}
	target := t.of(head.Target)
	u, err := x.ParseTarget(target, head)
	if err != nil {
		return err
	}
	host := k.host
	if head.FieldsCached {
		x.Fields = k.header(x.Fields)
		if u == &x.Given.URL {
			k.putLine(head, text, target, u)
		}
	} else {
		host, x.Fields = t.of(head.Host), t.header(head, x.Fields)
		if section := text[head.Section:]; k.WorthCaching(section) {
			k.put(head, section, host, x.Fields)
		}
	}
	x.raw = text
	req.URL, req.Host, req.RequestURI, req.RemoteAddr = u, host, target, address
	return nil
}

// setCached fills the same in for a cached head.
func (x *Stream) setCached(req *http.Request) {
	k := &x.H.Own.cache
	u := &x.Given.URL
	u.Path, u.RawQuery = k.line.path, k.line.query
	x.raw, x.rest, x.Fields = k.line.text, k.text, k.header(x.Fields)
	req.URL, req.Host, req.RequestURI, req.RemoteAddr = u, k.host, k.line.target, x.Lane.AddressOf(x.Given.Ctx.Link)
}

var protos = [...]string{"HTTP/1.0", "HTTP/1.1"}

// texts turns views of the head into substrings of its one copy.
type texts struct {
	raw  []byte
	copy string
}

// of finds the substring for a view by its distance from the end of raw's capacity, which both
// share.
func (t texts) of(view []byte) string {
	if len(view) == 0 {
		return ""
	}
	off := cap(t.raw) - cap(view)
	if off < 0 || off+len(view) > len(t.copy) || t.copy[off:off+len(view)] != string(view) {
		return string(view) // not a view of raw, or one with its capacity cut
	}
	return t.copy[off : off+len(view)]
}

// header makes the map; all values share one slice. m is an empty map to be used again, or nil.
func (t texts) header(head *h1.Head, m http.Header) http.Header {
	kept := len(head.Fields)
	if kept > 0 && len(head.Host) > 0 {
		kept-- // most often the Host field is one of them
	}
	if m == nil {
		m = make(http.Header, kept)
	}
	var values []string
	if kept > 0 {
		values = make([]string, 0, kept)
	}
	for i := range head.Fields {
		f := &head.Fields[i]
		name := h1.CanonicalName(f.Name)
		if name == "Host" || name == "Transfer-Encoding" || name == "Content-Length" && m[name] != nil {
			continue
		}
		if have, ok := m[name]; ok {
			m[name] = append(have, t.of(f.Value))
			continue
		}
		n := len(values)
		values = append(values, t.of(f.Value))
		m[name] = values[n : n+1 : n+1]
	}
	if p := m["Pragma"]; len(p) > 0 && p[0] == "no-cache" && m["Cache-Control"] == nil {
		m["Cache-Control"] = []string{"no-cache"} // as net/http does for RFC 9111 section 5.4
	}
	return m
}

// setBody says how the request's body comes.
func (x *Stream) setBody(req *http.Request, head *h1.Head) {
	switch {
	case head.Chunked:
		req.ContentLength = -1
		req.TransferEncoding = []string{"chunked"}
		req.Trailer = exchange.AnnouncedTrailer(req.Header)
	case head.ContentLength > 0:
		req.ContentLength = head.ContentLength
	default:
		if head.Major > 1 {
			req.ContentLength = -1 // as net/http says of the preface
		}
		req.Body = http.NoBody
		return
	}
	b := &struct { // in one piece
		exchange.Body
		Decoder
	}{}
	x.Body, x.dec = &b.Body, &b.Decoder
	x.Body.Init(&x.Exchange, req.ContentLength, head.Expect100)
	x.Body.In.Reset(exchange.MaxBodyBuffer, false)
	x.dec.body, x.dec.remaining = x.Body, req.ContentLength
	req.Body = x.Body
}

// A HeadCache is what a request has of the fields of a recent head. When h1.Head finds the same
// bytes again, they are neither parsed nor copied: only what a handler may change is made anew.
// Without it BenchmarkServe/small takes 15 % longer and BenchmarkServe/browser half as long again;
// BenchmarkServe/browsers, whose fields do not repeat, takes the same.
type HeadCache struct {
	text   string   // the field lines and the empty line; "": the cache is empty
	host   string   // the request's Host
	names  []string // the keys of its Header
	values []string // a value for each
	missed int      // length of the last text that was not cached

	line       cachedLine // a request line before these fields
	lineMissed int        // length of the last line that was not cached
}

// A cachedLine is what a request has of a request line whose target need not be decoded.
type cachedLine struct{ text, target, path, query string }

const (
	// maxCachedBytes bounds the fields that a lane caches, in bytes.
	MaxCachedBytes = 4 << 10
	// maxCachedFields bounds their number.
	MaxCachedFields = 64
)

// WorthCaching reports whether fields that are not cached should be: the fields before them had as
// many bytes, so they may be the same. Fields that never repeat cost next to nothing this way.
func (k *HeadCache) WorthCaching(text string) bool {
	worth := len(text) == k.missed && len(text) <= MaxCachedBytes
	k.missed = len(text)
	return worth
}

// put caches the fields of a head, which have the given text, and have become host and header.
func (k *HeadCache) put(head *h1.Head, text, host string, header http.Header) {
	names, values := k.names[:0], k.values[:0]
	for i := range head.Fields {
		if name := h1.CanonicalName(head.Fields[i].Name); name != "Host" && name != "Transfer-Encoding" {
			names, values = append(names, name), append(values, header[name][0])
		}
	}
	once := len(names) == len(header) // no name repeats
	if _, derives := header["Pragma"]; derives || !once || len(names) > MaxCachedFields || !head.CacheFields(text) {
		head.CacheFields("")
		*k = HeadCache{missed: k.missed}
		return
	}
	k.text, k.host, k.names, k.values = text, host, names, values
}

// putLine caches a request line before cached fields: text, which the other strings are parts of.
func (k *HeadCache) putLine(head *h1.Head, text, target string, u *url.URL) {
	worth := len(text) == k.lineMissed && len(text) <= MaxCachedBytes && !u.ForceQuery
	if k.lineMissed = len(text); worth {
		k.line = cachedLine{text, target, u.Path, u.RawQuery}
		head.CacheLine(text)
	}
}

// header makes the Header of a request whose fields are cached. m is an empty map to be used again,
// or nil.
func (k *HeadCache) header(m http.Header) http.Header {
	if m == nil {
		m = make(http.Header, len(k.names))
	}
	if len(k.names) == 0 {
		return m
	}
	values := slices.Clone(k.values)
	for i, name := range k.names {
		m[name] = values[i : i+1 : i+1]
	}
	return m
}
