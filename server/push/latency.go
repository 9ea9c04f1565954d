package push

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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
