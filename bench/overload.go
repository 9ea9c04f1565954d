package main

import (
	"context"
	"fmt"
	"time"

	"github.com/myriad-go/myriad/server/load"
)

// overloads are by how much more is offered than is possible, with the names of the figures.
var overloads = []struct {
	times float64
	name  string
}{{1, "1x"}, {2, "2x"}, {10, "10x"}}

// overload finds what is possible, and offers that, twice and ten times as much. Then the load is
// gone, and the turn waits until a new client is served as soon as before.
func (t turn) overload(ctx context.Context, target *target, fresh func() error) (sample, error) {
	before, err := t.freshTime(ctx, fresh)
	if err != nil {
		return nil, fmt.Errorf("before the load: %w", err)
	}
	watch, err := newWatch()
	if err != nil {
		return nil, err
	}
	possible, rate, err := t.possible(ctx, target)
	if err != nil {
		return nil, err
	}
	out := sample{"possible": possible}
	for _, o := range overloads {
		p := t.traffic(target)
		p.Rate, p.Timeout = o.times*rate, give
		r, err := clients(ctx, p, load.Options{})
		if err != nil {
			return nil, fmt.Errorf("%s of what is possible: %w", o.name, err)
		}
		out["served_"+o.name] = t.good(r) / possible
		out["p99_"+o.name+"_ms"] = millis(t.latency(r).Quantile(0.99))
		out["driver_share"] = max(out["driver_share"], r.Own.Busiest)
		out["ended_"+o.name] = float64(r.Total.Lost) / r.Elapsed.Seconds()
	}
	out["recover_ms"], err = t.recovered(ctx, before, fresh)
	if err != nil {
		return nil, err
	}
	if out["strangers"], err = watch.strangers(); err != nil {
		return nil, err
	}
	return out, out.population(target)
}

// good is how much a second the clients of a run got while it counted, however late that was:
// replies, or deliveries.
func (t turn) good(r *load.Report) (rate float64) {
	if t.scenario.kind != load.Push {
		return served(r)
	}
	for _, m := range r.Moments {
		rate += m.Rate / float64(len(r.Moments))
	}
	return rate
}

// latency is what those saw who were served.
func (t turn) latency(r *load.Report) *load.Histogram {
	if t.scenario.kind == load.Push {
		return r.Total.Push.Delivery
	}
	return r.Total.Service
}

// possible finds how much the server and the clients can do together: good a second, at the rate of
// requests or publications that brings so much.
func (t turn) possible(ctx context.Context, target *target) (good, rate float64, err error) {
	p := t.traffic(target)
	if t.scenario.kind != load.Push { // the closed loop says it
		r, err := clients(ctx, p, load.Options{})
		if err != nil {
			return 0, 0, err
		}
		if rate = r.Rate(); rate == 0 {
			return 0, 0, fmt.Errorf("nothing is possible in %s: give it longer", t.duration)
		}
		return rate, rate, nil
	}
	return ramp(func(offered float64) (float64, bool, error) {
		p.Rate = offered
		r, err := clients(ctx, p, load.Options{})
		if err != nil {
			return 0, false, err
		}
		enough := float64(r.Total.Requests) > rampEnough*offered*r.Elapsed.Seconds() &&
			t.latency(r).Quantile(0.99) < give
		return t.good(r), enough, nil
	})
}

// A ramp offers twice as much in each step, from rampFirst, until less than rampEnough of it is
// done or it takes too long. Then it halves the distance between the last two a few times.
const (
	rampFirst  = 50
	rampSteps  = 16
	rampHalves = 2
	rampEnough = 0.9
)

// ramp returns the most that try has done in time, and what was offered then. try is called with
// what it offers. It returns what was done, and whether all of it was in time.
func ramp(try func(offered float64) (done float64, enough bool, err error)) (most, at float64, err error) {
	offered, below, above := float64(rampFirst), 0.0, 0.0
	for step, halves := 0, 0; step < rampSteps && halves <= rampHalves; step++ {
		done, enough, err := twice(offered, try)
		if err != nil {
			return 0, 0, err
		}
		if enough || most == 0 { // of the first one it is better than nothing
			most, at = max(most, done), offered
		}
		if enough {
			below = offered
		} else {
			above = offered
		}
		if above == 0 {
			offered *= 2
			continue
		}
		if below == 0 {
			break
		}
		offered = (below + above) / 2
		halves++
	}
	if most == 0 {
		return 0, 0, fmt.Errorf("nothing is possible at %d a second: give it longer", rampFirst)
	}
	return most, at, nil
}

// twice tries again what was not enough: the machine may have been held up meanwhile.
func twice(offered float64, try func(offered float64) (float64, bool, error)) (done float64, enough bool, err error) {
	if done, enough, err = try(offered); enough || err != nil {
		return done, enough, err
	}
	again, enough, err := try(offered)
	if !enough {
		again = max(done, again)
	}
	return again, enough, err
}

const (
	// freshTries are how often a new client comes before the load.
	freshTries = 3
	// recoveries are how often in a row a new client must be served in time after it.
	recoveries = 3
	// recoverLimit is after what time a server counts as one that does not recover.
	recoverLimit = 30 * time.Second
	// nearly is how much longer than before a new client may take.
	nearly = 20 * time.Millisecond
)

// freshTime is how long a new client takes at most until it has been served.
func (t turn) freshTime(ctx context.Context, fresh func() error) (most time.Duration, err error) {
	for range freshTries {
		began := time.Now()
		if err := fresh(); err != nil {
			return 0, err
		}
		most = max(most, time.Since(began))
	}
	return most, ctx.Err()
}

// recovered is after what time, in ms, new clients are served nearly as soon as before, several in
// a row.
func (t turn) recovered(ctx context.Context, before time.Duration, fresh func() error) (float64, error) {
	gone := time.Now()
	since, row := time.Duration(0), 0
	for row < recoveries {
		if time.Since(gone) > recoverLimit {
			return millis(recoverLimit), nil
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := fresh(); err != nil || time.Since(began) > before+nearly {
			row = 0
			continue
		}
		if row++; row == 1 {
			since = began.Sub(gone)
		}
	}
	return millis(since), nil
}
