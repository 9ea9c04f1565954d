package main

import (
	"slices"
	"strings"

	"github.com/myriad-go/myriad/bench/attack"
	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/servers/harness"
	traffic "github.com/myriad-go/myriad/server/load"
)

// A scenario is one question, with everything that answering it takes.
type scenario struct {
	name string
	rows string // of the project's requirements and targets
	asks string
	app  string // what the servers are started with

	check      check.Check
	mode       load.Mode // or connecting, working
	conns      int
	drivers    int         // processes that share the connections; 0: 1
	rate       float64     // of load.Open: requests per second, all connections together
	slow       int         // of load.Open: so many of a hundred requests are slow; the turn has a run without them too
	attack     attack.Kind // of load.Open: what others do meanwhile; the turn has a run without them too
	publishers int         // connections on top, that publish
	// of load.Broadcast: connections on top, that never read; the turn has a run without them too
	unread int
	// of load.Open with TLS: so many handshakes arrive meanwhile; the turn has a run without them
	// too
	storm int

	kind     traffic.Kind // of overloading and reconnecting: what clients do
	arriving int          // of reconnecting: at most so many subscribers arrive at a time

	ramp    float64 // of crowding: so many clients come a second; 0: all at once
	trouble trouble // of crowding: what happens when all are in that can be

	work  check.Work    // of working, instead of check
	order harness.Order // of working: what is done

	family    bool               // the CPU time of the server's descendants counts, too
	servers   []string           // in the order of their turns
	dialects  map[string]dialect // by server, for those that are spoken to in another way
	reference string             // whose figures the ratios are to
	measures  []string           // what the table shows; names of metrics
	ratios    []string           // metrics shown as ratios here, on top of those that always are
}

// What is measured here, and not by a load driver.
const (
	// connecting measures what it costs to open all connections, and uses each of them once.
	connecting load.Mode = "connect"
	// working has no connections: the program does something by itself.
	working load.Mode = "work"
	// overloading offers more requests, messages or publications than are possible.
	overloading load.Mode = "overload"
	// reconnecting has more subscribers come than can be taken in.
	reconnecting load.Mode = "reconnects"
	// crowding has more subscribers be held than can be pinged each second.
	crowding load.Mode = "crowd"
	// upgrading has the server upgraded, or restarted, while subscribers are in.
	upgrading load.Mode = "upgrade"
)

// A dialect is an app with its check, instead of the scenario's.
type dialect struct {
	app   string
	check check.Check
}

// speaking is how a server is started and asked.
func (s scenario) speaking(x server) dialect {
	if d, ok := s.dialects[x.name]; ok {
		return d
	}
	return dialect{s.app, s.check}
}

// A server is a program that can be started with an app. Which apps it has, it knows itself.
type server struct {
	name    string
	program string   // a folder in servers, or "c"; for a server from elsewhere its path
	args    []string // on top of --app and --listen
	ours    bool
	foreign bool // given by --server
	endless bool // a pool without a bound
	about   string
}

// A metric is a figure of one turn. Less is better of all but the rate. CPU µs of one request are
// CPU seconds of a million of them.
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
	{"deliver_p50_ms", "p50 ms until one has it", 1, false},
	{"deliver_p99_ms", "p99 ms", 1, false},
	{"alone_p50_ms", "p50 undisturbed", 2, false},
	{"alone_p99_ms", "p99 undisturbed", 2, false},
	{"alone_last_ms", "last undisturbed", 1, false},
	{"alone_deliver_p99_ms", "p99 undisturbed", 1, false},
	{"times_last", "last by last undisturbed", 2, false},
	{"calm_p50_ms", "p50 before the storm", 2, false},
	{"calm_p99_ms", "p99 before the storm", 2, false},
	{"storm_rate", "handshakes per second", 0, false},
	{"times_alone", "p99 by p99 undisturbed", 2, false},
	{"seconds", "seconds", 3, true},
	{"each_ns", "ns each", 0, true},
	{"mallocs", "allocations", 1, false},
	{"alloc_bytes", "bytes allocated", 0, false},
	{"rss_idle_mb", "RSS idle MB", 1, false},
	{"rss_peak_mb", "RSS peak MB", 1, false},
	{"left_mb", "RSS left MB", 1, false},
	{"left_goroutines", "goroutines left", 0, false},
	{"conn_bytes", "bytes per connection", 0, true},
	{"conn_bytes_gc", "after a GC", 0, true},
	{"idle_cpu_ms", "CPU ms per idle second", 1, false},
	{"goroutines", "goroutines", 0, false},
	{"threads", "threads", 0, false},
	{"unanswered", "unanswered", 0, false},
	{"possible", "possible per second", 0, false},
	{"served_1x", "served of the possible at 1 ×", 2, false},
	{"served_2x", "served of the possible at 2 ×", 2, false},
	{"served_10x", "served of the possible at 10 ×", 2, false},
	{"p99_1x_ms", "p99 ms of those served at 1 ×", 1, false},
	{"p99_2x_ms", "at 2 ×", 1, false},
	{"p99_10x_ms", "p99 ms of those served at 10 ×", 1, false},
	{"held_part", "held of those offered", 2, false},
	{"held", "least connections held", 0, false},
	{"ended", "ended per second", 1, false},
	{"ended_10x", "ended per second at 10 ×", 1, false},
	{"arrive_p99_ms", "p99 ms of those who come", 1, false},
	{"recover_ms", "ms to recover", 0, false},
	{"pause_ms", "longest pause of a delivery ms", 0, false},
	{"calm_pause_ms", "longest pause before ms", 0, false},
	{"silence_ms", "longest silence ms", 0, false},
	{"calm_silence_ms", "longest silence before ms", 0, false},
	{"lost", "connections lost", 0, false},
	{"missing", "missing", 0, false},
	{"doubled", "twice", 0, false},
	{"disordered", "out of order", 0, false},
	{"upgrade_ms", "ms until the old process has ended", 0, false},
	{"rss_before_mb", "RSS before MB", 1, false},
	{"rss_after_mb", "RSS after MB", 1, false},
	{"pongs", "pings answered per second", 0, false},
	{"all_in_s", "seconds until all were in", 0, false},
	{"found_ms", "ms until the last dead one was found", 0, false},
	{"not_found", "dead ones not found", 0, false},
	{"clients_late_ms", "clients late ms", 0, false},
	{"driver_share", "driver's part of its processor", 2, false},
	{"late_ms", "driver late p99 ms", 2, false},
	{"driver_us", "driver CPU µs", 2, false},
	{"attackers", "attackers' CPU", 2, false},
	{"strangers", "strangers' CPU", 2, false},
}

// more reports whether more of it is better.
func (m metric) more() bool {
	return slices.Contains([]string{"rate", "possible", "held", "held_part", "pongs"}, m.name) ||
		strings.HasPrefix(m.name, "served_")
}

func findMetric(name string) (metric, bool) {
	for _, m := range metrics {
		if m.name == name {
			return m, true
		}
	}
	return metric{}, false
}
