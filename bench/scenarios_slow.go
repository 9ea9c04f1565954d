package main

import (
	"fmt"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
)

// Those who ask what a few slow handlers do to everybody else.
var slowScenarios = []scenario{slowly(1), slowly(10)}

func slowly(percent int) scenario {
	return scenario{
		name: fmt.Sprintf("slow-%dpct", percent), rows: "A4 E6 P7",
		asks: fmt.Sprintf("How long do quick requests wait when %d %% of the others sleep for 5 ms?", percent),
		app:  "http", check: check.HTTPSlow, mode: load.Open, conns: 200, rate: 20_000, slow: percent,
		servers: []string{"net/http", "fasthttp", "web", "web-inline", "web-auto"}, reference: "net/http",
		measures: []string{"p99_ms", "alone_p99_ms", "times_alone", "p50_ms", "alone_p50_ms", "unanswered", "cpu_us", "goroutines"},
	}
}
