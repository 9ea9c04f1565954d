package websocket

import (
	"net/http"
	"sync"

	"github.com/myriad-go/myriad/internal/h1"
)

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
