package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// A plan is what is compared: the same users and the same mail, once by polling and once by push.
type plan struct {
	users int
	poll  time.Duration
	quiet float64 // the part of polls that are to find nothing new
	last  time.Duration
}

// every is the time between two messages to one user. Polls find nothing with probability
// exp(-poll/every).
func (p plan) every() time.Duration {
	return time.Duration(float64(p.poll) / -math.Log(p.quiet))
}

// compare runs both and prints a table.
func compare(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mail compare", flag.ContinueOnError)
	var p plan
	flags.IntVar(&p.users, "users", 1000, "pages that are open, each of another user")
	flags.DurationVar(&p.poll, "poll", 2*time.Second, "how often a page polls")
	flags.Float64Var(&p.quiet, "vain", .6, "the part of polls that find nothing new")
	flags.DurationVar(&p.last, "for", 15*time.Second, "how long each of the two is measured")
	if err := parse(flags, args); err != nil {
		return err
	}
	if p.users < 1 || p.poll <= 0 || p.last < p.poll || !(0 < p.quiet && p.quiet < 1) {
		return errors.New("mail: compare needs users, a time that is longer than one poll, and a part between 0 and " +
			"1 of polls in vain")
	}
	return p.print(ctx, os.Stdout)
}

func (p plan) print(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "%d users, a message to each every %v on average, %v long; polling every %v finds nothing new "+
		"%.0f %% of the time.\n\n",
		p.users, p.every().Round(time.Millisecond), p.last, p.poll, p.quiet*100)
	fmt.Fprintln(out, "| | requests a second | of them in vain | messages | late by, median | 99 % | at most | "+
		"server CPU | bytes read |")
	fmt.Fprintln(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	var results []result
	for _, way := range []struct {
		name   string
		listen listener
	}{{"polling", polling}, {"push", pushing}} {
		r, err := p.measure(ctx, way.listen)
		if err != nil {
			return fmt.Errorf("mail: %s: %w", way.name, err)
		}
		fmt.Fprintln(out, r.row(way.name, p.last))
		results = append(results, r)
	}
	fmt.Fprintf(out, "\nPush saves %.0f requests a second, and the median message is there %v sooner.\n",
		float64(results[0].requests-results[1].requests)/p.last.Seconds(),
		(results[0].late(.5) - results[1].late(.5)).Round(time.Millisecond))
	return nil
}

// measure starts a server of its own, lets every user listen in that way, and delivers mail for as
// long as the plan says.
func (p plan) measure(ctx context.Context, listen listener) (r result, err error) {
	server, url, err := startServer(ctx)
	if err != nil {
		return r, err
	}
	defer server.stop()
	load := newLoad(p, url)
	defer load.close()
	if err := load.run(ctx, listen); err != nil {
		return r, err
	}
	r = load.result()
	r.cpu, err = server.stop()
	return r, err
}

// A result is what all users saw in the time that was measured.
type result struct {
	requests, vain, messages, bytes int
	lates                           []time.Duration // sorted
	cpu                             time.Duration
}

func (r result) late(part float64) time.Duration {
	if len(r.lates) == 0 {
		return 0
	}
	return r.lates[int(part*float64(len(r.lates)-1))]
}

func (r result) row(name string, last time.Duration) string {
	vain := "–"
	if r.requests > 0 {
		vain = fmt.Sprintf("%.0f %%", 100*float64(r.vain)/float64(r.requests))
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
	return fmt.Sprintf("| %s | %.0f | %s | %d | %s | %s | %s | %.2f s | %.1f MB |", name,
		float64(r.requests)/last.Seconds(), vain,
		r.messages, ms(r.late(.5)), ms(r.late(.99)), ms(r.late(1)), r.cpu.Seconds(), float64(r.bytes)/1e6)
}

// A child is the mail program in a process of its own, so that its CPU time can be told from that
// of the users.
type child struct {
	cmd   *exec.Cmd
	ended bool
}

func startServer(ctx context.Context) (c *child, url string, err error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	c = &child{cmd: exec.CommandContext(ctx, binary, "--listen", "127.0.0.1:0", "--robot", "0")}
	c.cmd.Env = os.Environ()
	said, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, "", err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	_, rest, ok := strings.Cut(line, "listening on ")
	if addr, _, found := strings.Cut(rest, ": "); ok && found {
		return c, "http://" + addr, nil
	}
	c.stop()
	return nil, "", fmt.Errorf("the server said %q: %v", line, err)
}

// stop ends the server and returns the CPU time of its whole life.
func (c *child) stop() (time.Duration, error) {
	if c.ended {
		return 0, nil
	}
	c.ended = true
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		_ = c.cmd.Process.Kill() // a system without signals
	}
	err := c.cmd.Wait()
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime(), err
}

// newClient has a connection for each user, as browsers do.
func newClient(users int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: users + deliverers, DialContext: (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
	}}
}

func sorted(list []time.Duration) []time.Duration {
	slices.Sort(list)
	return list
}
