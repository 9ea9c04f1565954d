package main

import (
	"github.com/myriad-go/myriad/bench/attack"
	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
)

// Scenarios that measure the effect of hostile clients on other clients, and what they leave
// behind. All servers run with their default limits.
var hostileScenarios = []scenario{
	hostile(attack.Slow, "How long do healthy requests wait while 1,600 connections send and read a byte a second, "+
		"or nothing?"),
	hostile(attack.Flood, "And while 410 connections a second come with garbage, endless heads and resets, and 100 "+
		"stay that never read?"),
	hostile(attack.Heads, "And while 1,000 connections send a byte of their head a second, or nothing?"),
	hostile(attack.Bodies, "And while 500 send a byte of their body a second?"),
	hostile(attack.Readers, "And while 100 read a byte a second of an answer of a megabyte?"),
	hostile(attack.Resets, "And while 300 a second are reset, at once or in the midst of their answer?"),
	hostile(attack.Garbage, "And while 110 a second send garbage, or heads without an end?"),
	hostile(attack.Pipelines,
		"And while 50 send a thousand requests each and 50 ask for a megabyte, and none of them reads?"),
}

func hostile(kind attack.Kind, asks string) scenario {
	return scenario{
		name: "hostile-" + string(kind), rows: "A4 L3", asks: asks,
		app: "exposed", check: check.HTTP(1), mode: load.Open, conns: 50, rate: 2000, attack: kind,
		servers: []string{"net/http", "fasthttp", "web", "web-pool", "web-inline"}, reference: "net/http",
		measures: []string{
			"p99_ms", "alone_p99_ms", "times_alone", "p50_ms", "alone_p50_ms", "unanswered", "cpu_us",
			"rss_peak_mb", "left_mb", "goroutines", "left_goroutines", "attackers",
		},
	}
}
