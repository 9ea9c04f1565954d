package centrifuge

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/websocket"
)

// sockets serves the protocol over WebSocket.
type sockets struct {
	hub          *hub.Hub
	both, pushes [2]*websocket.Options // by codec: for clients that send commands, and for others
}

func newSockets(h *hub.Hub) *sockets {
	s := &sockets{hub: h}
	for codec, subprotocol := range []string{"centrifuge-json", "centrifuge-protobuf"} {
		for uni, options := range map[bool]*[2]*websocket.Options{false: &s.both, true: &s.pushes} {
			f := form{centrifuge.Codec(codec), inSocket, uni}
			o := h.WebSocketOptions(subprotocol)
			o.OnOpen = func(c *websocket.Conn) {
				from, _ := c.Value().(*hub.RequestInfo)
				c.SetValue(h.Start(f.socket(c), f, from))
			}
			o.OnMessage = func(c *websocket.Conn, _ websocket.Op, p []byte) { RunMessage(c.Value().(*hub.Session), p) }
			h.AwaitAnswers(o, func(c *websocket.Conn) *hub.Session { return c.Value().(*hub.Session) })
			o.OnClose = func(c *websocket.Conn, _ error) { c.Value().(*hub.Session).Ended() }
			o.FreezeValue = func(c *websocket.Conn, dst []byte) ([]byte, error) { return freezeSocket(c, dst) }
			o.ThawValue = func(c *websocket.Conn, state []byte) error {
				session, err := h.ThawSession(f.socket(c), f, state)
				if err == nil {
					c.SetValue(session)
				}
				return err
			}
			o.OnMoved = func(c *websocket.Conn) {
				if session, ok := c.Value().(*hub.Session); ok { // ThawValue has not failed
					session.Moved()
				}
			}
			h.MoveSockets(fmt.Sprintf("centrifuge %s uni=%v", subprotocol, uni), o)
			options[codec] = o
		}
	}
	return s
}

// freezeSocket appends the session of a client that moves to another process.
func freezeSocket(c *websocket.Conn, dst []byte) ([]byte, error) {
	session, ok := c.Value().(*hub.Session)
	if !ok {
		return dst, hub.ErrNotAtRest
	}
	state, ok := session.AppendState(dst)
	if !ok {
		return dst, hub.ErrNotAtRest
	}
	return state, nil
}

func (s *sockets) serve(w http.ResponseWriter, r *http.Request) { s.accept(w, r, &s.both) }

// serveUni serves clients that send one message, the connect request, and then only receive.
func (s *sockets) serveUni(w http.ResponseWriter, r *http.Request) {
	s.accept(w, r, &s.pushes)
}

func (s *sockets) accept(w http.ResponseWriter, r *http.Request, options *[2]*websocket.Options) {
	var value any
	if asking := s.hub.RequestInfo(r); asking != nil {
		if value = asking; asking.KeepsValues() {
			r = r.WithContext(context.Background()) // else the WebSocket keeps them for life
		}
	}
	if _, err := websocket.AcceptWith(w, r, options[codecOf(r)], value); err != nil {
		// Accept has sent the error response
		s.hub.Logger().Debug("push: a WebSocket was not opened", "remote", r.RemoteAddr, "error", err)
	}
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
