package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/myriad-go/myriad"
)

// A collector is the Stats of an engine for Prometheus. It keeps nothing: each scrape reads the
// counters, which holds up no loop.
type collector struct{ engine *myriad.Engine }

// A figure is one metric of a loop.
type figure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *myriad.LoopStats) float64
}

func newFigure(kind prometheus.ValueType, name, help string, value func(s *myriad.LoopStats) float64) figure {
	return figure{prometheus.NewDesc("myriad_loop_"+name, help, []string{"loop"}, nil), kind, value}
}

// figures are those that say how a server is. Stats has more.
var figures = []figure{
	newFigure(prometheus.GaugeValue, "connections", "Connections that are open.",
		func(s *myriad.LoopStats) float64 { return float64(s.Conns) }),
	newFigure(prometheus.GaugeValue, "hibernating_connections", "Connections that are idle and need 32 bytes.",
		func(s *myriad.LoopStats) float64 { return float64(s.Hibernating) }),
	newFigure(prometheus.CounterValue, "accepts_total", "Connections that were accepted.",
		func(s *myriad.LoopStats) float64 { return float64(s.Accepts) }),
	newFigure(prometheus.CounterValue, "accept_errors_total", "Connections that could not be accepted.",
		func(s *myriad.LoopStats) float64 { return float64(s.AcceptErrors) }),
	newFigure(prometheus.CounterValue, "received_bytes_total", "Bytes that came from peers.",
		func(s *myriad.LoopStats) float64 { return float64(s.BytesIn) }),
	newFigure(prometheus.CounterValue, "sent_bytes_total", "Bytes that the kernel has taken.",
		func(s *myriad.LoopStats) float64 { return float64(s.BytesOut) }),
	newFigure(prometheus.GaugeValue, "queued_bytes", "Bytes that wait because their peers read slowly.",
		func(s *myriad.LoopStats) float64 { return float64(s.Queued) }),
	newFigure(prometheus.CounterValue, "refused_writes_total", "Writes that were refused because a queue was full.",
		func(s *myriad.LoopStats) float64 { return float64(s.Full) }),
	newFigure(prometheus.CounterValue, "busy_seconds_total", "Time in which the loop worked.",
		func(s *myriad.LoopStats) float64 { return s.BusyTime.Seconds() }),
	newFigure(prometheus.CounterValue, "handler_seconds_total", "Time in handlers on the loop, estimated.",
		func(s *myriad.LoopStats) float64 { return s.HandlerTime.Seconds() }),
	newFigure(prometheus.CounterValue, "long_turns_total", "Turns of 1 ms or more: others waited.",
		func(s *myriad.LoopStats) float64 { return float64(s.LongTurns) }),
	newFigure(prometheus.CounterValue, "overstays_total", "Handlers that blocked a loop.",
		func(s *myriad.LoopStats) float64 { return float64(s.Overstays) }),
	newFigure(prometheus.GaugeValue, "turn_seconds", "Age of the turn under way. If it is large, the loop is stuck.",
		func(s *myriad.LoopStats) float64 { return s.Turn.Seconds() }),
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range figures {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	for i, loop := range c.engine.Stats().Loops {
		for _, f := range figures {
			to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(&loop), strconv.Itoa(i))
		}
	}
}
