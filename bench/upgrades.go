package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/server/load"
)

// What an upgrading turn does.
const (
	upgradeRate  = 200 // publications a second, in all channels together
	upgradeTimes = 10  // in a row
	// upgradeApart is the time between two of them, or a turn's time under load if that is shorter.
	upgradeApart = time.Second
	// upgradeWorkers are the processes that share the clients.
	upgradeWorkers = 2
	// upgradePatience is how long the old process may take to end.
	upgradePatience = 30 * time.Second
)

// upgrades measures what subscribers notice of upgrades. First nothing happens, then the server is
// upgraded several times while programs publish. A server that cannot be upgraded is restarted. The
// subscribers come back and recover if they lose their connections.
func (t turn) upgrades(ctx context.Context, target *target) (sample, error) {
	watch, err := newWatch()
	if err != nil {
		return nil, err
	}
	in := &upgradeClients{changed: make(chan struct{}, 1)}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var report *load.Report
	var failure error
	over := make(chan struct{})
	go func() {
		defer close(over)
		report, failure = t.subscribers(running, target, in)
	}()
	defer func() { <-over }()
	defer stop()
	out := sample{}
	if err = in.await(ctx, over); err == nil {
		err = t.upgradeAll(ctx, target, in, out)
	}
	stop()
	<-over
	if err = errors.Join(err, failure); err != nil {
		return nil, err
	}
	push := report.Total.Push
	out["lost"], out["missing"] = float64(report.Total.Lost), float64(push.Missing)
	out["doubled"], out["disordered"] = float64(push.Duplicates), float64(push.Late)
	out["driver_share"] = report.Own.Busiest
	if out["strangers"], err = watch.strangers(); err != nil {
		return nil, err
	}
	return out, out.population(target)
}

// subscribers runs the clients until ctx ends.
func (t turn) subscribers(ctx context.Context, target *target, in *upgradeClients) (*load.Report, error) {
	p := t.traffic(target)
	p.Rate, p.Duration, p.Warmup, p.Recover, p.Retry = upgradeRate, time.Hour, 0, true, true
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return load.Run(ctx, p, load.Options{Workers: min(upgradeWorkers, t.scenario.conns),
		Command: []string{self, trafficCommand}, Watch: in.note})
}

// upgradeAll measures a time without upgrades, and then one with them.
func (t turn) upgradeAll(ctx context.Context, target *target, in *upgradeClients, out sample) error {
	in.take() // what was while the clients came
	if err := sleep(ctx, t.duration); err != nil {
		return err
	}
	calm := in.take()
	before, err := t.memoryOf(ctx, target)
	if err != nil {
		return err
	}
	in.take()
	var took []time.Duration
	for range upgradeTimes {
		began := time.Now()
		if err := t.renew(ctx, target); err != nil {
			return err
		}
		took = append(took, time.Since(began))
		if err := sleep(ctx, min(upgradeApart, t.duration)); err != nil {
			return err
		}
	}
	if err := in.caughtUp(ctx); err != nil {
		return err
	}
	troubled := in.take()
	after, err := t.memoryOf(ctx, target)
	if err != nil {
		return err
	}
	slices.Sort(took)
	out["calm_pause_ms"], out["pause_ms"] = millis(calm.pause), millis(troubled.pause)
	out["calm_silence_ms"], out["silence_ms"] = millis(calm.silence), millis(troubled.silence)
	out["upgrade_ms"] = millis(took[len(took)/2])
	out["rss_before_mb"], out["rss_after_mb"] = before, after
	return nil
}

// memoryOf is what the server occupies, in MB: without garbage, if it has any and can be told.
func (t turn) memoryOf(ctx context.Context, target *target) (float64, error) {
	_, collected, err := occupied(ctx, target)
	return float64(collected.RSS) / (1 << 20), err
}

// renew has a new process take the place of the server's, and returns when the old one has ended.
func (t turn) renew(ctx context.Context, target *target) error {
	if target.commands {
		return target.upgrade(ctx)
	}
	if err := syscall.Kill(target.pid(), syscall.SIGTERM); err != nil {
		return fmt.Errorf("ending the server: %w", err)
	}
	target.end()
	next, err := launchAt(ctx, target.addr, t.server, nil, t.program, t.scenario.speaking(t.server).app)
	if err != nil {
		return fmt.Errorf("after its end: %w", err)
	}
	target.child, target.commands = next.child, next.commands
	return nil
}

// upgrade sends SIGUSR2 to a server that understands commands. Its new process has the same
// standard input and output, and says that it listens.
func (t *target) upgrade(ctx context.Context) error {
	old := t.pid()
	if err := syscall.Kill(old, syscall.SIGUSR2); err != nil {
		return fmt.Errorf("upgrading the server: %w", err)
	}
	line, err := t.line()
	if err != nil {
		return err
	}
	if line != "listening "+t.addr+" control" {
		return fmt.Errorf("the server's new process says %q, and not that it listens on %s", line, t.addr)
	}
	// The old one must not read the next command.
	for began := time.Now(); !isOver(old); {
		if time.Since(began) > upgradePatience {
			return fmt.Errorf("the server's process %d has not ended %s after its upgrade", old, upgradePatience)
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	if line, err = t.ask("pid"); err != nil {
		return err
	}
	if t.successor, err = strconv.Atoi(line); err != nil || t.successor <= 1 || t.successor == old {
		return fmt.Errorf("the server's new process says that its number is %q", line)
	}
	return nil
}

// isOver reports whether a process has ended, though its parent may not know yet.
func isOver(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

// upgradeClients are the clients of an upgrading turn, as they are watched.
type upgradeClients struct {
	changed chan struct{} // has room for one

	mu     sync.Mutex
	seen   noticed // since the last take
	open   int     // connections
	wanted int
	recent time.Duration // the longest pause of the last period that had a delivery
}

// noticed is what subscribers have noticed in some time.
type noticed struct{ pause, silence time.Duration }

// note takes in how the run goes.
func (in *upgradeClients) note(p load.Progress) {
	if p.Phase != load.Running || p.Recent.Push.Delivery.Count() == 0 {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	push := p.Recent.Push
	in.seen.pause, in.seen.silence = max(in.seen.pause, push.Delivery.Max()), max(in.seen.silence, push.Silence)
	in.open, in.wanted, in.recent = p.Open, p.Wanted, push.Delivery.Max()
	select {
	case in.changed <- struct{}{}:
	default:
	}
}

// take returns what was noticed since the last call.
func (in *upgradeClients) take() noticed {
	in.mu.Lock()
	defer in.mu.Unlock()
	seen := in.seen
	in.seen = noticed{}
	return seen
}

// await waits for the first deliveries, or for the end of the run.
func (in *upgradeClients) await(ctx context.Context, over <-chan struct{}) error {
	select {
	case <-in.changed:
		return nil
	case <-over:
		return errors.New("the clients' run has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// caughtUp waits until all clients are back and get what is published at once, at most for
// recoverLimit. Servers that were restarted take a while.
func (in *upgradeClients) caughtUp(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < recoverLimit; {
		in.mu.Lock()
		back := in.open >= in.wanted && in.recent < time.Second
		in.mu.Unlock()
		if back && time.Since(began) > upgradeApart/2 { // the last period has begun behind the last upgrade
			return nil
		}
		if err := sleep(ctx, upgradeApart/10); err != nil {
			return err
		}
	}
	return nil
}
