package load

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"
)

// A Report is what a run has measured. Its JSON is what Plan --json writes and --compare reads.
type Report struct {
	Plan     Plan
	Started  time.Time
	Open     int           // connections, when the run began
	Wanted   int           // as many were asked for; 0 in reports of earlier versions
	Stalled  bool          // fewer were open, and they had become hardly more in Options.Stall
	Opening  time.Duration // how long it took to open them
	Elapsed  time.Duration // of the part that counts
	CPU      time.Duration // that the workers used in it
	Workers  int
	Own      Own // what the load itself has used
	Total    *Sample
	First    *Histogram `json:",omitempty"` // Push: until the first subscriber had a publication
	Last     *Histogram `json:",omitempty"` // Push: until the last subscriber had it
	Complete int64      `json:",omitempty"` // Push: publications that all subscribers had, of those followed
	Moments  []Moment   // how it went
	Verdict  []string   `json:",omitempty"` // why this side may have been the limit
}

// A Moment is a part of a run: about a second, or more if the run was long.
type Moment struct {
	At       time.Duration // its end, since the run started
	Rate     float64       // requests, or deliveries of Push, in a second
	Failures int64
	P50, P99 time.Duration
}

// mostMoments bounds how many a report keeps; in a longer run two become one.
const mostMoments = 1200

func newReport(p Plan) *Report {
	return &Report{Plan: p, Started: time.Now(), Total: newSample()}
}

func (r *Report) add(s *Sample) { r.Total.add(s) }

func (r *Report) opened(n, wanted int, took time.Duration, stalled bool) {
	r.Open, r.Wanted, r.Opening, r.Stalled = n, wanted, took, stalled
}

func (r *Report) measured(elapsed, cpu time.Duration, workers int, own Own) {
	r.Elapsed, r.CPU, r.Workers, r.Own = elapsed, cpu, workers, own
}

// moment notes how a period went.
func (r *Report) moment(p Phase, now time.Time, s *Sample, period time.Duration) {
	if p != Running || period <= 0 {
		return
	}
	m := Moment{At: now.Sub(r.Started), Rate: float64(s.Requests) / period.Seconds(), Failures: s.failures(),
		P50: s.Latency.Quantile(0.5), P99: s.Latency.Quantile(0.99)}
	if r.Plan.Kind == Push {
		m.Rate = float64(s.Push.Deliveries) / period.Seconds()
		m.P50, m.P99 = s.Push.Delivery.Quantile(0.5), s.Push.Delivery.Quantile(0.99)
	}
	if r.Moments = append(r.Moments, m); len(r.Moments) == mostMoments {
		r.halve()
	}
}

// halve joins moments by twos: of quantiles the higher one stays.
func (r *Report) halve() {
	for i := range len(r.Moments) / 2 {
		a, b := r.Moments[2*i], r.Moments[2*i+1]
		r.Moments[i] = Moment{At: b.At, Rate: (a.Rate + b.Rate) / 2, Failures: a.Failures + b.Failures,
			P50: max(a.P50, b.P50), P99: max(a.P99, b.P99)}
	}
	r.Moments = r.Moments[:len(r.Moments)/2]
}

func (r *Report) finish(s *spreads) {
	if r.Plan.Kind == Push {
		r.First, r.Last, r.Complete = s.first, s.last, s.complete
	}
	r.Verdict = r.judge()
}

// When this side may have been the limit, and not the server.
const (
	busyEnough = 0.85 // of the processors that a worker can use, or of the machine's
	// aPart is how much of a busy machine's processors the workers use at least if they matter.
	aPart = 0.2
	// lateEnough is how late one of a hundred timers is at least.
	lateEnough = 10 * time.Millisecond
)

// outOf are the errors of a system that has no more of something, and what helps.
var outOf = []struct {
	number syscall.Errno
	remedy string
}{
	{syscall.EMFILE, "raise the limit on descriptors (ulimit -n), or give more --workers"},
	{syscall.ENFILE, "raise the system's limit on open files"},
	{syscall.EADDRNOTAVAIL, "the ports of the local addresses are in use: give more with --source"},
	{syscall.ENOBUFS, "the system has no more memory for sockets"},
	{syscall.ENOMEM, "the system has no more memory for sockets"},
}

// judge says why this side may have been the limit.
func (r *Report) judge() (why []string) {
	say := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	if r.Own.Short > 0 {
		say("%d connections were not opened, for want of descriptors: raise the limit (ulimit -n), or give more "+
			"--workers", r.Own.Short)
	}
	for _, x := range outOf {
		if n := r.Total.Failed["connecting: "+x.number.Error()]; n > 0 {
			say("%d attempts to connect failed with %q: %s", n, x.number.Error(), x.remedy)
		}
	}
	if r.Elapsed <= 0 {
		return why
	}
	cores := float64(min(runtime.NumCPU(), max(1, r.Workers)*runtime.GOMAXPROCS(0)))
	switch used := r.CPU.Seconds() / r.Elapsed.Seconds(); {
	case used > busyEnough*cores:
		say("the workers used %.2f of %.0f processors", used, cores)
	case r.Own.Busiest > busyEnough:
		say("a worker used %.0f %% of the processors that it can use: give more --workers or --loops",
			100*r.Own.Busiest)
	case r.Own.Machine > busyEnough && r.Own.Share > aPart:
		say("the processors of the machine were %.0f %% busy, the workers' part was %.0f %%", 100*r.Own.Machine,
			100*r.Own.Share)
	}
	late, usual := r.Total.Late.Quantile(0.99), r.Total.Latency.Quantile(0.5)
	if late > time.Millisecond && late > usual/2 {
		say("one of a hundred requests left %s or more after it was due, although a connection was free", round(late))
	}
	if late := r.Total.Timers.Quantile(0.99); late >= lateEnough {
		say("one of a hundred timers of the workers was %s late or more: latencies contain that", round(late))
	}
	if due := r.Plan.Rate * r.Elapsed.Seconds(); r.Plan.Rate > 0 && r.Plan.Kind != Push && r.Plan.Kind != Idle {
		if unsent := r.Total.Failed[neverSent]; float64(unsent) > due/100 {
			say("%d requests had no free connection: give more --connections", unsent)
		}
	}
	return why
}

// Missed says how many connections the run did without, and why; it is empty if it had all.
func (r *Report) Missed() string {
	if r.Open >= r.Wanted {
		return ""
	}
	text := fmt.Sprintf("%d of %d connections were open when the run began, and it went on with those", r.Open,
		r.Wanted)
	if r.Stalled {
		text += "; they had become no more for a while"
	}
	return text
}

// NoEcho says why the figures of a run of Kind Echo mean nothing: none of its messages came back as
// it was sent. It is empty if one did, and for other kinds.
func (r *Report) NoEcho() string {
	others := r.Total.Failed[differs]
	if r.Plan.Kind != Echo || r.Total.Latency.Count() == 0 || r.Total.Requests > others {
		return ""
	}
	came := "nothing else came"
	if others > 0 {
		came = fmt.Sprintf("%d other messages came", others)
	}
	return fmt.Sprintf("this server is no echo: no message came back as it was sent, and %s. Hold connections with "+
		"--idle, or send messages to rooms with --rooms", came)
}

// Rate is how many requests had their reply in a second.
func (r *Report) Rate() float64 { return perSecond(r.Total.Requests, r.Elapsed) }

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Failures is how many errors there were.
func (r *Report) Failures() int64 { return r.Total.failures() }

// round leaves three digits or so.
func round(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d > 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// quantiles are those that reports show.
var quantiles = []float64{0.5, 0.9, 0.99, 0.999}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s %s: %d connections, opened in %s; measured for %s\n\n", r.Plan.Kind, r.Plan.URL, r.Open,
		round(r.Opening), round(r.Elapsed))
	row := func(name string, h *Histogram) {
		if h == nil || h.Count() == 0 {
			return
		}
		fmt.Fprintf(t, "%s\t", name)
		for _, q := range quantiles {
			fmt.Fprintf(t, "%s\t", round(h.Quantile(q)))
		}
		fmt.Fprintf(t, "%s\t%d\t\n", round(h.Max()), h.Count())
	}
	if r.Plan.Kind == Idle { // nothing was sent
		return r.writeCounts(w)
	}
	fmt.Fprintf(t, "\tp50\tp90\tp99\tp99.9\tmost\tcount\t\n")
	row(r.unit(), r.Total.Latency)
	row("served", r.Total.Service)
	row("delivery", r.Total.Push.Delivery)
	row("first subscriber", r.First)
	row("last subscriber", r.Last)
	row("left late", r.Total.Late)
	row("timers late", r.Total.Timers)
	if err := t.Flush(); err != nil {
		return err
	}
	return r.writeCounts(w)
}

// unit is what one request is called.
func (r *Report) unit() string {
	return map[Kind]string{HTTP: "reply", Echo: "echo", Push: "publish", Redis: "reply",
		Arrivals: "arrival"}[r.Plan.Kind]
}

func (r *Report) writeCounts(w io.Writer) error {
	lines := []string{fmt.Sprintf("%.0f a second, %.1f MB/s received", r.Rate(),
		perSecond(r.Total.Bytes, r.Elapsed)/1e6)}
	if r.Plan.Kind == Idle {
		lines = []string{fmt.Sprintf("%d connections were lost", r.Total.Lost)}
	}
	if p := r.Total.Push; r.Plan.Kind == Push {
		lines = append(lines, fmt.Sprintf("%.0f deliveries a second; %d missing, %d twice, %d out of order",
			perSecond(p.Delivery.Count(), r.Elapsed), p.Missing, p.Duplicates, p.Late),
			fmt.Sprintf("%d connections were lost; the longest pause of a delivery was %s, the longest silence %s",
				r.Total.Lost, round(p.Delivery.Max()), round(p.Silence)))
		for _, d := range p.Returns {
			lines = append(lines, fmt.Sprintf("after a storm all subscribers of a worker were back in %s", round(d)))
		}
		if p.Away > 0 {
			lines = append(lines, fmt.Sprintf("the run ended %s after a storm from which not all subscribers were back",
				round(p.Away)))
		}
	}
	if n := r.Failures(); n > 0 {
		lines = append(lines, fmt.Sprintf("%d errors: %s", n, r.Total.reasons()))
	} else {
		lines = append(lines, "no errors")
	}
	for _, why := range []string{r.NoEcho(), r.Missed()} {
		if why != "" {
			lines = append(lines, why)
		}
	}
	for _, why := range r.Verdict {
		lines = append(lines, "careful, this side may have been the limit: "+why)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// Metrics are the figures by which reports are compared and which a Limit may name.
func (r *Report) Metrics() []Metric {
	ms := func(h *Histogram, q float64) float64 { return float64(h.Quantile(q)) / 1e6 }
	all := []Metric{
		{Name: "rate", Unit: "requests a second", Value: r.Rate(), MoreIsGood: true},
		{Name: "errors", Value: float64(r.Failures())},
		{Name: "lost", Unit: "connections", Value: float64(r.Total.Lost)},
		{Name: "opening", Unit: "ms", Value: float64(r.Opening) / 1e6},
		{Name: "absent", Unit: "connections", Value: float64(max(0, r.Wanted-r.Open))},
	}
	add := func(prefix string, h *Histogram) {
		if h == nil {
			return
		}
		figure := func(name string, value float64) {
			all = append(all, Metric{Name: prefix + name, Unit: "ms", Value: value, Unknown: h.Count() == 0})
		}
		for i, name := range []string{"p50", "p90", "p99", "p99.9"} {
			figure(name, ms(h, quantiles[i]))
		}
		figure("max", float64(h.Max())/1e6)
	}
	if r.Plan.Kind != Idle { // nothing is sent
		cpu := Metric{Name: "cpu", Unit: "µs of the workers for each request", Unknown: r.Total.Requests == 0}
		if !cpu.Unknown {
			cpu.Value = 1e6 * r.CPU.Seconds() / float64(r.Total.Requests)
		}
		all = append(all, cpu)
		add("", r.Total.Latency)
		if r.Plan.Rate > 0 && r.Plan.Kind != Push {
			add("served-", r.Total.Service)
		}
	}
	if p := r.Total.Push; r.Plan.Kind == Push {
		add("delivery-", p.Delivery)
		add("first-", r.First)
		add("last-", r.Last)
		all = append(all, Metric{Name: "deliveries", Unit: "a second", MoreIsGood: true,
			Value: perSecond(p.Delivery.Count(), r.Elapsed)},
			Metric{Name: "silence", Unit: "ms", Value: float64(p.Silence) / 1e6, Unknown: p.Delivery.Count() == 0},
			Metric{Name: "missing", Value: float64(p.Missing)},
			Metric{Name: "duplicates", Value: float64(p.Duplicates)},
			Metric{Name: "late", Value: float64(p.Late)})
		if r.Plan.Storm > 0 {
			longest := Metric{Name: "return", Unit: "ms", Unknown: len(p.Returns) == 0}
			if !longest.Unknown {
				longest.Value = float64(max(p.Away, slices.Max(p.Returns))) / 1e6
			}
			all = append(all, longest)
		}
	}
	return all
}

// A Metric is one figure of a report.
type Metric struct {
	Name, Unit string
	Value      float64
	MoreIsGood bool
	Unknown    bool // it could not be measured, because nothing of its kind has happened; Value is 0
}

// String is the value to six digits, or a dash.
func (m Metric) String() string {
	if m.Unknown {
		return "–"
	}
	return fmt.Sprintf("%.6g", m.Value)
}

// metric finds one by its name.
func (r *Report) metric(name string) (Metric, error) {
	all := r.Metrics()
	for _, m := range all {
		if m.Name == name {
			return m, nil
		}
	}
	names := make([]string, 0, len(all))
	for _, m := range all {
		names = append(names, m.Name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(a, b) })
	return Metric{}, fmt.Errorf("there is no figure %q: use one of %q", name, names)
}
