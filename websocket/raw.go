package websocket

import (
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h1"
)

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
