package push

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newMetrics returns the handler of /metrics: the node's counters and the usual ones of a Go process. The registry is the
// server's own, so that a process can have several servers.
func newMetrics(c *counters) http.Handler {
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
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})
}

func counter(name, help string, value func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}
