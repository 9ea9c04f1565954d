package main

import (
	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

// Scenarios of three nodes. What all of a cluster's processes use counts: nodes, and the broker
// beside them.
var clusterScenarios = []scenario{
	{
		name: "cluster-deliver", rows: "K1",
		asks: "What does a delivery cost when another node takes the publication, 1,000 subscribers?",
		app:  "cluster", check: check.Across(publicationSize, false), mode: load.Broadcast, conns: 1000, publishers: 1,
		family: true, servers: clusters, reference: "cluster",
		measures: []string{"cpu_us", "last_ms", "deliver_p50_ms", "deliver_p99_ms"},
	},
	{
		name: "cluster-publish", rows: "K1",
		asks: "How many publications with a history does it take per second, 16 publishers, a subscriber elsewhere?",
		app:  "cluster-kept", check: check.Across(publicationSize, true), mode: load.Publish, conns: 1, publishers: 16,
		family: true, servers: []string{"cluster", "cluster-lazy", "centrifugo-redis"}, reference: "cluster-lazy",
		measures: []string{"rate", "cpu_us", "p50_ms", "p99_ms"},
	},
	{
		name: "cluster-failover", rows: "K2 L6",
		asks: "How long are the subscribers of a killed node away, one in three of 3,000?",
		app:  "cluster-failover", mode: working, work: check.Failover, order: harness.Order{Times: 3000},
		servers: []string{"cluster", "centrifugo-redis"}, reference: "cluster", measures: []string{"seconds"},
	},
}

var clusters = []string{"cluster", "centrifugo-redis", "centrifugo-nats"}
