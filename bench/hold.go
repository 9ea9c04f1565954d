package main

import (
	"context"
	"fmt"
	"time"

	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/proc"
)

// settling is for a runtime to give memory back that it no longer needs.
const settling = 200 * time.Millisecond

// silence is how long what a server does in it is watched at most.
const silence = time.Second

// hold measures what connections occupy that have been used once and are silent. At the end all of
// them must still be served.
func (t turn) hold(ctx context.Context, target *target, spec load.Spec) (sample, error) {
	empty, emptyCollected, err := occupied(ctx, target)
	if err != nil {
		return nil, err
	}
	drivers, err := launchFleet(ctx, max(t.scenario.drivers, 1), spec)
	if err != nil {
		return nil, err
	}
	defer drivers.end()
	if err := sleep(ctx, joining); err != nil {
		return nil, err
	}
	if err := exchange(drivers, spec.Conns); err != nil {
		return nil, err
	}
	out := sample{}
	if err := t.idle(ctx, target, drivers, out); err != nil {
		return nil, err
	}
	full, fullCollected, err := occupied(ctx, target)
	if err != nil {
		return nil, err
	}
	if err := out.population(target); err != nil {
		return nil, err
	}
	if err := exchange(drivers, spec.Conns); err != nil {
		return nil, fmt.Errorf("after being idle: %w", err)
	}
	out.memory(empty, full)
	each := func(before, after proc.Status) float64 { return float64(after.RSS-before.RSS) / float64(spec.Conns) }
	out["conn_bytes"] = each(empty, full)
	if target.commands {
		out["conn_bytes_gc"] = each(emptyCollected, fullCollected)
	}
	return out, nil
}

// occupied reads the memory as it is, and once more without garbage.
func occupied(ctx context.Context, target *target) (asIs, collected proc.Status, err error) {
	if asIs, err = target.status(); err != nil {
		return
	}
	if err = target.collect(); err != nil {
		return
	}
	if err = sleep(ctx, settling); err != nil {
		return
	}
	collected, err = target.status()
	return
}

// exchange has every connection used once.
func exchange(drivers fleet, conns int) error {
	if err := drivers.order(load.Order{Mode: load.Exchange}); err != nil {
		return err
	}
	all, err := drivers.collect()
	if err != nil {
		return err
	}
	if n := all.latency.TotalCount(); n != int64(conns) {
		return fmt.Errorf("%d replies on %d connections", n, conns)
	}
	return nil
}

// idle watches the silence, what the server does in it and what others do.
func (t turn) idle(ctx context.Context, target *target, drivers fleet, out sample) error {
	if err := sleep(ctx, settling); err != nil {
		return err
	}
	watch, err := newWatch()
	if err != nil {
		return err
	}
	before, err := proc.CPU(target.pid())
	if err != nil {
		return err
	}
	if err := sleep(ctx, min(t.duration, silence)); err != nil {
		return err
	}
	after, err := proc.CPU(target.pid())
	if err != nil {
		return err
	}
	used := float64(after.Sub(before).Total) / float64(time.Millisecond)
	out["idle_cpu_ms"] = used / time.Since(watch.began).Seconds()
	out["strangers"], err = watch.strangers()
	return err
}
