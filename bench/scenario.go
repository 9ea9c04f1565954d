package main

import (
	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
)

// A scenario is one question, with everything that answering it takes.
type scenario struct {
	name string
	rows string // of the project's requirements and targets
	asks string
	app  string // what the servers are started with

	check   check.Check
	mode    load.Mode
	conns   int
	drivers int     // processes that share the connections; 0: 1
	rate    float64 // of load.Open: requests per second, all connections together

	servers   []string // in the order of their turns
	reference string   // whose figures the ratios are to
	measures  []string // what the table shows; names of metrics
}

// A server is a program that can be started with an app. Which apps it has, it knows itself.
type server struct {
	name    string
	program string   // a folder in servers, or "c"; for a server from elsewhere its path
	args    []string // on top of --app and --listen
	ours    bool
	foreign bool // given by --server
	about   string
}

// A metric is a figure of one turn. Less is better of all but the rate. CPU µs of one request are CPU seconds of a million of them.
type metric struct {
	name   string // in JSON
	title  string // in tables
	digits int    // behind the point
	ratio  bool   // shown as a ratio to the reference too
}

var metrics = []metric{
	{"cpu_us", "server CPU µs", 2, true},
	{"user_us", "user µs", 2, false},
	{"system_us", "system µs", 2, false},
	{"rate", "per second", 0, false},
	{"p50_ms", "p50 ms", 2, false},
	{"p99_ms", "p99 ms", 2, false},
	{"p999_ms", "p99.9 ms", 2, false},
	{"last_ms", "ms until the last has it", 1, true},
	{"rss_idle_mb", "RSS idle MB", 1, false},
	{"rss_peak_mb", "RSS peak MB", 1, false},
	{"conn_bytes", "bytes per connection", 0, true},
	{"conn_bytes_gc", "after a GC", 0, true},
	{"idle_cpu_ms", "CPU ms per idle second", 1, false},
	{"goroutines", "goroutines", 0, false},
	{"threads", "threads", 0, false},
	{"unanswered", "unanswered", 0, false},
	{"driver_us", "driver CPU µs", 2, false},
	{"strangers", "strangers' CPU", 2, false},
}

func findMetric(name string) (metric, bool) {
	for _, m := range metrics {
		if m.name == name {
			return m, true
		}
	}
	return metric{}, false
}
