package main

import (
	"slices"

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
	upgraded(scenario{
		name: "upgrade", rows: "B5 L5",
		asks: "What do 15,000 subscribers of 100 channels notice of ten upgrades, at 200 publications a second?",
		mode: upgrading, kind: load.Push, conns: 15_000, publishers: 100, drivers: upgradeWorkers,
		reference: "centrifugo",
		measures: []string{"pause_ms", "calm_pause_ms", "silence_ms", "lost", "missing", "doubled", "disordered",
			"upgrade_ms", "rss_before_mb", "rss_after_mb"},
	}),

	crowded("crowd-ramp", 144_000, scenario{ramp: 3000,
		asks: "How many clients are held that are pinged each second, when 3,000 more come each second?"}),
	crowded("crowd-36k", 36_000,
		scenario{asks: "How many are held of 36,000 that come at once, and are pinged each second?"}),
	crowded("crowd-72k", 72_000,
		scenario{asks: "How many are held of 72,000 that come at once, and are pinged each second?"}),
	crowded("crowd-144k", 144_000, scenario{asks: "How many of 144,000?"}),
	crowded("crowd-252k", 252_000, scenario{asks: "How many of 252,000?"}),
	crowded("crowd-stopped", 72_000, scenario{trouble: stoppedServers,
		asks: "How many of 72,000 when the servers stand still for two seconds?"}),
	crowded("crowd-one-cpu", 72_000, scenario{trouble: oneProcessor,
		asks: "How many of 72,000 when the servers have one processor only?"}),
	crowded("crowd-dead", 72_000, scenario{trouble: deadClients,
		asks: "How soon are 7,200 of 72,000 found that say nothing any more?"}),
}

// crowded compares servers that ping each second. Their clients have half a second to answer, and
// come back at once when they were ended.
func crowded(name string, offered int, s scenario) scenario {
	s = pushing(s)
	s.name, s.rows, s.mode, s.conns, s.reference, s.publishers = name, "B5 L5", crowding, offered, "centrifugo", 0
	s.servers = []string{"centrifugo", "push", "push-protobuf", "push-sse"}
	s.measures = []string{"held_part", "held", "ended", "pongs", "all_in_s", "clients_late_ms"}
	if s.trouble == deadClients {
		s.measures = append(s.measures, "found_ms", "not_found")
		s.servers = s.servers[:3] // clients of Server-Sent Events answer nothing
	}
	s.dialects = pinging(s)
	return s
}

// pinging are the dialects of a scenario's servers, with pings each second where they have any.
func pinging(s scenario) map[string]dialect {
	all := map[string]dialect{}
	for _, name := range s.servers {
		d := subscribed(publicationSize)[name]
		if d.check == nil {
			d = dialect{s.app, s.check}
		}
		if isPinging(name) {
			d.app = "push-pinging"
		}
		all[name] = d
	}
	return all
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
	s.servers = servers
	s.dialects = pinging(s)
	return s
}

// upgraded compares servers whose channels have a history, so that subscribers recover.
func upgraded(s scenario) scenario {
	s = pushing(s)
	s.servers, s.dialects = []string{"centrifugo", "push"}, map[string]dialect{}
	for _, name := range s.servers {
		s.dialects[name] = dialect{"push-recovery", check.Recovery}
	}
	return s
}

func isPinging(name string) bool {
	return slices.Contains([]string{"push", "centrifugo", "push-sse", "push-protobuf"}, name)
}

// A together is a name for several scenarios.
var together = map[string][]string{
	"overload": {"overload-http", "overload-echo", "overload-push"},
	"crowd": {"crowd-ramp", "crowd-36k", "crowd-72k", "crowd-144k", "crowd-252k", "crowd-stopped", "crowd-one-cpu",
		"crowd-dead"},
}
