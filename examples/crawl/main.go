// Command crawl checks a list of links: each is asked for, many at a time and few of one host, with
// live figures on the standard error and a report of what is broken at the end.
//
//	crawl links.txt
//	crawl < links.txt
//
// A list may have millions of lines: only the requests under way are in memory.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/myriad-go/myriad/client"
)

func main() {
	atOnce := flag.Int("at-once", 500, "links at a time")
	perHost := flag.Int("per-host", 8, "links of one host at a time")
	timeout := flag.Duration("timeout", 20*time.Second, "time for one link")
	flag.Parse()
	in := io.Reader(os.Stdin)
	if name := flag.Arg(0); name != "" {
		f, err := os.Open(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "crawl:", err)
			os.Exit(1)
		}
		defer f.Close()
		in = f
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	g := &client.Group{AtOnce: *atOnce, PerHost: *perHost, Timeout: *timeout, MaxBody: -1,
		Retry: client.Retry{Attempts: 3, Base: time.Second}}
	broken, err := crawl(ctx, g, in, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "crawl:", err)
		os.Exit(1)
	}
	if broken > 0 {
		os.Exit(2)
	}
}

// crawl checks the links of in, a line each, writes the broken ones to out, and live figures to
// status. It returns how many are broken.
func crawl(ctx context.Context, g *client.Group, in io.Reader, out, status io.Writer) (broken int, err error) {
	var readErr error
	run, err := g.Start(ctx, links(in, &readErr))
	if err != nil {
		return 0, err
	}
	over := make(chan struct{})
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		show(run, status, over)
	}()
	for o := range run.Outcomes() {
		if why := problem(o); why != "" {
			broken++
			fmt.Fprintf(out, "%s\t%s\n", o.Request.URL, why)
		}
	}
	close(over)
	<-shown
	fmt.Fprintln(status, run.Summary())
	return broken, readErr
}

// problem says what is wrong with a link; "": nothing.
func problem(o client.Outcome) string {
	switch {
	case o.Err != nil:
		return o.Err.Error()
	case o.Response.StatusCode >= 400:
		return o.Response.Status
	}
	return ""
}

// links are the requests for the lines of in that are not empty. A line that is no URL ends them.
func links(in io.Reader, failed *error) iter.Seq[*http.Request] {
	return func(yield func(*http.Request) bool) {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			link := strings.TrimSpace(lines.Text())
			if link == "" {
				continue
			}
			r, err := http.NewRequest(http.MethodGet, link, nil)
			if err != nil {
				*failed = fmt.Errorf("%q: %w", link, err)
				return
			}
			if !yield(r) {
				return
			}
		}
		*failed = lines.Err()
	}
}

// show writes a line of figures each second, until over is closed.
func show(run *client.Run, status io.Writer, over chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		s := run.Status()
		fmt.Fprintf(status, "%d checked, %d failed, %d under way, %d wait", s.Responses, s.Failed, len(s.Running),
			s.Waiting+s.Paused)
		if len(s.Running) > 0 {
			oldest := s.Running[0]
			fmt.Fprintf(status, "; %v for %v: %s", oldest.Phase, oldest.For.Round(time.Second), oldest.URL)
		}
		fmt.Fprintln(status)
	}
}
