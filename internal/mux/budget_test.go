package mux

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/soak"
)

// take runs the world for d, and returns the frames that have come. Their PINGs are answered.
func (r *rig) take(d time.Duration) []string {
	r.t.Helper()
	r.pongs = true
	defer func() { r.pongs = false }()
	r.RunFor(d)
	return r.come()
}

// returnHandlers releases the streams that have ended.
func (r *rig) returnHandlers() {
	for id, s := range r.conn.streams {
		if s.state == closed {
			s.Release()
			delete(r.conn.streams, id)
		}
	}
}

// alive fails the test if the connection has been ended.
func (r *rig) alive(when string) {
	r.t.Helper()
	if r.conn.state == failed {
		sent := r.sent()
		r.t.Fatalf("the connection has been ended %s: %q", when, sent[max(0, len(sent)-1):])
	}
}

// A client cancels all but one of its streams at once, again and again. The last one is answered.
func TestAllButOneAreCancelled(t *testing.T) {
	for _, n := range []int{2, 10, 250} {
		t.Run(fmt.Sprint(n, " streams"), func(t *testing.T) {
			r := newRig(t, Config{Streams: n})
			r.greet()
			r.write(headers(1, getBlock, true))
			next := uint32(3)
			for round := range 50 {
				var opens, resets []byte
				for range n - 1 {
					opens = append(opens, headers(next, getBlock, false)...)
					resets = append(resets, h2.AppendReset(nil, next, h2.Cancel)...)
					next += 2
				}
				r.write(opens, resets)
				r.take(20 * time.Millisecond)
				r.alive(fmt.Sprint("in round ", round))
				r.returnHandlers()
			}
			if n := r.cfg.Counters.Refused.Load(); n > 0 {
				t.Errorf("%d requests were refused", n)
			}
			reply(r.conn.streams[1], "")
			if got := r.sent(); len(got) == 0 || got[len(got)-1] != "HEADERS 1 :status=200 END" {
				t.Errorf("our end has sent %q", got)
			}
		})
	}
}

// Calls that end by their deadline for minutes, of a client that answers no PING.
func TestCancelsByDeadline(t *testing.T) {
	for _, perSecond := range []int{60, 500} {
		r := newRig(t, Config{Streams: 250})
		r.greet()
		next := uint32(1)
		var open []uint32
		for range 6000 / perSecond {
			var all []byte
			for range perSecond {
				if len(open) == perSecond/4 { // a deadline of a quarter of a second
					all = append(all, h2.AppendReset(nil, open[0], h2.Cancel)...)
					open = open[1:]
				}
				all = append(all, headers(next, getBlock, false)...)
				open = append(open, next)
				next += 2
			}
			r.write(all)
			r.RunFor(time.Second)
			r.alive(fmt.Sprint("at stream ", next))
			r.returnHandlers()
		}
	}
}

// An honestClient keeps to n streams, each of which it cancels after its deadline unless it has
// been answered. Its network has a round trip, and stands still at times.
type honestClient struct {
	r        *rig
	n        int
	deadline time.Duration
	open     []uint32
	since    []time.Time
	next     uint32
	held     []byte // what the network has not taken
}

func (c *honestClient) step(now time.Time) {
	for len(c.open) > 0 && now.Sub(c.since[0]) >= c.deadline {
		c.held = h2.AppendReset(c.held, c.open[0], h2.Cancel)
		c.open, c.since = c.open[1:], c.since[1:]
	}
	for len(c.open) < c.n {
		c.held = append(c.held, headers(c.next, getBlock, true)...)
		c.open, c.since = append(c.open, c.next), append(c.since, now)
		c.next += 2
	}
}

// No client that keeps to its streams is cut off for what it cancels. Its deadline may be half of
// its round trip, and its network may stand still for as long as the connection has stood.
func TestHonestClientsAreNotCutOff(t *testing.T) {
	cancelled := 0
	for seed := range soak.Size(t, uint64(40), 3000) {
		rng := rand.New(rand.NewPCG(seed, 39))
		roundTrip := time.Duration(1+rng.IntN(60)) * time.Millisecond
		r := newRig(t, Config{Streams: 1 + rng.IntN(1<<rng.IntN(9))})
		r.greet()
		c := &honestClient{r: r, n: 1 + rng.IntN(r.cfg.Streams), next: 1,
			deadline: roundTrip/2 + time.Duration(1+rng.IntN(200))*time.Millisecond}
		stall, handlers, began := time.Duration(0), rng.IntN(3), r.Now()
		for range 600 {
			step := max(min(roundTrip, c.deadline), time.Millisecond)
			c.step(r.Now())
			if stall -= step; stall <= 0 {
				r.write(c.held)
				c.held = nil
			}
			if stall <= 0 && rng.IntN(50) == 0 {
				stall = min(time.Duration(rng.IntN(3000))*time.Millisecond, r.Now().Sub(began)/2)
			}
			r.take(step)
			r.alive(fmt.Sprintf("(seed %d, at stream %d, %d streams, deadline %v, round trip %v)", seed, c.next, c.n,
				c.deadline, roundTrip))
			if handlers > 0 && rng.IntN(handlers) == 0 { // they may return late, or never
				r.returnHandlers()
			}
		}
		cancelled += int(c.next)/2 - len(c.open)
	}
	if cancelled < 10_000 {
		t.Errorf("%d streams were cancelled: this shows nothing", cancelled)
	}
	t.Logf("%d streams were cancelled", cancelled)
}

// Rapid reset by a client that answers PINGs: it has as many streams in a round trip as it has
// saved up, and no more handlers than others.
func TestRapidResetIsBoundByRoundTrips(t *testing.T) {
	const trip = 20 * time.Millisecond
	r := newRig(t, Config{Streams: 4})
	r.greet()
	most, before := r.cfg.firstCancels(), int64(0)
	for round, next := 0, 0; round < 200; round++ {
		for range most/4 - 20 {
			r.write(headers(id(next), getBlock, true), h2.AppendReset(nil, id(next), h2.Cancel))
			next++
		}
		r.take(trip)
		r.alive(fmt.Sprint("in round ", round))
		if n := len(r.conn.streams); n > 2*r.cfg.Streams {
			t.Fatalf("%d handlers", n)
		}
		r.returnHandlers()
		before = r.cfg.Counters.Opened.Load()
	}
	for i := range most + r.cfg.savedCancels() + 100 { // all in one round trip
		r.write(headers(id(1<<20+i), getBlock, true), h2.AppendReset(nil, id(1<<20+i), h2.Cancel))
	}
	r.RunFor(trip)
	if r.conn.state != failed {
		t.Error("the connection goes on")
	}
	if n := r.cfg.Counters.Opened.Load() - before; n > 2*int64(r.cfg.Streams) {
		t.Errorf("%d handlers were started in a round trip", n)
	}
}

// What crosses the end of a stream, and what clients say of each stream's priority, is no flood, at
// a thousand streams a second.
func TestFramesThatCrossAnEnd(t *testing.T) {
	for name, frames := range map[string]func(id uint32) []byte{
		"RST_STREAM":      func(id uint32) []byte { return h2.AppendReset(nil, id, h2.Cancel) },
		"PRIORITY":        func(id uint32) []byte { return priorityOf(id, "\x00\x00\x00\x00") },
		"PRIORITY_UPDATE": func(id uint32) []byte { return h2.AppendPriorityUpdate(nil, id, "u=1") },
		"WINDOW_UPDATE":   func(id uint32) []byte { return h2.AppendWindowUpdate(nil, id, 1) },
		"a PING":          func(uint32) []byte { return h2.AppendPing(nil, [8]byte{}, false) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.greet()
			r.on = func(s *testStream, _ *h2.Head, _ bool) { reply(s, "") }
			for i := range 400 {
				var opens, late []byte
				for j := range 50 {
					n := id(50*i + j)
					opens = append(opens, headers(n, getBlock, true)...)
					late = append(late, frames(n)...)
				}
				r.write(opens)
				r.take(25 * time.Millisecond)
				r.write(late)
				r.take(25 * time.Millisecond)
				r.alive(fmt.Sprint("after ", 50*i, " streams"))
				clear(r.conn.streams)
			}
		})
	}
}

// A server whose handlers flush nothing sends empty DATA, some in each response (yesodweb/wai issue
// 717).
func TestResponsesWithEmptyData(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	for i := range 1000 {
		s := r.openSoon(true)
		r.RunFor(5 * time.Millisecond)
		r.write(headers(id(i), okBlock, false))
		for range 10 {
			r.write(data(id(i), "", false))
		}
		r.write(data(id(i), "x", true))
		r.RunFor(20 * time.Millisecond)
		s.Release()
		if r.conn.state == failed {
			t.Fatalf("the connection has been ended after %d responses", i)
		}
	}
}

// A peer that reads in small pieces, and grants each one again at once, is no flood: neither a
// client with a download, nor a server with an upload.
func TestPiecesThatAreGrantedAgain(t *testing.T) {
	const size, piece = 32 << 20, 1 << 10
	for _, client := range []bool{false, true} {
		r := newRig(t, Config{Client: client, Outbox: size + 1<<10})
		r.greet()
		r.sender(size)
		n := 0
		for end := false; !end; {
			var all []byte
			for _, f := range r.take(time.Millisecond) {
				var k int
				if _, err := fmt.Sscanf(f, "DATA 1 %d bytes", &k); err != nil {
					continue
				}
				end = strings.HasSuffix(f, " END")
				for n += k; k > 0; k -= piece {
					all = h2.AppendWindowUpdate(h2.AppendWindowUpdate(all, 0, min(k, piece)), 1, min(k, piece))
				}
			}
			r.write(all)
			r.alive(fmt.Sprintf("at a client %v, after %d bytes", client, n))
		}
		if n < size-1000 { // but for DATA of a few bytes
			t.Errorf("client %v: %d bytes", client, n)
		}
	}
}

// Small DATA that was under way when our end reset its stream is no flood, however much there is:
// streams of messages that a server ends early.
func TestDataThatCrossesAReset(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	for i := range 50 {
		r.write(headers(id(i), getBlock, false))
		r.settle()
		reply(r.conn.streams[id(i)], "")
		if got := r.sent(); len(got) != 2 || got[1] != fmt.Sprintf("RST_STREAM %d NO_ERROR", id(i)) {
			t.Fatalf("our end has sent %q", got)
		}
		var all []byte
		for range 3000 {
			all = append(all, data(id(i), "message", false)...)
		}
		r.write(all, h2.AppendReset(nil, id(i), h2.Cancel))
		r.take(10 * time.Millisecond)
		r.alive(fmt.Sprint("at stream ", id(i)))
	}
}

// A client that cancels is not offended by the responses that cross its resets.
func TestResponsesThatCrossAReset(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	head := pairs(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/")
	for i := range 100 {
		var late []byte
		for range 100 {
			s := &testStream{r: r}
			s.in.Reset(1<<16, true)
			s.Init(s)
			r.doOnLoop(func() {
				if err := r.conn.Open(&s.Stream); err != nil {
					t.Fatal(err)
				}
				s.Put(head, nil, true)
			})
			r.RunFor(time.Microsecond)
			s.Cancel(h2.Cancel)
			s.Release()
		}
		for j := range 100 {
			n := id(100*i + j)
			late = append(late, headers(n, block(":status", "200"), false)...)
			late = append(late, data(n, "body", false)...)
			late = append(late, headers(n, block("sum", "1"), true)...)
		}
		r.RunFor(25 * time.Millisecond)
		r.peer.TakeReceived()
		r.write(late)
		r.RunFor(25 * time.Millisecond)
		if r.conn.state == failed {
			t.Fatalf("the connection has been ended after %d responses", 100*i)
		}
	}
	if r.conn.last != id(9999) {
		t.Errorf("the last stream is %d", r.conn.last)
	}
}
