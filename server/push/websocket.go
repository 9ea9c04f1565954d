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
		WriteLimit:   n.limits.Queue + QueueSlack,
		Overflow:     websocket.OverflowFail, // push has its own policy for slow clients
		PingInterval: -1,                     // doors have their own pings
		CloseTimeout: n.timing.Close,
	}
}

// A TextSocket is the transport of a client by WebSocket whose messages are text.
type TextSocket struct{ *websocket.Conn }

func (t TextSocket) Send(m *Message) error { return sendFrame(t.Conn, websocket.OpText, m) }

func (t TextSocket) Queued() int { return t.Conn.Queued() }

func (t TextSocket) Remote() string { return t.RemoteAddr().String() }

// Close queues a close frame, even above the limit, so that a slow client receives the reason. The
// engine drops the connection of a client that does not answer within Timing.Close.
func (t TextSocket) Close(why Disconnect) {
	t.Conn.Close(websocket.StatusCode(why.Code), why.Reason)
}

// A BinarySocket is the transport of a client by WebSocket whose messages are binary.
type BinarySocket struct{ TextSocket }

func (t BinarySocket) Send(m *Message) error { return sendFrame(t.Conn, websocket.OpBinary, m) }

func sendFrame(c *websocket.Conn, op websocket.Op, m *Message) error {
	if prepared, ok := m.Shared.(*websocket.Prepared); ok {
		return FullOf(c.WritePrepared(prepared))
	}
	return FullOf(c.Write(op, m.Payload))
}

// PrepareMessage returns the shared form of a WebSocket message.
func PrepareMessage(op websocket.Op, payload []byte) Shared {
	m, err := websocket.Prepare(op, payload)
	if err != nil {
		panic("push: a message is larger than every limit allows: " + err.Error())
	}
	return m
}
