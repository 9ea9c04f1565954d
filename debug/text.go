package debug

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/myriad-go/myriad"
)

// A table writes rows of cells in columns, aligned to the right.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, title string, columns ...any) table {
	fmt.Fprintf(w, "\n%s\n", title)
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)}
	t.row(columns...)
	return t
}

func (t table) row(cells ...any) {
	for _, cell := range cells {
		fmt.Fprintf(t, "%v\t", cell)
	}
	fmt.Fprintln(t)
}

func (r *report) writeTo(w io.Writer) {
	fmt.Fprintf(w, "myriad: %d connections on %d loops\n", r.Conns, len(r.Loops))
	r.writeTotals(w)
	r.writeLoops(w)
	writeHandlers(w, r.Handlers)
	for _, f := range r.Figures {
		fmt.Fprintf(w, "\n%s\n", f.Title)
		for _, c := range f.Counts {
			fmt.Fprintf(w, "  %10d  %s\n", c.Count, c.Name)
		}
	}
}

func (r *report) writeTotals(w io.Writer) {
	most := "none"
	if r.Limits.MaxConns != math.MaxInt {
		most = fmt.Sprint(r.Limits.MaxConns)
	}
	fmt.Fprint(w, "\nlimits\n")
	for _, line := range []struct {
		name  string
		value any
	}{
		{"connections held, of Config.MaxConns (" + most + ")", r.Limits.Open},
		{"accepting paused at Config.MaxConns", r.Limits.AtMaxConns},
		{"accepting paused at Config.AcceptRate", r.Limits.AtAcceptRate},
		{"accepting paused because loops were late", r.Limits.AtLateness},
		{"peers closed unserved, which had left while loops were late", r.Limits.Left},
		{"accepting failed", r.AcceptErrors},
		{"accepting failed for want of descriptors", r.Limits.NoFiles},
		{"peers closed unserved for want of descriptors", r.Limits.Shed},
		{"Dial and Adopt refused (ErrTooMany)", r.Limits.TooMany},
		{"writes refused (ErrFull)", r.Full},
		{"Loop.Do refused (ErrBusy)", r.Busy},
	} {
		fmt.Fprintf(w, "  %10v  %s\n", line.value, line.name)
	}
}

func (r *report) writeLoops(w io.Writer) {
	t := newTable(w, "loops, since their start", "loop", "conns", "accepts", "turns", "sleeps", "woken", "reads",
		"writes", "bytes in", "bytes out")
	r.eachLoop(func(name any, s *myriad.LoopStats) {
		t.row(name, s.Conns, s.Accepts, s.Turns, s.Sleeps, s.Wakes, s.Reads, s.Writes, s.BytesIn, s.BytesOut)
	})
	t.Flush()
	t = newTable(w, "loops, in time", "loop", "busy", "handlers", "long turns", "longest", "turn now")
	r.eachLoop(func(name any, s *myriad.LoopStats) {
		t.row(name, short(s.BusyTime), short(s.HandlerTime), s.LongTurns, short(s.LongestTurn), short(s.Turn))
	})
	t.Flush()
	fmt.Fprintf(w, "  %10v  how late the loops are; %v at most so far\n", short(r.Late), short(r.MostLate))
	fmt.Fprintf(w, "  %10v  how long the oldest task has waited\n", short(r.LateTasks))
	fmt.Fprintf(w, "  %10v  how long the first of %d newcomers has waited for a loop\n", short(r.Newcomers.Longest),
		r.Newcomers.Waiting)
	t = newTable(w, "loops, what waits now", "loop", "queued bytes", "mailbox", "intake", "dirty", "most dirty",
		"revisits", "hibernating")
	r.eachLoop(func(name any, s *myriad.LoopStats) {
		t.row(name, s.Queued, s.Mailbox, s.Intake, s.Dirty, s.MostDirty, s.Revisits, s.Hibernating)
	})
	t.Flush()
}

func (r *report) eachLoop(f func(name any, s *myriad.LoopStats)) {
	for i := range r.Loops {
		f(i, &r.Loops[i])
	}
	f("all", &r.LoopStats)
}

func writeHandlers(w io.Writer, handlers []myriad.HandlerStats) {
	t := newTable(w, "slowest handlers; calls and time are estimated from a sample", "max", "calls", "time",
		"slow calls", "long turns", "longest", "type")
	for _, h := range handlers {
		t.row(short(h.Max), h.Calls, short(h.Time), h.Slow, h.LongTurns, short(h.LongestTurn), h.Type)
	}
	t.Flush()
}

func (all *connections) writeTo(w io.Writer) {
	fmt.Fprintf(w, "\nconnections: %d, with %d bytes queued\n", all.Count, all.Queued)
	byCount := func(a, b string) int { return cmp.Or(cmp.Compare(all.States[b], all.States[a]), cmp.Compare(a, b)) }
	for _, state := range slices.SortedFunc(maps.Keys(all.States), byCount) {
		fmt.Fprintf(w, "  %10d  %s\n", all.States[state], state)
	}
	for _, loop := range all.Missing {
		fmt.Fprintf(w, "  those of loop %d are missing: it is too busy, or has ended\n", loop)
	}
	writeConnections(w, "most bytes queued", all.Largest)
	writeConnections(w, "oldest", all.Oldest)
}

func writeConnections(w io.Writer, title string, rows []connection) {
	t := newTable(w, title, "loop", "age", "queued", "state", "local", "remote")
	for _, c := range rows {
		t.row(c.Loop, c.Age, c.Queued, c.State, c.Local, c.Remote)
	}
	t.Flush()
}

// short rounds a duration to a few digits.
func short(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d > 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	case d > 10*time.Microsecond:
		return d.Round(100 * time.Nanosecond)
	}
	return d
}
