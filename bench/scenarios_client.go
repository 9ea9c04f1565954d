package main

import (
	"time"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

// Scenarios of clients. The server that they ask is a process of its own.
var clientScenarios = []scenario{
	asking("client-1k", "D1 C1", "What do 1,000 requests at once take, to a server that answers after a second?",
		harness.Order{Times: 1000, Capacity: 1000, Sleep: time.Second}),
	asking("client-10k", "D1 C1", "And 10,000?", harness.Order{Times: 10_000, Capacity: 10_000, Sleep: time.Second}),
	asking("client-rate", "C2", "What does a request cost a client with 64 kept connections?",
		harness.Order{Times: 200_000, Capacity: 64}),
	{
		name: "origin-d", rows: "D1", app: "client", mode: working, work: check.Clients,
		asks:    "What do 1,000 requests take to a server that takes 10 ms: in series, a goroutine each, on the loop?",
		order:   harness.Order{Times: 1000, Capacity: 1000, Sleep: 10 * time.Millisecond},
		servers: []string{"series", "net/http-client", "client"}, reference: "net/http-client",
		measures: []string{"seconds", "cpu_us", "rss_peak_mb", "goroutines"},
	},
	{
		name: "proxy", rows: "C3", asks: "What does a request cost httputil.ReverseProxy, 100 connections?",
		app: "proxy", check: check.HTTP(1), mode: load.Closed, conns: 100,
		servers: []string{"proxy-net/http", "proxy-web"}, reference: "proxy-net/http", measures: loaded,
	},
}

func asking(name, rows, asks string, o harness.Order) scenario {
	return scenario{
		name: name, rows: rows, asks: asks, app: "client", mode: working, work: check.Clients, order: o,
		servers:   []string{"net/http-client", "fasthttp-client", "client-roundtrip", "client"},
		reference: "net/http-client", ratios: []string{"rss_peak_mb"},
		measures: []string{"seconds", "cpu_us", "rss_peak_mb", "goroutines", "threads"},
	}
}
