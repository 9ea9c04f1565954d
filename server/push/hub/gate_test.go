package hub

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad/server/push/answer"
)

// Publications race with the end: each either runs and is waited for, or is refused.
func TestGate(t *testing.T) {
	for range 200 {
		var g gate
		var over atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for g.enter(t.Context()) == nil {
					if over.Load() {
						t.Error("a publication runs when wait has returned")
					}
					g.leave()
				}
			})
		}
		g.shut()
		for range 2 { // a second call waits, too
			if err := g.publications.wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		over.Store(true)
		wg.Wait()
	}
}

// The last publication ends while the gate shuts: Drain learns of it.
func TestDrainMeetsTheLastPublication(t *testing.T) {
	const rounds = 100_000
	gates := make([]gate, rounds)
	for i := range gates {
		if err := gates[i].enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var at atomic.Int64 // the round of both
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range gates {
			for at.Load() < int64(i) {
				runtime.Gosched()
			}
			gates[i].leave()
		}
	})
	for i := range gates {
		at.Store(int64(i))
		if err := gates[i].Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// Publications and changes race with freezes: none runs while the gate is frozen, and each goes on
// afterwards, or is refused when the gate has moved.
func TestGateFreezes(t *testing.T) {
	for _, last := range []uint32{gateOpen, gateMoved} {
		var g gate
		var frozen, ends atomic.Bool
		var ran atomic.Int64
		var wg sync.WaitGroup
		run := func(begin func(context.Context) error, end func()) {
			for !ends.Load() {
				err := begin(t.Context())
				if err != nil {
					if last != gateMoved || err != answer.ErrDraining {
						t.Errorf("ends with %v", err)
					}
					return
				}
				if frozen.Load() {
					t.Error("it runs while the gate is frozen")
				}
				ran.Add(1)
				end()
			}
		}
		for range 2 {
			wg.Go(func() { run(g.enter, g.leave) })
			wg.Go(func() { run(g.BeginChange, g.EndChange) })
		}
		for round := range 100 {
			for before := ran.Load(); ran.Load() == before; {
				runtime.Gosched()
			}
			if err := g.freeze(t.Context()); err != nil {
				t.Fatal(err)
			}
			frozen.Store(true)
			runtime.Gosched()
			frozen.Store(false)
			if round == 99 {
				ends.Store(last == gateOpen)
				g.leaveFrozen(last)
			}
			g.leaveFrozen(gateOpen)
		}
		wg.Wait()
		if got := g.IsDraining(); got != (last == gateMoved) {
			t.Errorf("draining: %v", got)
		}
	}
}

// A freeze that cannot end in time, or of a gate that is shut, changes nothing.
func TestGateFreezeFails(t *testing.T) {
	var g gate
	if err := g.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.freeze(over); err != context.Canceled || g.isFrozen() {
		t.Errorf("%v; frozen: %v", err, g.isFrozen())
	}
	g.leave()
	if err := g.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.enter(over); err != context.Canceled {
		t.Errorf("a publication whose context has ended: %v", err)
	}
	g.shut()
	if err := g.enter(t.Context()); err != answer.ErrDraining {
		t.Errorf("%v", err)
	}
	if err := g.BeginChange(t.Context()); err != nil { // of a node that drains
		t.Errorf("%v", err)
	}
	g.EndChange()
	if err := g.freeze(t.Context()); err != answer.ErrDraining || g.isFrozen() {
		t.Errorf("%v; frozen: %v", err, g.isFrozen())
	}
}
