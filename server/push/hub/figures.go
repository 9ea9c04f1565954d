package hub

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/internal/outbox"
)

// figures are what a node counts, and its latest slow clients, for the metrics and the console. Any
// goroutine may call them.
type figures struct {
	connections atomic.Int64  // clients without watchers
	connects    atomic.Uint64 // clients that have connected, watchers included
	occupied    atomic.Int64  // channels with members other than watchers
	publishes   atomic.Uint64 // publications accepted
	messages    atomic.Uint64 // publications queued, counted once for each subscriber
	slow        atomic.Uint64 // clients disconnected as slow
	latency     latencies     // of publications
	overflow    outbox.Counts // publications that a policy dropped for slow subscribers
	pings       latencies     // from when a ping is due until it leaves
	ended       endings

	slowest  slowLog // disconnected clients
	droppers slowLog // clients that missed publications under a policy that drops
}

// Counts are what a hub has now, and has done since its start.
type Counts struct {
	Connections     int64 // of clients
	Channels        int   // with subscribers
	Publishes       uint64
	Messages        uint64 // publications queued, counted once for each subscriber
	SlowDisconnects uint64
	Dropped         uint64 // publications that slow subscribers did not get
}

// Counts returns the counts of this node.
func (f *figures) Counts() Counts {
	return Counts{f.connections.Load(), int(f.occupied.Load()), f.publishes.Load(), f.messages.Load(), f.slow.Load(),
		f.overflow.Dropped.Load()}
}

// CountMessages adds to the number of messages that were queued for subscribers. A door calls it
// that delivers publications by itself.
func (f *figures) CountMessages(n int) { f.messages.Add(uint64(n)) }

// Latencies returns the durations of publications, and their sum.
func (f *figures) Latencies() (counts LatencyCounts, sum time.Duration) {
	return f.latency.counts(), time.Duration(f.latency.nanos.Load())
}

// SlowClients returns the latest slow clients, the newest first: those that were disconnected, and
// those of whom publications were dropped.
func (f *figures) SlowClients() (disconnected, dropped []SlowClient) {
	return f.slowest.newestFirst(), f.droppers.newestFirst()
}

// PingsLate returns how late pings were, and the sum. It is an estimate: from when a ping was due
// until it was queued, and how late the loops were then.
func (f *figures) PingsLate() (counts LatencyCounts, sum time.Duration) {
	return f.pings.counts(), time.Duration(f.pings.nanos.Load())
}

// Ended returns how many sessions this node has ended, by the reason that clients were told.
func (f *figures) Ended() map[string]uint64 {
	all := make(map[string]uint64, len(endingReasons)+1)
	for i, why := range endingReasons {
		all[why.Reason] = f.ended[i].Load()
	}
	all["other"] = f.ended[len(endingReasons)].Load()
	return all
}

// endingReasons are the server's own reasons to end a session.
var endingReasons = [...]answer.Disconnect{
	answer.DisconnectShutdown, answer.DisconnectServerError, answer.DisconnectExpired,
	answer.DisconnectSubscriptionExpired, answer.DisconnectSlow, answer.DisconnectInsufficientState,
	answer.DisconnectNoPong, answer.DisconnectTooManyRequests, answer.DisconnectInvalidToken,
	answer.DisconnectBadRequest, answer.DisconnectStale, answer.DisconnectForced, answer.DisconnectPermissionDenied,
	answer.DisconnectNotAvailable,
}

// endings count ended sessions by their reason, and last those with a reason of a hook.
type endings [len(endingReasons) + 1]atomic.Uint64

func (e *endings) add(why answer.Disconnect) {
	i := slices.Index(endingReasons[:], why)
	if i < 0 {
		i = len(endingReasons)
	}
	e[i].Add(1)
}

// A SlowClient describes one slow client for the console. The log line has the same values.
type SlowClient struct {
	At      time.Time `json:"at"`
	Client  string    `json:"client"`
	User    string    `json:"user,omitempty"`
	Channel string    `json:"channel,omitempty"` // whose publication had no room; empty: a reply or a ping
	Queued  int       `json:"queued"`            // bytes
}

// keptSlow is how many slow clients a slowLog keeps.
const keptSlow = 50

// A slowLog keeps the latest slow clients. Any goroutine may call it.
type slowLog struct {
	mu   sync.Mutex
	list []SlowClient // oldest first
}

func (l *slowLog) add(d SlowClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == keptSlow {
		l.list = append(l.list[:0], l.list[1:]...)
	}
	l.list = append(l.list, d)
}

func (l *slowLog) newestFirst() []SlowClient {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]SlowClient, 0, len(l.list))
	for i := range l.list {
		list = append(list, l.list[len(l.list)-1-i])
	}
	return list
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

// LatencyCounts are counts of the buckets of that histogram.
type LatencyCounts [latencyBuckets]uint64

func (l *latencies) observe(d time.Duration) {
	l.buckets[latencyBucket(d)].Add(1)
	l.nanos.Add(uint64(max(d, 0)))
}

func (l *latencies) counts() (c LatencyCounts) {
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

// Percentile returns the percentile of the durations counted since earlier, or 0 if there are none.
func (c *LatencyCounts) Percentile(earlier *LatencyCounts, part float64) time.Duration {
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

// Octaves returns, for each octave, its upper bound and how many durations are at most that long.
func (c *LatencyCounts) Octaves() (all []Octave) {
	sum := uint64(0)
	for i, n := range c {
		sum += n
		if i%4 == 3 && i < latencyBuckets-1 {
			all = append(all, Octave{latencyBound(i), sum})
		}
	}
	return all
}

// Sum returns how many durations were counted.
func (c *LatencyCounts) Sum() (sum uint64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// An Octave is how many durations are at most UpTo.
type Octave struct {
	UpTo  time.Duration
	Count uint64
}
