// Command bench measures what a request costs: the server's CPU time for one plaintext answer over HTTP/1.1 with
// keep-alive, web.Server against net/http.
//
//	go run ./bench [-connections 100] [-duration 3s] [-rounds 3]
//
// Each server is a process of its own, and /proc says what CPU time it has used, user and system. So the load generator, which
// shares the machine, does not count. The servers take turns, because a machine is not the same from one minute to the next;
// differences below 15 % are noise.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
	"time"
)

type settings struct {
	connections int
	duration    time.Duration // of the load on one server in one round
	rounds      int
}

func main() {
	if name := os.Getenv(serveVariable); name != "" {
		exit(serve(name, os.Stdin, os.Stdout))
	}
	var s settings
	flag.IntVar(&s.connections, "connections", 100, "connections that ask one request after the other")
	flag.DurationVar(&s.duration, "duration", 3*time.Second, "time under load for each server in each round")
	flag.IntVar(&s.rounds, "rounds", 3, "times that each server has its turn")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, s, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run measures every server in turn and prints the table.
func run(ctx context.Context, s settings, out io.Writer) error {
	if s.connections < 1 || s.rounds < 1 || s.duration <= 0 {
		return fmt.Errorf("-connections %d, -duration %v, -rounds %d: all must be positive", s.connections, s.duration, s.rounds)
	}
	results := map[string][]sample{}
	for range s.rounds {
		for _, name := range serverNames {
			one, err := measure(ctx, name, s)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			results[name] = append(results[name], one)
		}
	}
	return report(out, s, results)
}

// A sample is one server's turn.
type sample struct {
	requests int
	cpu      time.Duration
}

func (s sample) perRequest() float64 {
	return float64(s.cpu.Nanoseconds()) / 1000 / float64(s.requests)
}

func report(out io.Writer, s settings, results map[string][]sample) error {
	fmt.Fprintf(out, "%d connections, %d rounds of %v\n\n", s.connections, s.rounds, s.duration)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "server\trequests\tCPU µs/request: min\tmedian\tmax\tto the first\t")
	first := middle(results[serverNames[0]])
	for _, name := range serverNames {
		rs := results[name]
		requests := 0
		for _, r := range rs {
			requests += r.requests
		}
		least, most := slices.MinFunc(rs, compare), slices.MaxFunc(rs, compare)
		median := middle(rs)
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t\n", name, requests, least.perRequest(), median, most.perRequest(), median/first)
	}
	return w.Flush()
}

func compare(a, b sample) int {
	switch x, y := a.perRequest(), b.perRequest(); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// middle is the median, the lower one of two.
func middle(rs []sample) float64 {
	sorted := slices.SortedFunc(slices.Values(rs), compare)
	return sorted[(len(sorted)-1)/2].perRequest()
}
