package web

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
)

const (
	// headRoom is what a usual answer's head takes, and often its body too.
	headRoom = 512
	// framingRoom is kept free behind the handler's fields for those that the server adds: a date,
	// a type, a length or coding, keep-alive or close, and the size of a first chunk.
	framingRoom = 192
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

// fixFields encodes status and fields as they are now: later changes to the map mean trailers only.
func (w *response) fixFields() {
	if w.front == nil {
		w.front = w.x.lane.st.front()
	}
	p := h1.AppendStatusLine(w.front[:0], w.minor, w.status)
	if usual, only := w.usual(); only {
		for i := range usual {
			if f := &usual[i]; f.set {
				p = w.appendOwn(p, usualNames[i], f.values)
			}
		}
	} else {
		w.announce(w.header["Trailer"])
		w.coding = codingOf(w.header["Transfer-Encoding"])
		var few [fewNames]string
		for _, name := range w.names(few[:0]) {
			p = w.appendOwn(p, name, w.header[name])
		}
	}
	if w.fields = len(p); w.fields > len(w.front) {
		w.front = append(p, make([]byte, headRoom)...)
	}
}

// usual finds those of the header's fields that are usual, and reports whether there are no others.
// It does not look for more than there are.
func (w *response) usual() (found usualFields, only bool) {
	left := len(w.header)
	for i := len(usualNames) - 1; i >= 0 && 0 < left && left <= i+1; i-- {
		if values, ok := w.header[usualNames[i]]; ok {
			found[i].values, found[i].set = values, true
			left--
		}
	}
	return found, left == 0
}

// names appends the header's keys to dst, in order, so that the same answer has the same bytes.
func (w *response) names(dst []string) []string {
	for name := range w.header {
		dst = append(dst, name)
	}
	if len(dst) > 1 {
		slices.Sort(dst)
	}
	return dst
}

// appendOwn appends a field of the handler's, unless that says how the answer is framed and the
// server finds other words for it.
func (w *response) appendOwn(p []byte, name string, values []string) []byte {
	if w.special(name, values) {
		return p
	}
	return appendFields(p, name, values)
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

// special handles the fields that say how the answer is framed, and reports whether the field is
// not to be copied.
func (w *response) special(name string, values []string) bool {
	switch name {
	case "Content-Length":
		return w.declareLength(values)
	case "Transfer-Encoding":
		return w.coding != codingOther || w.noBody || !bodyAllowed(w.status) || w.minor == 0
	case "Connection":
		if values == nil {
			values = []string{}
		}
		w.tell().connection = values // whether it can stand is known when the head is sent
		return true
	case "Date":
		w.gotDate = true
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
	w.gotLength = true
	if len(values) == 0 || values[0] == "" {
		return true
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	switch {
	case err != nil || n < 0:
		w.gotLength = false
		delete(w.header, "Content-Length")
		w.x.lane.s.logf("http: invalid Content-Length of %q", values[0])
		return true
	case w.coding != codingNone && w.coding != codingIdentity:
		w.x.lane.s.logf("http: WriteHeader called with both Transfer-Encoding of %q and a Content-Length of %d",
			w.header.Get("Transfer-Encoding"), n)
		return true
	case !bodyAllowed(w.status):
		return true
	}
	w.length = n
	return false
}

func (w *response) tell() *said {
	if w.said == nil {
		w.said = new(said)
	}
	return w.said
}

func (w *response) announce(values []string) {
	for _, list := range values {
		w.tell().trails = true
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if httpguts.ValidTrailerHeader(name) {
				w.tell().trailers = append(w.tell().trailers, name)
			}
		}
	}
}

// bodyAllowed is RFC 9110 section 6.4.1.
func bodyAllowed(status int) bool { return status >= 200 && status != 204 && status != 304 }

// sendHead decides how the answer is framed and sends its head with what has been gathered. last:
// nothing follows. next is what the handler writes on top of what has been gathered.
func (w *response) sendHead(next []byte, last bool) error {
	w.sentHead = true
	w.frame()
	defer w.drop()
	first, front := w.gathered(), w.front
	// of the head where it is; if it is longer, append has moved it
	limit := min(w.fields+framingRoom-chunkRoom, len(front))
	p := append(w.appendFraming(front[:w.fields:limit], first, next), "\r\n"...)
	switch need := len(p) + len(first) + chunkRoom; {
	case need > len(front):
		b := buf.Get(need)
		defer b.Release()
		p = append(b.Extend()[:0], p...)
	case len(p) <= limit:
		p = front[:len(p)] // with all that is behind it: first is there, and moves up
	}
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
	return w.send(p)
}

func (w *response) drop() {
	w.beside = 0
	w.dropPending()
}

// findLength is for an answer that is whole: it has the length that was written, unless the handler
// has said otherwise.
func (w *response) findLength() {
	if !w.gotLength && w.coding == codingNone && !w.said.hasTrailer() && (w.minor == 0 || !w.hasPrefixed()) &&
		bodyAllowed(w.status) && (!w.noBody || w.written > 0) {
		w.length = w.written
	}
}

// frame chooses between Content-Length, chunks, and the end of the connection (RFC 9112 section 6).
func (w *response) frame() {
	w.closeAfter = w.ends() || w.x.body.blocksReuse(w.over, w.duplex)
	switch {
	case !w.needsFrame():
	case w.minor == 1 && w.coding != codingIdentity:
		w.chunked = true
	default:
		w.closeAfter = true
	}
}

// needsFrame reports whether nothing says yet where the answer's body ends.
func (w *response) needsFrame() bool { return bodyAllowed(w.status) && !w.noBody && w.length < 0 }

// ends reports whether the connection ends with the answer, however its request's body does.
func (w *response) ends() bool {
	return w.closeAfter || w.x.endsConn() || w.minor == 0 && w.needsFrame() ||
		httpguts.HeaderValuesContainsToken(w.said.ofConnection(), "close") ||
		w.status == http.StatusRequestEntityTooLarge && w.x.body.halfRead()
}

// appendFraming adds the fields that the server answers for.
func (w *response) appendFraming(p, first, next []byte) []byte {
	if !w.gotDate {
		p = append(append(append(p, "Date: "...), w.x.date()...), "\r\n"...)
	}
	if bodyAllowed(w.status) && !w.gotType && w.coding == codingNone && len(first)+len(next) > 0 {
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

// appendConnection sends the handler's Connection field, unless the connection ends and the field
// does not say so. A switch of protocols needs its "Upgrade" in any case (RFC 9110 section 7.8).
func (w *response) appendConnection(p []byte) []byte {
	own := w.said.ofConnection()
	switching := w.status == http.StatusSwitchingProtocols && w.header.Get("Upgrade") != "" &&
		httpguts.HeaderValuesContainsToken(own, "upgrade")
	switch {
	case len(own) > 0 && (switching || !w.closeAfter || httpguts.HeaderValuesContainsToken(own, "close")):
		return appendFields(p, "Connection", own)
	case w.closeAfter && w.minor == 1:
		return append(p, "Connection: close\r\n"...)
	case !w.closeAfter && w.keepAlive10 && own == nil:
		return append(p, "Connection: keep-alive\r\n"...)
	}
	return p
}

// hasPrefixed reports whether the handler has set a trailer that it did not announce.
func (w *response) hasPrefixed() bool {
	if _, only := w.usual(); only {
		return false
	}
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// appendTrailer adds the trailer section: the fields that were announced, and those with
// http.TrailerPrefix.
func (w *response) appendTrailer(p []byte) []byte {
	for _, name := range w.names(nil) {
		key, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
		if prefixed || slices.Contains(w.said.announced(), name) {
			p = appendFields(p, key, w.header[name])
		}
	}
	return append(p, "\r\n"...)
}
