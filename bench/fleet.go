package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/myriad-go/myriad/bench/load"
)

// driveCommand makes this program a load driver, when it is the first argument.
const driveCommand = "drive"

// A fleet is the load drivers of one turn: processes that share its connections. The last one has
// the publishers.
type fleet []driver

type driver struct {
	*child
	ready load.Ready
}

// launchFleet opens all connections.
func launchFleet(ctx context.Context, n int, spec load.Spec) (fleet, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var f fleet
	for i := range n {
		process, err := start(ctx, "the load driver", self, driveCommand)
		if err != nil {
			f.end()
			return nil, err
		}
		f = append(f, driver{child: process})
		one := spec
		one.Conns = spec.Conns*(i+1)/n - spec.Conns*i/n
		if i < n-1 {
			one.Publishers = 0
		}
		if err := process.send(one); err != nil {
			f.end()
			return nil, err
		}
	}
	for i := range f {
		ready := &f[i].ready
		if err := f[i].receive(ready); err != nil || ready.Err != "" {
			f.end()
			return nil, fmt.Errorf("opening connections: %w", reason(err, ready.Err))
		}
	}
	return f, nil
}

func reason(err error, text string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s", text)
}

func (f fleet) end() {
	for _, driver := range f {
		driver.end()
	}
}

// order starts a mode on all drivers.
func (f fleet) order(o load.Order) error {
	o.Rate /= float64(len(f))
	for _, driver := range f {
		if err := driver.send(o); err != nil {
			return err
		}
	}
	return nil
}

// A tally is the results of all drivers of a turn.
type tally struct {
	load.Result
	latency, deliveries, late *hdrhistogram.Histogram
	// busiest is the part of a processor that the busiest driver has used, of the one that it can
	// use.
	busiest float64
}

// collect waits for the results and adds them up.
func (f fleet) collect() (tally, error) {
	sum := tally{latency: load.NewLatency(), deliveries: load.NewLatency(), late: load.NewLatency()}
	for _, driver := range f {
		var one load.Result
		if err := driver.receive(&one); err != nil || one.Err != "" {
			return sum, reason(err, one.Err)
		}
		if err := sum.add(one); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// add takes one more driver's result in. What the server used is not added: all of them have
// watched the same one at the same time.
func (t *tally) add(one load.Result) error {
	if err := errors.Join(merge(t.latency, one.Latency), merge(t.deliveries, one.Deliveries),
		merge(t.late, one.Late)); err != nil {
		return err
	}
	if one.Elapsed > 0 {
		t.busiest = max(t.busiest, one.Driver.Seconds()/one.Elapsed.Seconds())
	}
	t.Replies += one.Replies
	t.Unanswered += one.Unanswered
	t.Driver += one.Driver
	t.Server, t.Elapsed = one.Server, one.Elapsed
	return nil
}

func merge(into *hdrhistogram.Histogram, encoded []byte) error {
	if len(encoded) == 0 {
		return nil
	}
	h, err := hdrhistogram.Decode(encoded)
	if err != nil {
		return fmt.Errorf("latencies of a load driver: %w", err)
	}
	if dropped := into.Merge(h); dropped > 0 {
		return fmt.Errorf("%d latencies of a load driver are out of range", dropped)
	}
	return nil
}
