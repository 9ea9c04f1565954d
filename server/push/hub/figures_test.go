package hub

import (
	"testing"
	"time"
)

func TestSlowLogKeepsTheLast(t *testing.T) {
	var l slowLog
	if got := l.newestFirst(); got == nil || len(got) != 0 {
		t.Errorf("at first: %v", got)
	}
	for i := range keptSlow + 7 {
		l.add(SlowClient{Queued: i})
	}
	got := l.newestFirst()
	if len(got) != keptSlow || got[0].Queued != keptSlow+6 || got[keptSlow-1].Queued != 7 {
		t.Errorf("%d are kept, from %d to %d", len(got), got[0].Queued, got[len(got)-1].Queued)
	}
}

// A bucket's bound is at most a quarter above its values, and buckets are in order.
func TestLatencyBuckets(t *testing.T) {
	for d := time.Duration(0); d < 60*time.Second; d += max(time.Microsecond, d/100) {
		b := latencyBucket(d)
		if bound := latencyBound(b); bound <= d || bound > d+max(d/4, 1)+time.Microsecond {
			t.Fatalf("%v is in bucket %d, which ends at %v", d, b, bound)
		}
		if b > 0 && latencyBound(b-1) > d {
			t.Fatalf("%v is in bucket %d, and the one before ends at %v", d, b, latencyBound(b-1))
		}
	}
	for _, d := range []time.Duration{-time.Second, time.Hour} {
		if b := latencyBucket(d); b != 0 && b != latencyBuckets-1 {
			t.Errorf("%v is in bucket %d", d, b)
		}
	}
}

func TestLatencyPercentiles(t *testing.T) {
	var l latencies
	l.observe(time.Minute)
	before := l.counts()
	if got := before.Percentile(&before, .99); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 100 {
		l.observe(time.Duration(i+1) * time.Millisecond)
	}
	now := l.counts()
	for part, want := range map[float64]time.Duration{0: time.Millisecond, .5: 50 * time.Millisecond,
		.99: 99 * time.Millisecond, 1: 100 * time.Millisecond} {
		if got := now.Percentile(&before, part); got < want || got > want+want/4+time.Microsecond {
			t.Errorf("percentile %v: %v, want about %v", part, got, want)
		}
	}
}
