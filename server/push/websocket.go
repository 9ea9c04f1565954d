package push

import (
	"net/http"

	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// Quick commands, which nearly all are, run on the loop. Others run on a pool: a publish to many
// subscribers takes long, and connections of the loop would wait. Commands do not block otherwise,
// so a few goroutines are enough for any number of clients.
const (
	commandWorkers = 16
	commandQueue   = 1 << 20 // connections with pending commands, each once; above it they wait for room
)

// WebSocketOptions returns the options of a door's WebSockets, without callbacks.
func (s *Server) WebSocketOptions(subprotocols ...string) *websocket.Options {
	n, pool := s.node, s.pool
	return &websocket.Options{
		Dispatch:     web.DispatchAuto,
		Workers:      pool,
		Logger:       n.log,
		Subprotocols: subprotocols,
		CheckOrigin:  func(*http.Request) bool { return true }, // origins.guard has looked already
		MaxMessage:   n.limits.Frame,
		WriteLimit:   n.limits.Queue + queueSlack,
		Overflow:     websocket.OverflowFail, // push has its own policy for slow clients
		PingInterval: -1,                     // doors have their own pings
		CloseTimeout: n.timing.Close,
	}
}

// A textSocket is the transport of a client by WebSocket whose messages are text.
type textSocket struct{ *websocket.Conn }

func (t textSocket) send(m *message) error { return sendFrame(t.Conn, websocket.OpText, m) }

func (t textSocket) queued() int { return t.Conn.Queued() }

func (t textSocket) remote() string { return t.RemoteAddr().String() }

// close queues a close frame, even above the limit, so that a slow client receives the reason. The
// engine drops the connection of a client that does not answer within Timing.Close.
func (t textSocket) close(why ending) {
	t.Conn.Close(websocket.StatusCode(why.Code), why.Reason)
}

// A binarySocket is the same for binary messages.
type binarySocket struct{ textSocket }

func (t binarySocket) send(m *message) error { return sendFrame(t.Conn, websocket.OpBinary, m) }

func sendFrame(c *websocket.Conn, op websocket.Op, m *message) error {
	if prepared, ok := m.shared.(*websocket.Prepared); ok {
		return full(c.WritePrepared(prepared))
	}
	return full(c.Write(op, m.payload))
}

// prepare returns the shared form of a WebSocket message.
func prepare(op websocket.Op, payload []byte) shared {
	m, err := websocket.Prepare(op, payload)
	if err != nil {
		panic("push: a message is larger than every limit allows: " + err.Error())
	}
	return m
}
