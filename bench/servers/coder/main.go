// Command coder is coder/websocket over the standard library's server, with compression only where
// it is asked for. It has no prepared messages: a broadcast writes the payload to each connection.
package main

import (
	"context"
	"net"
	"net/http"

	"github.com/coder/websocket"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	var room harness.Room[*websocket.Conn]
	harness.MainWith(map[string]harness.Start{
		"ws-echo": serving(nil, echo, nil),
		"ws-deflate": serving(nil, echo,
			&websocket.AcceptOptions{CompressionMode: websocket.CompressionNoContextTakeover}),
		"ws-broadcast": serving(&room, func(_ *websocket.Conn, typ websocket.MessageType, p []byte) error {
			room.Each(func(c *websocket.Conn) { _ = c.Write(context.Background(), typ, p) })
			return nil
		}, nil),
	}, map[string]harness.Work{"upgrade": harness.Upgrades(http.HandlerFunc(upgrade))})
}

func upgrade(w http.ResponseWriter, r *http.Request) {
	if c, err := websocket.Accept(w, r, nil); err == nil {
		_ = c.CloseNow()
	}
}

// An action is what a message leads to.
type action func(c *websocket.Conn, typ websocket.MessageType, p []byte) error

func echo(c *websocket.Conn, typ websocket.MessageType, p []byte) error {
	return c.Write(context.Background(), typ, p)
}

func serving(room *harness.Room[*websocket.Conn], act action, o *websocket.AcceptOptions) harness.Start {
	return func(addr string) (net.Addr, error) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(w, r, o)
			if err != nil {
				return
			}
			defer c.CloseNow()
			if room != nil {
				room.Join(c)
				defer room.Leave(c)
			}
			for {
				typ, p, err := c.Read(context.Background())
				if err != nil || act(c, typ, p) != nil {
					return
				}
			}
		})
		return harness.Listen(addr, (&http.Server{Handler: handler}).Serve)
	}
}
