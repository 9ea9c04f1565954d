package push

import (
	"math"
	"net/http"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var latencyDesc = prometheus.NewDesc("myriad_publish_duration_seconds",
	"Time from a publication's acceptance until it is queued for every subscriber on this node.", nil, nil)

var pingsLateDesc = prometheus.NewDesc("myriad_pings_late_seconds",
	"Time from when a ping to a client was due until it left, an estimate.", nil, nil)

// A latencyCollector reports durations, with one bucket for each octave.
type latencyCollector struct {
	desc *prometheus.Desc
	of   func() (hub.LatencyCounts, time.Duration)
}

func (c latencyCollector) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

func (c latencyCollector) Collect(metrics chan<- prometheus.Metric) {
	counts, sum := c.of()
	upTo := map[float64]uint64{}
	for _, o := range counts.Octaves() {
		upTo[o.UpTo.Seconds()] = o.Count
	}
	metrics <- prometheus.MustNewConstHistogram(c.desc, counts.Sum(), sum.Seconds(), upTo)
}

// promMetrics are a node's metrics, for Prometheus.
type promMetrics struct {
	hub    *hub.Hub
	bus    bus.Bus
	node   string         // this node's name
	engine *myriad.Engine // nil: there are no figures of one
}

// route serves two pages under one path. Every request gets figures without names. An operator (see
// Config.ConsoleKey) also gets the slow clients and their channels.
func (m *promMetrics) route(mux *http.ServeMux) {
	figures, names := prometheus.NewRegistry(), prometheus.NewRegistry()
	m.register(figures)
	names.MustRegister(slowCollector{m.hub})
	public := metricsPage(figures, figures)
	whole := metricsPage(figures, prometheus.Gatherers{figures, names})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if m.hub.Keys().IsOperator(r) {
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

// register adds the node's counters and the usual counters of a Go process. They are public,
// so no label has a value that a client or a publisher chose. Each server has its own registry, so
// that a process can have several servers.
func (m *promMetrics) register(registry *prometheus.Registry) {
	state := m.bus.State
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "myriad_connections", Help: "Clients that are connected now, by WebSocket and by SSE.",
		}, func() float64 { return float64(m.hub.Counts().Connections) }),
		counter("myriad_publishes_total", "Publications that were accepted, from the API and from clients.",
			func() uint64 { return m.hub.Counts().Publishes }),
		counter("myriad_messages_total", "Publications that were queued for a subscriber, counted once for each.",
			func() uint64 { return m.hub.Counts().Messages }),
		latencyCollector{latencyDesc, m.hub.Latencies},
		latencyCollector{pingsLateDesc, m.hub.PingsLate},
		gauge("myriad_loops_late_seconds", "How late the loops are with what they serve, the latest of them.",
			func() float64 { return lateOf(m.engine).Seconds() }),
		gauge("myriad_tasks_late_seconds", "How long the oldest task has waited that does not run on a loop.",
			func() float64 { return statsOf(m.engine).LateTasks.Seconds() }),
		counter("myriad_newcomers_waited_total",
			"New connections that a listener kept waiting because the loops were late.",
			func() uint64 { return statsOf(m.engine).Newcomers.Waited }),
		gauge("myriad_newcomers_waiting_seconds", "For how long the first new connection has waited for late loops.",
			func() float64 { return statsOf(m.engine).Newcomers.Longest.Seconds() }),
		gauge("myriad_loops_late", "Loops that are late and take few new connections.",
			func() float64 { return float64(statsOf(m.engine).Newcomers.Loops) }),
		reasonCollector{endedDesc, m.hub.Ended},
		reasonCollector{refusalsDesc, m.refusalCounts},
		counter("myriad_slow_disconnects_total", "Clients that were disconnected as slow.",
			func() uint64 { return m.hub.Counts().SlowDisconnects }),
		gauge("myriad_cluster_ready", "1 if this node has what all nodes publish, else 0.", func() float64 {
			if state().Problem != "" {
				return 0
			}
			return 1
		}),
		gauge("myriad_cluster_nodes", "Nodes of the cluster that this node hears, itself included.", func() float64 {
			heard := 0
			for _, other := range state().Nodes {
				if heardOf(other) {
					heard++
				}
			}
			return float64(max(heard, 1))
		}),
		gauge("myriad_cluster_lag", "Messages of logs that this node has not received yet.", func() float64 {
			return float64(lagOf(state()))
		}),
		gauge("myriad_cluster_led", "Logs that this node leads.", func() float64 {
			return float64(ledBy(state(), m.node))
		}),
		engineCollector{m.engine},
		counter("myriad_dropped_total", "Publications that slow subscribers did not get under a policy that drops.",
			func() uint64 { return m.hub.Counts().Dropped }),
	)
}

// statsOf returns what an engine counts, nothing without one.
func statsOf(engine *myriad.Engine) (none myriad.Stats) {
	if engine == nil {
		return none
	}
	return engine.Stats()
}

// refusalCounts returns how many refusals there have been by their reason.
func (m *promMetrics) refusalCounts() map[string]uint64 {
	counts, _, _ := m.hub.Refusals(math.MaxUint64)
	return counts
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
type slowCollector struct{ hub *hub.Hub }

var slowDesc = prometheus.NewDesc("myriad_slow_client_queued_bytes",
	"The latest slow clients: bytes that waited for the client when it was disconnected, or when its first "+
		"publication was dropped.",
	[]string{"client", "user", "channel", "action", "at"}, nil)

func (c slowCollector) Describe(descs chan<- *prometheus.Desc) { descs <- slowDesc }

func (c slowCollector) Collect(metrics chan<- prometheus.Metric) {
	disconnected, dropped := c.hub.SlowClients()
	c.collect(metrics, "disconnected", disconnected)
	c.collect(metrics, "dropped", dropped)
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

var refusalsDesc = prometheus.NewDesc("myriad_refusals_total",
	"Requests and clients' commands that were refused, by reason.", []string{"reason"}, nil)

var endedDesc = prometheus.NewDesc("myriad_sessions_ended_total",
	"Clients that this node has disconnected, by the reason that they were told.", []string{"reason"}, nil)

// A reasonCollector reports counts by their reason.
type reasonCollector struct {
	desc *prometheus.Desc
	of   func() map[string]uint64
}

func (c reasonCollector) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

func (c reasonCollector) Collect(metrics chan<- prometheus.Metric) {
	for why, count := range c.of() {
		metrics <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(count), why)
	}
}
