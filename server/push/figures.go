package push

import (
	"bytes"
	"cmp"
	"context"
	"math/bits"
	"net/http"
	"os"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// This file is what the server tells its operators of itself.

// Figures are counters of a server, and samples of its last minutes.
type Figures struct {
	Connections     int64
	Channels        int // with subscribers
	Publishes       uint64
	Messages        uint64 // publications queued, counted once for each subscriber
	SlowDisconnects uint64
	Uptime          time.Duration
	Slow            []SlowClient // the latest that were disconnected, the newest first
	Fields          []string     // of a sample, in order
	Samples         [][]int64    // one a second, the oldest first; none without a console
}

// Figures returns the figures of this node, with the samples that are newer than after, in
// milliseconds since 1970.
func (s *Server) Figures(after int64) Figures {
	n := s.node
	return Figures{
		Connections: n.count.connections.Load(), Channels: n.hub.channels(), Publishes: n.count.publishes.Load(),
		Messages: n.count.messages.Load(), SlowDisconnects: n.count.slow.Load(),
		Uptime: n.clock.Now().Sub(n.started), Slow: n.slowest.newestFirst(), Fields: sampleFields,
		Samples: n.sampler.since(after),
	}
}

// Engine returns Config.Engine.
func (s *Server) Engine() *myriad.Engine { return s.node.engine }

// Refusals returns how many refusals of each reason there have been, the latest with a number above
// after, the newest first, and the number of the last one.
func (s *Server) Refusals(after uint64) (counts map[string]uint64, latest []ShownRefusal, last uint64) {
	counts = make(map[string]uint64, refusalReasons)
	for why := range refusalReasons {
		counts[why.String()] = s.node.refusals.counts[why].Load()
	}
	latest, last = s.node.refusals.since(after)
	return counts, latest, last
}

// Namespaces returns the rules of all namespaces, those of the one without a name first. They do
// not change.
func (s *Server) Namespaces() []*Namespace { return s.node.rules.All() }

// DeniesClientPublish returns Config.DenyClientPublish.
func (s *Server) DeniesClientPublish() bool { return s.node.rules.DenyClientPublish }

// FindChannels lists at most `most` channels of all nodes whose names contain part, those with the
// most subscribers first.
func (s *Server) FindChannels(ctx context.Context, part string, most int) (ChannelList, error) {
	return s.node.allChannels(ctx, operation{Pattern: part, Contains: true, Most: most})
}

// FindConnections lists at most `most` connections of all nodes of which part is in the user, or at
// the beginning of the client id.
func (s *Server) FindConnections(ctx context.Context, part string, most int) (ConnectionList, error) {
	return s.node.allConnections(ctx, operation{User: part, Contains: true, Most: most})
}

// ViewNodes returns how each node is doing, as it says itself, in the order of their names.
func (s *Server) ViewNodes(ctx context.Context) ([]NodeView, error) {
	list := []NodeView{}
	err := askAll(ctx, s.node, "state", operation{}, func(n NodeView) { list = append(list, n) })
	slices.SortFunc(list, func(a, b NodeView) int { return cmp.Compare(a.Name+a.ID, b.Name+b.ID) })
	return list, err
}

// NodeRemover returns Config.RemoveNode.
func (s *Server) NodeRemover() func(ctx context.Context, node string) error { return s.removeNode }

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
}

// A sampler keeps samples of the last minutes, so that the console's charts have data when it is
// opened. The node's timer calls tick, from one goroutine at a time; since may be called from any.
type sampler struct {
	node   *node
	engine *myriad.Engine // nil: samples have no engine figures

	last   reading // used by tick only
	usage  []metrics.Sample
	counts latencyCounts

	mu      sync.Mutex
	samples [][]int64 // a ring when it is full
	oldest  int
}

// A reading holds counters; rates are differences of two readings.
type reading struct {
	at                        time.Time
	publishes, messages, slow uint64
	in, out                   uint64
	busy                      time.Duration
}

func newSampler(n *node, engine *myriad.Engine) *sampler {
	return &sampler{
		node: n, engine: engine, last: reading{at: n.clock.Now()},
		usage: []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/memory/classes/heap/objects:bytes"},
			{Name: "/memory/classes/total:bytes"}},
	}
}

// tick takes a sample if the last one is old enough. A nil sampler takes none.
func (s *sampler) tick(now time.Time) {
	if s == nil || now.Sub(s.last.at) < sampleEvery {
		return
	}
	sample := s.take(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.samples) < keptSamples {
		s.samples = append(s.samples, sample)
		return
	}
	s.samples[s.oldest] = sample
	s.oldest = (s.oldest + 1) % keptSamples
}

func (s *sampler) take(now time.Time) []int64 {
	count := s.node.count
	next := reading{at: now, publishes: count.publishes.Load(), messages: count.messages.Load(),
		slow: count.slow.Load()}
	loops, queued := 0, int64(0)
	if s.engine != nil {
		stats := s.engine.Stats()
		next.in, next.out, next.busy = stats.BytesIn, stats.BytesOut, stats.BusyTime
		loops, queued = len(stats.Loops), stats.Queued
	}
	passed := now.Sub(s.last.at)
	rate := func(now, before uint64) int64 { return int64(float64(now-before)/passed.Seconds() + .5) }
	busy := int64(0)
	if loops > 0 {
		busy = int64((next.busy - s.last.busy) * 1000 / (passed * time.Duration(loops)))
	}
	metrics.Read(s.usage)
	before, counts := s.counts, count.latency.counts()
	sample := []int64{
		now.UnixMilli(), count.connections.Load(), int64(s.node.hub.channels()),
		rate(next.publishes, s.last.publishes), rate(next.messages, s.last.messages), rate(next.slow, s.last.slow),
		counts.percentile(&before, .5).Microseconds(), counts.percentile(&before, .99).Microseconds(),
		s.resident(), int64(s.usage[1].Value.Uint64()), int64(s.usage[0].Value.Uint64()),
		busy, rate(next.in, s.last.in), rate(next.out, s.last.out), queued,
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

// latencies is a histogram of the time from a publication's acceptance until it is queued for every
// subscriber on this node. A bucket is a quarter of an octave of microseconds, so a percentile is
// at most a quarter too large.
type latencies struct {
	buckets [latencyBuckets]atomic.Uint64
	nanos   atomic.Uint64 // the sum
}

// latencyBuckets reach to 67 seconds. The last bucket counts everything above.
const latencyBuckets = 4 * 26

type latencyCounts [latencyBuckets]uint64

func (l *latencies) observe(d time.Duration) {
	l.buckets[latencyBucket(d)].Add(1)
	l.nanos.Add(uint64(max(d, 0)))
}

func (l *latencies) counts() (c latencyCounts) {
	for i := range l.buckets {
		c[i] = l.buckets[i].Load()
	}
	return c
}

// latencyBucket returns d's bucket. 0 to 3 µs have one bucket each; above, the first three bits of
// the number of microseconds select the bucket.
func latencyBucket(d time.Duration) int {
	micros := uint64(max(d, 0) / time.Microsecond)
	if micros < 4 {
		return int(micros)
	}
	octave := bits.Len64(micros) - 3
	return min(octave*4+int(micros>>octave), latencyBuckets-1)
}

// latencyBound returns the upper bound of a bucket.
func latencyBound(bucket int) time.Duration {
	if bucket < 4 {
		return time.Duration(bucket+1) * time.Microsecond
	}
	octave := bucket/4 - 1
	return time.Duration(uint64(bucket%4+5)<<octave) * time.Microsecond
}

// percentile returns the percentile of the durations counted since earlier, or 0 if there are none.
func (c *latencyCounts) percentile(earlier *latencyCounts, part float64) time.Duration {
	total := uint64(0)
	for i := range c {
		total += c[i] - earlier[i]
	}
	if total == 0 {
		return 0
	}
	rank, seen := uint64(part*float64(total-1))+1, uint64(0)
	for i := range c {
		if seen += c[i] - earlier[i]; seen >= rank {
			return latencyBound(i)
		}
	}
	return latencyBound(latencyBuckets - 1)
}

var latencyDesc = prometheus.NewDesc("myriad_publish_duration_seconds",
	"Time from a publication's acceptance until it is queued for every subscriber on this node.", nil, nil)

// Describe and Collect implement prometheus.Collector, with one bucket for each octave.
func (l *latencies) Describe(descs chan<- *prometheus.Desc) { descs <- latencyDesc }

func (l *latencies) Collect(metrics chan<- prometheus.Metric) {
	upTo, sum := map[float64]uint64{}, uint64(0)
	for i, n := range l.counts() {
		sum += n
		if i%4 == 3 && i < latencyBuckets-1 {
			upTo[latencyBound(i).Seconds()] = sum
		}
	}
	metrics <- prometheus.MustNewConstHistogram(latencyDesc, sum, time.Duration(l.nanos.Load()).Seconds(), upTo)
}

// routeMetrics serves two pages under one path. Every request gets figures without names. An
// operator (see Config.ConsoleKey) also gets the slow clients and their channels.
func (s *Server) routeMetrics(mux *http.ServeMux) {
	figures, names := prometheus.NewRegistry(), prometheus.NewRegistry()
	registerFigures(figures, s.node)
	names.MustRegister(slowCollector{s.node})
	public := metricsPage(figures, figures)
	whole := metricsPage(figures, prometheus.Gatherers{figures, names})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if s.keys.IsOperator(r) {
			whole.ServeHTTP(w, r)
			return
		}
		public.ServeHTTP(w, r)
	})
}

// metricsPage shows what g gathers. registry counts its failures.
func metricsPage(registry prometheus.Registerer, g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{Registry: registry})
}

// registerFigures adds the node's counters and the usual counters of a Go process. They are public,
// so no label has a value that a client or a publisher chose. Each server has its own registry, so
// that a process can have several servers.
func registerFigures(registry *prometheus.Registry, n *node) {
	c := n.count
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "myriad_connections", Help: "Clients that are connected now, by WebSocket and by SSE.",
		}, func() float64 { return float64(c.connections.Load()) }),
		counter("myriad_publishes_total", "Publications that were accepted, from the API and from clients.",
			c.publishes.Load),
		counter("myriad_messages_total", "Publications that were queued for a subscriber, counted once for each.",
			c.messages.Load),
		&c.latency,
		&n.refusals,
		counter("myriad_slow_disconnects_total", "Clients that were disconnected as slow.",
			c.slow.Load),
		gauge("myriad_cluster_ready", "1 if this node has what all nodes publish, else 0.", func() float64 {
			if n.bus.State().Problem != "" {
				return 0
			}
			return 1
		}),
		gauge("myriad_cluster_nodes", "Nodes of the cluster that this node hears, itself included.", func() float64 {
			heard := 0
			for _, other := range n.bus.State().Nodes {
				if heardOf(other) {
					heard++
				}
			}
			return float64(max(heard, 1))
		}),
		gauge("myriad_cluster_lag", "Messages of logs that this node has not received yet.", func() float64 {
			return float64(lagOf(n.bus.State()))
		}),
		gauge("myriad_cluster_led", "Logs that this node leads.", func() float64 {
			return float64(ledBy(n.bus.State(), n.name))
		}),
		engineCollector{n.engine},
		counter("myriad_dropped_total", "Publications that slow subscribers did not get under a policy that drops.",
			c.overflow.Dropped.Load),
	)
}

// silentNode is how long a node may be silent before it does not count.
const silentNode = 5 * time.Second

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

func counter(name, help string, value func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
		func() float64 { return float64(value()) })
}

// An engineCollector reports what packages count on the engine, such as floods over HTTP/2. The
// names are those that the packages have chosen.
type engineCollector struct{ engine *myriad.Engine }

var engineDesc = prometheus.NewDesc("myriad_engine_figures", "What packages count on the engine.",
	[]string{"of", "name"}, nil)

func (c engineCollector) Describe(descs chan<- *prometheus.Desc) { descs <- engineDesc }

func (c engineCollector) Collect(metrics chan<- prometheus.Metric) {
	if c.engine == nil {
		return
	}
	for _, f := range c.engine.Figures() {
		for _, one := range f.Counts {
			metrics <- prometheus.MustNewConstMetric(engineDesc, prometheus.UntypedValue, float64(one.Count), f.Title,
				one.Name)
		}
	}
}

// A slowCollector reports the latest slow clients and what the server did with them. It is bounded,
// because a metric with a label for every past client would grow without limit. It names clients,
// users and channels, so it is for operators only.
type slowCollector struct{ n *node }

var slowDesc = prometheus.NewDesc("myriad_slow_client_queued_bytes",
	"The latest slow clients: bytes that waited for the client when it was disconnected, or when its first "+
		"publication was dropped.",
	[]string{"client", "user", "channel", "action", "at"}, nil)

func (c slowCollector) Describe(descs chan<- *prometheus.Desc) { descs <- slowDesc }

func (c slowCollector) Collect(metrics chan<- prometheus.Metric) {
	c.collect(metrics, "disconnected", c.n.slowest.newestFirst())
	c.collect(metrics, "dropped", c.n.droppers.newestFirst())
}

// shownSlow is how many of each kind are shown.
const shownSlow = 10

func (c slowCollector) collect(metrics chan<- prometheus.Metric, action string, list []SlowClient) {
	seen := make(map[string]bool)
	for _, s := range list[:min(len(list), shownSlow)] {
		if key := s.Client + s.Channel; !seen[key] {
			seen[key] = true
			metrics <- prometheus.MustNewConstMetric(slowDesc, prometheus.GaugeValue, float64(s.Queued),
				s.Client, s.User, s.Channel, action, s.At.UTC().Format(time.RFC3339))
		}
	}
}
