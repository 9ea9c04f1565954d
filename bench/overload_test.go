//go:build linux

package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/load"
)

// A ramp ends near the most that can be done in time, whatever is done of more.
func TestRamp(t *testing.T) {
	var offers []float64
	most, at, err := ramp(func(offered float64) (float64, bool, error) {
		offers = append(offers, offered)
		if offered <= 1100 && len(offers) > 1 { // the machine is held up at first
			return offered, true, nil
		}
		return 1050, false, nil // it collapses
	})
	want := []float64{50, 50, 100, 200, 400, 800, 1600, 1600, 1200, 1200, 1000}
	if most != 1000 || at != 1000 || err != nil ||
		!slices.Equal(offers, want) {
		t.Errorf("%g at %g, %v, of %v", most, at, err, offers)
	}
	if most, at, err = ramp(func(float64) (float64, bool, error) { return 7, false, nil }); most != 7 ||
		at != rampFirst || err != nil {
		t.Errorf("%g at %g, %v; want 7, which is less than the first step offers", most, at, err)
	}
}

// Nothing is no figure, and an error ends a ramp.
func TestRampFails(t *testing.T) {
	if _, _, err := ramp(func(float64) (float64, bool, error) { return 0, false, nil }); err == nil ||
		!strings.Contains(err.Error(), "give it longer") {
		t.Errorf("nothing was done: %v", err)
	}
	broken := errors.New("broken")
	if _, _, err := ramp(func(float64) (float64, bool, error) { return 0, false, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// Residents are back when all are in and are served as before.
func TestResidentsComeBack(t *testing.T) {
	in := &residents{figures: map[stage]*figuresOf{}, changed: make(chan struct{}, 1)}
	progress := func(open int, took time.Duration, lost int64) {
		p := load.Progress{Phase: load.Running, Open: open, Wanted: 10, Recent: &load.Sample{Lost: lost},
			Period: time.Second / 2}
		p.Recent.Push.Delivery = load.NewHistogram()
		if took > 0 {
			p.Recent.Push.Delivery.Record(took, 100)
		}
		in.note(p)
	}
	progress(10, 10*time.Millisecond, 0)
	in.enter(rising)
	progress(10, time.Second, 1)
	in.enter(stormy)
	progress(7, 2*time.Second, 4)
	progress(9, 3*time.Second, 2)
	in.enter(after)
	for _, p := range []struct {
		open int
		took time.Duration
	}{{9, 10 * time.Millisecond}, {10, time.Second}, {10, 0}} {
		if progress(p.open, p.took, 0); in.back != 0 {
			t.Errorf("%d with a latency of %s are back", p.open, p.took)
		}
	}
	progress(10, 15*time.Millisecond, 0)
	took, err := in.recovered(t.Context())
	if took <= 0 || err != nil {
		t.Errorf("back after %s, %v", took, err)
	}
	out := sample{}
	in.fill(out)
	if out["held"] != 7 || out["ended"] != 6 || out["p99_ms"] < 2990 || out["p99_ms"] > 3010 ||
		out["calm_p99_ms"] < 9.9 ||
		out["calm_p99_ms"] > 10.1 {
		t.Errorf("%v", out)
	}
}

// The end of the residents' run ends the wait for them.
func TestResidentsFail(t *testing.T) {
	in := &residents{figures: map[stage]*figuresOf{}, changed: make(chan struct{}, 1)}
	go in.ended(errNothing)
	if _, err := in.recovered(t.Context()); !errors.Is(err, errNothing) {
		t.Errorf("%v", err)
	}
}

// Turns in which the load was the limit are named, and only those.
func TestWarnsOfDrivers(t *testing.T) {
	o := outcome{Servers: []serverOutcome{{Name: "a", Rounds: []sample{
		{"driver_share": 0.5, "late_ms": 2, "p50_ms": 10},
		{"driver_share": 0.97, "late_ms": 3, "p50_ms": 1},
	}}}}
	o.warnOfDrivers()
	if len(o.Warnings) != 2 || !strings.Contains(o.Warnings[0], "busy itself in 1 of 2 turns (0.97") ||
		!strings.Contains(o.Warnings[1], "late itself in 1 of 2 turns: one of a hundred requests left 3.0 ms") {
		t.Errorf("%q", o.Warnings)
	}
	o = outcome{Servers: []serverOutcome{{Name: "a", Rounds: []sample{{"driver_share": 0.9}}}}}
	if o.warnOfDrivers(); len(o.Warnings) != 0 {
		t.Errorf("%q", o.Warnings)
	}
}

// The whole way, on a few connections: something is possible, and something is served. Storms are
// measured by TestEveryServer.
func TestOverloadIsMeasured(t *testing.T) {
	for _, args := range [][]string{
		{"run", "overload-http", "--only", "web", "--conns", "20"},
		{"run", "overload-push", "--only", "push", "--conns", "20"},
	} {
		t.Run(args[1], func(t *testing.T) {
			t.Parallel()
			out, err := benchFor(t, 200*time.Millisecond, measured, append(args, "--rounds", "1")...)
			if err != nil || !strings.Contains(out, "possible per second") || strings.Contains(out, "not measured") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
