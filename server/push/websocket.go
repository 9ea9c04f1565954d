package push

import (
	"net/http"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
	"github.com/myriad-go/myriad/workers"
)

// Quick commands, which nearly all are, run on the loop. Others run on a pool: a publish to many
// subscribers takes long, and connections of the loop would wait. Commands do not block otherwise,
// so a few goroutines are enough for any number of clients.
const (
	commandWorkers = 16
	commandQueue   = 1 << 20 // connections with pending commands, each once; above it they wait for room
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
		Overflow:       websocket.OverflowFail, // push has its own policy for slow clients
		PingInterval:   -1,                     // the Centrifuge protocol has its own pings
		CloseTimeout:   n.timing.Close,
	}
}

func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("format") == "protobuf" || query.Get("cf_protocol") == "protobuf" {
		writeError(w, http.StatusBadRequest, apiBadRequest, "only the JSON form of the protocol is supported")
		return
	}
	if _, err := websocket.Accept(w, r, s.webSockets); err != nil {
		// Accept has sent the error response
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

func (t webSocket) remote() string { return t.RemoteAddr().String() }

// close queues a close frame, even above the limit, so that a slow client receives the reason. The
// engine drops the connection of a client that does not answer within Timing.Close.
func (t webSocket) close(d centrifuge.Disconnect) {
	t.Close(websocket.StatusCode(d.Code), d.Reason)
}
