package load

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options say who makes the load and who watches it. The zero value makes it in this process.
type Options struct {
	// Workers is how many processes of this machine make the load. 0: this one alone.
	Workers int
	// Command starts a worker process, which calls Work with its standard input and output.
	// Required with Workers.
	Command []string
	// Hosts are connections to workers of other hosts; see Muster.
	Hosts []io.ReadWriteCloser
	// Watch is called about five times a second with how the run goes. It must not block.
	Watch func(Progress)
	// OpenTimeout is how long all connections together may take to open. 0: as long as it takes.
	// Then, and when they have become hardly more in Stall, the run goes on with those that are
	// open; the report says so.
	OpenTimeout time.Duration
	// Stall is a time in which the number of open connections must grow by 1 % of those that are
	// wanted, and by one at least. 0: 30 s.
	Stall time.Duration
}

// A Phase is how far a run has come.
type Phase string

// The phases of a run, in order.
const (
	Opening  Phase = "connecting"
	Warming  Phase = "warming up"
	Running  Phase = "running"
	Draining Phase = "waiting for replies"
	Closing  Phase = "closing the connections"
)

// A Progress is how a run goes.
type Progress struct {
	Phase  Phase
	Since  time.Duration // the phase began
	Open   int           // connections
	Wanted int
	Total  *Sample // all that was counted so far
	Recent *Sample // since the last Progress
	Period time.Duration
}

// Run makes the load of a plan and measures it. The end of ctx ends the run early, with a report of
// what there was until then. It fails for a plan that is wrong, and if a worker does.
func Run(ctx context.Context, p Plan, o Options) (*Report, error) {
	p = p.withDefaults()
	if err := p.check(); err != nil {
		return nil, err
	}
	f, err := assemble(p, o)
	if err != nil {
		return nil, err
	}
	defer f.end()
	return f.run(ctx)
}

// A member is a worker as its fleet sees it.
type member struct {
	wire  io.ReadWriteCloser
	out   *json.Encoder
	state update // the last
}

// A fleet is the workers of a run, and what they have counted. All of it belongs to the goroutine
// of Run.
type fleet struct {
	plan    Plan
	options Options
	members []*member
	updates chan news
	tasks   sync.WaitGroup
	report  *Report
	spreads *spreads
	recent  *Sample
	growth  growth
	phase   Phase
	began   time.Time // the phase
	watched time.Time // the last Progress
}

// News is an update, or the end of a worker.
type news struct {
	from   *member
	update update
	err    error
}

// assemble starts the workers, and gives each its part.
func assemble(p Plan, o Options) (*fleet, error) {
	f := &fleet{plan: p, options: o, updates: make(chan news, 64), report: newReport(p),
		spreads: newSpreads(p), recent: newSample(), phase: Opening, began: time.Now(), watched: time.Now(),
		growth: growth{within: cmp.Or(o.Stall, stallAfter), since: time.Now()}}
	var wires []io.ReadWriteCloser
	for i := range o.Workers {
		wire, err := startProcess(o.Command, processorsOf(p, i))
		if err != nil {
			closeAll(wires)
			return nil, err
		}
		wires = append(wires, wire)
	}
	wires = append(wires, o.Hosts...)
	if len(wires) == 0 {
		wires = append(wires, f.startHere())
	}
	first, run := 0, rand.Uint64()
	for i, wire := range wires {
		m := &member{wire: wire, out: json.NewEncoder(wire)}
		f.members = append(f.members, m)
		f.tasks.Go(func() { f.listen(m) })
		part := part{Plan: p.share(i, len(wires)), First: first, Speakers: p.Connections, Run: run,
			Publishes: p.Kind == Push && i == 0,
			Every:     max(updateEvery, updateApart*time.Duration(len(wires))),
			Beat:      max(beatEvery, beatApart*time.Duration(len(wires))),
			Watched:   f.options.Watch != nil}
		first += part.Connections
		if err := m.out.Encode(order{Part: &part}); err != nil {
			f.end()
			return nil, fmt.Errorf("worker %d of %d: %w", i+1, len(wires), err)
		}
	}
	return f, nil
}

func closeAll(wires []io.ReadWriteCloser) {
	for _, w := range wires {
		_ = w.Close()
	}
}

// A hereWire is the wire to a worker of this process.
type hereWire struct {
	io.Reader
	io.WriteCloser
	updates *io.PipeReader
}

// Close ends the worker's orders, and lets go of its updates.
func (w hereWire) Close() error {
	_ = w.updates.Close() // neither pipe fails to close
	return w.WriteCloser.Close()
}

func (f *fleet) startHere() io.ReadWriteCloser {
	orders, giveOrder := io.Pipe()
	updates, giveUpdate := io.Pipe()
	f.tasks.Go(func() { giveUpdate.CloseWithError(Work(orders, giveUpdate)) })
	return hereWire{updates, giveOrder, updates}
}

// A process is a worker of its own.
type process struct {
	io.Reader
	io.WriteCloser
	command *exec.Cmd
}

// Close ends the process's input, at which it ends, and waits.
func (p process) Close() error {
	err := p.WriteCloser.Close()
	patience := time.AfterFunc(5*time.Second, func() { _ = p.command.Process.Kill() })
	defer patience.Stop()
	return errors.Join(err, p.command.Wait())
}

// processorsOf is the environment that worker process i of a plan has, beside that of this process.
// One that only receives has a processor for each loop. With more of them the runtime wakes another
// thread each time a loop is about to sleep, which took a third of its CPU time. One that sends
// needs more, because its pacer sleeps in the kernel.
func processorsOf(p Plan, i int) []string {
	const name = "GOMAXPROCS"
	receives := p.Kind == Idle || p.Kind == Push && i > 0
	if _, set := os.LookupEnv(name); set || !receives || p.Loops >= runtime.GOMAXPROCS(0) {
		return nil
	}
	return []string{name + "=" + strconv.Itoa(p.Loops)}
}

func startProcess(command, environment []string) (io.ReadWriteCloser, error) {
	if len(command) == 0 {
		return nil, errors.New("no command for workers")
	}
	c := exec.Command(command[0], command[1:]...)
	c.Stderr = os.Stderr
	c.Env = append(os.Environ(), environment...)
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	return process{out, in, c}, nil
}

// listen passes a worker's updates on.
func (f *fleet) listen(m *member) {
	updates := json.NewDecoder(m.wire)
	for {
		var u update
		if err := updates.Decode(&u); err != nil {
			f.updates <- news{from: m, err: err}
			return
		}
		f.updates <- news{from: m, update: u}
		if u.Done {
			return
		}
	}
}

// end ends what is left of the workers. The updates that they still send are dropped.
func (f *fleet) end() {
	closed := make(chan struct{})
	go func() {
		var closing sync.WaitGroup
		for _, m := range f.members { // together: each closes its connections now
			closing.Go(func() { _ = m.wire.Close() }) // its process reports what went wrong
		}
		closing.Wait()
		f.tasks.Wait()
		close(closed)
	}()
	for {
		select {
		case <-f.updates:
		case <-closed:
			return
		}
	}
}

// tell gives all workers an order.
func (f *fleet) tell(o order) error {
	for i, m := range f.members {
		if err := m.out.Encode(o); err != nil {
			return fmt.Errorf("worker %d of %d: %w", i+1, len(f.members), err)
		}
	}
	return nil
}

// enter begins a phase.
func (f *fleet) enter(p Phase) { f.phase, f.began = p, time.Now() }

// run is the course of a run.
func (f *fleet) run(ctx context.Context) (*Report, error) {
	opening := ctx
	if f.options.OpenTimeout > 0 {
		var cancel context.CancelFunc
		opening, cancel = context.WithTimeout(ctx, f.options.OpenTimeout)
		defer cancel()
	}
	ready := func(u update) bool { return u.Ready || f.hopeless() || f.growth.stalled }
	if err := f.until(opening, time.Time{}, ready); err != nil {
		return nil, err
	}
	if f.open() == 0 {
		why := cmp.Or(f.report.Total.reasons(), "no attempt has ended yet")
		if f.plan.HTTP2 && strings.HasPrefix(f.plan.URL, "http:") {
			why += "; does the server speak HTTP/2 without TLS, by prior knowledge?"
		}
		return nil, fmt.Errorf("no connection to %s was open after %s: %s", f.plan.URL,
			time.Since(f.began).Round(time.Millisecond), why)
	}
	f.report.opened(f.open(), f.wanted(), time.Since(f.began), f.growth.stalled)
	if err := f.measure(ctx); err != nil {
		return nil, err
	}
	if err := f.drain(); err != nil {
		return nil, err
	}
	f.report.finish(f.spreads)
	f.enter(Closing)
	f.show(time.Now())
	return f.report, nil
}

// enoughTries is after how many failures for each connection a run is given up while none is open.
const enoughTries = 4

// hopeless reports whether no connection will open: all have failed for three seconds or so, in
// which a server that was being started would have begun to listen.
func (f *fleet) hopeless() bool {
	return f.open() == 0 && f.report.Total.failures() >= enoughTries*int64(f.plan.Connections)
}

// stallAfter is the default of Options.Stall.
const stallAfter = 30 * time.Second

// A growth notices when connections become no more.
type growth struct {
	within  time.Duration
	most    int       // connections that were open
	since   time.Time // when there were so many
	stalled bool
}

// note takes in how many are open, of those that are wanted.
func (g *growth) note(open, wanted int, now time.Time) {
	switch {
	case open-g.most >= max(1, wanted/100):
		g.most, g.since = open, now
	case now.Sub(g.since) >= g.within:
		g.stalled = true
	}
}

// obeying is how long workers may take to answer an order.
const obeying = 10 * time.Second

// measure makes the load, until the plan's duration has passed or ctx ends.
func (f *fleet) measure(ctx context.Context) error {
	const ahead = 50 * time.Millisecond // for the order to reach all workers
	start := time.Now().Add(ahead)
	counts := start.Add(f.plan.Warmup)
	if err := f.tell(order{Start: &window{Send: start, Count: counts}}); err != nil {
		return err
	}
	f.enter(Warming)
	never := func(update) bool { return false }
	if err := f.until(ctx, counts, never); err != nil {
		return err
	}
	f.enter(Running)
	if err := f.until(ctx, counts.Add(f.plan.Duration), never); err != nil {
		return err
	}
	if err := f.tell(order{Stop: true}); err != nil {
		return err
	}
	obeyed := func(u update) bool { return u.Counted != 0 }
	if err := f.until(context.Background(), time.Now().Add(obeying), obeyed); err != nil {
		return err
	}
	longest := f.members[0].state.Counted
	for _, m := range f.members {
		longest = max(longest, m.state.Counted)
	}
	var before, after []usage
	cpu, short := time.Duration(0), 0
	for _, m := range f.members {
		before, after = append(before, m.state.Began), append(after, m.state.Ended)
		cpu += m.state.Ended.CPU - m.state.Began.CPU
		short += m.state.Short
	}
	own := ownOf(before, after, longest)
	own.Short = short
	f.report.measured(longest, cpu, len(f.members), own)
	return nil
}

// drain waits for what is under way. It has bounds of its own: the workers'.
func (f *fleet) drain() error {
	f.enter(Draining)
	bound := time.Now().Add(f.plan.Timeout + obeying)
	if err := f.until(context.Background(), bound, func(u update) bool { return u.Paused }); err != nil {
		return err
	}
	o := order{End: true}
	if last := f.members[0].state.Last; f.plan.Kind == Push && last != nil {
		o = order{Last: last}
	}
	if err := f.tell(o); err != nil {
		return err
	}
	return f.until(context.Background(), time.Now().Add(f.plan.Timeout+obeying),
		func(u update) bool { return u.Done })
}

// until takes updates in until the last one of each worker satisfies done, or a moment is reached,
// if it is not zero, or ctx ends.
func (f *fleet) until(ctx context.Context, at time.Time, done func(update) bool) error {
	var alarm <-chan time.Time
	if !at.IsZero() {
		alarm = time.After(time.Until(at))
	}
	for ctx.Err() == nil && !f.all(done) {
		select {
		case a := <-f.updates:
			if err := f.take(a); err != nil {
				return err
			}
		case <-alarm:
			return nil
		case <-ctx.Done():
		}
	}
	return nil
}

func (f *fleet) all(done func(update) bool) bool {
	for _, m := range f.members {
		if !done(m.state) {
			return false
		}
	}
	return true
}

// take takes in an update.
func (f *fleet) take(a news) error {
	switch {
	case a.err != nil:
		return fmt.Errorf("a worker has gone: %w", a.err)
	case a.update.Err != "":
		return errors.New(a.update.Err)
	}
	a.from.state = a.update
	s := a.update.Sample
	if a.update.Absent != nil {
		f.spreads.without(a.update.Absent)
	}
	f.spreads.add(s.Push.Spreads)
	s.Push.Spreads = nil
	f.report.add(s)
	f.recent.add(s)
	now := time.Now()
	if f.phase == Opening {
		f.growth.note(f.open(), f.wanted(), now)
	}
	if now.Sub(f.watched) >= updateEvery {
		f.show(now)
	}
	return nil
}

// show says how the run goes.
func (f *fleet) show(now time.Time) {
	period := now.Sub(f.watched)
	f.watched = now
	f.report.moment(f.phase, now, f.recent, period)
	if f.options.Watch != nil {
		f.options.Watch(Progress{f.phase, now.Sub(f.began), f.open(), f.wanted(), f.report.Total, f.recent, period})
	}
	f.recent = newSample()
}

func (f *fleet) open() (n int) {
	for _, m := range f.members {
		n += m.state.Open
	}
	return n
}

func (f *fleet) wanted() int {
	if f.plan.Kind == Push {
		return f.plan.Connections + f.plan.Channels
	}
	return f.plan.Connections
}
