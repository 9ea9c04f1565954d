package main

import (
	"context"
	"os"
	"time"

	"github.com/myriad-go/myriad/server/load"
)

// trafficCommand makes this program a worker of myriad load, when it is the first argument. The
// clients of overload live through errors: they lose connections, wait, and come back. Those of
// package bench/load end with the first one.
const trafficCommand = "traffic"

// clients runs a plan of myriad load in a process of its own.
func clients(ctx context.Context, p load.Plan, o load.Options) (*load.Report, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o.Workers, o.Command = 1, []string{self, trafficCommand}
	return load.Run(ctx, p, o)
}

// give is how long a client waits for an answer before it gives up.
const give = time.Second

// traffic is what clients of a server do, in the scenario's kind of load.
func (t turn) traffic(target *target) load.Plan {
	p := load.Plan{Kind: t.scenario.kind, URL: "http://" + target.addr, Connections: t.scenario.conns, Timeout: give,
		Loops: 1, Duration: t.duration, Warmup: min(t.duration/4, time.Second/2)}
	switch p.Kind {
	case load.HTTP:
		p.URL += "/plaintext"
	case load.Push:
		p.Protocol, p.Channels = load.Events, max(t.scenario.publishers, 1)
		if t.server.name == "push" || t.server.name == "centrifugo" {
			p.Protocol = load.Centrifuge
		}
		p.Timeout = 10 * give // what is published is waited for
	}
	return p
}

// served is how many requests of an open loop a second got what they asked for.
func served(r *load.Report) float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Total.Service.Count()) / r.Elapsed.Seconds()
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
