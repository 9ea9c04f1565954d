package myriad_test

import (
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

const (
	fairRead = 4 << 10 // Config.ReadBuffer of these tests
	others   = 1000
)

// A fountain notes how much of a firehose passes while a thousand others wait with one message each.
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

// check holds it against the budget: a connection that has had one receive buffer comes behind all who are ready, so that those hear of
// one from before their turn and one from after it.
func (f *fountain) check(t *testing.T, seed uint64) {
	t.Helper()
	if waited := f.last - f.started; f.heard != others || f.longest > fairRead || waited > 2*fairRead {
		t.Errorf("seed %d: %d of %d were heard; %d bytes of the firehose passed before the last of them (at most %d may), %d between two (%d)",
			seed, f.heard, others, waited, 2*fairRead, f.longest, fairRead)
	}
}

// flood connects the others and one peer more, for whom h is.
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

// speak holds the loop until all others have sent, so that all of them are ready, and ends when they are heard.
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
	for seed := range seeds() / 10 {
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
		f.check(t, seed)
		hose.Reset()
		s.finish()
	}
}
