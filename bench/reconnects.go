package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/load"
)

// residentRate is how many publications a second those get who are in.
const residentRate = 10

// rampStep is how long one step of a ramp takes: so long, or the time under load if that is
// shorter.
const rampStep = time.Second

// reconnects has subscribers in, and others come: first as many a second as the server can take in,
// which a ramp finds, then twice as many.
func (t turn) reconnects(ctx context.Context, target *target) (sample, error) {
	watch, err := newWatch()
	if err != nil {
		return nil, err
	}
	in := &residents{stage: calm, figures: map[stage]*figuresOf{}, changed: make(chan struct{}, 1), born: time.Now()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var over sync.WaitGroup
	over.Go(func() {
		p := t.traffic(target)
		p.Rate, p.Duration, p.Warmup = residentRate, time.Hour, 0
		_, err := clients(ctx, p, load.Options{Watch: in.note})
		in.ended(err)
	})
	defer over.Wait()
	defer cancel()
	if err := in.await(ctx, turnLimit, func() bool { return in.figures[calm] != nil }); err != nil {
		return nil, fmt.Errorf("%d subscribers: %w", t.scenario.conns, err)
	}
	if err := sleep(ctx, t.duration); err != nil {
		return nil, err
	}
	in.enter(rising)
	possible, _, err := ramp(func(offered float64) (float64, bool, error) {
		r, err := t.arrive(ctx, target, offered, min(t.duration, rampStep))
		if err != nil {
			return 0, false, err
		}
		enough := served(r) > rampEnough*offered && r.Total.Service.Quantile(0.99) < give
		return served(r), enough, sleep(ctx, min(t.duration, rampStep)/2)
	})
	if err != nil {
		return nil, err
	}
	in.enter(stormy)
	r, err := t.arrive(ctx, target, 2*possible, t.duration)
	if err != nil {
		return nil, err
	}
	out := sample{"possible": possible, "served_2x": served(r) / possible, "driver_share": r.Own.Busiest,
		"arrive_p99_ms": millis(r.Total.Service.Quantile(0.99))}
	in.enter(after)
	recovered, err := in.recovered(ctx)
	if err != nil {
		return nil, err
	}
	out["recover_ms"] = millis(recovered)
	in.fill(out)
	if t.course != nil {
		*t.course = in.held()
	}
	if out["strangers"], err = watch.strangers(); err != nil {
		return nil, err
	}
	return out, out.population(target)
}

// arrive has subscribers come at a rate. Each leaves when it is subscribed, or when it has waited
// for too long.
func (t turn) arrive(ctx context.Context, target *target, rate float64, d time.Duration) (*load.Report, error) {
	p := t.traffic(target)
	p.Kind, p.Rate, p.Duration, p.Warmup, p.Timeout = load.Arrivals, rate, d, 0, give
	p.Channels, p.Prefix, p.Connections = 1, "arrivals", t.scenario.arriving
	return clients(ctx, p, load.Options{})
}

// A stage is a part of a turn.
type stage int

const (
	calm   stage = iota // no others come
	rising              // more and more come
	stormy              // twice as many come as can be served
	after               // no others come any more
)

// figuresOf are those of the residents in one stage.
type figuresOf struct {
	delivery *load.Histogram
	lost     int64
	least    int // connections
	took     time.Duration
}

// residents are the subscribers that are in. They are watched while others come.
type residents struct {
	changed chan struct{} // has room for one

	mu      sync.Mutex
	stage   stage
	figures map[stage]*figuresOf
	course  course // from born
	born    time.Time
	began   time.Time     // the stage
	back    time.Duration // in the stage after: all are in, and served as before
	err     error         // the run has ended
	over    bool
}

// note takes in how the residents' run goes.
func (in *residents) note(p load.Progress) {
	if p.Phase != load.Running {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.course = append(in.course, [2]float64{time.Since(in.born).Round(10 * time.Millisecond).Seconds(),
		float64(p.Open)})
	f := in.figures[in.stage]
	if f == nil {
		f = &figuresOf{delivery: load.NewHistogram(), least: p.Open}
		in.figures[in.stage] = f
	}
	f.delivery.Add(p.Recent.Push.Delivery)
	f.lost += p.Recent.Lost
	f.least = min(f.least, p.Open)
	f.took += p.Period
	if in.stage == after && in.back == 0 && p.Open >= p.Wanted && p.Recent.Push.Delivery.Count() > 0 {
		before := in.figures[calm].delivery.Quantile(0.99)
		if p.Recent.Push.Delivery.Quantile(0.99) <= 2*before+nearly {
			in.back = max(time.Since(in.began)-p.Period, time.Millisecond)
		}
	}
	in.wake()
}

func (in *residents) ended(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.err, in.over = err, true
	in.wake()
}

func (in *residents) wake() {
	select {
	case in.changed <- struct{}{}:
	default:
	}
}

// enter begins a stage.
func (in *residents) enter(s stage) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stage, in.began = s, time.Now()
}

// errLong says that something has not happened in time.
var errLong = errors.New("they are not there in time")

// await waits until done, which is called with the lock held.
func (in *residents) await(ctx context.Context, limit time.Duration, done func() bool) error {
	alarm := time.After(limit)
	for {
		in.mu.Lock()
		reached, over, err := done(), in.over, in.err
		in.mu.Unlock()
		switch {
		case reached:
			return nil
		case over && err != nil:
			return err
		case over:
			return errors.New("their run has ended")
		}
		select {
		case <-in.changed:
		case <-alarm:
			return errLong
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// recovered is how long after the storm all are in, and served nearly as soon as before it.
func (in *residents) recovered(ctx context.Context) (time.Duration, error) {
	err := in.await(ctx, recoverLimit, func() bool { return in.back > 0 })
	if errors.Is(err, errLong) {
		return recoverLimit, nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.back, err
}

// held is how many were in, in the course of the turn.
func (in *residents) held() course {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.course)
}

// fill adds the figures of the residents.
func (in *residents) fill(out sample) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if f := in.figures[calm]; f != nil {
		out["calm_p99_ms"] = millis(f.delivery.Quantile(0.99))
	}
	if f := in.figures[stormy]; f != nil {
		out["p99_ms"] = millis(f.delivery.Quantile(0.99))
		out["held"] = float64(f.least)
		if f.took > 0 {
			out["ended"] = float64(f.lost) / f.took.Seconds()
		}
	}
}
