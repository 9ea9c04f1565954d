package websocket

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
)

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
