package push

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/websocket"
	"github.com/myriad-go/myriad/workers"
)

// centrifugeSockets serves the protocol over WebSocket.
type centrifugeSockets struct {
	node         *node
	both, pushes [2]*websocket.Options // by codec: for clients that send commands, and for others
}

func newCentrifugeSockets(n *node, pool *workers.Pool) *centrifugeSockets {
	s := &centrifugeSockets{node: n}
	for codec, subprotocol := range []string{"centrifuge-json", "centrifuge-protobuf"} {
		for uni, options := range map[bool]*[2]*websocket.Options{false: &s.both, true: &s.pushes} {
			f := centrifugeForm{centrifuge.Codec(codec), inSocket, uni}
			o := n.webSocketOptions(pool, subprotocol)
			o.OnOpen = func(c *websocket.Conn) {
				s := n.start(f.socket(c), f)
				if asks, ok := c.Value().(*asking); ok {
					caller := f.describe(asks.header)
					caller.values = asks.values
					n.callers.add(s, caller)
				}
				c.SetValue(s)
			}
			o.OnMessage = func(c *websocket.Conn, _ websocket.Op, p []byte) { runMessage(c.Value().(*session), p) }
			o.OnClose = func(c *websocket.Conn, _ error) { c.Value().(*session).ended() }
			options[codec] = o
		}
	}
	return s
}

func (s *centrifugeSockets) serve(w http.ResponseWriter, r *http.Request) { s.accept(w, r, &s.both) }

// serveUni serves clients that send one message, the connect request, and then only receive.
func (s *centrifugeSockets) serveUni(w http.ResponseWriter, r *http.Request) {
	s.accept(w, r, &s.pushes)
}

func (s *centrifugeSockets) accept(w http.ResponseWriter, r *http.Request, options *[2]*websocket.Options) {
	var value any
	if s.node.remember {
		asks := &asking{s.node.hooks.selected(r.Header), s.node.hooks.values(r)}
		if value = asks; asks.values != nil {
			r = r.WithContext(context.Background()) // else the WebSocket keeps them for life
		}
	}
	if _, err := websocket.AcceptWith(w, r, options[codecOf(r)], value); err != nil {
		// Accept has sent the error response
		s.node.log.Debug("push: a WebSocket was not opened", "remote", r.RemoteAddr, "error", err)
	}
}

// An asking is what hooks may learn of a request that opens a WebSocket.
type asking struct {
	header http.Header
	values context.Context
}

// codecOf returns the codec that a client by WebSocket asks for: by its subprotocol, or in the
// query.
func codecOf(r *http.Request) centrifuge.Codec {
	query := r.URL.Query()
	asked := query.Get("format") == "protobuf" || query.Get("cf_protocol") == "protobuf"
	for _, list := range r.Header.Values("Sec-WebSocket-Protocol") {
		asked = asked || slices.ContainsFunc(strings.Split(list, ","), func(name string) bool {
			return strings.TrimSpace(name) == "centrifuge-protobuf"
		})
	}
	if asked {
		return centrifuge.Protobuf
	}
	return centrifuge.JSON
}
