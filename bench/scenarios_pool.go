package main

import (
	"time"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

// Scenarios that run tasks on a bounded or unbounded number of goroutines.
var poolScenarios = []scenario{
	sleepers("pool-100k", "B1 B W1", "What do 100,000 tasks of 10 ms take, time and memory?", 100_000, "go", "ants",
		"pond", "workers"),
	sleepers("pool-1m", "B1 B W1", "And a million?", 1_000_000, "go", "ants", "pond", "workers"),
	submitting("pool-submit", "What does it cost to hand over a task that does nothing?", 1),
	submitting("pool-submit-8", "And when eight goroutines do?", 8),
}

// The last of all, because it takes minutes.
var longScenarios = []scenario{
	sleepers("pool-10m", "B1 B W2", "And ten million?", 10_000_000, "go", "ants", "workers"),
}

func sleepers(name, rows, asks string, times int, contestants ...string) scenario {
	return scenario{
		name: name, rows: rows, asks: asks, app: "tasks", mode: working, work: check.Tasks,
		order:   harness.Order{Times: times, Sleep: 10 * time.Millisecond, Capacity: 200_000, Producers: 1},
		servers: contestants, reference: "go", ratios: []string{"rss_peak_mb"},
		measures: []string{"seconds", "rss_peak_mb", "cpu_us", "threads"},
	}
}

func submitting(name, asks string, producers int) scenario {
	return scenario{
		name: name, rows: "B1 B2 W3", asks: asks, app: "tasks", mode: working, work: check.Tasks,
		order:   harness.Order{Times: 3_000_000, Capacity: 1000, Producers: producers},
		servers: []string{"go", "channel", "ants", "pond", "workers", "workers-batch"}, reference: "go",
		measures: []string{"each_ns", "cpu_us", "mallocs", "rss_peak_mb"},
	}
}
