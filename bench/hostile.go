package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/myriad-go/myriad/bench/attack"
	"github.com/myriad-go/myriad/bench/proc"
)

// attackCommand makes this program attackers, when it is the first argument.
const attackCommand = "attack"

// begun is how long attackers attack before it counts: that long, or the time under load if that is
// shorter.
const begun = time.Second

// recovery is how long a server has to release what attackers have left: that long, or the time
// under load if that is shorter.
const recovery = 3 * time.Second

// attack begins the scenario's attack, by a child that the caller ends. The returned function also
// ends it. It adds the attack's cost in cores, and what the attack has left: the growth of the
// server's memory after a collection, and of its goroutines. Its other clients are there before and
// after.
func (t turn) attack(ctx context.Context, target *target) (attackers *child, end func(sample) error, err error) {
	before := sample{}
	if err := before.rest(target); err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	attackers, err = start(ctx, "the attackers", self, attackCommand)
	if err != nil {
		return nil, nil, err
	}
	if err := attackers.send(attack.Spec{Addr: target.addr, Kind: t.scenario.attack}); err != nil {
		attackers.end()
		return nil, nil, err
	}
	if line, err := attackers.line(); err != nil || line != "attacking" {
		attackers.end()
		return nil, nil, fmt.Errorf("the attackers say %q: %w", line, err)
	}
	if err := sleep(ctx, min(t.duration, begun)); err != nil {
		attackers.end()
		return nil, nil, err
	}
	began := time.Now()
	spent, err := proc.CPU(attackers.pid())
	if err != nil {
		attackers.end()
		return nil, nil, err
	}
	return attackers, func(out sample) error {
		used, err := proc.CPU(attackers.pid())
		out["attackers"] = used.Sub(spent).Total.Seconds() / time.Since(began).Seconds()
		attackers.end()
		if err != nil {
			return err
		}
		if err := sleep(ctx, min(t.duration, recovery)); err != nil {
			return err
		}
		after := sample{}
		err = after.rest(target)
		for name, value := range after {
			out[name] = value - before[name]
		}
		return err
	}, nil
}

// rest is what is occupied after a collection.
func (s sample) rest(target *target) error {
	if err := target.collect(); err != nil {
		return err
	}
	now, err := target.status()
	if err != nil {
		return err
	}
	s["left_mb"] = float64(now.RSS) / (1 << 20)
	n, known, err := target.goroutines()
	if known {
		s["left_goroutines"] = n
	}
	return err
}
