package main

import (
	"slices"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
)

var tlsServers = []string{"net/http", "fasthttp", "web"}

// Scenarios over TLS 1.3, with Go's default curves and a P-256 certificate.
var tlsScenarios = []scenario{
	{
		name: "tls-http", rows: "A6 T1", asks: "What does a small request cost through TLS, 500 connections?",
		app: "https", check: check.HTTPS(1), mode: load.Closed, conns: 500,
		servers: append(slices.Clone(tlsServers), "web-pool", "web-inline"), reference: "net/http", measures: loaded,
	},
	{
		name: "tls-handshake", rows: "A6 T2",
		asks: "What does a full handshake cost, and how many are there per second?",
		app:  "https", check: check.HTTPS(1), mode: connecting, conns: 5000,
		servers: tlsServers, reference: "net/http",
		measures: []string{"rate", "cpu_us", "user_us", "seconds", "rss_peak_mb", "goroutines"},
	},
	{
		name: "tls-idle", rows: "A6 M4", asks: "What does a kept TLS connection occupy after one request?",
		app: "https", check: check.HTTPS(1), mode: load.Exchange, conns: 10_000,
		servers: tlsServers, reference: "net/http", measures: held,
	},
	{
		name: "tls-storm", rows: "A6",
		asks: "How long do 100 established connections wait while ten thousand handshakes arrive?",
		app:  "https", check: check.HTTPS(1), mode: load.Open, conns: 100, rate: 1000, storm: 10_000,
		servers: []string{"net/http", "web", "web-pool", "web-inline"}, reference: "net/http",
		measures: []string{"p99_ms", "calm_p99_ms", "p50_ms", "calm_p50_ms", "storm_rate", "unanswered", "cpu_us",
			"goroutines"},
	},
}
