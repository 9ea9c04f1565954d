// Command gobwas serves with gobwas/ws, as its documentation shows: a zero-copy upgrade on the raw
// connection, and a goroutine for each connection that reads with wsutil.
package main

import (
	"bytes"
	"net"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	var room harness.Room[net.Conn]
	harness.MainWith(map[string]harness.Start{
		"ws-echo": serving(nil, func(c net.Conn, op ws.OpCode,
			p []byte) error {
			return wsutil.WriteServerMessage(c, op, p)
		}),
		"ws-broadcast": serving(&room, func(_ net.Conn, op ws.OpCode, p []byte) error {
			frame, err := ws.CompileFrame(ws.NewFrame(op, true, p))
			room.Each(func(c net.Conn) { _, _ = c.Write(frame) })
			return err
		}),
	}, map[string]harness.Work{"upgrade": upgrades})
}

// A memory is a connection of which only the upgrade's bytes exist, without any server around it.
type memory struct {
	input  bytes.Reader
	output []byte
}

func (m *memory) Read(p []byte) (int, error) { return m.input.Read(p) }

func (m *memory) Write(p []byte) (int, error) {
	m.output = append(m.output, p...)
	return len(p), nil
}

func upgrades(o harness.Order) (harness.Report, error) {
	var m memory
	for range o.Times {
		m.input.Reset(o.Input)
		m.output = m.output[:0]
		if _, err := ws.Upgrade(&m); err != nil {
			return harness.Report{}, err
		}
	}
	return harness.Report{Done: o.Times, Output: m.output}, nil
}

// An action is what a message leads to.
type action func(c net.Conn, op ws.OpCode, p []byte) error

func serving(room *harness.Room[net.Conn], act action) harness.Start {
	return func(addr string) (net.Addr, error) {
		return harness.Listen(addr, func(ln net.Listener) error {
			for {
				c, err := ln.Accept()
				if err != nil {
					return err
				}
				go serve(c, room, act)
			}
		})
	}
}

func serve(c net.Conn, room *harness.Room[net.Conn], act action) {
	defer c.Close()
	if _, err := ws.Upgrade(c); err != nil {
		return
	}
	if room != nil {
		room.Join(c)
		defer room.Leave(c)
	}
	for {
		p, op, err := wsutil.ReadClientData(c)
		if err != nil || act(c, op, p) != nil {
			return
		}
	}
}
