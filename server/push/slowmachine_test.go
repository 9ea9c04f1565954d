package push_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/web"
)

// This file is a server whose processor is too slow for its clients, on the simulator: events and
// sends cost fake time. What the clients do costs nothing.

// A slowMachine is a server with one loop. Its sweeps run as goroutines of the world, between the
// loop's turns, as on a machine with one processor.
type slowMachine struct {
	*sim.World
	t      *testing.T
	timing push.Timing
	server *push.Server
	web    *web.Server
	engine *myriad.Engine
	addr   *web.Listener

	clients  []*slowClient
	comeBack bool // clients that are ended connect again at once
}

// worldTime is the simulated world's clock.
type worldTime struct{ *sim.World }

func newSlowMachine(t *testing.T, seed uint64, timing push.Timing) *slowMachine {
	t.Helper()
	o := sim.Calm()
	o.MaxSteps, o.TraceLines = 1<<30, 64
	o.Backlog = 1 << 14
	w := sim.New(seed, o)
	log := slog.New(slog.DiscardHandler)
	engine, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	server, err := push.New(push.Config{Clock: worldTime{w}, Random: pushtest.Seeded(), Logger: log, Timing: timing,
		Engine: engine,
		Doors:  servertest.Doors(mercure.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	h := &web.Server{Handler: server, Engine: engine, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}
	listener, err := h.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &slowMachine{World: w, t: t, timing: timing, server: server, web: h, engine: engine, addr: listener}
}

func (m *slowMachine) stop() {
	m.t.Helper()
	m.comeBack = false
	m.SetCosts(sim.Costs{})
	m.server.Drain()
	for _, session := range m.server.Hub().Sessions() {
		session.Disconnect(answer.DisconnectShutdown)
	}
	m.RunFor(15 * time.Second)
	for _, stop := range []func(context.Context) error{m.web.Shutdown, m.server.Shutdown, m.engine.Shutdown} {
		if err := stop(context.Background()); err != nil {
			m.t.Error(err)
		}
	}
	m.Run()
	m.Check(m.t)
}

// A slowClient is a client by WebSocket that answers pings at once, until it dies.
type slowClient struct {
	m      *slowMachine
	peer   *sim.Peer
	in     []byte
	dead   bool
	diedAt time.Time

	pings    int
	lastPing time.Time
	endings  []string  // how its connections have ended
	toldAt   time.Time // when the first close frame came
}

// join adds clients.
func (m *slowMachine) join(n int) {
	for range n {
		c := &slowClient{m: m}
		m.clients = append(m.clients, c)
		c.connect()
	}
}

func (c *slowClient) connect() {
	p := c.m.Dial(c.m.addr.Addr())
	c.peer, c.in = p, nil
	p.OnReceived = func(b []byte) {
		if p == c.peer {
			c.received(b)
		}
	}
	over := func(why string) {
		if p != c.peer {
			return
		}
		c.peer = nil
		c.endings = append(c.endings, why)
		p.Close()
		if c.m.comeBack && !c.dead {
			c.connect()
		}
	}
	p.OnEnded = func() { over(c.lastFrame()) }
	p.OnClosed = func(err error) { over(fmt.Sprintf("%s %v", c.lastFrame(), err)) }
	p.Write([]byte(servertest.UpgradeRequest + servertest.MaskedText(`{"id":1,"connect":{}}`)))
}

func (c *slowClient) lastFrame() string { return fmt.Sprintf("%q", c.in) }

// received answers the pings in b.
func (c *slowClient) received(b []byte) {
	c.in = append(c.in, b...)
	for {
		i := bytes.Index(c.in, []byte("\x81\x02{}"))
		if i < 0 {
			if bytes.HasPrefix(c.in, []byte{0x88}) && c.toldAt.IsZero() {
				c.toldAt = c.m.Now()
			}
			return
		}
		c.in = c.in[i+4:]
		c.pings++
		c.lastPing = c.m.Now()
		if !c.dead {
			c.peer.Write([]byte(servertest.MaskedText("{}")))
		}
	}
}

// die makes a client silent. It still reads, so that it notes when the server gives it up.
func (c *slowClient) die() { c.dead, c.diedAt = true, c.m.Now() }

// held returns how many connections the server has not ended.
func (m *slowMachine) held() (n int) {
	for _, c := range m.clients {
		if c.peer != nil && len(c.endings) == 0 {
			n++
		}
	}
	return n
}

// endings counts how connections have ended, by the words that show the server's reason.
func (m *slowMachine) endings() map[string]int {
	all := map[string]int{}
	for _, c := range m.clients {
		for _, why := range c.endings {
			if strings.Contains(why, "no pong") {
				why = "no pong"
			}
			all[why]++
		}
	}
	return all
}

// A machine becomes too slow: the pings of its clients alone need twice and ten times its
// processor. Clients that answer at once keep their connections, and those that have died are
// found. When the machine is quick again, so are the pings.
func TestSlowMachineKeepsItsClients(t *testing.T) {
	for _, times := range []int{2, 10} {
		t.Run(fmt.Sprint(times), func(t *testing.T) { slowMachineKeeps(t, times, soak.Size(t, 500, 10000)) })
	}
}

func slowMachineKeeps(t *testing.T, times, clients int) {
	timing := push.Timing{Ping: 10 * time.Second, Pong: 4 * time.Second}
	m := newSlowMachine(t, 1, timing)
	m.join(clients)
	m.RunFor(timing.Ping)
	if got := m.held(); got != clients {
		t.Fatalf("%d of %d clients are connected: %v", got, clients, m.endings())
	}
	// a ping is a send, and its pong an event
	cost := timing.Ping * time.Duration(times) / time.Duration(2*clients)
	m.SetCosts(sim.Costs{Event: cost, Send: cost})
	m.RunFor(timing.Ping)
	dead := m.clients[:clients/20]
	for _, c := range dead {
		c.die()
	}
	// a round of pings takes times as long as it should
	limit := 2 * (timing.Ping*time.Duration(times) + timing.Pong)
	m.RunFor(limit)
	for i, c := range m.clients[len(dead):] {
		if len(c.endings) > 0 {
			t.Fatalf("client %d has been ended: %s; all: %v of %d", i, c.endings[0], m.endings(), clients)
		}
	}
	for i, c := range dead {
		if took := c.toldAt.Sub(c.diedAt); c.toldAt.IsZero() || took > limit {
			t.Errorf("client %d, which has died, was told %q after %v, at most %v is allowed", i, c.in, took, limit)
		}
	}
	if got := m.server.Hub().Ended()["no pong"]; got != uint64(len(dead)) {
		t.Errorf("%d sessions are counted as ended without a pong, want %d", got, len(dead))
	}
	m.SetCosts(sim.Costs{})
	m.RunFor(10 * time.Second)
	if late := m.engine.Stats().Late; late > 10*time.Millisecond {
		t.Errorf("10 s after the load has gone the loop is %v late", late)
	}
	before := m.Now()
	m.RunFor(timing.Ping + time.Second)
	for i, c := range m.clients[len(dead):] {
		if len(c.endings) > 0 || c.lastPing.Before(before) {
			t.Fatalf("client %d: ended %v, the last ping came %v before the load had gone", i, c.endings,
				before.Sub(c.lastPing))
		}
	}
	m.stop()
}
