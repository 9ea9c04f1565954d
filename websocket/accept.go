package websocket

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

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
		if err = c.tunnel(w, subprotocol, req.terms); err != nil {
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
		err = c.hijack(w, string(head))
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
func (c *Conn) hijack(w http.ResponseWriter, head string) error {
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
