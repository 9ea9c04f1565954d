package web

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/myriad-go/myriad/internal/h1"
)

// known is what a request has of the fields of a head that came lately. h1.Head tells when they come again: then neither are they
// read, nor is their text copied; only what a handler may change is made anew.
type known struct {
	text   string   // the field lines and the empty line; "": nothing is known
	host   string   // the request's Host
	names  []string // the keys of its Header
	values []string // a value for each
	length int      // of the text that came last and was not known

	line knownLine // a request line before these fields
	came int       // how long the last was that was not known
}

// A knownLine is what a request has of a request line whose target need not be decoded.
type knownLine struct{ text, target, path, query string }

const (
	// maxKnown is how many bytes of fields a lane may hold to know them again.
	maxKnown = 4 << 10
	// maxKnownFields is how many fields these are at most.
	maxKnownFields = 64
)

// comesAgain reports whether fields that are not known are worth learning: as many bytes have just come before, so these may be the
// same, while those that never come twice cost next to nothing.
func (k *known) comesAgain(text string) bool {
	again := len(text) == k.length && len(text) <= maxKnown
	k.length = len(text)
	return again
}

// learn remembers the fields of a head, which have the given text, and have become host and header.
func (k *known) learn(head *h1.Head, text, host string, header http.Header) {
	names, values := k.names[:0], k.values[:0]
	for i := range head.Fields {
		if name := h1.CanonicalName(head.Fields[i].Name); name != "Host" && name != "Transfer-Encoding" {
			names, values = append(names, name), append(values, header[name][0])
		}
	}
	once := len(names) == len(header) // each of them came
	if _, derives := header["Pragma"]; derives || !once || len(names) > maxKnownFields || !head.Remember(text) {
		head.Remember("")
		*k = known{length: k.length}
		return
	}
	k.text, k.host, k.names, k.values = text, host, names, values
}

// learnLine remembers a request line before fields that are known: text, of which the rest are parts.
func (k *known) learnLine(head *h1.Head, text, target string, u *url.URL) {
	again := len(text) == k.came && len(text) <= maxKnown && !u.ForceQuery
	if k.came = len(text); again {
		k.line = knownLine{text, target, u.Path, u.RawQuery}
		head.RememberLine(text)
	}
}

// header makes the Header of a request whose fields are known. m is an empty map to be used again, or nil.
func (k *known) header(m http.Header) http.Header {
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
