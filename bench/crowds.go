package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/crowd"
)

// crowdCommand makes this program a process of package crowd, when it is the first argument.
const crowdCommand = "crowd"

const (
	// crowdEach is how many clients a process has, and a server, if there are descriptors for them.
	crowdEach = 18_000
	// crowdOpening is how many clients a process opens at a time: fewer than any server's backlog.
	crowdOpening = 256
	// crowdSources are how many local addresses a process connects from.
	crowdSources = 4
	// crowdSettles is for how long all are in before it counts how many are held.
	crowdSettles = 3 * time.Second
	// crowdGrowth is how many clients a second come in at least while more are waited for.
	crowdGrowth = 3000
	// crowdPatience is for how long any number of clients is waited for.
	crowdPatience = 15 * time.Second
)

// A trouble is what happens to a crowd, or to its servers, while it is held.
type trouble string

const (
	stoppedServers trouble = "the servers are stopped for two seconds"
	deadClients    trouble = "a tenth of the clients die"
	oneProcessor   trouble = "the servers have one processor"
)

// crowdProcesses is how many processes of clients there are, and as many servers, when a process
// has descriptors for so many connections.
func crowdProcesses(conns, most int) int {
	each := max(1, min(crowdEach, most))
	return max(1, (conns+each-1)/each)
}

// A holding is a crowd at its servers in one turn.
type holding struct {
	turn
	servers []*target
	fleet   *crowd.Fleet
	every   time.Duration // between two looks
	began   time.Time
	looked  time.Time
}

// crowd has clients come that answer pings and come back at once, all together or at the scenario's
// ramp, and counts those that are held. The servers are several processes like the target: one has
// descriptors for a part of the clients only. They have a lower priority than the clients, so that
// these answer as soon as if they had processors of their own.
func (t turn) crowd(ctx context.Context, first *target) (sample, error) {
	watch, err := newWatch()
	if err != nil {
		return nil, err
	}
	h := &holding{turn: t, servers: []*target{first}, every: min(time.Second, t.duration)}
	defer h.end()
	if err := h.start(ctx); err != nil {
		return nil, err
	}
	out := sample{}
	if err := h.gather(ctx, out); err != nil {
		return nil, err
	}
	if err := h.trouble(ctx, out); err != nil {
		return nil, err
	}
	if err := h.count(ctx, out); err != nil {
		return nil, err
	}
	if out["strangers"], err = watch.strangers(); err != nil {
		return nil, err
	}
	return out, out.population(first)
}

// start starts the other servers, and the clients' processes.
func (h *holding) start(ctx context.Context) error {
	for len(h.servers) < h.scenario.drivers {
		one, err := h.launch(ctx)
		if err != nil {
			return err
		}
		h.servers = append(h.servers, one)
	}
	var specs []crowd.Spec
	for i, s := range h.servers {
		spec := crowd.Spec{Addr: s.addr, Most: h.scenario.conns/len(h.servers) + 1, Opening: crowdOpening,
			Wait: 10 * time.Second, Every: h.every, Talk: crowdTalk(h.server.name)}
		for k := range crowdSources {
			spec.Sources = append(spec.Sources, fmt.Sprintf("127.%d.%d.%d", 40+i/250, i%250, k+1))
		}
		specs = append(specs, spec)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	h.fleet, err = crowd.Start([]string{self, crowdCommand}, specs)
	return err
}

// crowdTalk is how clients speak to a server.
func crowdTalk(server string) crowd.Talk {
	switch server {
	case "push", "centrifugo":
		return crowd.JSON
	case "push-protobuf":
		return crowd.Protobuf
	}
	return crowd.Events
}

func (h *holding) end() {
	if h.fleet != nil {
		h.fleet.Close()
	}
	for _, s := range h.servers[1:] {
		s.end()
	}
}

// look waits for the next report, and notes how many clients are held.
func (h *holding) look(ctx context.Context) (crowd.Report, error) {
	h.looked = h.looked.Add(h.every)
	if err := sleep(ctx, time.Until(h.looked)); err != nil {
		return crowd.Report{}, err
	}
	r, err := h.fleet.Look()
	if h.course != nil {
		*h.course = append(*h.course, [2]float64{time.Since(h.began).Round(10 * time.Millisecond).Seconds(),
			float64(r.Held)})
	}
	return r, err
}

// gather has the clients come, until all are in, or for as long as is worth waiting.
func (h *holding) gather(ctx context.Context, out sample) error {
	n := h.scenario.conns
	h.began = time.Now()
	h.looked = h.began
	if err := h.fleet.Order(crowd.Order{Clients: n, Rate: h.scenario.ramp}); err != nil {
		return err
	}
	limit := crowdPatience + time.Duration(n)*time.Second/crowdGrowth
	if h.scenario.ramp > 0 {
		limit = crowdPatience + time.Duration(float64(n)/h.scenario.ramp*float64(time.Second))
	}
	var settled time.Time
	for time.Since(h.began) < limit {
		r, err := h.look(ctx)
		if err != nil {
			return err
		}
		if r.Held < n-n/500 {
			continue
		}
		if settled.IsZero() {
			settled = time.Now()
			out["all_in_s"] = time.Since(h.began).Seconds()
		}
		if time.Since(settled) >= min(crowdSettles, h.duration) {
			return nil
		}
	}
	return nil
}

// trouble makes the scenario's trouble, while the clients are held.
func (h *holding) trouble(ctx context.Context, out sample) error {
	var pids []int
	for _, s := range h.servers {
		pids = append(pids, s.pid())
	}
	switch h.scenario.trouble {
	case stoppedServers:
		goOn, err := stopProcesses(pids)
		if err != nil {
			return err
		}
		err = sleep(ctx, min(2*time.Second, h.duration))
		return errors.Join(err, goOn())
	case oneProcessor:
		return keepToOneProcessor(pids)
	case deadClients:
		return h.bury(ctx, out)
	}
	return nil
}

// bury has a tenth of the clients die. It waits until the servers have found all of them, at most
// for a multiple of the time that they may take.
func (h *holding) bury(ctx context.Context, out sample) error {
	if err := h.fleet.Order(crowd.Order{Clients: h.scenario.conns, Die: max(1, h.scenario.conns/10)}); err != nil {
		return err
	}
	began, slowest, silent := time.Now(), time.Duration(0), 0
	for died := false; time.Since(began) < 10*(check.PingEvery+check.PongWithin); {
		r, err := h.look(ctx)
		if err != nil {
			return err
		}
		died = died || r.Silent > 0 || r.Found > 0
		slowest, silent = max(slowest, r.Slowest), r.Silent
		if died && silent == 0 {
			break
		}
	}
	out["found_ms"], out["not_found"] = millis(slowest), float64(silent)
	return nil
}

// count says how many clients are held, for as long as a turn counts.
func (h *holding) count(ctx context.Context, out sample) error {
	offered := h.scenario.conns
	if h.scenario.trouble == deadClients {
		offered -= max(1, offered/10)
	}
	var held []float64
	ended, pongs, began, looked := 0, 0, time.Now(), h.looked
	for time.Since(began) < h.duration {
		r, err := h.look(ctx)
		if err != nil {
			return err
		}
		held = append(held, float64(r.Held))
		ended += r.Ended
		pongs += r.Answered
		out["clients_late_ms"] = max(out["clients_late_ms"], millis(r.Late))
		out["driver_share"] = max(out["driver_share"], r.CPU.Seconds()/h.looked.Sub(looked).Seconds())
		looked = h.looked
	}
	took := time.Since(began).Seconds()
	out["held"], out["held_part"] = slices.Min(held), spreadOf(held).Median/float64(offered)
	out["ended"] = float64(ended) / took
	if crowdTalk(h.server.name).Ping != nil {
		out["pongs"] = float64(pongs) / took
	}
	return nil
}
