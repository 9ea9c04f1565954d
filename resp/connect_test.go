package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// DialTimeout holds for all that comes before commands can be sent, for commands and for
// subscriptions.
func TestDialTimeoutCoversSetup(t *testing.T) {
	for _, hung := range []string{"HELLO", "SELECT", "CLIENT", "TLS"} {
		for _, subscribe := range []bool{false, true} {
			if subscribe && hung == "SELECT" {
				continue // it is not sent there
			}
			t.Run(fmt.Sprint(hung, subscribe), func(t *testing.T) {
				c := &Client{DialTimeout: 700 * time.Millisecond, Silence: -1, DB: 1, Name: "me", Conns: 1}
				waitsFor := "it waits for the answer to " + hung
				if hung == "TLS" {
					c.TLSConfig, waitsFor = &tls.Config{}, "it waits for the handshake of TLS"
				}
				w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string {
					if args[0] == hung {
						return ""
					}
					return simple(args)
				})
				if hung == "TLS" {
					w = newHungWorld(t, c)
				}
				var err error
				began, took := w.Now(), time.Duration(-1)
				w.Go(func() {
					if subscribe {
						_, err = c.Subscribe(context.Background(), func(string, []byte) {}, "a")
					} else {
						_, err = c.Do(context.Background(), "PING")
					}
					took = w.Now().Sub(began)
				})
				w.RunFor(5 * time.Second)
				if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ErrLost) ||
					!strings.Contains(err.Error(), waitsFor) || took < c.DialTimeout ||
					took > c.DialTimeout+time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
			})
		}
	}
}

// newHungWorld is a world whose server takes connections, and says nothing.
func newHungWorld(t *testing.T, c *Client) *scriptedWorld {
	w := &scriptedWorld{World: sim.New(1, sim.Calm()), t: t, c: c}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) { p.OnEnded = p.Close })
	if err != nil {
		t.Fatal(err)
	}
	c.Engine, c.Logger, c.Addr = e, quiet(), ln.Addr().String()
	t.Cleanup(func() {
		_ = c.Close()
		_ = ln.Close()
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		w.Run()
		w.Check(t)
	})
	return w
}

// A server that ends each connection before it has been of use is asked at ever longer intervals.
func TestClientBacksOffFromUselessConnections(t *testing.T) {
	c := &Client{Conns: 1}
	w := newScriptedWorld(t, c, func(_ int, p *sim.Peer, args []string) string {
		if args[0] == "HELLO" {
			return "%0\r\n"
		}
		p.Close()
		return ""
	})
	w.Go(func() {
		if _, err := c.Subscribe(context.Background(), func(string, []byte) {}, "a"); !errors.Is(err, ErrClientClosed) {
			t.Error(err)
		}
	})
	w.RunFor(10 * time.Second)
	if n := len(w.peers); n < 5 || n > 12 {
		t.Errorf("%d connections in 10 s", n)
	}
}

// A server that ends an idle connection costs no command.
func TestClientAfterIdleConnectionEnds(t *testing.T) {
	c := &Client{Conns: 1}
	w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string { return simple(args) })
	for i := range 4 {
		var failed error
		c.Start(func(_ Value, err error) { failed = err }, "PING")
		w.RunFor(time.Minute)
		if failed != nil || len(w.peers) != i+1 {
			t.Errorf("round %d, on %d connections: %v", i, len(w.peers), failed)
		}
		w.peers[i].Close()
		w.RunFor(time.Minute)
	}
}
