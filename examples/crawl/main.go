// Command crawl checks a list of links: each is asked for, many at a time and few of one host. The
// broken ones are reported as they are found, and live figures are on the standard error.
//
//	crawl links.txt
//	crawl < links.txt
//
// A list may have millions of lines: only the requests under way are in memory. A link that fails,
// or is answered 429, 502, 503 or 504, is tried three times, and not before its server wants it.
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
	"sync/atomic"
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
	var readErr atomic.Pointer[error] // an iterator that blocks may set it after the run
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
	if err := readErr.Load(); err != nil {
		return broken, *err
	}
	return broken, nil
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
// The error that ends them is stored in failed. Reading a line may block: the run goes on
// meanwhile.
func links(in io.Reader, failed *atomic.Pointer[error]) iter.Seq[*http.Request] {
	return func(yield func(*http.Request) bool) {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			link := strings.TrimSpace(lines.Text())
			if link == "" {
				continue
			}
			r, err := http.NewRequest(http.MethodGet, link, nil)
			if err != nil {
				err = fmt.Errorf("%q: %w", link, err)
				failed.Store(&err)
				return
			}
			if !yield(r) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			failed.Store(&err)
		}
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
