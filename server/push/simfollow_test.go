package push_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/membus"
)

// A simFollower is a follower over the simulated network. As a client library, it reads frames;
// when the connection ends, it opens another and recovers.
type simFollower struct {
	follower
	s          *simulated
	peer       *sim.Peer
	in         []byte // received bytes of an incomplete frame
	head       bool   // the answer to the upgrade has been read
	notReading bool
	back       int
}

func (f *simFollower) connect() {
	command := `{"id":2,"subscribe":{"channel":"news"}}`
	if f.at.Epoch != "" {
		command = fmt.Sprintf(`{"id":2,"subscribe":{"channel":"news","recover":true,"offset":%d,"epoch":%q}}`,
			f.at.Offset, f.at.Epoch)
	}
	f.in, f.head, f.notReading = nil, false, false
	f.peer = f.s.dial(servertest.UpgradeRequest + servertest.MaskedText(`{"id":1,"connect":{}}`+"\n"+command))
	f.back++
}

// step processes what has arrived, and reconnects if the connection has ended.
func (f *simFollower) step(t *testing.T) {
	f.in = append(f.in, f.peer.TakeReceived()...)
	if !f.head {
		_, rest, found := bytes.Cut(f.in, []byte("\r\n\r\n"))
		if found {
			f.in, f.head = rest, true
		}
	}
	gone := f.peer.Ended() || f.peer.Closed()
	for f.head {
		r := bytes.NewReader(f.in)
		op, payload, err := servertest.ReadFrame(r)
		if err != nil {
			break // half a frame
		}
		f.in = f.in[len(f.in)-r.Len():]
		if op == 8 {
			gone = true
			break
		}
		gone = !f.check(t, lines(t, payload)) || gone // if told to subscribe again, it reconnects instead
	}
	if gone {
		f.peer.Close()
		f.connect()
	}
}

// disturb makes the client misbehave now and then.
func (f *simFollower) disturb(chance int) {
	switch {
	case chance == 0:
		f.peer.Reset()
	case chance == 1:
		f.peer.Close()
	case chance == 2:
		f.peer.StopReading()
	case chance < 8:
		f.peer.Resume()
	}
}

// followInSimulation publishes while clients lose connections, stop reading and are disconnected as
// slow. The bus delivers late and loses publications.
func followInSimulation(t *testing.T, seed uint64) uint64 {
	bus := new(pushtest.LateBus)
	s := simulate(t, seed, sim.Options{}, push.Config{
		Namespaces: []push.Namespace{{HistorySize: 1000, HistoryAge: time.Hour, Recovery: true}},
		Timing:     push.Timing{Ping: time.Hour, Connect: time.Hour}, Limits: push.Limits{Queue: 64 << 10},
		Bus: bus,
	})
	bus.Bus = membus.New(membus.Config{Clock: s.clock, Random: pushtest.Seeded()})
	random := rand.New(rand.NewPCG(seed, 2))
	clients := make([]*simFollower, 4)
	for i := range clients {
		clients[i] = &simFollower{s: s}
		clients[i].connect()
	}
	published := 0
	for range 150 {
		for range random.IntN(4) {
			published++
			text := strconv.Itoa(published)
			p := push.Publication{Data: []byte(text)}
			if _, err := s.hub.Publish(t.Context(), "news", p, false, false); err != nil {
				t.Fatal(err)
			}
		}
		n := random.IntN(bus.Held() + 1)
		lose := 0
		if n > 1 && random.IntN(40) == 0 {
			lose = 1
		}
		bus.Deliver(n, lose)
		for _, f := range clients {
			f.disturb(random.IntN(60))
		}
		s.RunFor(time.Duration(random.IntN(40)) * time.Millisecond)
		if random.IntN(10) == 0 {
			s.clock.Advance(simulatedStep)
		}
		for _, f := range clients {
			f.step(t)
		}
	}
	bus.Deliver(bus.Held(), 0)
	for range 400 {
		done := true
		for _, f := range clients {
			f.peer.Resume()
			f.step(t)
			done = done && f.seen == published
		}
		if done {
			break
		}
		s.run(simulatedStep)
	}
	for i, f := range clients {
		if f.seen != published || f.lost > 0 {
			t.Errorf("seed %d: client %d has seen %d of %d, lost %d times, reconnected %d times", seed, i, f.seen,
				published, f.lost, f.back)
		}
	}
	s.stop()
	return s.Hash()
}

// A client sees the publications without gaps and duplicates. MYRIAD_PUSH_SEEDS sets the number of
// seeds.
func TestFollowInSimulation(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 4
	}
	if more, err := strconv.ParseUint(os.Getenv("MYRIAD_PUSH_SEEDS"), 10, 64); err == nil {
		seeds = more
	}
	for seed := range seeds {
		followInSimulation(t, seed)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	if a, b := followInSimulation(t, 3), followInSimulation(t, 3); a != b {
		t.Errorf("seed 3 gave %x and %x", a, b)
	}
}
