package push_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// A simulated server is the whole stack on a simulated network, with seeded randomness and fake
// time.
type simulated struct {
	*sim.World
	t      *testing.T
	clock  *simClock
	server *push.Server
	hub    *hub.Hub
	web    *web.Server
	engine *myriad.Engine
	addr   *web.Listener
}

// simClock has the time of the simulated world. Its timers fire in run, between steps of the world.
type simClock struct {
	*pushtest.Clock
	w *sim.World
}

func (c *simClock) Now() time.Time { return c.w.Now() }

func simulate(t *testing.T, seed uint64, faults sim.Options, c push.Config) *simulated {
	t.Helper()
	w := sim.New(seed, faults)
	engine, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	clock := &simClock{pushtest.NewClockAt(w.Now()), w}
	c.Clock, c.Random, c.Logger = clock, pushtest.Seeded(), slog.New(slog.DiscardHandler)
	if c.Doors == nil {
		c.Doors = servertest.Doors(mercure.Config{})
	}
	seam := new(servertest.Seam)
	c.Doors = append(c.Doors, seam)
	server, err := push.New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := &web.Server{Handler: server, Engine: engine}
	listener, err := h.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &simulated{w, t, clock, server, seam.Hub, h, engine, listener}
}

// simulatedStep is as long as a slot of the hub's wheel.
const simulatedStep = 250 * time.Millisecond

// run advances fake time for the network and the server.
func (s *simulated) run(d time.Duration) {
	for ; d > 0; d -= simulatedStep {
		s.RunFor(simulatedStep)
		s.clock.Advance(simulatedStep)
	}
}

// stop shuts the server down. It waits in fake time only.
func (s *simulated) stop() {
	s.t.Helper()
	s.server.Drain()
	for _, session := range s.hub.Sessions() {
		session.Disconnect(answer.DisconnectShutdown)
	}
	s.run(15 * time.Second)
	if err := s.web.Shutdown(context.Background()); err != nil {
		s.t.Errorf("seed %d: web: %v", s.Seed(), err)
	}
	if err := s.server.Shutdown(context.Background()); err != nil {
		s.t.Errorf("seed %d: server: %v", s.Seed(), err)
	}
	if err := s.engine.Shutdown(context.Background()); err != nil {
		s.t.Errorf("seed %d: engine: %v", s.Seed(), err)
	}
	s.Run()
	s.Check(s.t)
}

func (s *simulated) dial(wire string) *sim.Peer {
	p := s.Dial(s.addr.Addr())
	p.Write([]byte(wire))
	return p
}

func (s *simulated) publish(data string) *sim.Peer {
	body := `{"channel":"news","data":` + data + `}`
	return s.dial(fmt.Sprintf("POST /api/publish HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body))
}

// frames returns what a client has received after the answer to its upgrade, one line for each
// frame.
func frames(t *testing.T, p *sim.Peer) []string {
	t.Helper()
	head, rest, ok := bytes.Cut(p.Received(), []byte("\r\n\r\n"))
	if !ok || !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) {
		t.Fatalf("the upgrade was answered with %q", head)
	}
	var lines []string
	for r := bytes.NewReader(rest); r.Len() > 0; {
		op, payload, err := servertest.ReadFrame(r)
		if err != nil {
			t.Fatalf("half a frame behind %q: %v", lines, err)
		}
		if op != 1 {
			payload = fmt.Sprintf("opcode %d %q", op, payload)
		}
		lines = append(lines, payload)
	}
	return lines
}

// scenario sends publications to subscribers by WebSocket and by SSE. One has a bad connection, and
// one never reads. It returns a hash of the trace.
func scenario(t *testing.T, seed uint64) uint64 {
	s := simulate(t, seed, sim.Lossless(), push.Config{Timing: push.Timing{Ping: time.Hour}})
	const publications = 12
	sockets := make([]*sim.Peer, 4)
	for i := range sockets {
		sockets[i] = s.dial(servertest.UpgradeRequest + servertest.MaskedText(servertest.ConnectAndSubscribe))
	}
	stream := s.dial("GET /events?channel=news HTTP/1.1\r\nHost: test\r\n\r\n")
	notReading := s.dial(servertest.UpgradeRequest + servertest.MaskedText(servertest.ConnectAndSubscribe))
	notReading.StopReading()
	s.run(2 * time.Second)
	var publishers []*sim.Peer
	for i := range publications {
		p := s.publish(fmt.Sprintf(`{"n": %d}`, i))
		publishers = append(publishers, p)
		for range 100 { // a slow connection needs many steps
			if s.run(time.Second); p.Ended() {
				break
			}
		}
	}
	s.run(20 * time.Second)
	for i, p := range publishers {
		if got := string(p.Received()); !strings.HasPrefix(got, "HTTP/1.1 200 ") ||
			!strings.HasSuffix(got, "\r\n\r\n"+`{"result":{}}`) {
			t.Errorf("seed %d: publish %d was answered with %q", seed, i, got)
		}
	}
	events := string(stream.Received())
	for i := range publications {
		if strings.Count(events, fmt.Sprintf("data: {\"n\":%d}\n\n", i)) != 1 {
			t.Errorf("seed %d: publication %d is not once in %q", seed, i, events)
		}
	}
	s.stop()
	for _, p := range sockets {
		got := frames(t, p)
		if len(got) != 2+publications || !strings.HasSuffix(got[0], "\n"+`{"id":2,"subscribe":{}}`) {
			t.Fatalf("seed %d: received %q", seed, got)
		}
		for i, line := range got[1 : 1+publications] {
			if line != fmt.Sprintf(`{"push":{"channel":"news","pub":{"data":{"n":%d}}}}`, i) {
				t.Errorf("seed %d: publication %d is %s", seed, i, line)
			}
		}
		if last := got[1+publications]; last != `opcode 8 "\v\xb9shutdown"` {
			t.Errorf("seed %d: the last frame is %s", seed, last)
		}
	}
	return s.Hash()
}

func TestSimulation(t *testing.T) {
	seeds := uint64(50)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		scenario(t, seed)
	}
}

func TestSameSeedSameTrace(t *testing.T) {
	if a, b := scenario(t, 7), scenario(t, 7); a != b {
		t.Errorf("the same seed gave %x and %x", a, b)
	}
	if a, b := scenario(t, 7), scenario(t, 8); a == b {
		t.Error("another seed gave the same trace")
	}
}

// Clients that answer pings stay connected. Others are disconnected with 3012.
func TestPingsInSimulation(t *testing.T) {
	s := simulate(t, 1, sim.Calm(), push.Config{})
	quiet := s.dial(servertest.UpgradeRequest + servertest.MaskedText(servertest.ConnectAndSubscribe))
	alive := s.dial(servertest.UpgradeRequest + servertest.MaskedText(servertest.ConnectAndSubscribe))
	answered := 0
	for range 4 * 100 {
		s.run(simulatedStep)
		if pings := bytes.Count(alive.Received(), []byte("\x81\x02{}")); pings > answered {
			alive.Write([]byte(servertest.MaskedText("{}")))
			answered = pings
		}
	}
	if answered < 3 {
		t.Errorf("%d pings in 100 s", answered)
	}
	if got := frames(t, quiet); got[len(got)-1] != `opcode 8 "\v\xc4no pong"` {
		t.Errorf("the quiet one received %q", got)
	}
	if got := frames(t, alive); got[len(got)-1] != "{}" {
		t.Errorf("the one that answers received %q", got)
	}
	s.stop()
}
