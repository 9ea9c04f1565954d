package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/myriad-go/myriad/bench/load"
)

// measureAll builds the servers of what is planned and measures them, as measureBuilt does.
func (s selection) measureAll(ctx context.Context, r *results, plans []planned, bar progress,
	done func(*results, *outcome)) (*results, error) {
	var wanted []server
	for _, p := range plans {
		wanted = append(wanted, p.turns...)
	}
	bar.say("building the servers")
	programs, err := build(ctx, wanted)
	if err != nil {
		return nil, err
	}
	programs.install(ctx, wanted)
	return s.measureBuilt(ctx, programs, r, plans, bar, done)
}

// measureBuilt runs everything that is planned, scenario by scenario, and hands each outcome over
// as soon as it is there. Outcomes are added to r, which has those of before an interruption.
func (s selection) measureBuilt(ctx context.Context, programs *bakery, r *results, plans []planned, bar progress,
	done func(*results, *outcome)) (*results, error) {
	waits := newPatience(s.patience)
	figures := len(r.Scenarios) > 0
	var err error
	for _, p := range plans {
		o, err := s.measure(ctx, p, programs, waits, bar)
		if err != nil {
			return nil, err
		}
		figures = figures || slices.ContainsFunc(o.Servers, func(x serverOutcome) bool { return x.Refused == "" })
		r.Scenarios = append(r.Scenarios, *o)
		done(r, o)
	}
	if !figures {
		err = errNothing
	}
	return r, err
}

// measure runs the rounds of one scenario: every server once, then every server once more. It fails
// only when ctx ends; a server that fails has no figures from then on, and none from before.
func (s selection) measure(ctx context.Context, p planned, programs *bakery, waits *patience, bar progress) (*outcome,
	error) {
	o := &outcome{
		Name: p.name, Rows: p.rows, Asks: p.asks, Mode: string(p.mode), Connections: p.conns, Wanted: p.want,
		Rate: p.rate,
		Slow: p.slow, Attack: string(p.attack), Publishers: p.publishers, Drivers: p.drivers, Reference: p.reference,
		Measures: p.measures, Ratios: p.ratios,
		Skipped: p.skip,
	}
	if p.mode == working {
		o.Work, o.Drivers = p.describe(), 0
	}
	if p.skip != "" {
		bar.advance(s.rounds * len(p.turns))
		return o, nil
	}
	for _, x := range p.turns {
		o.Servers = append(o.Servers, serverOutcome{Name: x.name, Ours: x.ours})
	}
	for round := range s.rounds {
		for i, x := range p.turns {
			bar.say(fmt.Sprintf("%s, round %d: %s", p.name, round+1, x.name))
			s.round(ctx, p, x, programs, &o.Servers[i], waits)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			bar.advance(1)
		}
	}
	o.summarise()
	return o, nil
}

// round gives one server its turn, unless it has failed before.
func (s selection) round(ctx context.Context, p planned, x server, programs *bakery, o *serverOutcome,
	waits *patience) {
	if o.Refused != "" {
		return
	}
	program, err := programs.find(x)
	if err == nil {
		var one sample
		var c course
		one, err = waits.take(ctx, turn{p.scenario, x, program, s.duration, &c}.run)
		o.Rounds = append(o.Rounds, one)
		if o.Course == nil {
			o.Course = c
		}
	}
	if err != nil {
		o.Refused, o.Rounds, o.Course = err.Error(), nil, nil
	}
}

// warn says what makes the figures doubtful.
func (o *outcome) warn() {
	o.Warnings = nil
	if o.Connections != o.Wanted {
		o.Warnings = append(o.Warnings,
			fmt.Sprintf("%d connections instead of %d: the limit of open files (ulimit -Hn) allows no more",
				o.Connections, o.Wanted))
	}
	if x := o.find(o.Reference); x == nil || x.Refused != "" {
		o.Warnings = append(o.Warnings, "no ratios, because the reference was not measured")
	}
	o.warnOfStrangers()
	o.warnOfDrivers()
	for _, x := range o.Servers {
		for i, one := range x.Rounds {
			if one["unanswered"] > 0 {
				o.Warnings = append(o.Warnings, fmt.Sprintf("%s left %.0f requests of round %d unanswered", x.Name,
					one["unanswered"], i+1))
			}
		}
	}
}

func (o *outcome) warnOfStrangers() {
	turns, bad, most, where := 0, 0, 0.0, ""
	for _, x := range o.Servers {
		for i, one := range x.Rounds {
			turns++
			if one["strangers"] > spoiled {
				bad++
			}
			if one["strangers"] > most {
				most, where = one["strangers"], fmt.Sprintf("round %d of %s", i+1, x.Name)
			}
		}
	}
	if bad == 0 {
		return
	}
	what := "these figures are spoilt"
	if o.Mode == string(load.Exchange) {
		what = "times are spoilt, memory is not"
	}
	o.Warnings = append(o.Warnings,
		fmt.Sprintf("other processes used more than %.2f of a core during %d of %d turns (%.2f in %s): %s",
			spoiled, bad, turns, most, where, what))
}

// Above these the load itself may have been the limit of a turn.
const (
	driverBusy      = 0.95 // the part of its processor that the busiest driver has used
	driverLate      = 1.0  // ms: p99 of how late requests left although a connection was free
	driverLateByP50 = 0.5  // the same, by the median latency
)

// warnOfDrivers says where the load may have been the limit, and not the server.
func (o *outcome) warnOfDrivers() {
	busy, late, turns := 0, 0, 0
	most, latest := 0.0, 0.0
	for _, x := range o.Servers {
		for _, one := range x.Rounds {
			turns++
			if most = max(most, one["driver_share"]); one["driver_share"] > driverBusy {
				busy++
			}
			if one["late_ms"] > driverLate && one["late_ms"] > driverLateByP50*one["p50_ms"] {
				late++
				latest = max(latest, one["late_ms"])
			}
		}
	}
	if busy > 0 {
		o.Warnings = append(o.Warnings,
			fmt.Sprintf("the load was busy itself in %d of %d turns (%.2f of its processor "+
				"at most): rates are its limit, too", busy, turns, most))
	}
	if late > 0 {
		o.Warnings = append(o.Warnings, fmt.Sprintf("the load was late itself in %d of %d turns: one of a hundred "+
			"requests left %.1f ms after it was due, although a connection was free", late, turns, latest))
	}
}
