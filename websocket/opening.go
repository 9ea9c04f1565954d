package websocket

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/myriad-go/myriad/internal/h1"
)

// An opening is what the opening handshake depends on of a request: strings from net/http, bytes
// from a raw connection.
type opening[T text] struct {
	connect    bool // an extended CONNECT of HTTP/2 (RFC 8441)
	protocol   T    // its :protocol
	get        bool
	http11     bool
	upgrade    bool
	connection bool
	body       bool
	keys       int
	versions   int
	origins    int
	host       T
	key        T
	version    T
	origin     T
	choosing   bool     // the server has subprotocols
	offered    []string // header lines, if choosing
	packing    deflatePolicy
	terms      deflateTerms // of the first acceptable offer, if packing is on
	malformed  bool         // an Extensions line
}

// extensions takes a line of Sec-WebSocket-Extensions.
func (o *opening[T]) extensions(line T) {
	if !o.packing.on {
		return
	}
	terms, wellFormed := accept(line, o.packing)
	if !o.terms.agreed {
		o.terms = terms
	}
	o.malformed = o.malformed || !wellFormed
}

// A refusal is the answer to a request that cannot be upgraded, and the error that says so.
type refusal struct {
	status int
	extra  string // header lines
	text   string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("websocket: handshake refused with status %d: %s", r.status, r.text)
}

const (
	upgradeLines = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
	versionLine  = "Sec-WebSocket-Version: " + protocolVersion + "\r\n"
)

// check is what RFC 6455 §4.2.1 and §4.2.2 have a server look at. It returns nil for a request to
// be upgraded.
//
// https://www.rfc-editor.org/rfc/rfc6455#section-4.2.1
func check[T text](o *opening[T]) *refusal {
	switch {
	case o.connect:
		return checkConnect(o)
	case !o.get:
		return &refusal{http.StatusMethodNotAllowed, "Allow: GET\r\n", "a WebSocket is opened with GET"}
	case !o.http11:
		return &refusal{http.StatusUpgradeRequired, upgradeLines, "a WebSocket is opened with HTTP/1.1"}
	case !o.upgrade || !o.connection:
		return &refusal{http.StatusUpgradeRequired, upgradeLines,
			"this address speaks WebSocket: send Upgrade: websocket and Connection: Upgrade"}
	case len(o.host) == 0:
		return &refusal{http.StatusBadRequest, "", "the request needs a Host"}
	case o.body:
		return &refusal{http.StatusBadRequest, "", "the request has a body"}
	case o.versions != 1 || string(o.version) != protocolVersion:
		return &refusal{http.StatusUpgradeRequired, versionLine, "Sec-WebSocket-Version must be 13"}
	case o.keys != 1 || !validKey(o.key):
		return &refusal{http.StatusBadRequest, "", "the request needs one Sec-WebSocket-Key of 16 bytes in base64"}
	}
	return checkFields(o)
}

// checkConnect is what RFC 8441 §5 leaves of that: HTTP/2 itself says what the upgrade says in
// HTTP/1.1.
//
// https://www.rfc-editor.org/rfc/rfc8441#section-5
func checkConnect[T text](o *opening[T]) *refusal {
	switch {
	case string(o.protocol) != "websocket":
		return &refusal{http.StatusNotImplemented, "", "the only :protocol here is websocket"}
	case len(o.host) == 0:
		return &refusal{http.StatusBadRequest, "", "the request needs an :authority"}
	case o.body:
		return &refusal{http.StatusBadRequest, "", "the stream has ended already"}
	case o.versions != 1 || string(o.version) != protocolVersion:
		return &refusal{http.StatusBadRequest, versionLine, "Sec-WebSocket-Version must be 13"}
	}
	return checkFields(o)
}

func checkFields[T text](o *opening[T]) *refusal {
	switch {
	case o.malformed:
		return &refusal{http.StatusBadRequest, "", "Sec-WebSocket-Extensions is malformed"}
	case o.origins > 1:
		return &refusal{http.StatusBadRequest, "", "the request has several Origins"}
	}
	return nil
}

// checkOrigin is the last check: Options.CheckOrigin's, or that of the host and
// Options.OriginPatterns.
func checkOrigin[T text](s *settings, o *opening[T], request func() *http.Request) *refusal {
	allowed := true
	switch {
	case s.checkOrigin != nil:
		r := request()
		allowed = r != nil && s.checkOrigin(r)
	case o.origins == 1 && !sameOrigin(o.origin, o.host):
		allowed = originAllowed(string(o.origin), string(o.host), s.originPatterns)
	}
	if !allowed {
		return &refusal{http.StatusForbidden, "", "pages from this origin may not connect"}
	}
	return nil
}

// sameOrigin is originAllowed for its most frequent case, without conversions: an origin that is
// the host in every byte.
func sameOrigin[T text](origin, host T) bool {
	for _, scheme := range [...]string{"https://", "http://"} {
		if len(origin) == len(scheme)+len(host) && string(origin[:len(scheme)]) == scheme &&
			string(origin[len(scheme):]) == string(host) {
			return true
		}
	}
	return false
}

// openingOf reads a request of net/http.
func openingOf(r *http.Request, packing deflatePolicy) *opening[string] {
	o := &opening[string]{
		get: r.Method == http.MethodGet, http11: r.ProtoMajor == 1 && r.ProtoMinor >= 1,
		body: r.ContentLength != 0 || len(r.TransferEncoding) > 0,
		host: r.Host, offered: r.Header["Sec-Websocket-Protocol"], packing: packing,
	}
	if protocol := r.Header[":protocol"]; r.ProtoMajor == 2 && r.Method == http.MethodConnect && len(protocol) == 1 {
		o.connect, o.protocol, o.body = true, protocol[0], r.Body == http.NoBody
	}
	for _, line := range r.Header["Upgrade"] {
		o.upgrade = o.upgrade || hasToken(line, "websocket")
	}
	for _, line := range r.Header["Connection"] {
		o.connection = o.connection || hasToken(line, "upgrade")
	}
	for _, line := range r.Header["Sec-Websocket-Extensions"] {
		o.extensions(line)
	}
	o.key, o.keys = only(r.Header["Sec-Websocket-Key"])
	o.version, o.versions = only(r.Header["Sec-Websocket-Version"])
	o.origin, o.origins = only(r.Header["Origin"])
	return o
}

func only(lines []string) (string, int) {
	if len(lines) == 0 {
		return "", 0
	}
	return lines[0], len(lines)
}

// answer writes the refusal as a handler of net/http.
func (r *refusal) answer(w http.ResponseWriter) {
	for line := range strings.SplitSeq(strings.TrimSuffix(r.extra, "\r\n"), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			w.Header().Set(name, value)
		}
	}
	http.Error(w, r.text, r.status)
}

// append encodes the refusal for a raw connection, which it ends.
func (r *refusal) append(dst []byte) []byte {
	extra := r.extra
	if !strings.Contains(extra, "Connection:") {
		extra += "Connection: close\r\n"
	} else {
		extra = strings.Replace(extra, "Connection: Upgrade", "Connection: Upgrade, close", 1)
	}
	return fmt.Appendf(dst, "HTTP/1.1 %d %s\r\n%sContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"+
		"\r\n%s\n",
		r.status, http.StatusText(r.status), extra, len(r.text)+1, r.text)
}

// number is a subprotocol's place among the server's own, from 1, or 0 for none.
func (s *settings) number(subprotocol string) uint8 {
	for i, own := range s.subprotocols {
		if own == subprotocol {
			return uint8(i + 1)
		}
	}
	return 0
}

// requestLimits bound the head of a request on a raw connection. It is refused with 431 above them,
// or with 414 if its first line alone is.
var requestLimits = h1.Limits{HeadBytes: maxHead, LineBytes: maxHead}

const (
	// maxHead is the size of the largest head, in bytes.
	maxHead = 8 << 10
	// usualFields is how many fields a head has room for at first.
	usualFields = 16
)

var heads = sync.Pool{New: func() any { return &h1.Head{Fields: make([]h1.Field, 0, usualFields)} }}

// parseRequest reads the head of a request from the start of p into o, which then has views of p.
// It returns n == 0 and no refusal when it needs more bytes.
func parseRequest(p []byte, o *opening[[]byte]) (n int, bad *refusal) {
	head := heads.Get().(*h1.Head)
	defer heads.Put(head)
	defer head.Reset()
	n, err := h1.ParseRequest(p, requestLimits, head)
	if err != nil {
		return 0, refusalOf(err)
	}
	if n > 0 {
		o.request(head)
	}
	return n, nil
}

// refusalOf is the answer to what is no request of HTTP/1.1.
func refusalOf(err error) *refusal {
	bad := err.(*h1.Error) // by the contract of h1
	return &refusal{bad.Status, "", "not a request of HTTP/1.1: " + bad.Reason}
}

// request takes in a head.
func (o *opening[T]) request(head *h1.Head) {
	o.get = string(head.Method) == http.MethodGet
	o.http11 = head.Minor >= 1
	o.host = T(head.Host)
	o.body = head.Chunked || head.ContentLength > 0
	o.connection = head.Upgrade
	for i := range head.Fields {
		o.field(&head.Fields[i])
	}
}

// field takes in a field that the handshake depends on. The length of its name rules out most
// others.
func (o *opening[T]) field(f *h1.Field) {
	v := T(f.Value)
	switch len(f.Name) {
	case len("origin"):
		if f.Is("origin") {
			o.origin, o.origins = v, o.origins+1
		}
	case len("upgrade"):
		o.upgrade = o.upgrade || f.Is("upgrade") && hasToken(v, "websocket")
	case len("sec-websocket-key"):
		if f.Is("sec-websocket-key") {
			o.key, o.keys = v, o.keys+1
		}
	case len("sec-websocket-version"):
		if f.Is("sec-websocket-version") {
			o.version, o.versions = v, o.versions+1
		}
	case len("sec-websocket-protocol"):
		if o.choosing && f.Is("sec-websocket-protocol") {
			o.offered = append(o.offered, string(v))
		}
	case len("sec-websocket-extensions"):
		if f.Is("sec-websocket-extensions") {
			o.extensions(v)
		}
	}
}
