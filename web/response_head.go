package web

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/web/internal/h1"
)

// headRoom is what a usual answer's head takes.
const headRoom = 512

// fixFields encodes status and fields as they are now: later changes to the map mean trailers only.
func (w *response) fixFields() {
	w.fields = buf.Get(headRoom)
	p := h1.AppendStatusLine(w.fields.Extend()[:0], w.minor, w.status)
	if len(w.header) > 0 {
		w.announce(w.header["Trailer"])
		w.coding = codingOf(w.header["Transfer-Encoding"])
		for _, name := range w.names() {
			if values := w.header[name]; !w.special(name, values) {
				p = appendFields(p, name, values)
			}
		}
	}
	if len(p) <= w.fields.Cap() {
		w.fields.Commit(len(p))
		return
	}
	w.fields.Release()
	w.fields = buf.Get(len(p) + headRoom)
	w.fields.Append(p)
}

// names are the header's keys in order, so that the same answer has the same bytes.
func (w *response) names() []string {
	if len(w.header) == 0 {
		return nil
	}
	names := make([]string, 0, len(w.header))
	for name := range w.header {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func appendFields(p []byte, name string, values []string) []byte {
	for _, v := range values {
		p = h1.AppendField(p, name, v)
	}
	return p
}

func codingOf(values []string) coding {
	switch {
	case len(values) == 0 || values[0] == "":
		return codingNone
	case values[0] == "chunked":
		return codingChunked
	case values[0] == "identity":
		return codingIdentity
	}
	return codingOther
}

// special handles the fields that say how the answer is framed, and reports whether the field is not to be copied.
func (w *response) special(name string, values []string) bool {
	switch name {
	case "Content-Length":
		return w.declareLength(values)
	case "Transfer-Encoding":
		return w.coding != codingOther || w.noBody || !bodyAllowed(w.status) || w.minor == 0
	case "Connection":
		w.connection = values // whether it can stand is known when the head is sent
		return true
	case "Date":
		w.gotDate = true
	case "Content-Type":
		w.gotType = true
		return w.status == http.StatusNotModified // it would describe a body that is not there (RFC 9110 section 15.4.5)
	case "Content-Encoding":
		w.gotType = w.gotType || len(values) > 0 && values[0] != ""
	}
	return strings.HasPrefix(name, http.TrailerPrefix)
}

// declareLength takes the handler's Content-Length in. A key without a value keeps the server from finding one out. The field
// is copied as the handler wrote it.
func (w *response) declareLength(values []string) (skip bool) {
	w.gotLength = true
	if len(values) == 0 || values[0] == "" {
		return true
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	switch {
	case err != nil || n < 0:
		w.gotLength = false
		w.x.lane.s.logf("http: invalid Content-Length of %q", values[0])
		return true
	case !bodyAllowed(w.status):
		return true
	case w.coding != codingNone && w.coding != codingIdentity:
		w.x.lane.s.logf("http: WriteHeader called with both Transfer-Encoding of %q and a Content-Length of %d",
			w.header.Get("Transfer-Encoding"), n)
		return true
	}
	w.length = n
	return false
}

func (w *response) announce(values []string) {
	for _, list := range values {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if httpguts.ValidTrailerHeader(name) {
				w.trailers = append(w.trailers, name)
			}
		}
	}
}

// bodyAllowed is RFC 9110 section 6.4.1.
func bodyAllowed(status int) bool { return status >= 200 && status != 204 && status != 304 }

// sendHead decides how the answer is framed and sends its head with what has been gathered. last: nothing follows.
// next is what the handler writes on top of what has been gathered.
func (w *response) sendHead(next []byte, last bool) error {
	w.sentHead = true
	var first []byte
	if w.pending != nil {
		first = w.pending.Bytes()
	}
	w.frame(last)
	b := buf.Get(w.fields.Len() + headRoom + len(first))
	defer b.Release()
	p := append(b.Extend()[:0], w.fields.Bytes()...)
	p = w.appendFraming(p, first, next)
	p = append(p, "\r\n"...)
	switch {
	case w.noBody:
	case w.chunked:
		p = h1.AppendChunk(p, first)
		if last {
			p = w.appendTrailer(append(p, h1.LastChunk...))
		}
	default:
		p = append(p, first...)
	}
	w.drop()
	return w.send(p)
}

func (w *response) drop() {
	if w.fields != nil {
		w.fields.Release()
		w.fields = nil
	}
	w.dropPending()
}

// frame chooses between Content-Length, chunks, and the end of the connection (RFC 9112 section 6).
func (w *response) frame(last bool) {
	if last && !w.gotLength && w.coding == codingNone && len(w.trailers) == 0 && !w.hasPrefixed() && bodyAllowed(w.status) && (!w.noBody || w.written > 0) {
		w.length = w.written
	}
	w.closeAfter = w.closeAfter || w.x.lane.s.noAlive.Load() || w.x.body.blocksReuse(w.over) ||
		len(w.connection) > 0 && httpguts.HeaderValuesContainsToken(w.connection, "close") ||
		w.status == http.StatusRequestEntityTooLarge && !w.x.body.complete()
	switch {
	case !bodyAllowed(w.status) || w.noBody || w.length >= 0:
	case w.minor == 1 && w.coding != codingIdentity:
		w.chunked = true
	default:
		w.closeAfter = true
	}
}

// appendFraming adds the fields that the server answers for.
func (w *response) appendFraming(p, first, next []byte) []byte {
	if !w.gotDate {
		p = h1.AppendField(p, "Date", w.x.lane.st.clock.date(w.x.lane.st.engine.System().Now()))
	}
	if bodyAllowed(w.status) && !w.gotType && w.coding == codingNone && w.written > 0 {
		p = append(append(append(p, "Content-Type: "...), sniff(first, next)...), "\r\n"...)
	}
	switch {
	case w.chunked:
		p = append(p, "Transfer-Encoding: chunked\r\n"...)
	case w.length >= 0 && !w.gotLength:
		p = h1.AppendLength(p, w.length)
	}
	return w.appendConnection(p)
}

// appendConnection sends the handler's Connection field, unless the connection ends and the field does not say so. A
// switch of protocols needs its "Upgrade" in any case (RFC 9110 section 7.8).
func (w *response) appendConnection(p []byte) []byte {
	own := len(w.connection) > 0
	switching := w.status == http.StatusSwitchingProtocols && len(w.header["Upgrade"]) > 0
	switch {
	case own && (switching || !w.closeAfter || httpguts.HeaderValuesContainsToken(w.connection, "close")):
		return appendFields(p, "Connection", w.connection)
	case w.closeAfter && w.minor == 1:
		return append(p, "Connection: close\r\n"...)
	case !w.closeAfter && w.keepAlive10:
		return append(p, "Connection: keep-alive\r\n"...)
	}
	return p
}

// hasPrefixed reports whether the handler has set a trailer that it did not announce.
func (w *response) hasPrefixed() bool {
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// appendTrailer adds the trailer section: the fields that were announced, and those with http.TrailerPrefix.
func (w *response) appendTrailer(p []byte) []byte {
	for _, name := range w.names() {
		key, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
		if prefixed || slices.Contains(w.trailers, name) {
			p = appendFields(p, key, w.header[name])
		}
	}
	return append(p, "\r\n"...)
}
