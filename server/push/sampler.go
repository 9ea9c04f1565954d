package push

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
)

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
