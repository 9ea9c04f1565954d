package resp

import (
	"context"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/resp/wire"
)

// A scriptedWorld is a client in a world without faults, whose server is a script.
type scriptedWorld struct {
	*sim.World
	t     *testing.T
	c     *Client
	peers []*sim.Peer
}

// newScriptedWorld has answer called with each command of each connection; what it returns is sent.
func newScriptedWorld(t *testing.T, c *Client,
	answer func(conn int, p *sim.Peer, args []string) string) *scriptedWorld {
	t.Helper()
	w := &scriptedWorld{World: sim.New(1, sim.Calm()), t: t, c: c}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) {
		conn := len(w.peers)
		w.peers = append(w.peers, p)
		var in []byte
		p.OnEnded = p.Close
		p.OnReceived = func(b []byte) {
			in = append(in, b...)
			for {
				n, args, err := wire.ParseCommand(in, nil, Limits{})
				if err != nil {
					t.Errorf("connection %d gets %q: %v", conn, in, err)
				}
				if n == 0 {
					return
				}
				words := make([]string, len(args))
				for i, a := range args {
					words[i] = string(a)
				}
				in = in[n:]
				p.Write([]byte(answer(conn, p, words)))
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Engine, c.Logger, c.Addr = e, quiet(), ln.Addr().String()
	t.Cleanup(func() {
		_ = c.Close()
		for _, p := range w.peers {
			p.Close()
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		w.Run()
		w.Check(t)
	})
	return w
}

// simple answers HELLO, ECHO and other commands.
func simple(args []string) string {
	switch args[0] {
	case "HELLO":
		return "%0\r\n"
	case "ECHO":
		return string(wire.AppendBulk(nil, args[1]))
	case "SUBSCRIBE", "UNSUBSCRIBE":
		var p []byte
		for i, name := range args[1:] {
			p = wire.AppendBulk(wire.AppendPush(p, 3, RESP3), strings.ToLower(args[0]))
			p = wire.AppendInt(wire.AppendBulk(p, name), int64(i+1))
		}
		return string(p)
	}
	return "+OK\r\n"
}
