package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/myriad-go/myriad/server/load"
)

func loadCostCommand(w io.Writer) *cli.Command {
	return &cli.Command{
		Name: "load-cost",
		Usage: "load one server with myriad load and another program by turns, and compare what they find and cost. " +
			"The other program is wrk if no flag names one",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "duration", Value: 3 * time.Second, Usage: "time under load in each turn"},
			&cli.IntFlag{Name: "conns", Usage: "connections; 0: 100, or 1,000 subscribers"},
			&cli.IntFlag{Name: "rounds", Value: 5, Usage: "turns of each driver"},
			&cli.StringFlag{Name: "server", Usage: "the server that both load; empty: c-epoll, web or push"},
			&cli.BoolFlag{Name: "http2", Usage: "10 streams of HTTP/2 on each connection, against h2load"},
			&cli.BoolFlag{Name: "c", Usage: "against a client in C"},
			&cli.BoolFlag{Name: "push", Usage: "20 publications a second to all subscribers, against a client in C"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			r := &wrk
			for name, other := range map[string]*rival{"http2": &h2load, "c": &inC, "push": &subscribersInC} {
				if c.Bool(name) {
					r = other
				}
			}
			ours, theirs, err := loadCost(ctx, r, cmp.Or(c.String("server"), r.server),
				cmp.Or(c.Int("conns"), r.conns), c.Int("rounds"), c.Duration("duration"))
			if err != nil {
				return err
			}
			writeCost(w, r, ours, theirs)
			return nil
		},
	}
}

// writeCost prints what both have found, and the ratios. What one of them does not say is left out.
func writeCost(w io.Writer, r *rival, ours, theirs testimony) {
	fmt.Fprintf(w, "%-14s %14s %14s %12s %10s %10s\n", "medians, a "+r.unit, "driver CPU µs", "server CPU µs",
		"a second", "p50 µs", "p99 µs")
	row := func(name string, figures ...float64) {
		fmt.Fprintf(w, "%-14s", name)
		for i, width := range []int{14, 14, 12, 10, 10} {
			if figures[i] == 0 {
				fmt.Fprintf(w, " %*s", width, "–")
			} else {
				fmt.Fprintf(w, " %*.2f", width, figures[i])
			}
		}
		fmt.Fprintln(w)
	}
	a, b := ours.figures(), theirs.figures()
	row("myriad load", a...)
	row(r.name, b...)
	for i := range a {
		if b[i] != 0 {
			a[i] /= b[i]
		} else {
			a[i] = 0
		}
	}
	row("ratio", a...)
}

func (t testimony) figures() []float64 { return []float64{t.driver, t.server, t.rate, t.p50, t.p99} }

// h2Streams is how many requests are under way on a connection of HTTP/2. publishRate is how many
// publications a subscriber gets in a second.
const (
	h2Streams   = 10
	publishRate = 20
)

// A rival is another program that makes load.
type rival struct {
	name     string
	unit     string // what figures are for
	scenario string // whose servers both load
	server   string // of these, the one that costs least
	conns    int
	kind     string   // of myriad load
	ours     []string // more arguments of myriad load
	testify  func(context.Context, *target, int, time.Duration) (testimony, error)
}

var (
	wrk = rival{"wrk", "request", "http-100", "c-epoll", 100, "http", nil, testifyWrk}
	inC = rival{"client in C", "request", "http-100", "c-epoll", 100, "http", nil, testifyC}

	h2load = rival{"h2load", "request", "h2-100", "web", 100, "http",
		[]string{"--http2", "--streams", strconv.Itoa(h2Streams)}, testifyH2load}
	subscribersInC = rival{"client in C", "delivery", "push-broadcast", "push", 1000, "push",
		[]string{"--rate", strconv.Itoa(publishRate), "--size", strconv.Itoa(publicationSize)}, testifySubscribersInC}
)

// loadCost has one server loaded by myriad load and by its rival, by turns, and returns the medians
// of both.
func loadCost(ctx context.Context, r *rival, name string, conns, rounds int, d time.Duration) (ours, theirs testimony,
	err error) {
	dir, err := os.MkdirTemp("", "loadcost")
	if err != nil {
		return
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "myriad")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/myriad-go/myriad/server/cmd/myriad")
	if text, err := build.CombinedOutput(); err != nil {
		return ours, theirs, fmt.Errorf("building myriad: %w: %s", err, text)
	}
	target, err := launchOnly(ctx, r.scenario, name, conns, d)
	if err != nil {
		return
	}
	defer target.end()
	var all [2][]testimony
	for range max(1, rounds) {
		t, err := testifyLoad(ctx, r, program, filepath.Join(dir, "report"), target, conns, d)
		if err != nil {
			return ours, theirs, err
		}
		all[0] = append(all[0], t)
		if t, err = r.testify(ctx, target, conns, d); err != nil {
			return ours, theirs, err
		}
		all[1] = append(all[1], t)
	}
	return medianOf(all[0]), medianOf(all[1]), nil
}

// medianOf takes the median of each figure.
func medianOf(list []testimony) (t testimony) {
	for _, one := range list {
		t.requests += one.requests
	}
	for i, into := range []*float64{&t.driver, &t.server, &t.rate, &t.p50, &t.p99} {
		var values []float64
		for _, one := range list {
			values = append(values, one.figures()[i])
		}
		slices.Sort(values)
		*into = values[len(values)/2]
	}
	return t
}

// testifyLoad runs myriad load. Of requests it counts all CPU time of the program, as testifyBy
// does. Of deliveries it counts what was used after the subscribers were there.
func testifyLoad(ctx context.Context, r *rival, program, file string, target *target, conns int, d time.Duration) (
	testimony, error) {
	url := "http://" + target.addr
	if r.kind == "http" {
		url += "/plaintext"
	}
	args := append([]string{"load", r.kind, url, "--quiet", "--warmup", "1ms", "--loops", "1",
		"--connections", strconv.Itoa(conns), "--duration", d.String(), "--json", file}, r.ours...)
	read := func(string) (t testimony, err error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return t, err
		}
		var found load.Report
		if err := json.Unmarshal(text, &found); err != nil {
			return t, err
		}
		times := found.Total.Latency
		if t.requests = found.Total.Requests; r.kind == "push" {
			times = found.Total.Push.Delivery
			t.requests = times.Count()
			t.driver = perRequest(found.CPU, t.requests)
		}
		t.rate = float64(t.requests) / found.Elapsed.Seconds()
		t.p50, t.p99 = micros(times.Quantile(0.5)), micros(times.Quantile(0.99))
		return t, nil
	}
	return testifyBy(ctx, target, read, program, args...)
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func testifyC(ctx context.Context, target *target, conns int, d time.Duration) (testimony, error) {
	return runC(ctx, target, "http", target.addr, "/plaintext", strconv.Itoa(conns), strconv.Itoa(seconds(d)))
}

func testifySubscribersInC(ctx context.Context, target *target, conns int, d time.Duration) (testimony, error) {
	return runC(ctx, target, "push", target.addr, strconv.Itoa(conns), strconv.Itoa(publishRate),
		strconv.Itoa(seconds(d)), strconv.Itoa(publicationSize))
}

// cFound is what clients/c/client.c prints.
var cFound = regexp.MustCompile(`^(\d+) in (\d+), cpu (\d+), p50 ([\d.]+), p99 ([\d.]+)\n$`)

// runC compiles the client in C, and runs it.
func runC(ctx context.Context, target *target, args ...string) (t testimony, err error) {
	dir, err := os.MkdirTemp("", "loadcost")
	if err != nil {
		return
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "client")
	if err := makeC(ctx, clientSource, program); err != nil {
		return t, err
	}
	read := func(text string) (t testimony, err error) {
		found := cFound.FindStringSubmatch(text)
		if found == nil {
			return t, fmt.Errorf("it does not say what it has found")
		}
		var figures [5]float64
		for i := range figures {
			figures[i], _ = strconv.ParseFloat(found[i+1], 64) // the pattern allows digits
		}
		t = testimony{requests: int64(figures[0]), p50: figures[3], p99: figures[4]}
		t.rate = figures[0] / figures[1] * 1e6
		if args[0] == "push" {
			t.driver = figures[2] / figures[0]
		}
		return t, nil
	}
	return testifyBy(ctx, target, read, program, args...)
}
