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
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/myriad-go/myriad/bench/proc"
)

func loadCostCommand(w io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "load-cost",
		Usage: "load one server with myriad load and wrk, or h2load, by turns, and compare what they find and cost",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "duration", Value: 3 * time.Second, Usage: "time under load in each turn"},
			&cli.IntFlag{Name: "conns", Value: 100, Usage: "connections"},
			&cli.IntFlag{Name: "rounds", Value: 5, Usage: "turns of each driver"},
			&cli.StringFlag{Name: "server", Usage: "the server that both load; c-epoll, or with --http2 web"},
			&cli.BoolFlag{Name: "http2", Usage: "10 streams of HTTP/2 on each connection, against h2load"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			r := &wrk
			if c.Bool("http2") {
				r = &h2load
			}
			ours, theirs, err := loadCost(ctx, r, cmp.Or(c.String("server"), r.server), c.Int("conns"), c.Int("rounds"),
				c.Duration("duration"))
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%-12s %24s %24s\n", "", "driver CPU µs/request", "server CPU µs/request")
			for _, row := range []struct {
				name string
				t    testimony
			}{{"myriad load", ours}, {r.name, theirs}} {
				fmt.Fprintf(w, "%-12s %24.2f %24.2f\n", row.name, row.t.driver, row.t.server)
			}
			fmt.Fprintf(w, "%-12s %24.2f %24.2f\n", "ratio", ours.driver/theirs.driver, ours.server/theirs.server)
			return nil
		},
	}
}

// h2Streams is how many requests are under way on a connection of HTTP/2.
const h2Streams = 10

// A rival is another program that makes load.
type rival struct {
	name     string
	scenario string // whose servers both load
	server   string // of these, the one that costs least
	ours     []string
	testify  func(context.Context, *target, int, time.Duration) (testimony, error)
}

var (
	wrk    = rival{"wrk", "http-100", "c-epoll", nil, testifyWrk}
	h2load = rival{"h2load", "h2-100", "web", []string{"--http2", "--streams", strconv.Itoa(h2Streams)}, testifyH2load}
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
		t, err := testifyLoad(ctx, program, filepath.Join(dir, "report"), target, conns, d, r.ours...)
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
	var server, driver []float64
	for _, one := range list {
		t.requests += one.requests
		server, driver = append(server, one.server), append(driver, one.driver)
	}
	slices.Sort(server)
	slices.Sort(driver)
	t.server, t.driver = server[len(server)/2], driver[len(driver)/2]
	return t
}

// testifyLoad counts everything from the start of myriad load to its end, as testifyBy does.
func testifyLoad(ctx context.Context, program, file string, target *target, conns int,
	d time.Duration, more ...string) (testimony, error) {
	args := []string{"load", "http", "http://" + target.addr + "/plaintext", "--quiet", "--warmup", "1ms",
		"--loops", "1", "--connections", strconv.Itoa(conns), "--duration", d.String(), "--json", file}
	cmd := exec.CommandContext(ctx, program, append(args, more...)...)
	before, err := proc.CPU(target.pid())
	if err != nil {
		return testimony{}, err
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return testimony{}, fmt.Errorf("myriad load: %w: %s", err, text)
	}
	after, err := proc.CPU(target.pid())
	if err != nil {
		return testimony{}, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return testimony{}, err
	}
	var report struct{ Total struct{ Requests int64 } }
	if err := json.Unmarshal(text, &report); err != nil {
		return testimony{}, err
	}
	n := report.Total.Requests
	if n == 0 {
		return testimony{}, fmt.Errorf("myriad load has made no requests")
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return testimony{n, perRequest(after.Sub(before).Total, n), perRequest(used, n)}, nil
}
