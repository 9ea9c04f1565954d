package main

import (
	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/server/load"
)

// Scenarios in which more is offered than a server can do. What it can do, beside clients that
// share its processors, is found in the same turn.
var overloadScenarios = []scenario{
	overloaded(scenario{
		name: "overload-http", asks: "What is left of HTTP at 1, 2 and 10 times the requests that can be answered?",
		app: "http", check: check.HTTP(1), kind: load.HTTP, conns: 4000,
		servers: []string{"net/http", "web"}, reference: "net/http",
	}),
	overloaded(scenario{
		name: "overload-echo", asks: "And of echoed messages of 128 bytes, over WebSockets?",
		app: "ws-echo", check: check.WebSocketEcho(128), kind: load.Echo, conns: 4000,
		servers: []string{"gws", "websocket"}, reference: "gws",
	}),
	overloaded(pushing(scenario{
		name: "overload-push", asks: "And of deliveries to 1,000 subscribers of 100 channels?",
		kind: load.Push, conns: 1000, publishers: 100, reference: "centrifugo",
	})),
	storming("storm", "centrifugo", "push"),
	storming("storm-sse", "net/http", "push-sse"),
}

func overloaded(s scenario) scenario {
	s.rows, s.mode = "A4 L5", overloading
	s.measures = []string{"served_10x", "served_2x", "served_1x", "possible", "p99_10x_ms", "p99_2x_ms", "p99_1x_ms",
		"ended_10x", "recover_ms"}
	s.ratios = []string{"p99_10x_ms"}
	if s.kind == load.Push {
		s.servers = []string{"centrifugo", "net/http", "push", "push-sse"}
	}
	return s
}

// storming compares servers whose subscribers are pinged each second, as far as their protocol has
// pings.
func storming(name string, servers ...string) scenario {
	s := pushing(scenario{
		name: name, rows: "B5 L5",
		asks: "What do 5,000 subscribers notice when twice as many others come as can be taken in?",
		mode: reconnecting, kind: load.Push, conns: 5000, arriving: 8000, reference: servers[0],
		measures: []string{"served_2x", "possible", "held", "ended", "p99_ms", "calm_p99_ms", "arrive_p99_ms",
			"recover_ms"},
		ratios: []string{"p99_ms"},
	})
	s.servers, s.dialects = servers, map[string]dialect{}
	for _, name := range servers {
		d := subscribed(publicationSize)[name]
		if d.check == nil {
			d = dialect{s.app, s.check}
		}
		if isPinging(name) {
			d.app = "push-pinging"
		}
		s.dialects[name] = d
	}
	return s
}

func isPinging(name string) bool { return name == "push" || name == "centrifugo" || name == "push-sse" }

// A together is a name for several scenarios.
var together = map[string][]string{
	"overload": {"overload-http", "overload-echo", "overload-push"},
}
