package main

import (
	"github.com/myriad-go/myriad/bench/attack"
	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
)

var h2Servers = []string{"net/http", "nghttpd", "web", "web-pool", "web-inline"}

// muxed is a scenario of hostile clients of HTTP/2, and healthy ones of HTTP/1.
func muxed(kind attack.Kind, asks string) scenario {
	s := hostile(kind, asks)
	s.rows, s.app = "L3", "h2-exposed"
	s.servers = []string{"net/http", "web", "web-pool", "web-inline"}
	return s
}

// hostileH2Scenarios are the mixes, and each attack alone.
func hostileH2Scenarios() []scenario {
	all := []scenario{
		muxed(attack.Streams, "How long do healthy requests wait while 38 connections flood over HTTP/2, or send what "+
			"is costly to decompress?"),
		muxed(attack.Held, "And while 40 hold streams without an end, closed windows and slow heads?"),
	}
	for _, a := range attack.OverHTTP2 {
		all = append(all, muxed(a.Kind, "And while ten "+a.Do+"?"))
	}
	return all
}

// Scenarios of HTTP/2. A connection sends its next requests when all of those before are answered.
// nghttpd serves a file, and has no handler.
var h2Scenarios = append(hostileH2Scenarios(), []scenario{
	{
		name: "h2-100", rows: "H1", asks: "What does a small request over HTTP/2 cost, 100 connections of 10 streams?",
		app: "h2", check: check.HTTP2(10), mode: load.Closed, conns: 100,
		servers: h2Servers, reference: "net/http", measures: loaded,
	},
	{
		name: "h2-1x100", rows: "H1", asks: "And one connection of 100 streams?",
		app: "h2", check: check.HTTP2(100), mode: load.Closed, conns: 1,
		servers: h2Servers, reference: "net/http", measures: loaded,
	},
	{
		name: "h2-tls", rows: "H2", asks: "And 100 connections of 10 streams through TLS 1.3?",
		app: "h2s", check: check.HTTP2S(10), mode: load.Closed, conns: 100,
		servers: h2Servers, reference: "net/http", measures: loaded,
	},
	{
		name: "h2-idle", rows: "H3", asks: "What does a kept HTTP/2 connection occupy after one request?",
		app: "h2", check: check.HTTP2(1), mode: load.Exchange, conns: 10_000,
		servers: []string{"net/http", "nghttpd", "web"}, reference: "net/http", measures: held,
	},
	{
		name: "h2-idle-tls", rows: "H3", asks: "And through TLS 1.3?",
		app: "h2s", check: check.HTTP2S(1), mode: load.Exchange, conns: 10_000,
		servers: []string{"net/http", "nghttpd", "web"}, reference: "net/http", measures: held,
	},
	{
		name: "h2-grpc", rows: "H4", asks: "What does a unary call cost by grpc-go's ServeHTTP, 100 connections of 10?",
		app: "grpc", check: check.GRPC(10), mode: load.Closed, conns: 100,
		servers: []string{"grpc-net/http", "grpc-own", "grpc-web"}, reference: "grpc-net/http", measures: loaded,
	},
}...)
