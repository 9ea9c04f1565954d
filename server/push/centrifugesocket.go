package push

import (
	"net/http"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/websocket"
	"github.com/myriad-go/myriad/workers"
)

// centrifugeSockets serves the protocol over WebSocket.
type centrifugeSockets struct {
	node *node
	json *websocket.Options
}

func newCentrifugeSockets(n *node, pool *workers.Pool) *centrifugeSockets {
	c := &centrifugeSockets{node: n}
	c.json = n.webSocketOptions(pool, "centrifuge-json")
	c.json.OnOpen = func(c *websocket.Conn) {
		c.SetValue(n.start(textSocket{c}, centrifugeForm{centrifuge.JSON, inSocket}))
	}
	c.json.OnMessage = func(c *websocket.Conn, _ websocket.Op, p []byte) { runCommands(c.Value().(*session), p) }
	c.json.OnClose = func(c *websocket.Conn, _ error) { c.Value().(*session).ended() }
	return c
}

func (c *centrifugeSockets) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("format") == "protobuf" || query.Get("cf_protocol") == "protobuf" {
		writeError(w, http.StatusBadRequest, apiBadRequest, "only the JSON form of the protocol is supported")
		return
	}
	if _, err := websocket.Accept(w, r, c.json); err != nil {
		// Accept has sent the error response
		c.node.log.Debug("push: a WebSocket was not opened", "remote", r.RemoteAddr, "error", err)
	}
}
