package web

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/myriad-go/myriad/internal/h1"
)

// newStream makes the exchange and its *http.Request out of a parsed head. raw is all of the head;
// what the request keeps is copied out of it in one piece. A status other than 0 is the answer to
// what cannot be served.
func newStream(h *conn, raw []byte, head *h1.Head) (x *h1stream, status int, reason string) {
	if head.ExpectNot {
		return nil, http.StatusExpectationFailed, ""
	}
	if max := h.lane.s.MaxBodyBytes; max > 0 && head.ContentLength > max {
		return nil, http.StatusRequestEntityTooLarge, ""
	}
	x = h.lane.obtain()
	x.h = h
	x.attach(x, &h.link)
	req := &x.given.request
	if head.LineCached {
		x.setCached(req)
	} else if err := x.setTexts(req, raw, head); err != nil {
		return nil, http.StatusBadRequest, "malformed request target"
	}
	req.Method = h1.Method(head.Method)
	req.Proto, req.ProtoMajor, req.ProtoMinor = protos[min(head.Minor, 1)], head.Major, head.Minor
	req.Header = x.fields
	req.Close = !head.KeepAlive
	if head.Minor > 1 || head.Major > 1 {
		req.Proto = "HTTP/" + strconv.Itoa(head.Major) + "." + strconv.Itoa(head.Minor)
	}
	if head.Form == h1.Absolute || head.Form == h1.Authority {
		req.Host = req.URL.Host // without percent-encoding
	}
	req.TLS = h.tlsState()
	x.sequel = sequelOf(head)
	x.setBody(req, head)
	x.out.noBody = req.Method == http.MethodHead
	if head.Major <= 1 && head.Minor == 0 {
		x.out.framing = framingPlain
	}
	x.enc.closeAfter = !head.KeepAlive
	h.blank, h.posted = 0, req.Method == http.MethodPost
	return x, 0, ""
}

func sequelOf(head *h1.Head) sequel {
	switch {
	case !head.KeepAlive:
		return sequelNone
	case head.Upgrade || head.Form == h1.Authority || head.Major > 1:
		return sequelOther
	}
	return sequelRequest
}

// setTexts fills in what the request has of its head's text, of which raw is all.
func (x *h1stream) setTexts(req *http.Request, raw []byte, head *h1.Head) error {
	ln := x.lane
	k := &ln.cache
	if head.FieldsCached {
		raw, x.rest = raw[:head.Section], k.text
	}
	text, address := ln.texts(x.given.ctx.link, raw)
	t := texts{raw, text}
	target := t.of(head.Target)
	u, err := x.parseTarget(target, head)
	if err != nil {
		return err
	}
	host := k.host
	if head.FieldsCached {
		x.fields = k.header(x.fields)
		if u == &x.given.url {
			k.putLine(head, text, target, u)
		}
	} else {
		host, x.fields = t.of(head.Host), t.header(head, x.fields)
		if section := text[head.Section:]; k.worthCaching(section) {
			k.put(head, section, host, x.fields)
		}
	}
	x.raw = text
	req.URL, req.Host, req.RequestURI, req.RemoteAddr = u, host, target, address
	return nil
}

// setCached fills the same in for a cached head.
func (x *h1stream) setCached(req *http.Request) {
	k := &x.lane.cache
	u := &x.given.url
	u.Path, u.RawQuery = k.line.path, k.line.query
	x.raw, x.rest, x.fields = k.line.text, k.text, k.header(x.fields)
	req.URL, req.Host, req.RequestURI, req.RemoteAddr = u, k.host, k.line.target, x.lane.addressOf(x.given.ctx.link)
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

// parseTarget fills in the exchange's URL. The usual path without escapes is taken apart here.
func (x *exchange) parseTarget(target string, head *h1.Head) (*url.URL, error) {
	if head.Form == h1.Origin && plainTarget(target) {
		path, query, has := strings.Cut(target, "?")
		u := &x.given.url
		u.Path, u.RawQuery, u.ForceQuery = path, query, has && query == ""
		return u, nil
	}
	if head.Form == h1.Authority { // CONNECT
		u, err := url.ParseRequestURI("http://" + target)
		if err == nil {
			u.Scheme = ""
		}
		return u, err
	}
	return url.ParseRequestURI(target)
}

// plainTarget reports whether url.ParseRequestURI would find nothing in target but a path and a
// query, each as written.
func plainTarget(target string) bool {
	if strings.HasPrefix(target, "//") {
		return false
	}
	for i := 0; i < len(target); i++ {
		switch c := target[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
		case c == '/' || c == '-' || c == '_' || c == '.' || c == '~':
		case c == '?':
			return plainQuery(target[i:])
		default:
			return false
		}
	}
	return true
}

func plainQuery(q string) bool {
	for i := 0; i < len(q); i++ {
		if c := q[i]; c <= ' ' || c == '#' || c >= 0x7f {
			return false
		}
	}
	return true
}

// setBody says how the request's body comes.
func (x *h1stream) setBody(req *http.Request, head *h1.Head) {
	switch {
	case head.Chunked:
		req.ContentLength = -1
		req.TransferEncoding = []string{"chunked"}
		req.Trailer = announcedTrailer(req.Header)
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
		body
		h1decoder
	}{}
	x.body, x.dec = &b.body, &b.h1decoder
	x.body.init(&x.exchange, req.ContentLength, head.Expect100)
	x.body.in.Reset(maxBodyBuffer, false)
	x.dec.body, x.dec.remaining = x.body, req.ContentLength
	req.Body = x.body
}

// announcedTrailer makes the trailer's keys known before it comes, as net/http does, but for those
// of framing. It takes maxFields at most: a trailer has no more fields, and the map of a list of a
// megabyte takes thirteen.
func announcedTrailer(h http.Header) http.Header {
	names, ok := h["Trailer"]
	if !ok {
		return nil
	}
	delete(h, "Trailer")
	trailer := http.Header{}
	for _, list := range names {
		for name := range strings.SplitSeq(list, ",") {
			switch name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)); name {
			case "", "Content-Length", "Trailer", "Transfer-Encoding":
			default:
				if len(trailer) < maxFields {
					trailer[name] = nil
				}
			}
		}
	}
	if len(trailer) == 0 {
		return nil
	}
	return trailer
}

// A headCache is what a request has of the fields of a recent head. When h1.Head finds the same
// bytes again, they are neither parsed nor copied: only what a handler may change is made anew. For
// a small request that is a quarter of the time of BenchmarkServe, and for a browser as well.
type headCache struct {
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
	maxCachedBytes = 4 << 10
	// maxCachedFields bounds their number.
	maxCachedFields = 64
)

// worthCaching reports whether fields that are not cached should be: the fields before them had as
// many bytes, so they may be the same. Fields that never repeat cost next to nothing this way.
func (k *headCache) worthCaching(text string) bool {
	worth := len(text) == k.missed && len(text) <= maxCachedBytes
	k.missed = len(text)
	return worth
}

// put caches the fields of a head, which have the given text, and have become host and header.
func (k *headCache) put(head *h1.Head, text, host string, header http.Header) {
	names, values := k.names[:0], k.values[:0]
	for i := range head.Fields {
		if name := h1.CanonicalName(head.Fields[i].Name); name != "Host" && name != "Transfer-Encoding" {
			names, values = append(names, name), append(values, header[name][0])
		}
	}
	once := len(names) == len(header) // no name repeats
	if _, derives := header["Pragma"]; derives || !once || len(names) > maxCachedFields || !head.CacheFields(text) {
		head.CacheFields("")
		*k = headCache{missed: k.missed}
		return
	}
	k.text, k.host, k.names, k.values = text, host, names, values
}

// putLine caches a request line before cached fields: text, which the other strings are parts of.
func (k *headCache) putLine(head *h1.Head, text, target string, u *url.URL) {
	worth := len(text) == k.lineMissed && len(text) <= maxCachedBytes && !u.ForceQuery
	if k.lineMissed = len(text); worth {
		k.line = cachedLine{text, target, u.Path, u.RawQuery}
		head.CacheLine(text)
	}
}

// header makes the Header of a request whose fields are cached. m is an empty map to be used again,
// or nil.
func (k *headCache) header(m http.Header) http.Header {
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
