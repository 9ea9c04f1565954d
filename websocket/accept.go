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
	req := openingOf(r, s.packing.policy)
	bad := check(req)
	if bad == nil {
		bad = checkOrigin(s, req, func() *http.Request { return r })
	}
	if bad != nil {
		bad.answer(w)
		return nil, bad
	}
	c := newConn(s, req.terms)
	c.value = value
	if values := web.ValuesOf(r); values != nil {
		c.needCold().life = lifetime.Of(values)
	}
	subprotocol := selectSubprotocol(s.subprotocols, req.offered)
	c.subprotocol = s.number(subprotocol)
	if req.connect {
		if err = throughHTTP2(c, w, subprotocol, req.terms); err != nil {
			return nil, fmt.Errorf("websocket: Accept: %w", err)
		}
		return c, nil
	}
	fields := handlerFields(w.Header())
	head := make([]byte, 0, switchingRoom+len(subprotocol)+len(fields))
	head = appendSwitching(head, req.key, subprotocol, req.terms, fields)
	switch err = web.Upgrade(w, head, (*handler)(c)); {
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
	if !canHijack(w) {
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
	mc, err := e.AdoptWait(nc, append([]byte(nil), unread...), (*handler)(c))
	if err != nil {
		return err
	}
	c.attach(mc)
	return nil
}

// canHijack reports whether w has a method Hijack, itself or behind Unwrap.
func canHijack(w http.ResponseWriter) bool {
	for {
		switch v := w.(type) {
		case http.Hijacker:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return false
		}
	}
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
	if server := innermost(w); holdsBack(server) {
		server.WriteHeader(http.StatusSwitchingProtocols)
	}
}

// innermost is the ResponseWriter behind all wrappers that have a method Unwrap.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
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
	Unflushed() int
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
	err := web.Tunnel(w, (*piped)(c))
	if errors.Is(err, web.ErrNotMyriad) {
		http.Error(w, "the server cannot give this stream away", http.StatusInternalServerError)
	}
	return err
}

// piped is the Conn as a web.PipeHandler, as handler is for the engine. All of it runs on the loop.
type piped Conn

func (h *piped) Opened(p *web.Pipe)             { (*Conn)(h).begins(p) }
func (h *piped) Received(_ *web.Pipe, p []byte) { (*Conn)(h).receives(p) }
func (h *piped) Ended(*web.Pipe)                { (*Conn)(h).ended() }
func (h *piped) Drained(*web.Pipe)              { (*Conn)(h).drains() }
func (h *piped) Notified(*web.Pipe)             { (*Conn)(h).notified() }
func (h *piped) Expired(*web.Pipe)              { (*Conn)(h).expired() }
func (h *piped) Stopping(*web.Pipe)             { (*Conn)(h).stopping() }
func (h *piped) Closed(_ *web.Pipe, err error)  { (*Conn)(h).ends(err) }

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
	n, bad := s.opening(p, &o)
	if n == 0 && bad == nil {
		return false
	}
	if bad != nil {
		refuseRaw(nc, bad)
		return true
	}
	c := newConn(s, o.terms)
	c.nc = nc
	subprotocol := selectSubprotocol(s.subprotocols, o.offered)
	c.subprotocol = s.number(subprotocol)
	b := buf.Get(switchingRoom + len(subprotocol))
	_, err := nc.Write(appendSwitching(b.Extend()[:0], o.key, subprotocol, o.terms, nil))
	b.Release()
	if err == nil {
		nc.SetHandler((*handler)(c), p[n:])
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
	n, bad := s.opening(p, &req)
	switch {
	case bad != nil:
		return bad.append(dst), Handshake{}, bad
	case n == 0:
		return dst, Handshake{}, ErrIncomplete
	}
	subprotocol := selectSubprotocol(s.subprotocols, req.offered)
	return appendSwitching(dst, req.key, subprotocol, req.terms, nil), Handshake{n, subprotocol, req.terms.agreed}, nil
}

// opening reads and judges the request at the start of p. n is 0 without a refusal if it is not
// complete yet.
func (s *settings) opening(p []byte, o *opening[[]byte]) (n int, bad *refusal) {
	o.choosing, o.packing = len(s.subprotocols) > 0, s.packing.policy
	n, bad = parseRequest(p, o)
	if n > 0 && bad == nil {
		bad = check(o)
	}
	if n > 0 && bad == nil {
		bad = checkOrigin(s, o, func() *http.Request { return httpRequest(p[:n]) })
	}
	return n, bad
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
