package load

import (
	"errors"
	"os"
	"testing"
	"time"
)

// A fakeLink sends nothing: a test answers for the server.
type fakeLink struct {
	linkState
	sends   []time.Time // when each request was due
	aborted error
	refuse  error
}

func (k *fakeLink) state() *linkState { return &k.linkState }
func (k *fakeLink) abort(err error)   { k.aborted = err }
func (k *fakeLink) send(due time.Time) error {
	k.sends = append(k.sends, due)
	return k.refuse
}

func testLane(links ...*fakeLink) *lane {
	l := newLane(&part{Plan: Plan{Timeout: time.Minute}.withDefaults()}, nil)
	for _, k := range links {
		l.opened(k)
	}
	return l
}

func TestClosedLoopSendsAfterEachReply(t *testing.T) {
	k := new(fakeLink)
	l := testLane(k)
	l.start(time.Now(), time.Now(), 0, 0, 1)
	for range 3 {
		l.replied(k, 1, 0, "", false)
	}
	if s := l.collect(); len(k.sends) != 4 || s.Requests != 3 || s.Latency.Count() != 3 {
		t.Errorf("%d sent, %d requests, %d latencies; want 4, 3, 3", len(k.sends), s.Requests, s.Latency.Count())
	}
	l.replied(k, 1, 0, "", true) // the server closes
	if len(k.sends) != 4 || l.open() != 0 {
		t.Error("a link whose server closes was used again")
	}
}

// A request that is due while all links are busy goes out when one is free, and its latency counts
// from when it was due.
func TestOpenLoopCountsFromWhenARequestWasDue(t *testing.T) {
	k := new(fakeLink)
	l := testLane(k)
	start := time.Now().Add(-10 * time.Second) // so ten are due
	l.start(start, start, 1, 0, 1)
	for range 5 {
		l.replied(k, 1, 0, "", false)
	}
	for i, due := range k.sends {
		if want := start.Add(time.Duration(i) * time.Second); !due.Equal(want) {
			t.Errorf("request %d was due at %s, want %s", i, due.Sub(start), want.Sub(start))
		}
	}
	if s := l.collect(); s.Requests != 5 || s.Latency.Quantile(0) < 5*time.Second {
		t.Errorf("%d requests, the quickest in %s", s.Requests, s.Latency.Quantile(0))
	}
}

func TestLanesTakeTurns(t *testing.T) {
	start := time.Now().Add(-4 * time.Second)
	a, b := new(fakeLink), new(fakeLink)
	testLane(a).start(start, start, 1, 0, 2)
	testLane(b).start(start, start, 1, 1, 2)
	if d := b.sends[0].Sub(a.sends[0]); d != time.Second {
		t.Errorf("the second lane is %s behind the first, want 1s", d)
	}
}

func TestWhatWasNotSentCounts(t *testing.T) {
	k := new(fakeLink)
	l := testLane(k)
	now := time.Now()
	l.start(now.Add(-100*time.Second), now.Add(-100*time.Second), 1000, 0, 1)
	l.stopAt(now)
	l.overdue()
	s := l.collect()
	if n := s.Latency.Count(); n != 100_000 {
		t.Errorf("%d latencies, want that of each of the 100000 requests", n)
	}
	if s.Failed["unanswered at the end"] != 1 || s.Failed[neverSent] != 99_999 {
		t.Errorf("failures %v", s.Failed)
	}
	if m := s.Latency.Max(); m < 100*time.Second {
		t.Errorf("the longest was %s, want 100 s at least", m)
	}
}

// Ten times as much is due as one link can send: each request waits for its timeout at most, so
// that what is sent is not older than that. Those that were due in the warm-up do not count.
func TestWhatFindsNoConnectionFails(t *testing.T) {
	k := new(fakeLink)
	l := testLane(k)
	l.plan.Timeout = 10 * time.Second
	now := time.Now()
	from := now.Add(-40 * time.Second)
	l.start(now.Add(-100*time.Second), from, 1000, 0, 1)
	s := l.collect()
	n, late := s.Failed[neverSent], time.Since(now) // the lane reads the clock later than this test
	if n < 30_000 || n > 30_000+late.Milliseconds()+1 || s.Latency.Count() != n {
		t.Errorf("failures %v, %d latencies; want 30000", s.Failed, s.Latency.Count())
	}
	if least, most := s.Latency.Quantile(0), s.Latency.Max(); least < 9990*time.Millisecond || most < 39*time.Second {
		t.Errorf("latencies from %s to %s; want 10 to 40 s", least, most)
	}
	if age := now.Sub(k.sends[0]); len(k.sends) != 1 || age > 10*time.Second {
		t.Errorf("%d were sent, the first was due %s ago; want one that was due for 10 s", len(k.sends), age)
	}
}

func TestLostLinkFailsItsRequest(t *testing.T) {
	k := new(fakeLink)
	l := testLane(k)
	l.start(time.Now(), time.Now(), 0, 0, 1)
	l.lost(os.ErrDeadlineExceeded, k)
	l.lost(nil, k) // it has gone already
	if s := l.collect(); s.Lost != 1 || s.Failed["timeout"] != 1 || s.Latency.Count() != 1 {
		t.Errorf("%d lost, failures %v, %d latencies", s.Lost, s.Failed, s.Latency.Count())
	}
}

// A server that answers nothing has one failure for each connection, whether a request ended by its
// timeout or by the end of the run. What had failed before the part that counts is not one.
func TestSilentServerFailsClosedLoop(t *testing.T) {
	for name, c := range map[string]struct {
		from, end time.Duration // from when the request was sent
		want      int64
	}{
		"sent in the part that counts": {-time.Second, time.Second, 1},
		"under way all the time":       {time.Second, 2 * time.Second, 1},
		"over before":                  {time.Hour, 2 * time.Hour, 0},
		"sent behind it":               {-time.Hour, -time.Second, 0},
	} {
		for _, expires := range []bool{true, false} {
			k := new(fakeLink)
			l := testLane(k)
			l.start(time.Time{}, time.Time{}, 0, 0, 1)
			sent := time.Now().Add(-time.Minute)
			l.from, k.due = sent.Add(c.from), sent
			l.stopAt(sent.Add(c.end))
			if expires {
				l.lost(os.ErrDeadlineExceeded, k)
			} else {
				l.overdue()
			}
			s := l.collect()
			if n := s.failures(); n != c.want || s.Latency.Count() != c.want {
				t.Errorf("%s, expires: %t: %d failures, %d latencies, want %d", name, expires, n, s.Latency.Count(),
					c.want)
			}
		}
	}
}

// A request that is made again counts once, when it is accepted, from when it was due.
func TestOwedRequestsAreMadeAgain(t *testing.T) {
	k, other := new(fakeLink), new(fakeLink)
	l := testLane(k, other)
	start := time.Now().Add(-2 * time.Second) // so three are due
	l.start(start, start, 1, 0, 1)
	l.owe(k, false)
	if l.underWay() != 2 || len(k.sends) != 1 {
		t.Errorf("%d under way, %d sent by the link that is to wait", l.underWay(), len(k.sends))
	}
	l.tick(time.Now().Add(retryPause))
	if len(k.sends) != 2 || !k.sends[1].Equal(start) {
		t.Fatalf("the link has sent requests that were due at %v, want %v twice", k.sends, start)
	}
	l.owe(k, true)
	l.lost(nil, k) // its next connection has it
	next := &fakeLink{linkState: linkState{owed: start}}
	l.opened(next)
	if len(next.sends) != 1 || !next.sends[0].Equal(start) {
		t.Errorf("the next link has sent requests that were due at %v, want %v", next.sends, start)
	}
	l.replied(next, 1, 0, "", false)
	if s := l.collect(); s.Requests != 1 || s.failures() != 0 || s.Latency.Max() < 2*time.Second || s.Lost != 1 {
		t.Errorf("%d requests, failures %v, latency %s, %d lost; want 1, none, 2 s or more, 1", s.Requests, s.Failed,
			s.Latency.Max(), s.Lost)
	}
	l.owe(next, true)
	l.stopAt(time.Now())
	l.overdue()
	if s := l.collect(); s.Failed[notAccepted] != 1 || l.underWay() != 0 {
		t.Errorf("at the end: failures %v, %d under way", s.Failed, l.underWay())
	}
}

func TestLateRepliesExpire(t *testing.T) {
	k := new(fakeLink)
	l := testLane(k)
	l.start(time.Now(), time.Now(), 0, 0, 1)
	l.expire(time.Now())
	if k.aborted != nil {
		t.Error("aborted at once")
	}
	l.expire(time.Now().Add(2 * time.Minute))
	if !errors.Is(k.aborted, os.ErrDeadlineExceeded) {
		t.Errorf("aborted with %v after two minutes", k.aborted)
	}
}

func TestLinkThatCannotSendIsAborted(t *testing.T) {
	k := &fakeLink{refuse: errors.New("full")}
	testLane(k).start(time.Now(), time.Now(), 0, 0, 1)
	if k.aborted == nil {
		t.Error("not aborted")
	}
}

// Service has what was answered while the run counts, however long ago it was due.
func TestServiceCountsWhatIsDone(t *testing.T) {
	k := new(fakeLink)
	l := testLane(k)
	now := time.Now()
	l.start(now.Add(-20*time.Second), now.Add(-10*time.Second), 1, 0, 1)
	for range 3 { // all of these were due in the warm-up
		l.replied(k, 1, 0, "", false)
	}
	l.replied(k, 1, 1, "status 503", false)
	if s := l.collect(); s.Service.Count() != 3 || s.Service.Max() > 2*time.Since(now) || s.Requests != 0 {
		t.Errorf("%d were served, in %s at most; %d requests count", s.Service.Count(), s.Service.Max(), s.Requests)
	}
	l.stopAt(time.Now())
	l.replied(k, 1, 0, "", false)
	if s := l.collect(); s.Service.Count() != 0 {
		t.Errorf("%d were served after the end", s.Service.Count())
	}
}
