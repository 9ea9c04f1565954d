package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	l := limiter{rate: Rate{3, 3 * time.Second}}
	now := time.Unix(1_800_000_000, 0)
	for i, tt := range []struct {
		after time.Duration
		key   string
		wait  time.Duration
	}{
		{0, "a", 0}, {0, "a", 0}, {0, "a", 0}, {0, "a", time.Second}, {0, "b", 0}, {0, "", 0},
		{400 * time.Millisecond, "a", 600 * time.Millisecond}, {600 * time.Millisecond, "a", 0}, {0, "a", time.Second},
		{time.Hour, "a", 0}, {0, "a", 0}, {0, "a", 0}, {0, "a", time.Second},
	} {
		now = now.Add(tt.after)
		if got := l.take(tt.key, now); got != tt.wait {
			t.Errorf("step %d, %q: wait %v, want %v", i, tt.key, got, tt.wait)
		}
	}
	free := limiter{}
	for range 100 {
		if free.take("a", now) != 0 || free.full != nil {
			t.Fatal("no limit limits")
		}
	}
}

func TestLimiterIsBounded(t *testing.T) {
	l := limiter{rate: Rate{1, time.Hour}}
	now := time.Unix(1_800_000_000, 0)
	for i := range maxBuckets + 1000 {
		if wait := l.take(fmt.Sprint(i), now); wait != 0 {
			t.Fatalf("%d waits %v", i, wait)
		}
	}
	if len(l.full) > maxBuckets {
		t.Errorf("%d buckets, want at most %d", len(l.full), maxBuckets)
	}
	now = now.Add(2 * time.Hour) // all are full
	for i := range 1000 {
		if wait := l.take(fmt.Sprint("x", i), now); wait != 0 {
			t.Fatalf("x%d waits %v", i, wait)
		}
	}
	if len(l.full) > maxBuckets {
		t.Errorf("%d buckets, want at most %d", len(l.full), maxBuckets)
	}
}

func TestAddressKeys(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[2001:db8:1:2:3::9]:5": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:5": "fe80::/64", "": "", "@": "", "/run/x.sock": "",
	} {
		if got := addressKey(remote); got != want {
			t.Errorf("%q: %q, want %q", remote, got, want)
		}
	}
}

// Any number of clients that are refused, and come back when they were told, are let in then: at
// their first attempt while their times fit into a minute.
func TestClientsThatFollowTheAdviceGetIn(t *testing.T) {
	for _, rate := range []Rate{{1, time.Second}, {10, time.Second}, {3, 7 * time.Second}, {1, 90 * time.Second}} {
		l := limiter{rate: rate}
		now := time.Unix(1_800_000_000, 0)
		const clients = 60
		type visit struct {
			at     time.Time
			client int
		}
		tries := map[int]int{}
		var coming []visit
		for i := range clients {
			coming = append(coming, visit{now, i})
		}
		for len(coming) > 0 {
			slices.SortStableFunc(coming, func(a, b visit) int { return a.at.Compare(b.at) })
			next := coming[0]
			coming = coming[1:]
			tries[next.client]++
			if wait := l.advise("a", next.at); wait > 0 {
				seconds := (wait + time.Second - 1) / time.Second // as Retry-After says it
				coming = append(coming, visit{next.at.Add(seconds * time.Second), next.client})
			}
		}
		most := 0
		for _, n := range tries {
			most = max(most, n)
		}
		fits := time.Duration(clients)*rate.Per/time.Duration(rate.Count) < longestAdvice
		if len(tries) != clients || fits && most > 2 || most > clients {
			t.Errorf("%v: %d clients were let in, the last at attempt %d", rate, len(tries), most)
		}
	}
}
