package main

import (
	"slices"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

// servers are all that come with the instrument.
var servers = []server{
	{name: "net/http", program: "nethttp", about: "the standard library's server"},
	{name: "fasthttp", program: "fasthttp", about: "github.com/valyala/fasthttp"},
	{name: "hertz", program: "hertz", about: "github.com/cloudwego/hertz on netpoll"},
	{name: "web", program: "web", ours: true, about: "package web, handlers where they are cheapest (its default)"},
	{name: "web-inline", program: "web", args: []string{"--inline"}, ours: true,
		about: "package web, handlers on the loop"},
	{name: "web-pool", program: "web", args: []string{"--pool"}, ours: true,
		about: "package web, handlers on the pool"},
	{name: "web-reuse", program: "web", args: []string{"--inline", "--reuse"}, ours: true,
		about: "the same as web-inline, requests used again (ReuseRequests)"},
	{name: "gin", program: "gin", about: "github.com/gin-gonic/gin on net/http"},
	{name: "gin-web", program: "ginweb", ours: true, about: "the same gin router on package web"},
	{name: "gin-web-inline", program: "ginweb", args: []string{"--inline"}, ours: true, about: "the same, on the loop"},
	{name: "gws", program: "gws", about: "github.com/lxzan/gws on net/http"},
	{name: "gorilla", program: "gorilla", about: "github.com/gorilla/websocket on net/http"},
	{name: "coder", program: "coder", about: "github.com/coder/websocket on net/http"},
	{name: "gobwas", program: "gobwas", about: "github.com/gobwas/ws on raw connections, a goroutine for each"},
	{name: "websocket", program: "websocket", ours: true,
		about: "package websocket on raw connections, callbacks where they are cheapest (its default)"},
	{name: "websocket-inline", program: "websocket", args: []string{"--inline"}, ours: true,
		about: "the same, callbacks on the loop"},
	{name: "websocket-pool", program: "websocket", args: []string{"--pool"}, ours: true,
		about: "the same, callbacks on the pool"},
	{name: "websocket-group", program: "websocket", args: []string{"--group"}, ours: true,
		about: "the same, a Group where others loop"},
	{name: "websocket-accept", program: "websocket", args: []string{"--accept"}, ours: true,
		about: "package websocket behind package web"},
	{name: "push", program: "push", ours: true,
		about: "package push, as myriad serve runs it; the Centrifuge protocol over WebSocket"},
	{name: "cluster", program: "cluster", ours: true, about: "three nodes of package push, NATS inside"},
	{name: "cluster-lazy", program: "cluster", args: []string{"--lazy"}, ours: true,
		about: "the same, synced to disk every two minutes"},
	{name: "centrifugo-redis", program: "cluster", args: []string{"--with", "redis"},
		about: "three nodes of Centrifugo, and redis-server"},
	{name: "centrifugo-nats", program: "cluster", args: []string{"--with", "nats"},
		about: "three nodes of Centrifugo, and a NATS server"},
	{name: "centrifugo", program: "centrifugo", about: "one node of Centrifugo"},
	{name: "push-sse", program: "push", ours: true, about: "the same, Server-Sent Events"},
	{name: "push-protobuf", program: "push", ours: true, about: "the same, the Centrifuge protocol in Protobuf"},
	{name: "push-mercure", program: "push", ours: true, about: "the same, the Mercure protocol"},
	{name: "push-redis", program: "push", ours: true, about: "the same, the Redis protocol"},
	{name: "push-tokens", program: "push", ours: true,
		about: "the same, the Centrifuge protocol, and each subscriber shows two tokens"},
	{name: "go", program: "goroutines", endless: true, about: "a goroutine for each task, without any bound"},
	{name: "channel", program: "channel", about: "a channel of tasks and eight goroutines"},
	{name: "ants", program: "ants", about: "github.com/panjf2000/ants"},
	{name: "pond", program: "pond", about: "github.com/alitto/pond"},
	{name: "workers", program: "workers", ours: true, about: "package workers"},
	{name: "workers-batch", program: "workers", args: []string{"--batch"}, ours: true,
		about: "package workers, tasks handed over by 64"},
	{name: "net/http-client", program: "clientstd", about: "net/http's client, a goroutine for each request"},
	{name: "series", program: "clientstd", args: []string{"--series"}, about: "the same, one request after the other"},
	{name: "fasthttp-client", program: "clientfast", about: "fasthttp's client, a goroutine for each request"},
	{name: "client", program: "clientloop", ours: true, about: "package client, callbacks on the loops"},
	{name: "client-roundtrip", program: "clientloop", args: []string{"--roundtrip"}, ours: true,
		about: "package client as an http.RoundTripper, a goroutine for each request"},
	{name: "proxy-net/http", program: "proxystd", about: "httputil.ReverseProxy on net/http"},
	{name: "proxy-web", program: "proxyweb", ours: true, about: "the same on packages web and client"},
	{name: "net", program: "net", about: "package net, a goroutine for each connection"},
	{name: "engine", program: "engine", ours: true, about: "the bare engine"},
	{name: "redis-server", program: "redis", about: "redis-server, which has to be installed"},
	{name: "redcon", program: "redcon", about: "github.com/tidwall/redcon, a goroutine for each connection"},
	{name: "gnet", program: "gnet", about: "github.com/panjf2000/gnet with redcon's codec, on its loops"},
	{name: "resp", program: "resp", ours: true, about: "package resp, commands where they are cheapest (its default)"},
	{name: "resp-inline", program: "resp", args: []string{"--inline"}, ours: true,
		about: "package resp, commands on the loop"},
	{name: "resp-pool", program: "resp", args: []string{"--pool"}, ours: true,
		about: "package resp, commands on the pool"},
	{name: "go-redis", program: "goredis", about: "github.com/redis/go-redis, its pool of connections"},
	{name: "resp-client", program: "respclient", ours: true, about: "resp.Client, its defaults"},
	{name: "nghttpd", program: "nghttpd", about: "nghttp2's server, which has to be installed"},
	{name: "grpc-net/http", program: "grpcstd", about: "grpc-go's ServeHTTP on net/http"},
	{name: "grpc-own", program: "grpcstd", args: []string{"--own"}, about: "grpc-go's own server"},
	{name: "grpc-web", program: "grpcweb", ours: true, about: "grpc-go's ServeHTTP on package web"},
	{name: "c-epoll", program: "c", about: "a minimal epoll server in C: what the kernel costs"},
}

var (
	httpServers = []string{"net/http", "fasthttp", "hertz", "web", "web-pool", "web-inline", "web-reuse", "c-epoll"}
	wsServers   = []string{"gws", "gorilla", "coder", "gobwas", "websocket", "websocket-pool", "websocket-inline",
		"websocket-accept"}

	loaded = []string{"cpu_us", "user_us", "rate", "p50_ms", "p99_ms", "p999_ms", "rss_peak_mb", "goroutines",
		"threads"}
	held = []string{"conn_bytes", "conn_bytes_gc", "rss_idle_mb", "rss_peak_mb", "idle_cpu_ms", "goroutines",
		"threads"}
)

// many is more connections than there are files: as many as can be.
const many = 20_000

// scenarios are all there are, in the order of the parts of the project that they belong to.
var scenarios = slices.Concat(httpScenarios, slowScenarios, hostileScenarios, heldScenarios, webSocketScenarios,
	engineScenarios, poolScenarios, clientScenarios, tlsScenarios, h2Scenarios, respScenarios, pushScenarios,
	clusterScenarios, overloadScenarios, longScenarios)

var httpScenarios = []scenario{
	plaintext("http-100", "C1 P4", "What does a small request cost, 100 connections?", 100, 1),
	plaintext("http-1000", "C1 P4", "And with 1,000?", 1000, 1),
	plaintext("http-8000", "C1 C3 P4", "And with 8,000, from two client processes?", 8000, 2),
	plaintext("http-16000", "C1 C3 P4", "And with 16,000?", 16_000, 2),
	{
		name: "pipeline-16", rows: "A5 P5", asks: "What does a request cost when 16 of them come at once?",
		app: "http", check: check.HTTP(16), mode: load.Closed, conns: 100,
		servers: httpServers, reference: "fasthttp", measures: loaded,
	},
	{
		name: "http-rate", rows: "A4 P7", asks: "What is the latency at 10,000 requests per second, come what may?",
		app: "http", check: check.HTTP(1), mode: load.Open, conns: 200, rate: 10_000,
		servers: httpServers, reference: "net/http",
		measures: []string{"p99_ms", "p50_ms", "p999_ms", "unanswered", "cpu_us", "rate", "rss_peak_mb"},
	},
	{
		name: "gin-20k", rows: "A3 A P6",
		asks: "What does gin cost with 20,000 connections, or as many as there are files?",
		app:  "http", check: check.HTTP(1), mode: load.Closed, conns: many, drivers: 2,
		servers: []string{"gin", "gin-web", "gin-web-inline"}, reference: "gin", measures: loaded,
	},
}

// Scenarios with idle connections.
var heldScenarios = []scenario{
	{
		name: "idle-engine", rows: "E1 E3 M1 M5",
		asks: "What does a bare connection occupy that has echoed once and is silent?",
		app:  "echo", check: check.Echo(64), mode: load.Exchange, conns: many,
		servers: []string{"net", "engine", "c-epoll"}, reference: "net", measures: held,
	},
	{
		name: "idle-http", rows: "A1 B4 M3 M5", asks: "What does a kept HTTP connection occupy after one request?",
		app: "http", check: check.HTTP(1), mode: load.Exchange, conns: many,
		servers: []string{"net/http", "fasthttp", "hertz", "web", "c-epoll"}, reference: "net/http", measures: held,
	},
	{
		name: "idle-ws", rows: "B4 M2 M5", asks: "What does a WebSocket occupy after one echo?",
		app: "ws-echo", check: check.WebSocketEcho(128), mode: load.Exchange, conns: many,
		servers: []string{"gws", "gorilla", "coder", "gobwas", "websocket", "websocket-accept"}, reference: "gws",
		measures: held,
	},
}

var webSocketScenarios = []scenario{
	{
		name: "ws-echo", rows: "A6 B4 S1", asks: "What does an echoed message of 128 bytes cost, 1,000 WebSockets?",
		app: "ws-echo", check: check.WebSocketEcho(128), mode: load.Closed, conns: 1000,
		servers: wsServers, reference: "gws", measures: loaded,
	},
	{
		name: "ws-echo-1k", rows: "A6 B4 S1", asks: "And one of 1 KiB?",
		app: "ws-echo", check: check.WebSocketEcho(1024), mode: load.Closed, conns: 1000,
		servers: []string{"gws", "gorilla", "websocket", "websocket-pool", "websocket-inline"}, reference: "gws",
		measures: loaded,
	},
	{
		name: "ws-upgrade", rows: "B4 S3", asks: "What does an upgrade cost in memory, and the connection around it?",
		app: "upgrade", mode: working, work: check.Upgrade, order: harness.Order{Times: 100_000,
			Input: []byte(check.UpgradeRequest)},
		servers: []string{"gobwas", "gws", "gorilla", "coder", "websocket"}, reference: "gobwas",
		measures: []string{"each_ns", "mallocs", "alloc_bytes", "cpu_us"},
	},
	{
		name: "ws-connect", rows: "B4 B5 S3", asks: "And over sockets, when 10,000 come at once?",
		app: "ws-echo", check: check.WebSocketEcho(128), mode: connecting, conns: 10_000,
		servers: []string{"gobwas", "gws", "gorilla", "coder", "websocket", "websocket-accept"}, reference: "gobwas",
		measures: []string{"cpu_us", "user_us", "seconds", "rate", "rss_peak_mb", "goroutines"},
	},
	{
		name: "ws-deflate-idle", rows: "A6 M2 S4",
		asks: "What does a WebSocket occupy after one echo of 1 KiB, compressed?",
		app:  "ws-deflate", check: check.WebSocketDeflate(1024), mode: load.Exchange, conns: many,
		servers: []string{"gws", "gorilla", "coder", "websocket"}, reference: "gws", measures: held,
	},
	{
		name: "ws-broadcast", rows: "B3 S2",
		asks: "How soon do 15,000 WebSockets have a message of 128 bytes, and what does each delivery cost?",
		app:  "ws-broadcast", check: check.WebSocketBroadcast(128), mode: load.Broadcast, conns: 15_000,
		servers: wsServers, reference: "gws",
		measures: []string{"last_ms", "cpu_us", "user_us", "rate", "rss_peak_mb", "goroutines", "threads"},
	},
	{
		name: "ws-broadcast-naive", rows: "B3 S2",
		asks: "And if the callback writes the message to each connection in a loop?",
		app:  "ws-broadcast-naive", check: check.WebSocketBroadcast(128), mode: load.Broadcast, conns: 15_000,
		servers:   []string{"websocket-group", "gws", "websocket", "websocket-pool", "websocket-inline"},
		reference: "websocket-group",
		measures:  []string{"last_ms", "cpu_us", "user_us", "rate", "rss_peak_mb", "goroutines", "threads"},
	},
}

var engineScenarios = []scenario{
	{
		name: "engine-echo", rows: "E3 P1", asks: "What does an echo of 64 bytes cost, with no protocol at all?",
		app: "echo", check: check.Echo(64), mode: load.Closed, conns: 100,
		servers: []string{"c-epoll", "net", "engine"}, reference: "c-epoll", measures: loaded,
	},
	{
		name: "engine-fixed", rows: "E3 P2",
		asks: "What does a fixed response cost, 10,000 connections, with nothing parsed?",
		app:  "http", check: check.HTTP(1), mode: load.Closed, conns: 10_000,
		servers: []string{"c-epoll", "engine"}, reference: "c-epoll", measures: loaded,
	},
}

func plaintext(name, rows, asks string, conns, drivers int) scenario {
	return scenario{
		name: name, rows: rows, asks: asks,
		app: "http", check: check.HTTP(1), mode: load.Closed, conns: conns, drivers: drivers,
		servers: httpServers, reference: "net/http", measures: loaded,
	}
}
