//go:build linux

package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/myriad-go/myriad/server/load"
)

// An outcome is what a run has shown.
type outcome struct {
	Connections int // asked for
	// Why says why fewer were connected; empty: all were.
	Why       []string
	Open      int // when all were connected
	Least     int // at any time after that
	Processes int // servers; there are as many load processes
	Pinged    int64
	Lost      int64 // connections
	Missing   int64 // publications that a subscriber was not given
	Twice     int64 // publications that it was given again
	Errors    map[string]int64

	Connecting time.Duration
	// First and Last are how long the publication took to the first subscriber and to the last one.
	// They are 0 if it has not reached all.
	First, Last time.Duration

	// Bytes for each connection, after all were held and pinged. Those of the kernel are for both
	// ends; those of the servers do not count what a server without connections has; those of the
	// load processes count everything.
	KernelBytes, ServerBytes, LoadBytes float64

	// CPU time of each part of the run.
	Connect, Hold, Publish cpu
}

// A cpu is CPU time by who has used it.
type cpu struct {
	Took                time.Duration
	Servers, Load, Self time.Duration
}

func between(a, b moment) cpu {
	return cpu{b.At.Sub(a.At), b.Servers.CPU - a.Servers.CPU, b.Load.CPU - a.Load.CPU, b.Self - a.Self}
}

func newOutcome(s *settings, r *load.Report, w *watch) *outcome {
	push := r.Total.Push
	// The publisher is a connection, too.
	o := &outcome{Connections: max(s.asked, s.connections), Open: max(0, r.Open-1), Least: max(0, w.least-1),
		Processes: s.processes(),
		Pinged:    push.Pinged,
		Lost:      r.Total.Lost, Missing: push.Missing, Twice: push.Duplicates, Errors: r.Total.Failed,
		Connecting: r.Opening, Connect: between(w.before, w.connected), Hold: between(w.connected, w.held),
		Publish: between(w.held, w.after)}
	if r.Complete > 0 {
		o.First, o.Last = r.First.Max(), r.Last.Max()
	}
	each := func(after, before uint64) float64 {
		return max(0, float64(after)-float64(before)) / float64(max(1, o.Open))
	}
	o.explain(s, r, w.busy())
	o.KernelBytes = each(w.held.Kernel, w.before.Kernel)
	o.ServerBytes = each(w.held.Servers.Memory, w.before.Servers.Memory)
	o.LoadBytes = each(w.held.Load.Memory, 0)
	return o
}

// busyEnough is the part of the processors that is used at least when they are the limit.
const busyEnough = 0.85

// explain says why not all are connected.
func (o *outcome) explain(s *settings, r *load.Report, used cpu) {
	if o.Open >= o.Connections {
		return
	}
	o.Why = append(o.Why, s.short...)
	if o.Open >= s.connections {
		return
	}
	if used.Took > 0 {
		text, all := used.shares()
		text = "at the end of connecting " + text
		if all >= busyEnough {
			text += fmt.Sprintf("; they have no time for more connections that are pinged each %s", pingEvery(s.hold))
		}
		o.Why = append(o.Why, text)
	}
	for _, why := range append([]string{r.Missed()}, r.Verdict...) {
		if why != "" {
			o.Why = append(o.Why, why)
		}
	}
}

// shares says which part of the processors' time has gone where, and returns the whole part.
func (c cpu) shares() (text string, all float64) {
	part := func(d time.Duration) float64 { return d.Seconds() / c.Took.Seconds() / float64(runtime.NumCPU()) }
	all = part(c.Servers + c.Load + c.Self)
	return fmt.Sprintf("the %d processors were %.0f %% busy with this: servers %.0f %%, load %.0f %%",
		runtime.NumCPU(), 100*all, 100*part(c.Servers), 100*part(c.Load)), all
}

func (o *outcome) writeText(w io.Writer) {
	fmt.Fprintf(w, "\n%d of %d subscribers, at %d servers, connected in %s\n", o.Open, o.Connections, o.Processes,
		o.Connecting.Round(100*time.Millisecond))
	if o.Open < o.Connections {
		fmt.Fprintf(w, "this machine holds %d:\n", o.Least)
		for _, why := range o.Why {
			fmt.Fprintln(w, "-", why)
		}
	}
	if o.Least < o.Open {
		fmt.Fprintf(w, "while they were held, %d were the least at any time\n", o.Least)
	}
	fmt.Fprintf(w, "pinged: %d; connections lost: %d; publications missing: %d, twice: %d; errors: %v\n", o.Pinged,
		o.Lost, o.Missing, o.Twice, o.Errors)
	if o.Last > 0 {
		fmt.Fprintf(w, "a publication reached the first subscriber after %s, and the last one after %s\n",
			o.First.Round(time.Millisecond), o.Last.Round(time.Millisecond))
	} else {
		fmt.Fprintln(w, "the publication did not reach all subscribers")
	}
	fmt.Fprintf(w, "memory for each connection: kernel, both ends, %.0f B; server %.0f B; load %.0f B\n",
		o.KernelBytes, o.ServerBytes, o.LoadBytes)
	fmt.Fprintf(w, "\n%-12s %10s %14s %14s %14s\n", "", "time", "CPU: servers", "load", "NATS and this")
	for _, row := range []struct {
		name string
		cpu  cpu
	}{{"connect", o.Connect}, {"hold", o.Hold}, {"publish", o.Publish}} {
		fmt.Fprintf(w, "%-12s %9.1fs %13.1fs %13.1fs %13.1fs\n", row.name, row.cpu.Took.Seconds(),
			row.cpu.Servers.Seconds(), row.cpu.Load.Seconds(), row.cpu.Self.Seconds())
	}
}
