package push

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newMetrics returns the handler of /metrics: the node's counters and the usual ones of a Go process. The registry is the
// server's own, so that a process can have several servers.
func newMetrics(n *node) http.Handler {
	c := n.count
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "myriad_connections", Help: "Clients that are connected now, by WebSocket and by SSE.",
		}, func() float64 { return float64(c.connections.Load()) }),
		counter("myriad_publishes_total", "Publications that were accepted, from the API and from clients.", c.publishes.Load),
		counter("myriad_messages_total", "Publications that were queued for a subscriber, counted once for each.", c.messages.Load),
		&c.latency,
		counter("myriad_slow_disconnects_total", "Clients that were disconnected because they did not keep up.", c.slow.Load),
		counter("myriad_dropped_total", "Publications that slow subscribers did not get, where the rules are to drop.", c.dropped.Load),
		slowCollector{n},
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})
}

func counter(name, help string, value func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}

// A slowCollector says which clients did not keep up, and what was done: the last ones, because a metric with a label for each client
// that there ever was would grow without end.
type slowCollector struct{ n *node }

var slowDesc = prometheus.NewDesc("myriad_slow_client_queued_bytes",
	"The last clients that did not keep up: how much waited for them when they were disconnected, or when the first publication was dropped.",
	[]string{"client", "user", "channel", "action", "at"}, nil)

func (c slowCollector) Describe(descs chan<- *prometheus.Desc) { descs <- slowDesc }

func (c slowCollector) Collect(metrics chan<- prometheus.Metric) {
	c.collect(metrics, "disconnected", c.n.slowest.newestFirst())
	c.collect(metrics, "dropped", c.n.droppers.newestFirst())
}

// shownSlow is how many of each kind are shown.
const shownSlow = 10

func (c slowCollector) collect(metrics chan<- prometheus.Metric, action string, list []slowDisconnect) {
	seen := make(map[string]bool)
	for _, s := range list[:min(len(list), shownSlow)] {
		if key := s.Client + s.Channel; !seen[key] {
			seen[key] = true
			metrics <- prometheus.MustNewConstMetric(slowDesc, prometheus.GaugeValue, float64(s.Queued),
				s.Client, s.User, s.Channel, action, s.At.UTC().Format(time.RFC3339))
		}
	}
}
