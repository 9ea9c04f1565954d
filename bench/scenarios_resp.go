package main

import (
	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

var respServers = []string{"redis-server", "redcon", "gnet", "resp", "resp-inline", "resp-pool"}

// Scenarios of the Redis protocol. All servers but redis-server have one map under one lock.
var respScenarios = []scenario{
	{
		name: "resp-set", rows: "E3 E6 R1", asks: "What does a SET cost, 100 connections?",
		app: "resp", check: check.RESP(1), mode: load.Closed, conns: 100,
		servers: respServers, reference: "gnet", measures: loaded,
	},
	{
		name: "resp-set-16", rows: "E3 E6 R1", asks: "And when 16 of them come at once?",
		app: "resp", check: check.RESP(16), mode: load.Closed, conns: 100,
		servers: respServers, reference: "gnet", measures: loaded,
	},
	{
		name: "resp-slow-1pct", rows: "E6 R2",
		asks: "How long do quick commands wait when 1 % of the others sleep for 5 ms?",
		app:  "resp", check: check.RESPSlow, mode: load.Open, conns: 200, rate: 20_000, slow: 1,
		servers: []string{"redcon", "gnet", "resp", "resp-pool"}, reference: "redcon",
		measures: []string{"p99_ms", "alone_p99_ms", "times_alone", "p50_ms", "alone_p50_ms", "unanswered", "cpu_us",
			"goroutines"},
	},
	{
		name: "resp-idle", rows: "E3 E7", asks: "What does a connection occupy that has sent one SET and is silent?",
		app: "resp", check: check.RESP(1), mode: load.Exchange, conns: many,
		servers: []string{"redis-server", "redcon", "gnet", "resp"}, reference: "gnet", measures: held,
	},
	{
		name: "resp-client", rows: "E7", asks: "What does a command cost the client, 64 goroutines?",
		app: "commands", mode: working, work: check.Commands, order: harness.Order{Times: 200_000, Producers: 64},
		servers: []string{"go-redis", "resp-client"}, reference: "go-redis",
		measures: []string{"cpu_us", "each_ns", "mallocs", "alloc_bytes"},
	},
}
