package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/proc"
)

// A sample is what one turn of one server has shown: figures by the names of metrics. What does not
// apply is not there.
type sample map[string]float64

const (
	// joining is how long a server has, after it has answered the last handshake, to note the
	// connection.
	joining = 250 * time.Millisecond
	// turnLimit is how long a turn may take on top of its time under load.
	turnLimit = 2 * time.Minute
)

// A turn is one server's in one round: started, checked, measured, ended.
type turn struct {
	scenario scenario
	server   server
	program  string
	duration time.Duration
	course   *course // where the turn notes how a figure went; nil: nowhere
}

func (t turn) warmUp() time.Duration {
	return min(t.duration/2, 1500*time.Millisecond)
}

func (t turn) run(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit+3*t.duration)
	defer cancel()
	target, err := t.launch(ctx)
	if err != nil {
		return nil, err
	}
	defer target.end()
	s, err := t.measure(ctx, target)
	if err != nil {
		target.end() // for its last words
		if said := target.stderr.String(); said != "" {
			err = fmt.Errorf("%w; the server says: %s", err, said)
		}
	}
	return s, err
}

// launch starts a server of the turn. It has a lower priority where the scenario's clients must not
// be late themselves.
func (t turn) launch(ctx context.Context) (*target, error) {
	var before []string
	if t.scenario.mode == crowding {
		before = []string{"nice", "-n", "10"}
	}
	return launch(ctx, t.server, before, t.program, t.scenario.speaking(t.server).app)
}

func (t turn) measure(ctx context.Context, target *target) (sample, error) {
	if t.scenario.mode == working {
		return t.work(ctx, target)
	}
	check := t.scenario.speaking(t.server).check
	talk, err := check(target.addr)
	if err != nil {
		return nil, fmt.Errorf("its answer is wrong: %w", err)
	}
	switch t.scenario.mode {
	case overloading:
		return t.overload(ctx, target, func() error {
			_, err := check(target.addr)
			return err
		})
	case reconnecting:
		return t.reconnects(ctx, target)
	case crowding:
		return t.crowd(ctx, target)
	case upgrading:
		return t.upgrades(ctx, target)
	}
	addr, _, _ := strings.Cut(target.addr, ",") // the first of a cluster
	spec := load.Spec{
		Addr: addr, Conns: t.scenario.conns, Server: target.pid(), Family: t.scenario.family, Talk: talk,
		Publishers: t.scenario.publishers,
	}
	switch t.scenario.mode {
	case load.Exchange:
		return t.hold(ctx, target, spec)
	case connecting:
		return t.connect(ctx, target, spec)
	}
	return t.load(ctx, target, spec)
}

func (t turn) load(ctx context.Context, target *target, spec load.Spec) (sample, error) {
	idle, err := target.status()
	if err != nil {
		return nil, err
	}
	drivers, err := launchFleet(ctx, max(t.scenario.drivers, 1), spec)
	if err != nil {
		return nil, err
	}
	defer drivers.end()
	if err := sleep(ctx, joining); err != nil {
		return nil, err
	}
	watch, err := newWatch()
	if err != nil {
		return nil, err
	}
	out := sample{}
	order := load.Order{Mode: t.scenario.mode, Rate: t.scenario.rate}
	end := func(sample) error { return nil }
	if t.scenario.slow > 0 || t.scenario.attack != "" || t.scenario.unread > 0 {
		if err := t.undisturbed(ctx, target, drivers, order, out); err != nil {
			return nil, err
		}
		order.Slow = t.scenario.slow
	}
	if t.scenario.unread > 0 {
		unread, err := t.openUnread(ctx, spec)
		if err != nil {
			return nil, err
		}
		defer unread.end()
	}
	if t.scenario.attack != "" {
		var attackers *child
		if attackers, end, err = t.attack(ctx, target); err != nil {
			return nil, err
		}
		defer attackers.end() // also when what follows fails
	}
	if t.scenario.storm > 0 {
		var stormers fleet
		stormers, err = t.stormy(ctx, target, drivers, order, spec, out)
		defer stormers.end()
	} else {
		out, err = t.window(ctx, target, drivers, order, out)
	}
	if err != nil {
		return nil, err
	}
	if out["strangers"], err = watch.strangers(); err != nil {
		return nil, err
	}
	if alone := out["alone_p99_ms"]; alone > 0 {
		out["times_alone"] = out["p99_ms"] / alone
	}
	if alone := out["alone_last_ms"]; alone > 0 {
		out["times_last"] = out["last_ms"] / alone
	}
	busy, err := target.status()
	if err != nil {
		return nil, err
	}
	out.memory(idle, busy)
	return out, end(out)
}

// undisturbed is what a window shows before anything disturbs.
func (t turn) undisturbed(ctx context.Context, target *target, drivers fleet, order load.Order, out sample) error {
	// The first window after the connections have been opened is the worst, and must not be what
	// the other is compared with.
	if _, err := t.window(ctx, target, drivers, order, sample{}); err != nil {
		return err
	}
	alone, err := t.window(ctx, target, drivers, order, sample{})
	for _, name := range []string{"p50_ms", "p99_ms", "last_ms", "deliver_p99_ms"} {
		if figure, ok := alone[name]; ok {
			out["alone_"+name] = figure
		}
	}
	return err
}

// openUnread opens connections that subscribe and then never read, because their process gets no
// order.
func (t turn) openUnread(ctx context.Context, spec load.Spec) (fleet, error) {
	spec.Conns = t.scenario.unread
	return launchFleet(ctx, 1, spec)
}

// window warms up, and adds what one order has shown.
func (t turn) window(ctx context.Context, target *target, drivers fleet, order load.Order, out sample) (sample, error) {
	begin := proc.Monotonic() + int64(t.warmUp())
	order.Start, order.End = begin, begin+int64(t.duration)
	if err := drivers.order(order); err != nil {
		return nil, err
	}
	if err := sleep(ctx, t.warmUp()+t.duration/2); err != nil {
		return nil, err
	}
	if err := out.population(target); err != nil {
		return nil, err
	}
	result, err := drivers.collect()
	if err != nil {
		return nil, err
	}
	if result.Elapsed > 0 {
		out["driver_share"] = max(out["driver_share"], result.busiest)
	}
	return out, out.rates(t.scenario.mode, result)
}

// population counts what runs inside the server.
func (s sample) population(target *target) error {
	now, err := target.status()
	if err != nil {
		return err
	}
	s["threads"] = float64(now.Threads)
	n, known, err := target.goroutines()
	if known {
		s["goroutines"] = n
	}
	return err
}

func (s sample) memory(idle, busy proc.Status) {
	s["rss_idle_mb"] = float64(idle.RSS) / (1 << 20)
	s["rss_peak_mb"] = float64(busy.Peak) / (1 << 20)
}

func (s sample) rates(mode load.Mode, r tally) error {
	if r.Replies == 0 || r.Elapsed <= 0 || r.latency.TotalCount() == 0 {
		return fmt.Errorf("%d replies in %v: give it longer", r.Replies, r.Elapsed)
	}
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(r.Replies) }
	s.divide(r.Server, float64(r.Replies))
	s["driver_us"] = each(r.Driver)
	s["rate"] = float64(r.Replies) / r.Elapsed.Seconds()
	at := func(percentile float64) float64 { return float64(r.latency.ValueAtQuantile(percentile)) / 1e6 }
	switch mode {
	case load.Broadcast:
		s["last_ms"] = at(50)
		s["deliver_p50_ms"] = float64(r.deliveries.ValueAtQuantile(50)) / 1e6
		s["deliver_p99_ms"] = float64(r.deliveries.ValueAtQuantile(99)) / 1e6
	case load.Open:
		s["unanswered"] = float64(r.Unanswered)
		s["late_ms"] = float64(r.late.ValueAtQuantile(99)) / 1e6
		fallthrough
	default:
		s["p50_ms"], s["p99_ms"], s["p999_ms"] = at(50), at(99), at(99.9)
	}
	return nil
}

// divide shares what the server has used among n.
func (s sample) divide(used proc.Times, n float64) {
	s["cpu_us"] = float64(used.Total.Nanoseconds()) / 1e3 / n
	if ticks := used.User + used.System; ticks > 0 {
		s["user_us"] = s["cpu_us"] * float64(used.User) / float64(ticks)
		s["system_us"] = s["cpu_us"] - s["user_us"]
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
