package websocket

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/lifetime"
	"github.com/myriad-go/myriad/web"
)

// Accept upgrades a request to a WebSocket. On a web.Server the connection stays on its loop. With
// HTTP/2 the request is an extended CONNECT (RFC 8441), which web.Server.Tunnels offers, and the
// WebSocket is a stream of its connection. From any other server that can be hijacked, as
// net/http's can for HTTP/1.1, it is adopted by Options.Engine. For a *tls.Conn that costs four
// more descriptors, and goroutines while there is something to copy, because only one reader may
// read it (ADR 13). For a connection from a listener of tlsloop it costs nothing.
//
// The fields of w.Header() go out with the 101, or the 200 of HTTP/2, cookies for instance, but for
// those of the handshake and those that frame a body. Middleware sees the status by a call of
// WriteHeader.
//
// If it fails, it has answered the request, and the error says why: 403 for a foreign Origin; 405,
// 426 or 400 for a request that is no WebSocket handshake; 501 for another :protocol; 500 where the
// connection cannot be taken. Otherwise the Conn may be written to at once, before OnOpen, which
// may already run; neither r nor w is kept.
func Accept(w http.ResponseWriter, r *http.Request, o *Options) (*Conn, error) {
	return AcceptWith(w, r, o, nil)
}

// AcceptWith is Accept with a Value that the connection has from its first callback on.
func AcceptWith(w http.ResponseWriter, r *http.Request, o *Options, value any) (*Conn, error) {
	s, err := o.settings()
	if err != nil {
		http.Error(w, "the server's WebSocket is not set up correctly", http.StatusInternalServerError)
		return nil, err
	}
	req := openingOf(r, s)
	subprotocol, bad := negotiate(s, req, func() *http.Request { return r })
	if bad != nil {
		bad.answer(w)
		return nil, bad
	}
	c := newConn(s, req.terms, s.number(subprotocol))
	c.value = value
	if values := web.ValuesOf(r); values != nil {
		c.needCold().life = lifetime.Of(values)
	}
	if req.connect {
		if err = throughHTTP2(c, w, subprotocol, req.terms); err != nil {
			return nil, fmt.Errorf("websocket: Accept: %w", err)
		}
		return c, nil
	}
	fields := handlerFields(w.Header())
	head := make([]byte, 0, switchingRoom+len(subprotocol)+len(fields))
	head = appendSwitching(head, req.key, subprotocol, req.terms, fields)
	switch err = web.Upgrade(w, head, (*handler[*myriad.Conn])(c)); {
	case err == nil:
		w.WriteHeader(http.StatusSwitchingProtocols)
	case errors.Is(err, web.ErrNotMyriad):
		err = hijack(c, w, string(head))
	}
	if err != nil {
		return nil, fmt.Errorf("websocket: Accept: %w", err)
	}
	return c, nil
}

// handlerFields encodes the fields that a handler and its middleware have set. It leaves out those
// of the handshake, and those that frame a body, which a 101 does not have (RFC 9110 section
// 15.2.2).
func handlerFields(header http.Header) (lines []byte) {
	if len(header) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if ofHandshake(name) {
			continue
		}
		for _, v := range header[name] {
			lines = h1.AppendField(lines, name, v)
		}
	}
	return lines
}

// ofHandshake reports whether a field belongs to the handshake, or frames a body.
func ofHandshake(name string) bool {
	canonical := http.CanonicalHeaderKey(name)
	switch canonical {
	case "Upgrade", "Connection", "Content-Length", "Transfer-Encoding", "Trailer":
		return true
	}
	return strings.HasPrefix(canonical, "Sec-Websocket-") || strings.HasPrefix(name, http.TrailerPrefix)
}

// hijack takes the connection of a server that is not ours to an engine, with what has been read
// ahead.
func hijack(c *Conn, w http.ResponseWriter, head string) error {
	e, err := c.settings().on()
	if err != nil {
		http.Error(w, "the server has no engine for WebSockets", http.StatusInternalServerError)
		return err
	}
	if _, can := innermost(w); !can {
		http.Error(w, "the server cannot give this connection away", http.StatusInternalServerError)
		return fmt.Errorf("hijack a %T: %w", w, http.ErrNotSupported)
	}
	switchVisibly(w, head)
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	unread, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err != nil {
		return errors.Join(err, nc.Close())
	}
	mc, err := e.AdoptWait(nc, append([]byte(nil), unread...), (*handler[*myriad.Conn])(c))
	if err != nil {
		return err
	}
	c.attach(mc)
	return nil
}

// switchVisibly gives the server the head of the 101, which it sends when it is hijacked, as
// net/http's does. So middleware sees the status.
func switchVisibly(w http.ResponseWriter, head string) {
	header := w.Header()
	clear(header)
	for line := range strings.SplitSeq(head, "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			header[name] = append(header[name], value)
		}
	}
	w.WriteHeader(http.StatusSwitchingProtocols)
	if gin, ok := w.(interface{ WriteHeaderNow() }); ok {
		gin.WriteHeaderNow() // without it gin keeps the head back
	}
	if server, _ := innermost(w); holdsBack(server) {
		server.WriteHeader(http.StatusSwitchingProtocols)
	}
}

// innermost is the ResponseWriter behind all wrappers that have a method Unwrap, and whether it or
// one of them can be hijacked.
func innermost(w http.ResponseWriter) (server http.ResponseWriter, canHijack bool) {
	for {
		if _, is := w.(http.Hijacker); is {
			canHijack = true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w, canHijack
		}
		w = wrapper.Unwrap()
	}
}

// holdsBack reports whether a wrapper has kept WriteHeader from the server's own ResponseWriter, as
// those do that compress and wait for a body. Hijack would then send no 101. Only a private field
// of net/http's ResponseWriter says so. For any other, and without that field, the answer is no.
func holdsBack(server http.ResponseWriter) bool {
	v := reflect.Indirect(reflect.ValueOf(server))
	if v.Kind() != reflect.Struct || v.Type().PkgPath() != "net/http" {
		return false
	}
	wrote := v.FieldByName("wroteHeader")
	return wrote.IsValid() && wrote.Kind() == reflect.Bool && !wrote.Bool()
}

// A pipe is what a Conn sends by and is called from: a *myriad.Conn, or the *web.Pipe of a stream
// of HTTP/2.
type pipe interface {
	Write(p []byte) (int, error)
	WriteBlocks(blocks ...*buf.Block) error
	Close() error
	Abort(err error)
	Queued() int
	Buffered() int
	Flush() bool
	SetWriteLimit(n int)
	SetTimer(d time.Duration)
	Pause()
	Resume()
	Notify()
	RunInline(t myriad.InlineTask)
	Loop() *myriad.Loop
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}

var (
	_ pipe = (*myriad.Conn)(nil)
	_ pipe = (*web.Pipe)(nil)
)

// throughHTTP2 accepts an extended CONNECT (RFC 8441 §5): the answer has no Sec-WebSocket-Accept,
// because the request has no key.
func throughHTTP2(c *Conn, w http.ResponseWriter, subprotocol string, terms deflateTerms) error {
	fields := w.Header()
	for name := range fields {
		if ofHandshake(name) {
			delete(fields, name)
		}
	}
	if subprotocol != "" {
		fields.Set("Sec-WebSocket-Protocol", subprotocol)
	}
	if terms.agreed {
		fields.Set("Sec-WebSocket-Extensions", string(terms.params().append(nil)))
	}
	err := web.Tunnel(w, (*handler[*web.Pipe])(c))
	if errors.Is(err, web.ErrNotMyriad) {
		http.Error(w, "the server cannot give this stream away", http.StatusInternalServerError)
	}
	return err
}

// Handler serves raw connections of an engine, which must begin with a request to open a WebSocket,
// for any path. Use it for a port that serves WebSockets and no other HTTP; it costs one allocation
// for a connection. A head above 8 KiB is refused with 431, and one that takes longer than
// Options.HandshakeTimeout with 408. It panics if the Options are wrong.
func Handler(o *Options) myriad.Handler {
	s, err := o.settings()
	if err != nil {
		panic(err)
	}
	return (*greeter)(s)
}

// greeter is the settings as the first handler of raw connections; it serves all of them. Its
// methods run on the loop.
type greeter settings

func (g *greeter) Opened(c *myriad.Conn) { c.SetTimer(g.handshakeTimeout) }

func (g *greeter) Received(c *myriad.Conn, p []byte) {
	if !(*settings)(g).greet(c, p) {
		c.SetHandler(&waitingHead{settings: (*settings)(g)}, p)
	}
}

func (g *greeter) Expired(c *myriad.Conn) { lateHead(c) }

func (g *greeter) Closed(*myriad.Conn, error) {}

// waitingHead keeps the first part of a request.
type waitingHead struct {
	settings *settings
	head     []byte
	scan     h1.Scan
}

func (w *waitingHead) Opened(*myriad.Conn) {}

func (w *waitingHead) Received(c *myriad.Conn, p []byte) {
	w.head = append(w.head, p...)
	if ready, err := w.scan.Request(w.head, requestLimits); ready || err != nil {
		w.settings.greet(c, w.head)
	}
}

func (w *waitingHead) Expired(c *myriad.Conn) { lateHead(c) }

func (w *waitingHead) Closed(*myriad.Conn, error) {}

func lateHead(c *myriad.Conn) {
	refuseRaw(c, &refusal{http.StatusRequestTimeout, "", "the request did not arrive in time"})
}

func refuseRaw(c *myriad.Conn, bad *refusal) {
	_, _ = c.Write(bad.append(nil)) // a connection that is gone needs no answer
	_ = c.Close()
}

// greet answers the request at the start of p, and reports false if it is not complete yet.
func (s *settings) greet(nc *myriad.Conn, p []byte) bool {
	var o opening[[]byte]
	n, subprotocol, bad := s.opening(p, &o)
	if n == 0 && bad == nil {
		return false
	}
	if bad != nil {
		refuseRaw(nc, bad)
		return true
	}
	c := newConn(s, o.terms, s.number(subprotocol))
	c.nc = nc
	b := buf.Get(switchingRoom + len(subprotocol))
	_, err := nc.Write(appendSwitching(b.Extend()[:0], o.key, subprotocol, o.terms, nil))
	b.Release()
	if err == nil {
		nc.SetHandler((*handler[*myriad.Conn])(c), p[n:])
	}
	return true
}

// switchingRoom is what appendSwitching takes, with the scratch space of appendAcceptKey, without a
// subprotocol.
const switchingRoom = 384

// ErrIncomplete says that a request needs more bytes.
var ErrIncomplete = errors.New("websocket: the request is not complete yet")

// A Handshake is what AppendUpgrade has found.
type Handshake struct {
	Request     int    // bytes that the request takes; frames follow it
	Subprotocol string // chosen from Options.Subprotocols
	Compressed  bool   // permessage-deflate was agreed on
}

// AppendUpgrade is the server's side of the opening handshake as a function on bytes, for other
// transports. It reads the request at the start of p and appends the response to dst. It fails with
// ErrIncomplete when it needs more of the request. With any other error the response refuses the
// upgrade, and the caller must close the connection after it. Handler does the same and goes on
// from there. It allocates nothing where dst has 384 bytes of room, if there are no subprotocols to
// choose from and the origin is none or the host. It keeps neither slice. Any goroutine.
func AppendUpgrade(dst, p []byte, o *Options) ([]byte, Handshake, error) {
	s, err := o.settings()
	if err != nil {
		return dst, Handshake{}, err
	}
	var req opening[[]byte]
	n, subprotocol, bad := s.opening(p, &req)
	switch {
	case bad != nil:
		return bad.append(dst), Handshake{}, bad
	case n == 0:
		return dst, Handshake{}, ErrIncomplete
	}
	return appendSwitching(dst, req.key, subprotocol, req.terms, nil), Handshake{n, subprotocol, req.terms.agreed}, nil
}

// opening reads the request at the start of p and negotiates. n is 0 without a refusal if it is not
// complete yet.
func (s *settings) opening(p []byte, o *opening[[]byte]) (n int, subprotocol string, bad *refusal) {
	o.choosing, o.packing = len(s.Subprotocols) > 0, s.packing.policy
	n, bad = parseRequest(p, o)
	if n > 0 && bad == nil {
		subprotocol, bad = negotiate(s, o, func() *http.Request { return httpRequest(p[:n]) })
	}
	return n, subprotocol, bad
}

// negotiate judges a request to open a WebSocket: one of Accept, of a raw connection, or of HTTP/2.
// request is what CheckOrigin gets.
func negotiate[T text](s *settings, o *opening[T], request func() *http.Request) (subprotocol string, bad *refusal) {
	if bad = check(o); bad == nil {
		bad = checkOrigin(s, o, request)
	}
	if bad != nil {
		return "", bad
	}
	return selectSubprotocol(s.Subprotocols, o.offered), nil
}

// httpRequest is the request of a raw connection as CheckOrigin gets it, or nil if net/http cannot
// read what internal/h1 has read.
func httpRequest(head []byte) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return nil
	}
	return r
}

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

// ofOpening are the fields that an opening has, in lower case, and as package net/http writes them.
var ofOpening = [...][2]string{
	{"origin", "Origin"}, {"upgrade", "Upgrade"}, {"connection", "Connection"},
	{"sec-websocket-key", "Sec-Websocket-Key"}, {"sec-websocket-version", "Sec-Websocket-Version"},
	{"sec-websocket-protocol", "Sec-Websocket-Protocol"},
	{"sec-websocket-extensions", "Sec-Websocket-Extensions"},
}

// field takes in a line of a field.
func (o *opening[T]) field(lower string, v T) {
	switch lower {
	case "origin":
		o.origin, o.origins = v, o.origins+1
	case "upgrade":
		o.upgrade = o.upgrade || hasToken(v, "websocket")
	case "connection":
		o.connection = o.connection || hasToken(v, "upgrade")
	case "sec-websocket-key":
		o.key, o.keys = v, o.keys+1
	case "sec-websocket-version":
		o.version, o.versions = v, o.versions+1
	case "sec-websocket-protocol":
		if o.choosing {
			o.offered = append(o.offered, string(v))
		}
	case "sec-websocket-extensions":
		if !o.packing.on {
			return
		}
		terms, wellFormed := accept(v, o.packing)
		if !o.terms.agreed {
			o.terms = terms
		}
		o.malformed = o.malformed || !wellFormed
	}
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
	case s.CheckOrigin != nil:
		r := request()
		allowed = r != nil && s.CheckOrigin(r)
	case o.origins == 1 && !sameOrigin(o.origin, o.host):
		allowed = originAllowed(string(o.origin), string(o.host), s.OriginPatterns)
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
func openingOf(r *http.Request, s *settings) *opening[string] {
	o := &opening[string]{
		get: r.Method == http.MethodGet, http11: r.ProtoMajor == 1 && r.ProtoMinor >= 1,
		body: r.ContentLength != 0 || len(r.TransferEncoding) > 0,
		host: r.Host, choosing: len(s.Subprotocols) > 0, packing: s.packing.policy,
	}
	if protocol := r.Header[":protocol"]; r.ProtoMajor == 2 && r.Method == http.MethodConnect && len(protocol) == 1 {
		o.connect, o.protocol, o.body = true, protocol[0], r.Body == http.NoBody
	}
	for _, name := range ofOpening {
		for _, line := range r.Header[name[1]] {
			o.field(name[0], line)
		}
	}
	return o
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
		bad := err.(*h1.Error) // by the contract of h1
		return 0, &refusal{bad.Status, "", "not a request of HTTP/1.1: " + bad.Reason}
	}
	if n == 0 {
		return 0, nil
	}
	o.get = string(head.Method) == http.MethodGet
	o.http11 = head.Minor >= 1
	o.host = head.Host
	o.body = head.Chunked || head.ContentLength > 0
	for i := range head.Fields {
		f := &head.Fields[i]
		for j := range ofOpening {
			name := &ofOpening[j]
			if len(f.Name) == len(name[0]) && f.Is(name[0]) { // the length rules out most
				o.field(name[0], f.Value)
				break
			}
		}
	}
	return n, nil
}
