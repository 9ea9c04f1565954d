package websocket

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/myriad-go/myriad/web"
)

// Accept upgrades a request to a WebSocket. On a web.Server the connection stays on its loop. From any other server that
// can be hijacked, as net/http's can for HTTP/1.1, it is adopted by Options.Engine. Of a *tls.Conn that costs four
// descriptors more, and goroutines while there is something to copy, because nobody else may read it (ADR 13); of a connection
// from a listener of tlsloop's, nothing.
//
// If it fails it has answered the request (403 for a foreign Origin, 405, 426 and 400 for what is not a WebSocket's handshake,
// 500 where the connection cannot be taken) and the error says why. Otherwise the Conn may be written to at once, before OnOpen,
// which may already run; neither r nor w is kept.
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
	if bad := check(req, s.originPatterns); bad != nil {
		bad.answer(w)
		return nil, bad
	}
	c := newConn(s, req.terms)
	c.value = value
	subprotocol := selectSubprotocol(s.subprotocols, req.offered)
	c.subprotocol = s.number(subprotocol)
	head := appendSwitching(make([]byte, 0, switchingRoom+len(subprotocol)), req.key, subprotocol, req.terms)
	err = web.Upgrade(w, head, (*handler)(c))
	if errors.Is(err, web.ErrNotMyriad) {
		err = c.hijack(w, head)
	}
	if err != nil {
		return nil, fmt.Errorf("websocket: Accept: %w", err)
	}
	return c, nil
}

// hijack takes the connection of a server that is not ours to an engine, with what has been read ahead.
func (c *Conn) hijack(w http.ResponseWriter, head []byte) error {
	e, err := c.settings.on()
	if err != nil {
		http.Error(w, "the server has no engine for WebSockets", http.StatusInternalServerError)
		return err
	}
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "the server cannot give this connection away", http.StatusInternalServerError)
		return err
	}
	unread, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err == nil {
		err = c.greetHijacked(nc, head, e.System().Now())
	}
	if err != nil {
		return errors.Join(err, nc.Close())
	}
	mc, err := e.Adopt(nc, append([]byte(nil), unread...), (*handler)(c))
	if err != nil {
		return err
	}
	c.attach(mc)
	return nil
}

// greetHijacked writes the response from the server's own goroutine.
func (c *Conn) greetHijacked(nc net.Conn, head []byte, now time.Time) error {
	deadline := time.Time{}
	if c.settings.handshakeTimeout > 0 {
		deadline = now.Add(c.settings.handshakeTimeout)
	}
	if err := nc.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := nc.Write(head); err != nil {
		return err
	}
	return nc.SetDeadline(time.Time{})
}
