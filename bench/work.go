package main

import (
	"context"
	"fmt"
	"time"

	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/proc"
)

// describe says what the scenario does, when it does that without connections.
func (s scenario) describe() string {
	if s.order.Input != nil {
		return fmt.Sprintf("%d times in memory", s.order.Times)
	}
	if s.app == "commands" {
		return fmt.Sprintf("%d commands from %d goroutines", s.order.Times, s.order.Producers)
	}
	if s.app == "cluster-failover" {
		return fmt.Sprintf("%d subscribers of three nodes, one of which is killed", s.order.Times)
	}
	if s.app == "client" {
		return fmt.Sprintf("%d requests, %d at a time, answered after %v", s.order.Times, s.order.Capacity,
			s.order.Sleep)
	}
	text := fmt.Sprintf("%d empty tasks", s.order.Times)
	if s.order.Sleep > 0 {
		text = fmt.Sprintf("%d tasks of %v", s.order.Times, s.order.Sleep)
	}
	if s.order.Producers > 1 {
		text += fmt.Sprintf(" from %d goroutines", s.order.Producers)
	}
	return fmt.Sprintf("%s, capacity %d", text, s.order.Capacity)
}

// warmTimes is the part of the work, one in so many, that is done before the clock runs.
const warmTimes = 20

// work has the program do the work by itself, and watches it from outside. Only allocations are
// what it says itself.
func (t turn) work(ctx context.Context, target *target) (sample, error) {
	idle, err := target.status()
	if err != nil {
		return nil, err
	}
	if err := t.scenario.work(target.work, !t.server.endless); err != nil {
		return nil, fmt.Errorf("its work is wrong: %w", err)
	}
	order := t.scenario.order
	order.Times = max(order.Times/warmTimes, 1)
	if _, err := target.work(order); err != nil {
		return nil, err
	}
	watch, err := newWatch()
	if err != nil {
		return nil, err
	}
	before, err := proc.CPU(target.pid())
	if err != nil {
		return nil, err
	}
	began := time.Now()
	report, err := target.work(t.scenario.order)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(began)
	if report.Took > 0 {
		elapsed = report.Took
	}
	after, err := proc.CPU(target.pid())
	if err != nil {
		return nil, err
	}
	n := float64(t.scenario.order.Times)
	if report.Done != t.scenario.order.Times {
		return nil, fmt.Errorf("%d of %.0f were done", report.Done, n)
	}
	out := sample{
		"seconds": elapsed.Seconds(), "each_ns": float64(elapsed.Nanoseconds()) / n,
		"cpu_us":  float64(after.Sub(before).Total.Microseconds()) / n,
		"mallocs": float64(report.Mallocs) / n, "alloc_bytes": float64(report.Bytes) / n,
	}
	if out["strangers"], err = watch.strangers(); err != nil {
		return nil, err
	}
	busy, err := target.status()
	out.memory(idle, busy)
	out["threads"] = float64(busy.Threads)
	if report.Goroutines > 0 {
		out["goroutines"] = float64(report.Goroutines)
	}
	return out, err
}

// connect measures the opening of connections, and has each of them used once, so that one which
// does not work is noticed.
func (t turn) connect(ctx context.Context, target *target, spec load.Spec) (sample, error) {
	idle, err := target.status()
	if err != nil {
		return nil, err
	}
	watch, err := newWatch()
	if err != nil {
		return nil, err
	}
	drivers, err := launchFleet(ctx, 1, spec)
	if err != nil {
		return nil, err
	}
	defer drivers.end()
	ready := drivers[0].ready
	n := float64(spec.Conns)
	out := sample{
		"seconds": ready.Elapsed.Seconds(), "rate": n / ready.Elapsed.Seconds(),
		"driver_us": float64(ready.Driver.Nanoseconds()) / 1e3 / n,
	}
	out.divide(ready.Server, n)
	if out["strangers"], err = watch.strangers(); err != nil {
		return nil, err
	}
	if err := sleep(ctx, joining); err != nil {
		return nil, err
	}
	if err := out.population(target); err != nil {
		return nil, err
	}
	busy, err := target.status()
	if err != nil {
		return nil, err
	}
	out.memory(idle, busy)
	return out, exchange(drivers, spec.Conns)
}
