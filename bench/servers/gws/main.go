// Command gws is gws over the standard library's server, with compression only where it is asked
// for, with its own Broadcaster.
package main

import (
	"net"
	"net/http"

	"github.com/lxzan/gws"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.MainWith(map[string]harness.Start{
		"ws-echo":    func(addr string) (net.Addr, error) { return serve(addr, &echo{}, &gws.ServerOption{}) },
		"ws-deflate": func(addr string) (net.Addr, error) { return serve(addr, &echo{}, deflating) },
		"ws-broadcast-naive": func(addr string) (net.Addr,
			error) {
			return serve(addr, &broadcast{}, &gws.ServerOption{})
		},
		"ws-broadcast": func(addr string) (net.Addr,
			error) {
			return serve(addr, &broadcast{}, &gws.ServerOption{})
		},
		"push-ws": push,
	}, map[string]harness.Work{"upgrade": harness.Upgrades(http.HandlerFunc(upgrade))})
}

var upgrader = gws.NewUpgrader(&echo{}, &gws.ServerOption{})

func upgrade(w http.ResponseWriter, r *http.Request) {
	if socket, err := upgrader.Upgrade(w, r); err == nil {
		_ = socket.NetConn().Close()
	}
}

var deflating = &gws.ServerOption{PermessageDeflate: gws.PermessageDeflate{Enabled: true}}

func serve(addr string, events gws.Event, o *gws.ServerOption) (net.Addr, error) {
	upgrader := gws.NewUpgrader(events, o)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		socket, err := upgrader.Upgrade(w, r)
		if err != nil {
			return
		}
		go socket.ReadLoop() // so that what the handler holds can be collected
	})
	return harness.Listen(addr, (&http.Server{Handler: handler}).Serve)
}

type echo struct{ gws.BuiltinEventHandler }

func (*echo) OnMessage(socket *gws.Conn, message *gws.Message) {
	defer message.Close()
	if err := socket.WriteMessage(message.Opcode, message.Bytes()); err != nil {
		socket.NetConn().Close()
	}
}

type broadcast struct {
	gws.BuiltinEventHandler
	room harness.Room[*gws.Conn]
}

func (b *broadcast) OnOpen(socket *gws.Conn)           { b.room.Join(socket) }
func (b *broadcast) OnClose(socket *gws.Conn, _ error) { b.room.Leave(socket) }

func (b *broadcast) OnMessage(_ *gws.Conn, message *gws.Message) {
	defer message.Close()
	b.send(message.Opcode, message.Bytes())
}

func (b *broadcast) send(op gws.Opcode, p []byte) {
	broadcaster := gws.NewBroadcaster(op, p)
	defer broadcaster.Close()
	b.room.Each(func(socket *gws.Conn) { _ = broadcaster.Broadcast(socket) })
}
