package push

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/myriad-go/myriad"
)

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
		if s.IsOperator(r) {
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
