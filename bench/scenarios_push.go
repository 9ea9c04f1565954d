package main

import (
	"fmt"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
)

// Sizes of publications, in bytes. Of small ones it takes a client that never reads an hour to fill
// what the kernel holds for it.
const (
	publicationSize      = 128
	largePublicationSize = 16 << 10
)

// subscribed are the ways in which push servers are subscribed to, with publications of size bytes.
// The default, also for a server from elsewhere, is Server-Sent Events. A server whose name is
// known uses its own client protocol.
func subscribed(size int) map[string]dialect {
	return map[string]dialect{
		"push":          {"push-ws", check.Pushed(check.Centrifuge, size)},
		"push-protobuf": {"push-ws", check.Pushed(check.Protobuf, size)},
		"push-mercure":  {"push-sse", check.Pushed(check.Mercure, size)},
		"push-redis":    {"push-redis", check.Pushed(check.Redis, size)},
		"push-tokens":   {"push-tokens", check.Pushed(check.Tokens, size)},
		"centrifugo":    {"push-ws", check.Pushed(check.Centrifuge, size)},
		"gws":           {"push-ws", check.Pushed(check.Plain, size)},
	}
}

var pushServers = []string{"c-epoll", "net/http", "gws", "push", "push-sse"}

// Scenarios that publish over HTTP to subscribers.
var pushScenarios = []scenario{
	pushing(scenario{
		name: "push-broadcast", rows: "B3 U1",
		asks: "How soon do 15,000 subscribers have a publication of 128 bytes, and what does each delivery cost?",
		mode: load.Broadcast, conns: 15_000, reference: "c-epoll",
		measures: []string{"last_ms", "deliver_p50_ms", "deliver_p99_ms", "cpu_us", "user_us", "rate", "rss_peak_mb",
			"goroutines", "threads"},
	}),
	pushing(scenario{
		name: "push-idle", rows: "B3 B4 M6",
		asks: "What does a subscriber occupy that has received one publication and waits for more?",
		mode: load.Exchange, conns: many, reference: "net/http", measures: held,
	}),
	pushing(scenario{
		name: "push-connect", rows: "B5 U3", asks: "What does it cost when 15,000 subscribers come at once?",
		mode: connecting, conns: 15_000, reference: "net/http",
		measures: []string{"cpu_us", "seconds", "rate", "rss_peak_mb", "goroutines"},
	}),
	ignoring(),
	inDoors(scenario{
		name: "push-doors", rows: "U1",
		asks: "What does a delivery to 15,000 subscribers cost in each protocol?",
		mode: load.Broadcast, conns: 15_000, measures: []string{"last_ms", "cpu_us", "user_us", "rss_peak_mb"},
	}, doors...),
	publishingInDoors(1), publishingInDoors(100),
	inDoors(scenario{
		name: "push-tokens", rows: "U3",
		asks: "What do two tokens for each of 15,000 subscribers add when they come at once?",
		mode: connecting, conns: 15_000, measures: []string{"cpu_us", "seconds", "rate", "rss_peak_mb"},
	}, "push-tokens"),
	publishing(1, 1), publishing(1, 16), publishing(100, 1), publishing(100, 16),
}

// doors are the ways to subscribe to package push, besides the Centrifuge protocol in JSON.
var doors = []string{"push-sse", "push-protobuf", "push-mercure", "push-redis"}

// publishingInDoors compares doors to which 16 publishers send. Publishers of the Mercure and the
// Redis door use the door's own protocol, others the HTTP API.
func publishingInDoors(subscribers int) scenario {
	return inDoors(scenario{
		name: fmt.Sprintf("push-doors-publish-%d", subscribers), rows: "U2",
		asks: fmt.Sprintf("How many publications does each protocol take per second, with subscribers: %d, "+
			"publishers: 16?", subscribers),
		mode: load.Publish, conns: subscribers, publishers: 16,
		measures: []string{"rate", "cpu_us", "p50_ms", "p99_ms", "rss_peak_mb"},
	}, doors...)
}

// inDoors compares ways to subscribe to package push.
func inDoors(s scenario, servers ...string) scenario {
	s = pushing(s)
	s.servers, s.reference = append([]string{"push"}, servers...), "push"
	return s
}

// ignoring has subscribers that never read. While it lasts they fill what the kernel and the server
// hold for them, and are disconnected.
func ignoring() scenario {
	s := pushing(scenario{
		name: "push-slow", rows: "L5",
		asks: "What do 500 subscribers of 16 KiB notice of ten more that never read, and what do those cost?",
		mode: load.Broadcast, conns: 500, unread: 10, reference: "push",
		measures: []string{"times_last", "last_ms", "alone_last_ms", "deliver_p50_ms", "deliver_p99_ms",
			"alone_deliver_p99_ms", "cpu_us", "rss_idle_mb", "rss_peak_mb"},
	})
	s.servers, s.check, s.dialects = []string{"push", "push-sse"}, check.Pushed(check.Events, largePublicationSize),
		subscribed(largePublicationSize)
	return s
}

func publishing(subscribers, publishers int) scenario {
	s := pushing(scenario{
		name: fmt.Sprintf("push-publish-%d-%d", subscribers, publishers), rows: "B3 U2",
		asks: fmt.Sprintf("How many publications does it take per second, with subscribers: %d, publishers: %d?",
			subscribers, publishers),
		mode: load.Publish, conns: subscribers, publishers: publishers, reference: "net/http",
		measures: []string{"rate", "cpu_us", "p50_ms", "p99_ms", "rss_peak_mb"},
	})
	s.servers = []string{"net/http", "push", "push-sse"}
	return s
}

// pushing fills in what all of them have in common.
func pushing(s scenario) scenario {
	s.app, s.check, s.dialects, s.servers = "push-sse", check.Pushed(check.Events, publicationSize),
		subscribed(publicationSize), pushServers
	s.publishers = max(s.publishers, 1)
	return s
}
