package web

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const (
	// fewNames is how many fields a usual answer has at most.
	fewNames = 12
)

// usualNames are the fields that most answers have, and no others, in order: to look them up costs
// less than to iterate over the map.
var usualNames = [...]string{"Content-Length", "Content-Type"}

// usualFields are the values of usualNames.
type usualFields [len(usualNames)]struct {
	values []string
	set    bool
}

// A fieldCoder appends fields in the words of a version of HTTP.
type fieldCoder struct {
	field  func(p []byte, name, value string) []byte
	length func(p []byte, n int64) []byte // Content-Length
}

// header is what the handler has set, nil if that is nothing.
func (w *response) header() http.Header { return w.x.given.header }

// appendHeader appends the header's fields as they are now, for a carrier's snapshot: later changes
// to the map mean trailers only. It takes in what they say of the answer's framing.
func (w *response) appendHeader(p []byte, code *fieldCoder) []byte {
	if usual, only := w.usual(); only {
		for i := range usual {
			if f := &usual[i]; f.set {
				p = w.appendOwn(p, code, usualNames[i], f.values)
			}
		}
		return p
	}
	header := w.header()
	w.announce(header["Trailer"])
	if values, ok := header["Transfer-Encoding"]; ok {
		w.tell().coding = w.x.carrier.coding(values)
	}
	var few [fewNames]string
	for _, name := range w.names(few[:0]) {
		p = w.appendOwn(p, code, name, header[name])
	}
	return p
}

// appendInterim appends the header's fields for an informational answer.
func (w *response) appendInterim(p []byte, code *fieldCoder) []byte {
	header := w.header()
	for _, name := range w.names(nil) {
		if name != "Content-Length" && name != "Transfer-Encoding" {
			p = code.append(p, name, header[name])
		}
	}
	return p
}

// usual finds those of the header's fields that are usual, and reports whether there are no others.
// It does not look for more than there are.
func (w *response) usual() (found usualFields, only bool) {
	header := w.header()
	left := len(header)
	for i := len(usualNames) - 1; i >= 0 && 0 < left && left <= i+1; i-- {
		if values, ok := header[usualNames[i]]; ok {
			found[i].values, found[i].set = values, true
			left--
		}
	}
	return found, left == 0
}

// names appends the header's keys to dst, in order, so that the same answer has the same bytes.
func (w *response) names(dst []string) []string {
	for name := range w.header() {
		dst = append(dst, name)
	}
	if len(dst) > 1 {
		slices.Sort(dst)
	}
	return dst
}

// appendOwn appends a field of the handler's, unless that says how the answer is framed and the
// server finds other words for it.
func (w *response) appendOwn(p []byte, code *fieldCoder, name string, values []string) []byte {
	if w.special(name, values) {
		return p
	}
	return code.append(p, name, values)
}

func (code *fieldCoder) append(p []byte, name string, values []string) []byte {
	for _, v := range values {
		p = code.field(p, name, v)
	}
	return p
}

// special handles the fields that say how the answer is framed, and reports whether the field is
// not to be copied.
func (w *response) special(name string, values []string) bool {
	switch name {
	case "Content-Length":
		return w.declareLength(values)
	case "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Upgrade":
		return w.x.carrier.ownField(name, values)
	case "Date":
		w.tell().dated = true
	case "Content-Type":
		w.gotType = true
		// it would describe a body that is not there (RFC 9110 section 15.4.5)
		return w.status == http.StatusNotModified
	case "Content-Encoding":
		w.gotType = w.gotType || len(values) > 0 && values[0] != ""
	}
	return strings.HasPrefix(name, http.TrailerPrefix)
}

// declareLength takes the handler's Content-Length in. A key without a value keeps the server from
// finding one out. The field is copied as the handler wrote it.
func (w *response) declareLength(values []string) (skip bool) {
	w.extent = extentWithheld
	if len(values) == 0 || values[0] == "" {
		return true
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	switch {
	case err != nil || n < 0:
		w.extent = extentOpen
		delete(w.header(), "Content-Length")
		w.x.lane.s.logf("http: invalid Content-Length of %q", values[0])
		return true
	case w.words().coding != codingNone && w.words().coding != codingIdentity:
		w.x.lane.s.logf("http: WriteHeader called with both Transfer-Encoding of %q and a Content-Length of %d",
			w.header().Get("Transfer-Encoding"), n)
		return true
	case !bodyAllowed(w.status):
		return true
	}
	w.extent, w.length = extentDeclared, n
	return false
}

func (w *response) announce(values []string) {
	if len(values) == 0 {
		return
	}
	said := w.tell()
	said.trails = true
	said.trailers = slices.Grow(said.trailers, len(values))
	for _, list := range values {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if httpguts.ValidTrailerHeader(name) {
				said.trailers = append(said.trailers, name)
			}
		}
	}
}

// bodyAllowed is RFC 9110 section 6.4.1.
func bodyAllowed(status int) bool { return status >= 200 && status != 204 && status != 304 }

// sendHead sends the head with what has been gathered. last: nothing follows. next is what the
// handler writes on top of what has been gathered.
func (w *response) sendHead(next []byte, last bool) error {
	w.head = headSent
	defer w.drop()
	return w.x.carrier.head(next, last)
}

func (w *response) drop() {
	w.near = nil
	w.dropPending()
}

// findLength is for an answer that is whole: it has the length that was written, unless the handler
// has said otherwise.
func (w *response) findLength() {
	if w.extent == extentOpen && w.words().coding == codingNone && !w.trailersNeedChunks() &&
		bodyAllowed(w.status) && (!w.noBody || w.written > 0) {
		w.extent, w.length = extentFound, w.written
	}
}

// trailersNeedChunks reports whether trailers follow that would be lost behind a Content-Length.
func (w *response) trailersNeedChunks() bool {
	switch w.framing {
	case framingStream:
		return false
	case framingPlain:
		return w.words().trails
	}
	return w.words().trails || w.hasPrefixed()
}

// needsFrame reports whether nothing says yet where the answer's body ends.
func (w *response) needsFrame() bool { return bodyAllowed(w.status) && !w.noBody && !w.extent.known() }

// appendDecided appends the fields that the server finds out: the date, the type of a body that
// begins with first and next, its length.
func (w *response) appendDecided(p []byte, code *fieldCoder, first, next []byte) []byte {
	if !w.words().dated {
		p = code.field(p, "Date", w.x.date())
	}
	if bodyAllowed(w.status) && !w.gotType && w.words().coding == codingNone && len(first)+len(next) > 0 {
		p = code.field(p, "Content-Type", sniff(first, next))
	}
	if w.extent == extentFound {
		p = code.length(p, w.length)
	}
	return p
}

// hasPrefixed reports whether the handler has set a trailer that it did not announce.
func (w *response) hasPrefixed() bool {
	if _, only := w.usual(); only {
		return false
	}
	for name := range w.header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// appendTrailer appends the fields of the trailer section: those that were announced, and those
// with http.TrailerPrefix.
func (w *response) appendTrailer(p []byte, code *fieldCoder) []byte {
	if _, only := w.usual(); only {
		return p
	}
	header := w.header()
	var few [fewNames]string
	for _, name := range w.names(few[:0]) {
		key, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
		if prefixed || slices.Contains(w.words().trailers, name) {
			p = code.append(p, key, header[name])
		}
	}
	return p
}
