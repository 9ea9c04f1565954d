package push

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"

	"github.com/myriad-go/myriad"
)

// This file is what the server tells its operators of itself.

// Figures are counters of a server, and samples of its last minutes.
type Figures struct {
	Counts
	Uptime  time.Duration
	Slow    []SlowClient // the latest that were disconnected, the newest first
	Fields  []string     // of a sample, in order
	Samples [][]int64    // one a second, the oldest first; none without a console
}

// Figures returns the figures of this node, with the samples that are newer than after, in
// milliseconds since 1970.
func (s *Server) Figures(after int64) Figures {
	slow, _ := s.hub.SlowClients()
	return Figures{s.hub.Counts(), s.config.Clock.Now().Sub(s.cluster.started), slow, sampleFields,
		s.sampler.since(after)}
}

// Refusals returns how many refusals of each reason there have been, the latest with a number above
// after, the newest first, and the number of the last one.
func (s *Server) Refusals(after uint64) (counts map[string]uint64, latest []ShownRefusal, last uint64) {
	return s.hub.Refusals(after)
}

// Namespaces returns the rules of all namespaces, those of the one without a name first. They do
// not change.
func (s *Server) Namespaces() []*Namespace { return s.hub.Table().All() }

// FindChannels lists at most `most` channels of all nodes whose names contain part, those with the
// most subscribers first.
func (s *Server) FindChannels(ctx context.Context, part string, most int) (ChannelList, error) {
	return s.cluster.allChannels(ctx, operation{Pattern: part, Contains: true, Most: most})
}

// FindConnections lists at most `most` connections of all nodes of which part is in the user, or at
// the beginning of the client id.
func (s *Server) FindConnections(ctx context.Context, part string, most int) (ConnectionList, error) {
	return s.cluster.allConnections(ctx, operation{User: part, Contains: true, Most: most})
}

// ViewNodes returns how each node is doing, as it says itself, in the order of their names.
func (s *Server) ViewNodes(ctx context.Context) ([]NodeView, error) {
	list := []NodeView{}
	err := askAll(ctx, s.cluster, "state", operation{}, func(n NodeView) { list = append(list, n) })
	slices.SortFunc(list, func(a, b NodeView) int { return cmp.Compare(a.Name+a.ID, b.Name+b.ID) })
	return list, err
}

// ExplainToken is the function ExplainToken with the keys and the rules that this server uses.
func (s *Server) ExplainToken(token string, channels []string) (e TokenExplanation, err error) {
	e.TokenReport, err = reportToken(s.hub.Tokens(), token)
	issuer, audience := s.hub.Tokens().Expects()
	return e, e.explain(s.hub.Table(), err, issuer, audience, channels)
}

const (
	sampleEvery = time.Second
	keptSamples = 600 // ten minutes
)

// sampleFields names the values of a sample, in order. Rates are per second, memory is in bytes.
var sampleFields = []string{
	"time", // milliseconds since the epoch
	"connections", "channels", "publishes", "messages", "slow",
	"p50", "p99", // of the publications of this second, in µs until queued for every subscriber; 0: none was published
	"rss", "heap", "goroutines",
	"busy", // thousandths of the loops' time that they were busy
	"in", "out", "queued",
	"late",       // how late the loops were at the sample, in µs
	"tasks_late", // how long the oldest task had waited then that does not run on a loop, in µs
	"waited",     // new connections that had to wait because the loops were late, a second
}

// A sampler keeps samples of the last minutes, so that the console's charts have data when it is
// opened. The node's timer calls tick, from one goroutine at a time; since may be called from any.
type sampler struct {
	hub    *hub.Hub
	engine *myriad.Engine // nil: samples have no engine figures

	taking    sync.Mutex // guards what follows
	last      reading
	usage     []metrics.Sample
	counts    hub.LatencyCounts
	restoring bool // counters of another process come: see restore

	mu      sync.Mutex
	samples [][]int64 // a ring when it is full
	oldest  int
}

// A reading holds counters; rates are differences of two readings.
type reading struct {
	at      time.Time
	counts  Counts
	in, out uint64
	waited  uint64
	busy    time.Duration
}

func newSampler(h *hub.Hub, engine *myriad.Engine, now time.Time) *sampler {
	return &sampler{
		hub: h, engine: engine, last: reading{at: now},
		usage: []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/memory/classes/heap/objects:bytes"},
			{Name: "/memory/classes/total:bytes"}},
	}
}

// tick takes a sample if the last one is old enough. A nil sampler takes none.
func (s *sampler) tick(now time.Time) {
	if s == nil {
		return
	}
	s.taking.Lock()
	defer s.taking.Unlock()
	if s.restoring || now.Sub(s.last.at) < sampleEvery {
		return
	}
	sample := s.take(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(sample)
}

// keep adds a sample, in the place of the oldest if there are as many as are kept. The caller holds
// mu.
func (s *sampler) keep(sample []int64) {
	if len(s.samples) < keptSamples {
		s.samples = append(s.samples, sample)
		return
	}
	s.samples[s.oldest] = sample
	s.oldest = (s.oldest + 1) % keptSamples
}

// restore is called before the counters become those of another process. There are no samples then
// until goOn.
func (s *sampler) restore() {
	if s == nil {
		return
	}
	s.taking.Lock()
	defer s.taking.Unlock()
	s.restoring = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples, s.oldest = nil, 0
}

// goOn ends restore: rates are those from now on.
func (s *sampler) goOn(now time.Time) {
	if s == nil {
		return
	}
	s.taking.Lock()
	defer s.taking.Unlock()
	if s.restoring {
		s.restoring = false
		s.last, _ = s.read(now)
		s.counts, _ = s.hub.Latencies()
	}
}

// The parts of the samples in the state of a server.
const (
	sampleFieldsPart = "push.samples.1" // the names of a sample's values
	samplePart       = "push.sample.1"  // one, the oldest first
)

// writeState writes the samples. A nil sampler has none.
func (s *sampler) writeState(w *snapshot.Writer) error {
	samples := s.since(0)
	if len(samples) == 0 {
		return nil
	}
	if err := w.Record(sampleFieldsPart, snapshot.AppendTexts(nil, sampleFields)); err != nil {
		return err
	}
	var record []byte
	for _, one := range samples {
		record = record[:0]
		for _, value := range one {
			record = snapshot.AppendInt(record, value)
		}
		if err := w.Record(samplePart, record); err != nil {
			return err
		}
	}
	return nil
}

// A sampleRestore reads the samples of another process, which may have had other values.
type sampleRestore struct {
	s      *sampler // nil: there is no console, and they are passed over
	places []int    // of the values of a sample here; -1: it has none; nil: the names have not come
}

// record takes a record of one of the parts of samples.
func (r *sampleRestore) record(part string, body []byte) error {
	f := snapshot.NewFields(body)
	if part == sampleFieldsPart {
		r.places = []int{}
		for _, name := range f.Texts() {
			r.places = append(r.places, slices.Index(sampleFields, name))
		}
	} else {
		if r.places == nil {
			f.Fail("a sample comes before the names of its values")
		}
		sample := make([]int64, len(sampleFields))
		for _, at := range r.places {
			if value := f.Int(); at >= 0 {
				sample[at] = value
			}
		}
		if r.s != nil && !f.Failed() {
			r.s.mu.Lock()
			r.s.keep(sample)
			r.s.mu.Unlock()
		}
	}
	if err := f.Done(); err != nil {
		return fmt.Errorf("push: %s: %w", part, err)
	}
	return nil
}

// read reads the counters. Without an engine there are no stats.
func (s *sampler) read(now time.Time) (r reading, stats myriad.Stats) {
	r = reading{at: now, counts: s.hub.Counts()}
	if s.engine != nil {
		stats = s.engine.Stats()
		r.in, r.out, r.busy, r.waited = stats.BytesIn, stats.BytesOut, stats.BusyTime, stats.Newcomers.Waited
	}
	return r, stats
}

func (s *sampler) take(now time.Time) []int64 {
	next, stats := s.read(now)
	passed := now.Sub(s.last.at)
	rate := func(now, before uint64) int64 { return int64(float64(now-before)/passed.Seconds() + .5) }
	busy := int64(0)
	if loops := len(stats.Loops); loops > 0 {
		busy = int64((next.busy - s.last.busy) * 1000 / (passed * time.Duration(loops)))
	}
	metrics.Read(s.usage)
	before := s.counts
	counts, _ := s.hub.Latencies()
	sample := []int64{
		now.UnixMilli(), next.counts.Connections, int64(next.counts.Channels),
		rate(next.counts.Publishes, s.last.counts.Publishes), rate(next.counts.Messages, s.last.counts.Messages),
		rate(next.counts.SlowDisconnects, s.last.counts.SlowDisconnects),
		counts.Percentile(&before, .5).Microseconds(), counts.Percentile(&before, .99).Microseconds(),
		s.resident(), int64(s.usage[1].Value.Uint64()), int64(s.usage[0].Value.Uint64()),
		busy, rate(next.in, s.last.in), rate(next.out, s.last.out), stats.Queued,
		stats.Late.Microseconds(), stats.LateTasks.Microseconds(), rate(next.waited, s.last.waited),
	}
	s.last, s.counts = next, counts
	return sample
}

// resident returns the process's resident memory in bytes: from /proc/self/statm (proc(5)), or
// without /proc the memory that the Go runtime has from the kernel.
func (s *sampler) resident() int64 {
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(text); len(fields) > 1 {
			if pages, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
				return pages * int64(os.Getpagesize())
			}
		}
	}
	return int64(s.usage[2].Value.Uint64())
}

// since returns the samples newer than after, in milliseconds since 1970, oldest first.
func (s *sampler) since(after int64) [][]int64 {
	newer := [][]int64{}
	if s == nil {
		return newer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.samples {
		if sample := s.samples[(s.oldest+i)%len(s.samples)]; sample[0] > after {
			newer = append(newer, sample)
		}
	}
	return newer
}
