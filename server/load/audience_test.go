package load

import (
	"testing"
	"time"
)

func testAudience(subscribers, channels int) *audience {
	return newAudience(&part{Plan: Plan{Kind: Push, Connections: subscribers, Channels: channels}.withDefaults()})
}

func TestNumbersTellWhatIsMissing(t *testing.T) {
	a := testAudience(1, 1)
	now := time.Now()
	a.start(now)
	for _, number := range []int64{1, 2, 2, 5, 4, 6} {
		a.delivered(&a.subscribers[0], number, now.UnixNano(), now.UnixNano())
	}
	p := a.collect()
	if p.Deliveries != 4 || p.Missing != 2 || p.Duplicates != 1 || p.Late != 1 {
		t.Errorf("%d deliveries, %d missing, %d twice, %d late; want 4, 2, 1, 1", p.Deliveries, p.Missing,
			p.Duplicates, p.Late)
	}
	if a.end([]int64{8}, true) {
		t.Error("patient, it ended without the last two publications")
	}
	if !a.end([]int64{8}, false) {
		t.Error("impatient, it did not end")
	}
	if p := a.collect(); p.Missing != 2 {
		t.Errorf("%d missing at the end, want 2", p.Missing)
	}
}

// The silence is that of all subscribers together, and only between publications that count.
func TestSilenceIsThatOfAll(t *testing.T) {
	a := testAudience(2, 1)
	from := time.Unix(1_764_000_000, 0)
	a.start(from)
	deliver := func(i int, number int64, due, at time.Duration) {
		a.delivered(&a.subscribers[i], number, from.Add(due).UnixNano(), from.Add(at).UnixNano())
	}
	deliver(0, 1, -time.Second, 0) // before it counts
	deliver(0, 2, time.Second, 5*time.Second)
	deliver(1, 2, time.Second, 6*time.Second)
	deliver(0, 3, 2*time.Second, 9*time.Second)
	deliver(1, 3, 2*time.Second, 8*time.Second) // its loop was later than the other one
	deliver(1, 4, 3*time.Second, 11*time.Second)
	if p := a.collect(); p.Silence != 3*time.Second {
		t.Errorf("a silence of %s, want 3 s", p.Silence)
	}
}

// Two workers have two subscribers each of one channel.
func TestSpreadsAddUp(t *testing.T) {
	p := Plan{Kind: Push, Connections: 4, Channels: 1}
	s := newSpreads(p)
	for i, took := range []time.Duration{3 * time.Millisecond, 9 * time.Millisecond} {
		a := testAudience(2, 1)
		for i := range a.subscribers {
			a.connected(&a.subscribers[i], new(closeCounter))
			a.subscribed(&a.subscribers[i])
		}
		now := time.Now()
		a.start(now)
		a.delivered(&a.subscribers[0], 1, now.UnixNano(), now.Add(took).UnixNano())
		a.delivered(&a.subscribers[1], 1, now.UnixNano(), now.Add(took+time.Millisecond).UnixNano())
		push := a.collect()
		s.add(push.Spreads)
		if want := int64(i); s.complete != want {
			t.Errorf("%d complete after worker %d, want %d", s.complete, i, want)
		}
	}
	if first, last := s.first.Max(), s.last.Max(); !near(first, 3*time.Millisecond) || !near(last,
		10*time.Millisecond) {
		t.Errorf("first %s, last %s; want 3 and 10 ms", first, last)
	}
}

// near allows for the histogram's three digits.
func near(got, want time.Duration) bool { return got >= want && got < want+want/500 }

func TestSpreadsForgetTheOldest(t *testing.T) {
	s := newSpreads(Plan{Kind: Push, Connections: 2, Channels: 1})
	for number := range int64(3 * mostSpreads) {
		s.add([]Spread{{Number: number, Reached: 1}})
	}
	if len(s.pending) > mostSpreads || len(s.order) > mostSpreads {
		t.Errorf("%d and %d are remembered, %d is the limit", len(s.pending), len(s.order), mostSpreads)
	}
}

type closeCounter struct{ n int }

func (c *closeCounter) Abort(error) { c.n++ }

func TestStormIsOverWhenAllAreBack(t *testing.T) {
	a, c := testAudience(2, 1), new(closeCounter)
	both := func(f func(s *subscriber)) {
		for i := range a.subscribers {
			f(&a.subscribers[i])
		}
	}
	join := func(s *subscriber) {
		a.connected(s, c)
		a.subscribed(s)
	}
	a.storm() // there is no connection yet
	both(join)
	a.storm()
	if c.n != 2 {
		t.Errorf("%d connections were closed, want 2", c.n)
	}
	both(func(s *subscriber) {
		if unasked, taken := a.left(s); unasked || !taken {
			t.Error("a connection that the storm closed counts as lost")
		}
	})
	join(&a.subscribers[0])
	a.storm() // one is not back
	if a.end([]int64{0}, true) || !a.end([]int64{0}, false) {
		t.Error("patient, it ended although one was not back, or it did not end impatient")
	}
	if p := a.collect(); len(p.Returns) != 0 || p.Away <= 0 || c.n != 2 {
		t.Errorf("%d returns before all were back, away for %v; %d closed", len(p.Returns), p.Away, c.n)
	}
	join(&a.subscribers[1])
	if !a.end([]int64{0}, true) {
		t.Error("it did not end when all were back")
	}
	if p := a.collect(); len(p.Returns) != 1 || p.Away != 0 {
		t.Errorf("%d returns, want 1; away for %v", len(p.Returns), p.Away)
	}
	if unasked, taken := a.left(&a.subscribers[0]); !unasked || !taken {
		t.Error("a connection that ended by itself does not count as lost")
	}
}

// A run goes on with the subscribers that it has. A later one misses nothing of what was published
// before, and a publication is complete without it.
func TestRunGoesOnWithThoseItHas(t *testing.T) {
	a, c := testAudience(3, 1), new(closeCounter)
	first, second, third := &a.subscribers[0], &a.subscribers[1], &a.subscribers[2]
	join := func(s *subscriber) {
		a.connected(s, c)
		a.subscribed(s)
	}
	join(first)
	now := time.Now()
	absent := a.start(now)
	if len(absent) != 1 || absent[0] != 2 || a.open() != 1 {
		t.Errorf("%v are absent, %d are there; want 2 and 1", absent, a.open())
	}
	all := newSpreads(Plan{Kind: Push, Connections: 3, Channels: 1})
	all.without(absent)
	for number := range int64(10) {
		a.delivered(first, number+1, now.UnixNano(), now.Add(time.Millisecond).UnixNano())
	}
	join(second)
	a.delivered(second, 10, now.UnixNano(), now.Add(time.Hour).UnixNano())
	if a.open() != 2 {
		t.Errorf("%d are there, want 2", a.open())
	}
	if !a.end([]int64{10}, true) {
		t.Error("it did not end, although all had the last publication that were ever there")
	}
	p := a.collect()
	all.add(p.Spreads)
	if p.Missing != 0 || p.Deliveries != 11 || all.complete != 10 || all.last.Max() >= time.Second {
		t.Errorf("%d missing, %d deliveries, %d complete, the last after %s; want 0, 11, 10, 1 ms", p.Missing,
			p.Deliveries, all.complete, all.last.Max())
	}
	join(third)
	if _, taken := a.left(third); !taken || a.open() != 2 {
		t.Errorf("%d are there after one has left, want 2", a.open())
	}
}

// A publication may come before the fleet knows which subscribers are absent. It is complete then.
func TestSpreadsLearnWhoIsAbsent(t *testing.T) {
	s := newSpreads(Plan{Kind: Push, Connections: 2, Channels: 1})
	s.add([]Spread{{Number: 1, Reached: 1}})
	if s.without([]int{1}); s.complete != 1 || len(s.pending) != 0 {
		t.Errorf("%d complete, %d pending; want 1 and 0", s.complete, len(s.pending))
	}
}
