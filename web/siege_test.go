package web

import (
	"fmt"
	"log"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file attacks a server in fake time, from a seed: every attack stops, or is reset, at any
// byte. What healthy clients wait for is counted in the world's ticks, so that the machine makes no
// difference.

const (
	siegeTick  = 10 * time.Millisecond
	siegeTicks = 300
	// siegeWait is how many ticks a healthy client may wait for its answer: what the wire takes
	// both ways, and turns of the loop.
	siegeWait = 3
)

// A besieger is one hostile connection.
type besieger struct {
	attack
	peer    *sim.Peer
	every   int // ticks between two pieces
	resetAt int // the tick; 0 never
}

// newBesieger makes one of the attacks, cut and reset where chance says.
func newBesieger(w *sim.World, addr addrOf, r *rand.Rand, kinds []attack) *besieger {
	b := besieger{attack: kinds[r.IntN(len(kinds))]}
	if r.IntN(3) == 0 {
		b.hello = b.hello[:r.IntN(len(b.hello))]
	}
	if r.IntN(2) == 0 {
		b.resetAt = 1 + r.IntN(siegeTicks)
	}
	b.every = 1 + r.IntN(20)
	b.peer = w.Dial(addr)
	if r.IntN(2) == 0 {
		b.peer.StopReading()
	}
	b.peer.Write([]byte(b.hello))
	return &b
}

func (b *besieger) act(tick int) {
	if tick == b.resetAt {
		b.peer.Reset()
	} else if b.piece != "" && tick%b.every == 0 {
		b.peer.Write([]byte(b.piece))
	}
}

type addrOf = interface {
	Network() string
	String() string
}

// A besieged is a healthy client, which keeps its connection.
type besieged struct {
	peer  *sim.Peer
	got   []byte
	asked int // the tick; -1: it waits for nothing
	done  int
	worst int // ticks
}

func newBesieged(w *sim.World, addr addrOf, now *int) *besieged {
	c := &besieged{peer: w.Dial(addr), asked: -1}
	c.peer.OnReceived = func(p []byte) {
		if c.got = append(c.got, p...); strings.HasSuffix(string(c.got), "\r\n\r\nread 10") {
			c.worst = max(c.worst, *now-c.asked)
			c.done++
			c.asked, c.got = -1, nil
		}
	}
	return c
}

func (c *besieged) ask(tick int) {
	if c.asked < 0 {
		c.asked = tick
		c.peer.Write([]byte("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789"))
	}
}

// siege runs one world: with timeouts the server gets rid of everybody by itself, without, the
// attackers reset at the end.
func siege(t *testing.T, seed uint64, d Dispatch, timeouts bool) {
	o := sim.Options{Reset: -1, Accept: -1, Dial: -1, SlowPeer: -1, LateFIN: -1, SmallBuffers: -1,
		MaxDelay: time.Millisecond, Overstay: -1, Workers: 256}
	w := newWorld(seed, o)
	engine, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	var errs lockedLog
	s := &Server{Engine: engine, mostAwake: int(seed % 2), Dispatch: d, PipelineDepth: int(seed % 3),
		ErrorLog: log.New(&errs, "", 0), Handler: hostileHandler()}
	if timeouts {
		s.ReadHeaderTimeout, s.ReadTimeout = time.Second, 2*time.Second
		s.WriteTimeout, s.IdleTimeout = 2*time.Second, 5*time.Second
	}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 11))
	now := 0
	var healthy []*besieged
	for range 4 {
		healthy = append(healthy, newBesieged(w, ln.Addr(), &now))
	}
	w.RunFor(100 * time.Millisecond)
	blocks := buf.InUse()

	kinds := attacksOf(t, "siege.txt")
	var attackers []*besieger
	for now = 1; now <= siegeTicks; now++ {
		for _, c := range healthy {
			c.ask(now)
		}
		if len(attackers) < 60 {
			attackers = append(attackers, newBesieger(w, ln.Addr(), r, kinds))
		}
		for _, b := range attackers {
			b.act(now)
		}
		w.RunFor(siegeTick)
	}
	if !timeouts {
		for _, b := range attackers {
			b.peer.Reset()
		}
	}
	for ; now < siegeTicks+60; now++ { // half a minute, in which what still lingers ends
		for _, c := range healthy {
			c.ask(now)
		}
		w.RunFor(500 * time.Millisecond)
	}
	checkSiege(t, seed, s, healthy, blocks)
	leave(attackers, healthy)
	w.RunFor(time.Second)
	if err := s.Shutdown(atLength(t)); err != nil {
		t.Errorf("seed %d: Shutdown: %v", seed, err)
	}
	if err := engine.Shutdown(atLength(t)); err != nil {
		t.Errorf("seed %d: engine Shutdown: %v", seed, err)
	}
	w.Settle()
	w.Check(t)
	if s := errs.String(); s != "" {
		t.Errorf("seed %d: log: %s", seed, s)
	}
}

// leave ends the clients of a siege.
func leave(attackers []*besieger, healthy []*besieged) {
	for _, b := range attackers {
		b.peer.Reset()
	}
	for _, c := range healthy {
		c.peer.Close()
	}
}

// checkSiege holds what there is when the attackers have gone against what there was before they
// came.
func checkSiege(t *testing.T, seed uint64, s *Server, healthy []*besieged, blocks int) {
	for i, c := range healthy {
		if c.worst > siegeWait || c.asked >= 0 || c.done < siegeTicks/(siegeWait+1) {
			t.Errorf("seed %d: healthy client %d: %d answers, the worst after %d ticks; still waits: %t", seed, i,
				c.done, c.worst, c.asked >= 0)
		}
	}
	st, stats := s.state, s.Engine.Stats()
	if n := st.Conns.Load(); int(n) != len(healthy) || stats.Conns != len(healthy) {
		t.Errorf("seed %d: %d connections of the server, %d of the engine, for %d healthy clients", seed, n,
			stats.Conns, len(healthy))
	}
	if n, lent := st.Load.Handlers(), st.Tasks.Away(); n != 0 || lent != 0 {
		t.Errorf("seed %d: %d handlers still run, %d beside their loops", seed, n, lent)
	}
	if n := buf.InUse(); n > blocks {
		t.Errorf("seed %d: %d blocks before, %d after", seed, blocks, n)
	}
	if stats.Queued != 0 || stats.Dirty != 0 || stats.Revisits != 0 {
		t.Errorf("seed %d: left in the engine: %+v", seed, stats.LoopStats)
	}
}

// Whatever sixty attackers do at once, and wherever they stop, healthy clients get their answers
// within three ticks, and in the end nothing is left of it: by the server's timeouts, or when the
// attackers have gone.
func TestSiege(t *testing.T) {
	for _, d := range []Dispatch{DispatchPool, DispatchInline, DispatchAuto} {
		for _, timeouts := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v timeouts %t", d, timeouts), func(t *testing.T) {
				for seed := range max(simSeeds(t)/30, 1) {
					if siege(t, seed, d, timeouts); t.Failed() {
						t.FailNow()
					}
				}
			})
		}
	}
}
