// Command websocket is package websocket: raw on the engine, or behind web.Server with Accept
// (--accept).
package main

import (
	"flag"
	"net"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

func main() {
	accept := flag.Bool("accept", false, "upgrade requests of a web.Server instead of raw connections")
	pool := flag.Bool("pool", false, "run callbacks on the pool")
	inline := flag.Bool("inline", false, "run callbacks on the loop")
	group := flag.Bool("group", false, "ws-broadcast-naive: send by a Group instead")
	with := func(o *websocket.Options) harness.Start {
		return func(addr string) (net.Addr, error) {
			o.PingInterval = -1 // no other server here pings
			switch {
			case *pool:
				o.Dispatch = web.DispatchPool
			case *inline:
				o.Dispatch = web.DispatchInline
			}
			if *accept {
				return accepting(addr, o)
			}
			return raw(addr, o)
		}
	}
	harness.MainWith(map[string]harness.Start{
		"ws-echo":      with(&websocket.Options{OnMessage: echo}),
		"ws-deflate":   with(&websocket.Options{OnMessage: echo, Compression: websocket.Compression{Enabled: true}}),
		"ws-broadcast": with(broadcasting()),
		"ws-broadcast-naive": func(addr string) (net.Addr, error) {
			if *group {
				return with(broadcasting())(addr)
			}
			return with(writing())(addr)
		},
	}, map[string]harness.Work{"upgrade": upgrades})
}

func raw(addr string, o *websocket.Options) (net.Addr, error) {
	engine, err := myriad.Default()
	if err != nil {
		return nil, err
	}
	ln, err := engine.Listen("tcp", addr, websocket.Handler(o))
	if err != nil {
		return nil, err
	}
	return ln.Addr(), nil
}

func accepting(addr string, o *websocket.Options) (net.Addr, error) {
	server := &web.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = websocket.Accept(w, r, o) // it has answered if it fails
	})}
	ln, err := server.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return ln.Addr(), nil
}

func echo(c *websocket.Conn, op websocket.Op, p []byte) {
	if err := c.Write(op, p); err != nil {
		c.Abort(nil)
	}
}

// writing writes every message to one connection after the other.
func writing() *websocket.Options {
	var room harness.Room[*websocket.Conn]
	return &websocket.Options{
		OnOpen:  room.Join,
		OnClose: func(c *websocket.Conn, _ error) { room.Leave(c) },
		OnMessage: func(_ *websocket.Conn, op websocket.Op, p []byte) {
			room.Each(func(c *websocket.Conn) { _ = c.Write(op, p) }) // one that has closed leaves by OnClose
		},
	}
}

// broadcasting sends every message to all connections.
func broadcasting() *websocket.Options {
	var room websocket.Group
	return &websocket.Options{
		OnOpen: func(c *websocket.Conn) {
			if _, err := room.Join(c); err != nil {
				harness.Ended(err)
			}
		},
		OnMessage: func(_ *websocket.Conn, op websocket.Op, p []byte) {
			if err := room.Send(op, p); err != nil {
				harness.Ended(err)
			}
		},
	}
}
