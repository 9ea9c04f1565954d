package drivertest

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// Every mutant must be caught by some case. Which one is not fixed; `go test -v` says it.
func TestMutantsAreCaught(t *testing.T) {
	for _, m := range slices.Concat(receiveMutants, sendMutants, closeMutants, otherMutants) {
		t.Run(m.name, func(t *testing.T) {
			for _, o := range []sim.Options{sim.Calm(), sim.Lossless()} {
				o.Stall = time.Second // a mutant that stands still is soon caught
				if by := caught(t, o, m); by != "" {
					t.Log(by)
					return
				}
			}
			t.Errorf("the suite passes a driver where %s", m.name)
		})
	}
}

// The same for mistakes of a System.
func TestMutantsOfMovesAreCaught(t *testing.T) {
	for _, m := range moveMutants {
		t.Run(m.name, func(t *testing.T) {
			by := caughtIn(t, func(w *sim.World) driver.System { return spoilt{w, m} }, sim.Calm())
			if by == "" {
				t.Fatalf("the suite passes a system where %s", m.name)
			}
			t.Log(by)
		})
	}
}

// A spoilt system makes a mistake with sockets that move.
type spoilt struct {
	*sim.World
	m moveMutant
}

func (s spoilt) Facilities() driver.Facilities {
	f := s.World.Facilities()
	moves := *f.Moves
	s.m.spoil(&moves)
	f.Moves = &moves
	return f
}

// The relay alone is no mutant, or the test above would prove nothing.
func TestRelayPasses(t *testing.T) {
	for _, o := range []sim.Options{sim.Calm(), sim.Lossless()} {
		if by := caught(t, o, mutant{"no mistake is made", func(*relay) {}}); by != "" {
			t.Errorf("the suite refuses a relay that changes nothing: %s", by)
		}
	}
}

// caught runs the suite against a mutant until a case fails, and says how it did.
func caught(t *testing.T, o sim.Options, m mutant) string {
	return caughtIn(t, func(w *sim.World) driver.System { return mutated{w, m} }, o)
}

func caughtIn(t *testing.T, of func(w *sim.World) driver.System, o sim.Options) string {
	open := func(T) (driver.System, Harness) {
		w := sim.New(1, o)
		return of(w), SimHarness(w)
	}
	for _, g := range groups {
		for _, c := range g {
			p := &probe{TB: t}
			p.run(func() { runCase(p, open, c) })
			if p.said != "" {
				return fmt.Sprintf("%s: %s", c.name, p.said)
			}
		}
	}
	return ""
}

type mutated struct {
	driver.System
	m mutant
}

func (s mutated) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	d, err := s.System.Open(loop, o)
	if err != nil {
		return nil, err
	}
	r := newRelay(d)
	s.m.spoil(r)
	return r, nil
}

// A probe stands in for the test and remembers the first complaint.
type probe struct {
	testing.TB
	said     string
	skipped  bool
	cleanups []func()
}

// run calls f where a Fatalf can end it.
func (p *probe) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, c := range slices.Backward(p.cleanups) {
				c()
			}
		}()
		f()
	}()
	<-done
}

func (p *probe) Errorf(format string, args ...any) {
	if p.said == "" {
		p.said = fmt.Sprintf(format, args...)
	}
}

func (p *probe) Fatalf(format string, args ...any) { p.Errorf(format, args...); runtime.Goexit() }
func (p *probe) Skipf(string, ...any)              { p.skipped = true; runtime.Goexit() }
func (p *probe) Logf(string, ...any)               {}
func (p *probe) Failed() bool                      { return p.said != "" }
func (p *probe) Cleanup(f func())                  { p.cleanups = append(p.cleanups, f) }

func TestMain(m *testing.M) { leaktest.Main(m) }
