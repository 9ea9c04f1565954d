package hub

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
)

// A load is what a node has to do at a time.
type load struct {
	late   time.Duration // of its loops
	queued int           // bytes for each client
}

// refusals runs a node with 100 clients for a time, and returns when publications were refused, in
// looks of 250 ms: which one was refused first, and how many were.
func refusedPublications(t *testing.T, of func(at time.Duration) load, over time.Duration) (first time.Duration,
	count int) {
	t.Helper()
	var now load
	n := newTestNode(t, func(c *Config) { c.Late = func() time.Duration { return now.late } })
	var clients []*fakeTransport
	for range 100 {
		clients = append(clients, n.connected())
	}
	first = -1
	for at := time.Duration(0); at < over; at += wheelSlot {
		now = of(at)
		for _, c := range clients {
			c.SetQueued(now.queued)
		}
		n.clock.Advance(wheelSlot)
		_, err := n.publish(t.Context(), "news", bus.Publication{Data: []byte("1")})
		switch {
		case err == nil:
		case errors.Is(err, answer.ErrOverloaded):
			if count++; first < 0 {
				first = at
			}
		default:
			t.Fatal(err)
		}
	}
	if got := n.refusals.counts[RefusedOverload].Load(); int(got) != count {
		t.Errorf("%d refusals are counted, want %d", got, count)
	}
	if said := strings.Count(n.log.String(), "publications are refused"); count > 0 != (said > 0) || said > 2 {
		t.Errorf("the log has it %d times, of %d refusals", said, count)
	}
	return first, count
}

// Publications are refused while what was accepted cannot be delivered, and not for anything else.
func TestPublicationsAreRefusedBehindABacklog(t *testing.T) {
	const second = int(time.Second)
	for _, tt := range []struct {
		name        string
		of          func(at time.Duration) load
		over        time.Duration
		from, until time.Duration // when the first is refused; 0: none is
		least, most int           // refused
	}{
		{name: "nothing to do", of: func(time.Duration) load { return load{} }, over: time.Minute},
		{name: "a little late, and queues grow", over: time.Minute,
			of: func(at time.Duration) load { return load{900 * time.Millisecond, int(at) / 1000} }},
		{name: "late for what others do, and nothing waits", over: time.Minute,
			of: func(at time.Duration) load { return load{20 * time.Second, 0} }},
		{name: "late, and as much comes as leaves", over: time.Minute,
			of: func(at time.Duration) load { return load{5 * time.Second, 1000 + int(at)%300} }},
		{name: "one publication to all that takes 10 s", over: time.Minute, of: func(at time.Duration) load {
			switch s := at.Seconds(); {
			case s < 2: // it is queued for one client after the other
				return load{at, int(1000 * s)}
			case s < 12:
				return load{at, int(2000 - 200*(s-2))}
			}
			return load{}
		}},
		{name: "more is published than can be sent", over: 20 * time.Second,
			from: 3 * time.Second, until: 7 * time.Second, least: 40, most: 70,
			of: func(at time.Duration) load { return load{max(time.Second, at/2), int(at) / second * 1000} }},
		{name: "an overload ends", over: time.Minute,
			from: 3 * time.Second, until: 7 * time.Second, least: 10, most: 35,
			of: func(at time.Duration) load {
				if at > 10*time.Second {
					return load{}
				}
				return load{2 * time.Second, int(at) / second * 1000}
			}},
		{name: "queues are empty again, and newcomers keep the loops late", over: time.Minute,
			from: 3 * time.Second, until: 7 * time.Second, least: 10, most: 35,
			of: func(at time.Duration) load {
				if at > 10*time.Second {
					return load{3 * time.Second, 0}
				}
				return load{2 * time.Second, int(at) / second * 1000}
			}},
		{name: "clients would be ended as slow", over: 10 * time.Second,
			from: 2 * time.Second, until: 4 * time.Second, least: 20, most: 36,
			of: func(at time.Duration) load {
				if at < 2*time.Second {
					return load{}
				}
				return load{1500 * time.Millisecond, 700<<10 - int(at)/second*30<<10} // it leaves slowly
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first, count := refusedPublications(t, tt.of, tt.over)
			if tt.from == 0 {
				if count > 0 {
					t.Errorf("%d are refused, the first after %v", count, first)
				}
				return
			}
			if first < tt.from || first > tt.until {
				t.Errorf("the first is refused after %v, want %v to %v", first, tt.from, tt.until)
			}
			if count < tt.least || count > tt.most {
				t.Errorf("%d are refused, want %d to %d", count, tt.least, tt.most)
			}
		})
	}
}

// A look costs nothing that grows with the number of clients.
func TestLooksSampleClients(t *testing.T) {
	n := newTestNode(t)
	for range 3 * backlogSample {
		n.connected()
	}
	seen := map[*Session]int{}
	for range 40 {
		for _, s := range n.wheel.some(nil, backlogSample) {
			seen[s]++
		}
		n.clock.Advance(wheelSlot)
	}
	if len(seen) < 2*backlogSample {
		t.Errorf("40 looks have seen %d of %d clients", len(seen), 3*backlogSample)
	}
	if got := len(n.wheel.some(nil, backlogSample)); got > backlogSample {
		t.Errorf("a look sees %d clients", got)
	}
}

// Clients that do not read keep no publisher waiting, and make publications refused for none: they
// are a matter of their own queues. That holds while the loops are late for others, too.
func TestStuckClientsRefuseNoPublication(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Late = func() time.Duration { return 3 * time.Second } })
	for i := range 100 {
		c := n.connected()
		if i%25 == 0 {
			c.SetQueued(n.limits.Queue)
		}
	}
	for range 200 {
		n.clock.Advance(wheelSlot)
		if _, err := n.publish(t.Context(), "news", bus.Publication{Data: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
}

// A single client that does not read is no backlog among a few. Many of them are one at first,
// while the loops are late for others; but what does not change is none for long.
func TestRefusalsForStuckClientsLapse(t *testing.T) {
	for _, tt := range []struct{ clients, stuck, least, most int }{
		{10, 1, 0, 0}, {10, 4, 0, 0}, {100, 20, 1, 2 * backlogLooks}, {3, 3, 1, 2 * backlogLooks},
	} {
		n := newTestNode(t, func(c *Config) { c.Late = func() time.Duration { return 3 * time.Second } })
		for i := range tt.clients {
			if c := n.connected(); i < tt.stuck {
				c.SetQueued(n.limits.Queue * 3 / 4)
			}
		}
		refused, last := 0, 0
		for look := range 200 {
			n.clock.Advance(wheelSlot)
			switch _, err := n.publish(t.Context(), "news", bus.Publication{Data: []byte("1")}); {
			case errors.Is(err, answer.ErrOverloaded):
				refused++
				last = look
			case err != nil:
				t.Fatal(err)
			}
		}
		if refused < tt.least || refused > tt.most || last > 3*backlogLooks {
			t.Errorf("%d of %d clients are stuck: %d looks refuse, the last is look %d; want %d to %d",
				tt.stuck, tt.clients, refused, last, tt.least, tt.most)
		}
	}
}
