package enginetest

import (
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// What one connection may have before the others have their turn: one receive buffer in a poll, and
// of a file under a layer four slices in a turn. So a message waits, at most, for the budget of
// each poll that it takes to serve all connections that are ready with it.
const (
	fairRead  = 4 << 10        // Config.ReadBuffer of these tests
	fairFile  = 4 * (64 << 10) // slicesPerTurn of fileSlice
	others    = 1000
	simPoll   = 64 // connections that one Poll of the simulated driver serves at most
	simRounds = (others+1+simPoll-1)/simPoll + 1
	// polls between two messages of others, of which one may be the last of its poll and the next
	// the first
	sameRounds = 2
)

// A fountain notes how much of a firehose passes while a thousand others wait with one message
// each.
type fountain struct {
	flow    int // bytes of the firehose so far
	started int // flow when the others sent
	last    int // flow at the last message of others, or at the start
	heard   int
	longest int // flow between two messages of others
}

func (f *fountain) start() { f.started, f.last = f.flow, f.flow }

func (f *fountain) hear() {
	f.heard++
	f.longest = max(f.longest, f.flow-f.last)
	f.last = f.flow
}

// check holds it against a budget for each poll.
func (f *fountain) check(t *testing.T, seed uint64, budget, rounds int) {
	t.Helper()
	if f.heard != others || f.longest > sameRounds*budget || f.last-f.started > rounds*budget {
		t.Errorf("seed %d: %d of %d heard; between two of them up to %d bytes of the firehose passed (at most %d "+
			"may), before the last %d (%d)",
			seed, f.heard, others, f.longest, sameRounds*budget, f.last-f.started, rounds*budget)
	}
}

// flood connects the others and one more peer, which h serves.
func (s *simulation) flood(f *fountain, h myriad.Handler) (hose *sim.Peer, crowd []*sim.Peer) {
	quiet := newProbe()
	quiet.received = func(*myriad.Conn, []byte) { f.hear() }
	ln := s.listen(quiet)
	for range others {
		crowd = append(crowd, s.Dial(ln.Addr()))
	}
	hose = s.Dial(s.listen(h).Addr())
	s.RunUntil(func() bool { return int(quiet.openings.Load()) == others && hose.Open() })
	return hose, crowd
}

// speak holds the loop until all others have sent, so that all of them are ready, and ends when
// they are heard.
func (s *simulation) speak(f *fountain, crowd []*sim.Peer, flowing func() bool) {
	if !s.RunUntil(flowing) {
		s.t.Fatalf("seed %d: the firehose stands still", s.Seed())
	}
	parker, held := s.NewParker(), false
	if err := s.e.Loops()[0].Do(func() {
		held = true
		parker.ParkFor(time.Second)
		f.start()
	}); err != nil {
		s.t.Fatal(err)
	}
	s.RunUntil(func() bool { return held })
	for _, p := range crowd {
		p.Write([]byte("m"))
	}
	s.RunUntil(func() bool { return f.heard == others })
}

func fairWorld() sim.Options {
	o := sim.Calm()
	o.Backlog = 2 * others
	return o
}

// A peer that always has data does not keep a thousand others waiting beyond its budget.
func TestFirehoseOfInput(t *testing.T) {
	for seed := range seeds(t) / 10 {
		s := simulate(t, seed, fairWorld(), myriad.Config{Loops: 1, ReadBuffer: fairRead})
		f := new(fountain)
		var hose *sim.Peer
		h := newProbe()
		h.received = func(_ *myriad.Conn, p []byte) {
			f.flow += len(p)
			hose.Write(p) // as much again
		}
		hose, crowd := s.flood(f, h)
		hose.Write(make([]byte, 1<<20))
		s.speak(f, crowd, func() bool { return f.flow > 1<<20 })
		f.check(t, seed, fairRead, simRounds)
		hose.Reset()
		s.finish()
	}
}

// Nor does one that takes a large file that must be encoded.
func TestFirehoseOfFile(t *testing.T) {
	const size = 32 << 20
	file := tempFile(t, make([]byte, size))
	for seed := range seeds(t) / 50 {
		s := simulate(t, seed, fairWorld(), myriad.Config{Loops: 1, ReadBuffer: fairRead, WriteLimit: size})
		f := new(fountain)
		h := newProbe()
		h.received = func(c *myriad.Conn, _ []byte) {
			if err := c.WriteFile(file, 0, size); err != nil {
				t.Error(err)
			}
		}
		layered := metered{withXOR(h), func(n int) { f.flow += n }}
		hose, crowd := s.flood(f, layered)
		hose.OnReceived = func([]byte) { hose.TakeReceived() }
		hose.Write([]byte("x"))
		s.speak(f, crowd, func() bool { return f.flow > 0 })
		f.check(t, seed, fairFile, simRounds)
		if f.flow == size {
			t.Error("the file was over before the others were heard")
		}
		hose.Reset()
		s.finish()
	}
}

// metered is a handler below which a layer tells how much it encodes.
type metered struct {
	withLayer
	encoded func(n int)
}

func (m metered) Opened(c *myriad.Conn) {
	c.SetLayer(&meteredLayer{encoded: m.encoded})
	c.SetHandler(m.h, nil)
}

type meteredLayer struct {
	xorLayer
	encoded func(n int)
}

func (l *meteredLayer) Write(w myriad.Wire, p []byte) (int, error) {
	n, err := l.xorLayer.Write(w, p)
	l.encoded(n)
	return n, err
}
