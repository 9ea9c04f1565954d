package main

import (
	"context"
	"errors"
	"time"

	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/proc"
)

// stormers is how many processes make the handshakes of a storm, each a few at a time.
const stormers = 4

// stormy measures a window without handshakes, and one with them. They arrive from before the
// window begins until after it has ended, if there are enough of them. The processes that have made
// them stay, with their connections, until the fleet is ended.
func (t turn) stormy(ctx context.Context, target *target, drivers fleet, order load.Order, spec load.Spec,
	out sample) (fleet, error) {
	// the first after opening connections is the worst
	if _, err := t.window(ctx, target, drivers, order, sample{}); err != nil {
		return nil, err
	}
	calm, err := t.window(ctx, target, drivers, order, sample{})
	if err != nil {
		return nil, err
	}
	out["calm_p50_ms"], out["calm_p99_ms"] = calm["p50_ms"], calm["p99_ms"]
	spec.Conns = t.scenario.storm
	type storm struct {
		fleet
		err  error
		took time.Duration
	}
	over := make(chan storm, 1)
	go func() {
		began := proc.Monotonic()
		f, err := launchFleet(ctx, stormers, spec)
		over <- storm{f, err, time.Duration(proc.Monotonic() - began)}
	}()
	_, err = t.window(ctx, target, drivers, order, out)
	s := <-over
	out["storm_rate"] = float64(spec.Conns) / s.took.Seconds()
	return s.fleet, errors.Join(err, s.err)
}
