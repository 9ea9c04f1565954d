package web

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/myriad-go/myriad/internal/h1"
)

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
