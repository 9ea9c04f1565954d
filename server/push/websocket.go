package push

import (
	"net/http"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
	"github.com/myriad-go/myriad/workers"
)

// Commands run on the loop while they are quick, as nearly all are, and else on a pool, because a
// publish to many takes a while and others may have to wait for it. They wait for nothing else, so
// a few goroutines are enough, and a storm of clients does not make them many.
const (
	commandWorkers = 16
	commandQueue   = 1 << 20 // connections with something to say, each once; above it they are fed in as room comes
)

// newWebSockets returns the options of all clients by WebSocket.
func newWebSockets(n *node, pool *workers.Pool) *websocket.Options {
	return &websocket.Options{
		OnOpen:    func(c *websocket.Conn) { c.SetValue(n.start(webSocket{c}, wireCentrifuge)) },
		OnMessage: func(c *websocket.Conn, _ websocket.Op, p []byte) { c.Value().(*session).frame(p) },
		OnClose:   func(c *websocket.Conn, _ error) { c.Value().(*session).ended() },

		Dispatch:       web.DispatchAuto,
		Workers:        pool,
		Logger:         n.log,
		Subprotocols:   []string{"centrifuge-json"},
		OriginPatterns: []string{"*"}, // origins.guard has looked already
		MaxMessage:     n.limits.Frame,
		WriteLimit:     n.limits.Queue + queueSlack,
		Overflow:       websocket.OverflowFail, // the server has a policy of its own
		PingInterval:   -1,                     // the protocol has its own
		CloseTimeout:   n.timing.Close,
	}
}

func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("format") == "protobuf" || query.Get("cf_protocol") == "protobuf" {
		writeError(w, http.StatusBadRequest, apiBadRequest, "only the JSON form of the protocol is spoken here")
		return
	}
	if _, err := websocket.Accept(w, r, s.webSockets); err != nil {
		// Accept has answered
		s.node.log.Debug("push: a WebSocket was not opened", "remote", r.RemoteAddr, "error", err)
	}
}

// webSocket is the transport of a client by WebSocket.
type webSocket struct{ *websocket.Conn }

func (t webSocket) send(m *message) error {
	if m.text != nil {
		return full(t.WritePrepared(m.text))
	}
	return full(t.Write(websocket.OpText, m.payload))
}

func (t webSocket) queued() int { return t.Queued() }

// close queues a close frame, above the limit if need be. A client that does not take it within
// Timing.Close is cut off; one that was only slow learns why.
func (t webSocket) close(d centrifuge.Disconnect) {
	t.Close(websocket.StatusCode(d.Code), d.Reason)
}
