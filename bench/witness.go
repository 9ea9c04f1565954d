package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/proc"
)

// errNoWitness says that the program with which ours is compared is not installed.
var errNoWitness = errors.New("there is no witness")

// A testimony is what one driver has found out about one server, and what it cost itself.
type testimony struct {
	requests int64
	server   float64 // CPU µs per request
	driver   float64
	// requests in a second, and µs that 50 and 99 % of them took at most; 0: it does not say
	rate, p50, p99 float64
}

func witnessCommand(w io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "witness",
		Usage: "load the same servers with wrk, and compare what both drivers find and cost",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "duration", Value: 3 * time.Second, Usage: "time under load in each turn"},
			&cli.IntFlag{Name: "conns", Value: 100, Usage: "connections"},
			&cli.StringSliceFlag{Name: "only", Value: []string{"net/http", "fasthttp", "web", "c-epoll"},
				Usage: "servers"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			fmt.Fprintf(w, "%-12s %22s %22s %22s\n", "", "server CPU µs/request", "driver CPU µs/request", "requests")
			for _, name := range c.StringSlice("only") {
				ours, theirs, err := compare(ctx, name, c.Int("conns"), c.Duration("duration"))
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				fmt.Fprintf(w, "%-12s %8.2f, wrk %8.2f %9.2f, wrk %7.2f %9d, wrk %7d\n",
					name, ours.server, theirs.server, ours.driver, theirs.driver, ours.requests, theirs.requests)
			}
			return nil
		},
	}
}

// compare has one server loaded by our driver and by wrk.
func compare(ctx context.Context, name string, conns int, d time.Duration) (ours, theirs testimony, err error) {
	target, err := launchOnly(ctx, "http-100", name, conns, d)
	if err != nil {
		return
	}
	defer target.end()
	if ours, err = testify(ctx, target, conns, d); err == nil {
		theirs, err = testifyWrk(ctx, target, conns, d)
	}
	return
}

// launchOnly starts one server of a scenario.
func launchOnly(ctx context.Context, of, name string, conns int, d time.Duration) (*target, error) {
	s := selection{scenarios: []string{of}, only: []string{name}, conns: conns, rounds: 1, duration: d}
	plans, err := s.plan()
	if err != nil {
		return nil, err
	}
	if plans[0].skip != "" {
		return nil, errors.New(plans[0].skip)
	}
	x := plans[0].turns[0]
	programs, err := build(ctx, plans[0].turns)
	if err != nil {
		return nil, err
	}
	program, err := programs.find(x)
	if err != nil {
		return nil, err
	}
	return launch(ctx, x, nil, program, plans[0].scenario.app)
}

func testify(ctx context.Context, target *target, conns int, d time.Duration) (testimony, error) {
	talk, err := check.HTTP(1)(target.addr)
	if err != nil {
		return testimony{}, err
	}
	drivers, err := launchFleet(ctx, 1, load.Spec{Addr: target.addr, Conns: conns, Server: target.pid(), Talk: talk})
	if err != nil {
		return testimony{}, err
	}
	defer drivers.end()
	begin := proc.Monotonic() + int64(d/4)
	if err := drivers.order(load.Order{Mode: load.Closed, Start: begin, End: begin + int64(d)}); err != nil {
		return testimony{}, err
	}
	r, err := drivers.collect()
	if err != nil {
		return testimony{}, err
	}
	return testimony{requests: r.Replies, server: perRequest(r.Server.Total, r.Replies),
		driver: perRequest(r.Driver, r.Replies)}, nil
}

// What wrk prints. Its times have units.
var (
	wrkCount = regexp.MustCompile(`(\d+) requests in `)
	wrkRate  = regexp.MustCompile(`Requests/sec: +([\d.]+)`)
	wrkTimes = regexp.MustCompile(`(?s) 50% +([\d.]+\w+).* 99% +([\d.]+\w+)`)
)

// testifyWrk counts everything from its start to its end, connecting included.
func testifyWrk(ctx context.Context, target *target, conns int, d time.Duration) (testimony, error) {
	return testifyBy(ctx, target, readWrk, "wrk", "-t1", "-c"+strconv.Itoa(conns), "-d"+strconv.Itoa(seconds(d))+"s",
		"--latency", "http://"+target.addr+"/plaintext")
}

func readWrk(text string) (t testimony, err error) {
	t.requests, t.rate = int64(number(wrkCount, text)), number(wrkRate, text)
	times := wrkTimes.FindStringSubmatch(text)
	if times == nil {
		return t, fmt.Errorf("it does not say how long requests took")
	}
	for i, into := range []*float64{&t.p50, &t.p99} {
		d, err := time.ParseDuration(times[i+1])
		if err != nil {
			return t, err
		}
		*into = micros(d)
	}
	return t, nil
}

var (
	h2loadCount = regexp.MustCompile(`(\d+) succeeded`)
	h2loadRate  = regexp.MustCompile(`finished in .*, ([\d.]+) req/s`)
)

// testifyH2load does the same over HTTP/2 in the clear, with h2Streams on each connection. h2load
// does not say how long 99 % of requests took.
func testifyH2load(ctx context.Context, target *target, conns int, d time.Duration) (testimony, error) {
	read := func(text string) (testimony, error) {
		return testimony{requests: int64(number(h2loadCount, text)), rate: number(h2loadRate, text)}, nil
	}
	return testifyBy(ctx, target, read, "h2load", "-t1", "-c"+strconv.Itoa(conns), "-m"+strconv.Itoa(h2Streams),
		"-D"+strconv.Itoa(seconds(d)), "http://"+target.addr+"/plaintext")
}

// number is what a pattern finds in a text, or 0.
func number(pattern *regexp.Regexp, text string) float64 {
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(found[1], 64) // the patterns allow digits
	return n
}

func seconds(d time.Duration) int { return max(1, int(d/time.Second)) }

// testifyBy runs a program that loads the server, and reads in what it prints how many requests it
// has made, and the like. If that says nothing of CPU time, all of the program's counts.
func testifyBy(ctx context.Context, target *target, read func(string) (testimony, error), name string,
	args ...string) (testimony, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return testimony{}, fmt.Errorf("%w: %s is not installed", errNoWitness, name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	before, err := proc.CPU(target.pid())
	if err != nil {
		return testimony{}, err
	}
	text, err := cmd.CombinedOutput()
	if err != nil {
		return testimony{}, fmt.Errorf("%s: %w: %s", name, err, text)
	}
	after, err := proc.CPU(target.pid())
	if err != nil {
		return testimony{}, err
	}
	t, err := read(string(text))
	if err == nil && t.requests == 0 {
		err = errors.New("it has made no requests")
	}
	if err != nil {
		return t, fmt.Errorf("%s: %w: %s", name, err, text)
	}
	t.server = perRequest(after.Sub(before).Total, t.requests)
	if t.driver == 0 {
		t.driver = perRequest(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), t.requests)
	}
	return t, nil
}

func perRequest(d time.Duration, n int64) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(max(n, 1))
}
