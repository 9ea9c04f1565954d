package enginetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file is about newcomers at loops that are late: they wait for those that are in, and all
// come in at last.

// A crush is an engine whose processor is too slow for its peers. Members always have a message
// under way. Newcomers say some things, one after the other, and are content then.
type crush struct {
	*simulation
	answered int // messages of members
	content  int // newcomers that have had all their answers
}

// crushOptions are of a world without faults, whose peers wait in a long backlog.
func crushOptions() sim.Options {
	o := sim.Calm()
	o.MaxSteps, o.Backlog, o.Accepts, o.TraceLines = 1<<30, 1<<14, 64, 64
	return o
}

func newCrush(t *testing.T, seed uint64, o sim.Options, cfg myriad.Config) *crush {
	return &crush{simulation: simulate(t, seed, o, cfg)}
}

// member adds a peer that says something whenever it has had an answer.
func (k *crush) member(ln *myriad.Listener) *sim.Peer {
	p := k.Dial(ln.Addr())
	p.OnReceived = func([]byte) {
		k.answered++
		p.TakeReceived()
		p.Write([]byte("again"))
	}
	p.Write([]byte("first"))
	return p
}

// newcomer adds a peer that wants so many answers.
func (k *crush) newcomer(ln *myriad.Listener, answers int) *sim.Peer {
	p := k.Dial(ln.Addr())
	left := answers
	p.OnReceived = func([]byte) {
		if left--; left > 0 {
			p.Write([]byte("more"))
		} else if left == 0 {
			k.content++
		}
	}
	p.Write([]byte("hello"))
	return p
}

// A loop that its members alone keep busy serves newcomers, too, whatever they cost: in about an
// eighth of its time, so that members have seven eighths of what they had. When the load has gone
// all come in.
func TestNewcomersHaveTheirShare(t *testing.T) {
	for seed := range seeds(t) / 5 {
		if newcomersHaveTheirShare(t, seed); t.Failed() {
			return
		}
	}
}

func newcomersHaveTheirShare(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 33))
	loops, members, answers := 1+rng.IntN(3), 150+rng.IntN(200), 1+rng.IntN(6)
	event := 500*time.Microsecond + time.Duration(rng.IntN(1000))*time.Microsecond
	accept := time.Duration(rng.Int64N(int64(event)))
	const newcomers, span = 3000, 20 * time.Second
	k := newCrush(t, seed, crushOptions(), myriad.Config{Loops: loops})
	ln := k.listen(newEchoAll())
	var peers []*sim.Peer
	k.SetCosts(sim.Costs{Event: 10 * time.Microsecond, Send: 10 * time.Microsecond})
	for range members {
		peers = append(peers, k.member(ln))
	}
	k.RunFor(time.Second)
	k.SetCosts(sim.Costs{Event: event, Send: event, Accept: accept})
	k.RunFor(5 * time.Second)
	k.answered = 0
	k.RunFor(span)
	alone := k.answered
	for range newcomers {
		peers = append(peers, k.newcomer(ln, answers))
	}
	k.RunFor(5 * time.Second)
	k.answered, k.content = 0, 0
	k.RunFor(span)
	// the loop that accepts pays that for all of them
	most := float64(span) / 8 / float64(time.Duration(loops)*accept+time.Duration(2*answers)*event)
	what := fmt.Sprintf("seed %d, %d loops: members have %d answers, and had %d without newcomers; %d newcomers are "+
		"content, which is %.2f of their share", seed, loops, k.answered, alone, k.content, float64(k.content)/most)
	t.Log(what)
	if k.answered < alone*7/8*95/100 || k.content < int(most/2) {
		t.Error(what)
	}
	for _, p := range peers[:members] {
		p.OnReceived = nil
	}
	k.SetCosts(sim.Costs{})
	k.RunFor(10 * time.Second)
	for _, p := range peers[members:] {
		if p.Count() == 0 {
			t.Errorf("seed %d: a newcomer has no answer 10 s after the load has gone", seed)
			break
		}
	}
	k.leave(peers)
}

// Newcomers that have left while they waited are not served, so that those behind them are.
func TestNewcomersThatLeave(t *testing.T) {
	const members, leave, stay = 200, 1000, 20
	event := time.Millisecond
	k := newCrush(t, 1, crushOptions(), myriad.Config{Loops: 1})
	ln := k.listen(newEchoAll())
	var peers []*sim.Peer
	for range members {
		peers = append(peers, k.member(ln))
	}
	k.SetCosts(sim.Costs{Event: event, Send: event, Accept: event / 4})
	k.RunFor(5 * time.Second)
	var left, stayed []*sim.Peer
	for range leave {
		left = append(left, k.newcomer(ln, 1))
	}
	k.RunFor(100 * time.Millisecond)
	before := k.e.Limits().Left
	for _, p := range left {
		p.Close()
	}
	for range stay {
		stayed = append(stayed, k.newcomer(ln, 1))
	}
	k.content = 0
	// an eighth of the time is enough to accept all, and to serve those that have stayed; not to
	// serve all
	k.RunFor(2*time.Second + 8*(leave*event/4+4*stay*event))
	if n := k.e.Limits().Left - before; n < leave*9/10 || k.content < stay {
		t.Errorf("%d of %d that had left were closed unserved; %d of %d that had not were served; %+v", n, leave,
			k.content, stay, k.e.Limits())
	}
	for _, p := range peers {
		p.OnReceived = nil
	}
	k.SetCosts(sim.Costs{})
	k.RunFor(10 * time.Second)
	k.leave(append(peers, append(left, stayed...)...))
}

// A loop that is late for a moment, again and again, has no newcomer wait.
func TestBurstsOfWorkHaveNoNewcomerWait(t *testing.T) {
	const members, newcomers = 200, 100
	k := newCrush(t, 1, crushOptions(), myriad.Config{Loops: 1})
	ln := k.listen(newEchoAll())
	var peers []*sim.Peer
	for range members {
		peers = append(peers, k.Dial(ln.Addr()))
	}
	k.RunFor(time.Second)
	k.SetCosts(sim.Costs{Event: time.Millisecond, Accept: time.Millisecond})
	for range newcomers {
		for _, p := range peers[:members] {
			p.Write([]byte("now"))
		}
		peers = append(peers, k.newcomer(ln, 1))
		k.RunFor(300 * time.Millisecond)
	}
	if late, l := k.e.Stats().MostLate, k.e.Limits(); late < 100*time.Millisecond || l.AtLateness != 0 {
		t.Errorf("the loop was %v late, and %d newcomers had to wait, want none", late, l.AtLateness)
	}
	if k.content != newcomers {
		t.Errorf("%d of %d newcomers are content", k.content, newcomers)
	}
	k.leave(peers)
}

// leave has all peers end, and the engine.
func (k *crush) leave(peers []*sim.Peer) {
	k.SetCosts(sim.Costs{})
	for _, p := range peers {
		p.OnReceived = nil
		p.Close()
	}
	k.Run()
	k.finish()
}

// Newcomers do not wait for members that have nothing to say.
func TestNewcomersAlone(t *testing.T) {
	const idle, newcomers, answers = 500, 2000, 4
	k := newCrush(t, 1, crushOptions(), myriad.Config{Loops: 1})
	ln := k.listen(newEchoAll())
	var peers []*sim.Peer
	for range idle {
		peers = append(peers, k.Dial(ln.Addr()))
	}
	k.RunFor(time.Second)
	k.SetCosts(sim.Costs{Event: 500 * time.Microsecond, Send: 500 * time.Microsecond, Accept: time.Millisecond})
	began := k.Now()
	for range newcomers {
		peers = append(peers, k.newcomer(ln, answers))
	}
	if !k.RunUntil(func() bool { return k.content == newcomers }) {
		t.Fatalf("%d of %d newcomers are content", k.content, newcomers)
	}
	least := newcomers * (1 + answers) * time.Millisecond
	if took := k.Now().Sub(began); took > least*5/4 {
		t.Errorf("%d newcomers took %v, and cost %v", newcomers, took, least)
	}
	t.Logf("%v of %v; %+v, most late %v", k.Now().Sub(began), least, k.e.Limits(), k.e.Stats().MostLate)
	k.leave(peers)
}

// Everything that has newcomers wait, together: late loops, Config.MaxConns and AcceptRate,
// listeners that pause and close. Each peer that may come in does so once, within a bounded time
// after the load has gone, and an engine that ends meanwhile leaves nothing behind.
func TestNewcomersSimulated(t *testing.T) {
	waited := uint64(0)
	for seed := range seeds(t) / 2 {
		waited += simulateNewcomers(t, seed)
		if t.Failed() {
			return
		}
	}
	if waited == 0 {
		t.Error("no newcomer had to wait for a late loop")
	}
}

func simulateNewcomers(t *testing.T, seed uint64) uint64 {
	rng := rand.New(rand.NewPCG(seed, 43))
	o := crushOptions()
	o.Accepts = 1 + rng.IntN(64)
	if rng.IntN(2) == 0 {
		o.Reorder, o.Spurious, o.LateFIN, o.LateClose, o.EarlySlot, o.MaxDelay = 0, 0, 0, 0, 0, 20*time.Millisecond
	}
	const members, newcomers, answers = 40, 80, 3
	cfg := myriad.Config{Loops: 1 + rng.IntN(3), LingerTimeout: time.Second}
	if rng.IntN(3) == 0 {
		cfg.MaxConns = members + 1 + rng.IntN(newcomers)
	}
	if rng.IntN(3) == 0 {
		cfg.AcceptRate = 50 + rng.IntN(1000)
	}
	k := newCrush(t, seed, o, cfg)
	d := &doorkeeper{}
	lns := []*myriad.Listener{k.listen(doorkept{d, "a"}), k.listen(doorkept{d, "b"}), k.listen(doorkept{d, "c"})}
	in := make([]*sim.Peer, members)
	k.SetCosts(sim.Costs{Event: 10 * time.Microsecond, Send: 10 * time.Microsecond})
	for i := range in {
		in[i] = k.member(lns[i%len(lns)])
	}
	k.RunFor(2 * time.Second)
	cost := time.Duration(1+rng.IntN(3)) * time.Millisecond
	k.SetCosts(sim.Costs{Event: cost, Send: cost, Accept: cost})
	k.RunFor(time.Duration(rng.IntN(3000)) * time.Millisecond)
	var out []*sim.Peer
	closes := -1
	if rng.IntN(4) == 0 {
		closes = rng.IntN(len(lns)) // and its newcomers are refused
	}
	var stay []*sim.Peer // that must be served
	for i := range newcomers {
		p := k.newcomer(lns[i%len(lns)], answers)
		if out = append(out, p); i%len(lns) != closes {
			stay = append(stay, p)
		}
		if cfg.MaxConns > 0 { // or those that have come would keep the others out
			content := p.OnReceived
			p.OnReceived = func(b []byte) {
				if content(b); p.Count() >= len("hello")+(answers-1)*len("more") {
					p.Close()
				}
			}
		}
		k.RunFor(time.Duration(rng.IntN(20)) * time.Millisecond)
		switch rng.IntN(20) {
		case 0:
			lns[rng.IntN(len(lns))].Pause()
		case 1:
			lns[rng.IntN(len(lns))].Resume()
		}
	}
	if closes >= 0 {
		_ = lns[closes].Close()
	}
	early := rng.IntN(4) == 0
	if early {
		k.RunFor(time.Duration(rng.IntN(2000)) * time.Millisecond)
	}
	for _, p := range in {
		p.OnReceived = nil
	}
	if !early {
		for _, ln := range lns {
			ln.Resume()
		}
		k.SetCosts(sim.Costs{})
		k.RunFor(10 * time.Second)
		for i, p := range stay {
			if p.Count() < len("hello")+(answers-1)*len("more") {
				t.Errorf("seed %d: newcomer %d of %d has %d bytes 10 s after the load has gone; %+v, %+v", seed, i,
					len(stay), p.Count(), cfg, k.e.Limits())
				break
			}
		}
		if s := k.e.Stats(); s.Newcomers.Waiting != 0 {
			t.Errorf("seed %d: %+v 10 s after the load has gone", seed, s.Newcomers)
		}
	}
	if cfg.MaxConns > 0 && d.most > cfg.MaxConns {
		t.Errorf("seed %d: %d were open at a time, of at most %d", seed, d.most, cfg.MaxConns)
	}
	k.SetCosts(sim.Costs{})
	waited := k.e.Limits().AtLateness
	if early {
		k.finish()
	} else {
		k.leave(append(in, out...))
	}
	if l := k.e.Limits(); l.Open != 0 || d.in != 0 {
		t.Errorf("seed %d: %d are counted as open at the end, and %d have not been closed", seed, l.Open, d.in)
	}
	return waited
}
