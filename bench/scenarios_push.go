package main

import (
	"fmt"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
)

const publicationSize = 128

// subscribed are the ways in which push servers are subscribed to. By default, and so by a server from elsewhere, it is
// Server-Sent Events, unless it is given the name of one that speaks as clients of that do.
var subscribed = map[string]dialect{
	"push":       {"push-ws", check.Pushed(check.Centrifuge, publicationSize)},
	"centrifugo": {"push-ws", check.Pushed(check.Centrifuge, publicationSize)},
	"gws":        {"push-ws", check.Pushed(check.Plain, publicationSize)},
}

var pushServers = []string{"c-epoll", "net/http", "gws", "push", "push-sse"}

// Those who publish over HTTP what subscribers receive.
var pushScenarios = []scenario{
	pushing(scenario{
		name: "push-broadcast", rows: "B3 U1", asks: "How soon do 15,000 subscribers have a publication of 128 bytes, and what does each delivery cost?",
		mode: load.Broadcast, conns: 15_000, reference: "c-epoll",
		measures: []string{"last_ms", "deliver_p50_ms", "deliver_p99_ms", "cpu_us", "user_us", "rate", "rss_peak_mb", "goroutines", "threads"},
	}),
	pushing(scenario{
		name: "push-idle", rows: "B3 B4 M6", asks: "What does a subscriber occupy who has received one publication and waits for more?",
		mode: load.Exchange, conns: many, reference: "net/http", measures: held,
	}),
	pushing(scenario{
		name: "push-connect", rows: "B5 U3", asks: "What does it cost when 15,000 subscribers come at once?",
		mode: connecting, conns: 15_000, reference: "net/http",
		measures: []string{"cpu_us", "seconds", "rate", "rss_peak_mb", "goroutines"},
	}),
	publishing(1, 1), publishing(1, 16), publishing(100, 1), publishing(100, 16),
}

func publishing(subscribers, publishers int) scenario {
	s := pushing(scenario{
		name: fmt.Sprintf("push-publish-%d-%d", subscribers, publishers), rows: "B3 U2",
		asks: fmt.Sprintf("How many publications does it take per second, with subscribers: %d, publishers: %d?", subscribers, publishers),
		mode: load.Publish, conns: subscribers, publishers: publishers, reference: "net/http",
		measures: []string{"rate", "cpu_us", "p50_ms", "p99_ms", "rss_peak_mb"},
	})
	s.servers = []string{"net/http", "push", "push-sse"}
	return s
}

// pushing fills in what all of them have in common.
func pushing(s scenario) scenario {
	s.app, s.check, s.dialects, s.servers = "push-sse", check.Pushed(check.Events, publicationSize), subscribed, pushServers
	s.publishers = max(s.publishers, 1)
	return s
}
