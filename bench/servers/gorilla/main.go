// Command gorilla is gorilla/websocket over the standard library's server, with compression only
// where it is asked for. Broadcasts are its prepared messages.
package main

import (
	"net"
	"net/http"

	"github.com/gorilla/websocket"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	var room harness.Room[*websocket.Conn]
	harness.MainWith(map[string]harness.Start{
		"ws-echo":    serving(nil, echo, websocket.Upgrader{}),
		"ws-deflate": serving(nil, echo, websocket.Upgrader{EnableCompression: true}),
		"ws-broadcast": serving(&room, func(_ *websocket.Conn, typ int, p []byte) error {
			message, err := websocket.NewPreparedMessage(typ, p)
			if err == nil {
				room.Each(func(c *websocket.Conn) { _ = c.WritePreparedMessage(message) })
			}
			return err
		}, websocket.Upgrader{}),
	}, map[string]harness.Work{"upgrade": harness.Upgrades(http.HandlerFunc(upgrade))})
}

func upgrade(w http.ResponseWriter, r *http.Request) {
	if c, err := new(websocket.Upgrader).Upgrade(w, r, nil); err == nil {
		_ = c.Close()
	}
}

// An action is what a message leads to.
type action func(c *websocket.Conn, typ int, p []byte) error

func echo(c *websocket.Conn, typ int, p []byte) error { return c.WriteMessage(typ, p) }

func serving(room *harness.Room[*websocket.Conn], act action, upgrader websocket.Upgrader) harness.Start {
	return func(addr string) (net.Addr, error) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, err := upgrader.Upgrade(w, r, nil)
			if err != nil {
				return
			}
			defer c.Close()
			if room != nil {
				room.Join(c)
				defer room.Leave(c)
			}
			for {
				typ, p, err := c.ReadMessage()
				if err != nil || act(c, typ, p) != nil {
					return
				}
			}
		})
		return harness.Listen(addr, (&http.Server{Handler: handler}).Serve)
	}
}
