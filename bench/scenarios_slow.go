package main

import (
	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
)

// Scenarios that measure the effect of a few slow handlers on other requests. GOMAXPROCS in the
// environment sets the servers' processors.
var slowScenarios = []scenario{
	slowly("slow-1pct", "How long do quick requests wait when 1 % of the others sleep for 5 ms?", check.HTTPSlow, 1,
		20_000),
	slowly("slow-10pct", "How long do quick requests wait when 10 % of the others sleep for 5 ms?", check.HTTPSlow, 10,
		20_000),
	slowly("slow-tail", "And when it is 1 % of those for the same path?", check.HTTPTail, 1, 20_000),
	slowly("slow-tail-10pct", "And 10 % of them?", check.HTTPTail, 10, 20_000),
	slowly("slow-burn", "And when 1 % compute for 5 ms, a fifth of a processor?", check.HTTPBurn, 1, 4_000),
}

func slowly(name, asks string, talk check.Check, percent int, rate float64) scenario {
	return scenario{
		name: name, rows: "A4 E6 P7", asks: asks,
		app: "http", check: talk, mode: load.Open, conns: 200, rate: rate, slow: percent,
		servers: []string{"net/http", "fasthttp", "web", "web-pool", "web-inline"}, reference: "net/http",
		measures: []string{"p99_ms", "alone_p99_ms", "times_alone", "p50_ms", "alone_p50_ms", "unanswered", "cpu_us",
			"goroutines"},
	}
}
