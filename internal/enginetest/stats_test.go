package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// In a world with no chance, every number is known.
func TestStatsAddUp(t *testing.T) {
	eachLayer(t, func(t *testing.T, set setting) {
		s := simulate(t, 1, sim.Lossless(), myriad.Config{Loops: 3})
		ln := set.listen(t, s.e, newEchoAll())
		const peers, size = 30, 500
		var all []*sim.Peer
		for range peers {
			p := s.Dial(ln.Addr())
			p.Write(make([]byte, size))
			all = append(all, p)
		}
		s.RunUntil(func() bool {
			return !slices.ContainsFunc(all, func(p *sim.Peer) bool { return len(p.Received()) < size })
		})
		s.RunFor(time.Second) // the loops fall asleep
		got := s.e.Stats()
		if got.Conns != peers || got.Accepts != peers || got.BytesIn != peers*size || got.BytesOut != peers*size ||
			got.Queued != 0 {
			t.Errorf("with %d peers of %d bytes: %+v", peers, size, got.LoopStats)
		}
		if got.Reads < peers || got.Writes < peers || got.Turns == 0 || got.Sleeps == 0 || got.Wakes == 0 ||
			got.Turn != 0 {
			t.Errorf("after an echo each: %+v", got.LoopStats)
		}
		if n := got.AcceptErrors + got.Full + got.Busy + uint64(got.Mailbox+got.Intake); n != 0 {
			t.Errorf("nothing has failed, and nothing waits: %+v", got.LoopStats)
		}
		var sum myriad.LoopStats
		for _, l := range got.Loops {
			sum.Conns += l.Conns
			sum.Turns += l.Turns
			sum.BytesIn += l.BytesIn
			sum.BusyTime += l.BusyTime
		}
		if len(got.Loops) != 3 || sum.Conns != got.Conns || sum.Turns != got.Turns || sum.BytesIn != got.BytesIn ||
			sum.BusyTime != got.BusyTime {
			t.Errorf("the loops have %+v, together %+v", sum, got.LoopStats)
		}
		for _, p := range all {
			p.CloseWrite()
		}
		s.Run()
		if got := s.e.Stats(); got.Conns != 0 || got.Accepts != peers {
			t.Errorf("when all have gone: %+v", got.LoopStats)
		}
		s.finish()
	})
}

// What is queued for peers is gone when they are, however they go, whatever the network does
// meanwhile.
func TestQueuedBytesAreAccountedFor(t *testing.T) {
	eachLayer(t, func(t *testing.T, set setting) {
		file := tempFile(t, make([]byte, 100_000))
		var most int64
		for seed := range seeds(t) {
			s := simulate(t, seed, sim.Options{Reset: 0.2}, myriad.Config{WriteLimit: 200_000,
				LingerTimeout: time.Second})
			h := newProbe()
			h.opened = func(c *myriad.Conn) {
				c.Write(make([]byte, 100_000))
				if len(h.opens)%2 == 0 {
					c.Write(make([]byte, 100_000))
				} else if err := c.WriteFile(file, 0, 100_000); err != nil {
					t.Error(err)
				}
				switch len(h.opens) % 3 {
				case 0:
					c.Close()
				case 1:
					c.SetTimer(100 * time.Millisecond)
				}
			}
			h.expired = func(c *myriad.Conn) { c.Abort(io.ErrClosedPipe) }
			ln := set.listen(t, s.e, h)
			for i := range 9 {
				if p := s.Dial(ln.Addr()); i%2 == 0 {
					p.StopReading()
				}
			}
			s.RunFor(50 * time.Millisecond)
			got := s.e.Stats().Queued
			if most = max(most, got); got < 0 || got > 9*200_000 {
				t.Fatalf("seed %d: %d bytes are queued", seed, got)
			}
			_ = s.e.Shutdown(t.Context())
			s.Run()
			if got := s.e.Stats(); got.Queued != 0 || got.Conns != 0 {
				t.Fatalf("seed %d: %d bytes are queued for %d conns after the end", seed, got.Queued, got.Conns)
			}
		}
		if most < 200_000 {
			t.Errorf("in no world more than %d bytes were queued", most)
		}
	})
}

func TestStatsCountRefusals(t *testing.T) {
	s := simulate(t, 1, sim.Lossless(), myriad.Config{Loops: 1, WriteLimit: 1000, Mailbox: 5})
	file := tempFile(t, make([]byte, 10))
	h := newProbe()
	h.opened = func(c *myriad.Conn) {
		for range 4 {
			c.Write(make([]byte, 600))
		}
		for range 3 {
			_ = c.WriteFile(file, 0, 10)
		}
	}
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	s.Dial(ln.Addr())
	s.RunFor(time.Second)
	l := s.e.Loops()[0]
	for range 8 {
		_ = l.Do(func() {})
	}
	if got := s.e.Stats(); got.Full != 3+2 || got.Busy != 3 || got.Mailbox != 5 {
		t.Errorf("%d ErrFull of 5, %d ErrBusy of 3, mailbox %d of 5", got.Full, got.Busy, got.Mailbox)
	}
	s.RunFor(time.Second)
	if got := s.e.Stats(); got.Mailbox != 0 {
		t.Errorf("mailbox %d when all is done", got.Mailbox)
	}
	s.ExhaustFiles(true)
	s.Dial(ln.Addr())
	s.RunFor(time.Second)
	if got := s.e.Stats(); got.AcceptErrors == 0 {
		t.Error("no accept errors without descriptors")
	}
	s.ExhaustFiles(false)
	s.finish()
}

func TestStatsCountDirtyConns(t *testing.T) {
	s := simulate(t, 1, sim.Lossless(), myriad.Config{Loops: 1})
	h := newProbe()
	var conns []*myriad.Conn
	h.opened = func(c *myriad.Conn) { conns = append(conns, c) }
	notify := func(cs []*myriad.Conn) {
		for _, c := range cs {
			c.Notify()
			c.Notify()
		}
	}
	h.expired = func(*myriad.Conn) { notify(conns[1:]) }
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		s.Dial(ln.Addr())
	}
	s.RunFor(time.Second)
	before := s.e.Stats()
	notify(conns[:3])
	s.RunFor(time.Second)
	if got := s.e.Stats(); got.MostDirty != 3 || got.Dirty != 0 || got.Wakes <= before.Wakes {
		t.Errorf("most dirty %d of 3, now %d of 0, wakes %d after %d", got.MostDirty, got.Dirty, got.Wakes,
			before.Wakes)
	}
	_ = conns[0].SetDeadline(s.Now().Add(time.Second))
	s.RunFor(2 * time.Second)
	if got := s.e.Stats(); got.MostDirty != 7 || got.Dirty != 0 {
		t.Errorf("most dirty %d of 7, now %d of 0", got.MostDirty, got.Dirty)
	}
	s.finish()
}

// A slowWorld is a world in which handlers take time: they say how much.
type slowWorld struct {
	*sim.World
	spent atomic.Int64
}

func (w *slowWorld) Now() time.Time { return w.World.Now().Add(time.Duration(w.spent.Load())) }

func (w *slowWorld) spend(d time.Duration) { w.spent.Add(int64(d)) }

// quick and slow are handlers of two types.
type quick struct{ *probe }

type slow struct{ *probe }

// trickle serves peers that send n bytes one by one to handlers that take their time for each.
func trickle(t *testing.T, n int, quickTime, slowTime time.Duration) (myriad.Stats, func()) {
	t.Helper()
	w := &slowWorld{World: newWorld(1, sim.Lossless())}
	e, err := myriad.Start(myriad.Config{System: w, Loops: 1, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	takes := func(d time.Duration) *probe {
		h := newProbe()
		h.received = func(*myriad.Conn, []byte) { w.spend(d) }
		return h
	}
	var peers []*sim.Peer
	for _, h := range []myriad.Handler{quick{takes(quickTime)}, slow{takes(slowTime)}} {
		ln, err := e.Listen("tcp", "127.0.0.1:0", h)
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, w.Dial(ln.Addr()))
	}
	for range n {
		for _, p := range peers {
			p.Write([]byte("x"))
			w.RunFor(time.Second)
		}
	}
	return e.Stats(), func() {
		if err := e.Shutdown(atLength(t)); err != nil {
			t.Error(err)
		}
		w.Run()
		w.Check(t)
	}
}

func handlerStats(s myriad.Stats, name string) (h myriad.HandlerStats) {
	for _, h := range s.Handlers {
		if strings.HasSuffix(h.Type, name) {
			return h
		}
	}
	return h
}

func TestSlowHandlersAreNamed(t *testing.T) {
	const n = 100
	stats, finish := trickle(t, n, 0, 5*time.Millisecond)
	defer finish()
	if name := stats.Handlers[0].Type; name != "enginetest.slow" {
		t.Errorf("the slowest is %s: %+v", name, stats.Handlers)
	}
	s, q := handlerStats(stats, ".slow"), handlerStats(stats, ".quick")
	if s.Max < 5*time.Millisecond || s.LongTurns != n || s.LongestTurn < s.Max || s.Slow < n-1 || s.Slow > n {
		t.Errorf("slow: %+v", s)
	}
	if q.Max >= time.Millisecond || q.Slow != 0 || q.LongTurns != 0 {
		t.Errorf("quick: %+v", q)
	}
	if stats.LongTurns != n || stats.LongestTurn < 5*time.Millisecond {
		t.Errorf("%d long turns of %d, the longest %v", stats.LongTurns, n, stats.LongestTurn)
	}
	if total := stats.HandlerTime; total < 490*time.Millisecond || total > 510*time.Millisecond ||
		stats.BusyTime < total {
		t.Errorf("%v in handlers, about 500ms are right, and %v busy", total, stats.BusyTime)
	}
}

// A single slow call between many quick ones is seldom in the sample: its turn tells of it.
func TestSampledTimes(t *testing.T) {
	const n = 2000
	stats, finish := trickle(t, n, 10*time.Microsecond, 100*time.Microsecond)
	defer finish()
	s, q := handlerStats(stats, ".slow"), handlerStats(stats, ".quick")
	for _, tc := range []struct {
		h    myriad.HandlerStats
		each time.Duration
	}{{s, 100 * time.Microsecond}, {q, 10 * time.Microsecond}} {
		if tc.h.Calls < n*9/10 || tc.h.Calls > n*11/10 || tc.h.Max != tc.each || tc.h.Slow != 0 {
			t.Errorf("%d calls of %v each: %+v", n, tc.each, tc.h)
		}
		if want := tc.each * n; tc.h.Time < want*9/10 || tc.h.Time > want*11/10 {
			t.Errorf("%s: %v in all, want about %v", tc.h.Type, tc.h.Time, want)
		}
	}
	if stats.LongTurns != 0 {
		t.Errorf("%d long turns", stats.LongTurns)
	}
}

// A panic ends a timed call as a return does, and functions of Loop.Do are timed too.
func TestPanickingAndPostedCallsAreTimed(t *testing.T) {
	w := &slowWorld{World: newWorld(1, sim.Lossless())}
	e, err := myriad.Start(myriad.Config{System: w, Loops: 1, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	h := newProbe()
	h.received = func(*myriad.Conn, []byte) { w.spend(7 * time.Millisecond); panic("boom") }
	ln, err := e.Listen("tcp", "127.0.0.1:0", slow{h})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.Dial(ln.Addr()).Write([]byte("x"))
		w.RunFor(time.Second)
	}
	if s := handlerStats(e.Stats(), ".slow"); s.Max != 7*time.Millisecond {
		t.Errorf("%+v", s)
	}
	for range 3 {
		_ = e.Loops()[0].Do(func() { w.spend(9 * time.Millisecond); panic("boom") })
		w.RunFor(time.Second)
	}
	if f := handlerStats(e.Stats(), "func()"); f.Max != 9*time.Millisecond {
		t.Errorf("%+v", f)
	}
	if err := e.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	w.Run()
	w.Check(t)
}

// A loop that hangs is seen from outside, with no help of its own.
func TestStuckLoopIsSeen(t *testing.T) {
	e := start(t, myriad.Config{Loops: 2})
	stuck, release := make(chan struct{}), make(chan struct{})
	if err := e.Loops()[1].Do(func() { close(stuck); <-release }); err != nil {
		t.Fatal(err)
	}
	await(t, "the function", stuck)
	eventually(t, "the turn is long", func() bool {
		s := e.Stats()
		return s.Loops[1].Turn > 20*time.Millisecond && s.Turn >= s.Loops[1].Turn
	})
	close(release)
	eventually(t, "it is over", func() bool { return e.Stats().Loops[1].Turn == 0 && e.Stats().LongTurns > 0 })
}

func TestStatsWhileThereIsTraffic(t *testing.T) {
	eachLayer(t, func(t *testing.T, set setting) {
		e := start(t, myriad.Config{})
		ln := set.listen(t, e, newEchoAll())
		ctx, cancel := context.WithCancel(t.Context())
		var readers, peers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				var last myriad.Stats
				for ctx.Err() == nil {
					s := e.Stats()
					if s.BytesIn < last.BytesIn || s.Turns < last.Turns || s.Queued < 0 {
						t.Errorf("counters ran backwards: %+v after %+v", s.LoopStats, last.LoopStats)
						return
					}
					last = s
				}
			})
		}
		const conns, size = 8, 300_000
		for range conns {
			nc := set.dial(t, ln)
			peers.Go(func() {
				msg := pattern(size)
				go func() {
					send(t, nc, msg)
					closeWrite(t, nc)
				}()
				if got, err := io.ReadAll(nc); err != nil || !bytes.Equal(got, msg) {
					t.Errorf("%d bytes of %d: %v", len(got), size, err)
				}
			})
		}
		peers.Wait()
		eventually(t, "all have gone", func() bool { return e.Stats().Conns == 0 })
		cancel()
		readers.Wait()
		eventually(t, "all is counted", func() bool {
			s := e.Stats()
			return s.BytesIn == conns*size && s.BytesOut == conns*size && s.Queued == 0 && s.Turn == 0
		})
	})
}

func TestConnsInSlices(t *testing.T) {
	s := simulate(t, 1, sim.Lossless(), myriad.Config{Loops: 1})
	h := newProbe()
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	var peers []*sim.Peer
	for range 25 {
		peers = append(peers, s.Dial(ln.Addr()))
		s.RunFor(time.Second)
	}
	for i := range 5 {
		peers[i*5].Close()
	}
	s.RunFor(time.Minute)
	l := s.e.Loops()[0]
	for _, n := range []int{1, 2, 7, 25, 26, 27, 1000} {
		met := map[*myriad.Conn]int{}
		turns, from := 0, 0
		for more := true; more; turns++ {
			most := 0
			if err := l.Do(func() { from = l.Conns(from, n, func(c *myriad.Conn) { met[c]++; most++ }) }); err != nil {
				t.Fatal(err)
			}
			s.RunFor(time.Second)
			if more = from > 0; most > n {
				t.Errorf("%d conns in a slice of %d", most, n)
			}
		}
		if len(met) != 20 || turns < 20/n {
			t.Errorf("%d conns of 20 in %d slices of %d", len(met), turns, n)
		}
		for c, times := range met {
			if times != 1 {
				t.Errorf("%v was met %d times", c.RemoteAddr(), times)
			}
		}
	}
	places := 1
	_ = l.Do(func() {
		for from := 0; ; places++ {
			if from = l.Conns(from, 1, func(*myriad.Conn) {}); from == 0 {
				break
			}
		}
		none := func(*myriad.Conn) {}
		if all, most := l.Conns(0, places, none), l.Conns(0, places-1, none); places < 26 || all != 0 ||
			most != places-1 {
			t.Errorf("of %d places (for 25 conns and a listener) all lead to %d, all but one to %d", places, all, most)
		}
		for _, from := range []int{-1, 1 << 20} {
			if next := l.Conns(from, 0, func(*myriad.Conn) { t.Error("met in an empty slice") }); next != 0 {
				t.Errorf("next of an empty slice from %d is %d", from, next)
			}
		}
	})
	s.RunFor(time.Second)
	s.finish()
}

// lastNote notes Closed too.
type lastNote struct {
	*probe
	note func(c *myriad.Conn)
}

func (h lastNote) Closed(c *myriad.Conn, _ error) { h.note(c) }

func TestAgeAndState(t *testing.T) {
	s := simulate(t, 1, sim.Lossless(), myriad.Config{Loops: 1})
	var log []string
	note := func(c *myriad.Conn) { log = append(log, fmt.Sprintf("%s %v", c.State(), c.Age().Round(time.Second))) }
	h := newProbe()
	h.opened = func(c *myriad.Conn) { note(c); c.SetTimer(10 * time.Second) }
	h.received = func(c *myriad.Conn, p []byte) {
		switch string(p) {
		case "p":
			c.Pause()
		case "w":
			c.CloseWrite()
		case "d":
			c.Detach(func(nc net.Conn, _ []byte, err error) {
				note(c)
				if err == nil {
					nc.Close()
				}
			})
		}
	}
	h.expired = func(c *myriad.Conn) { note(c); c.Resume() }
	h.ended = func(c *myriad.Conn) { note(c) }
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", lastNote{h, note})
	if err != nil {
		t.Fatal(err)
	}
	look := func() {
		l := s.e.Loops()[0]
		show := func(c *myriad.Conn) {
			if _, ours := c.Handler().(lastNote); !ours {
				t.Errorf("the handler is a %T", c.Handler())
			}
			note(c)
		}
		if err := l.Do(func() { l.Conns(0, 100, show) }); err != nil {
			t.Fatal(err)
		}
		s.RunFor(time.Second)
	}
	s.RunFor(time.Minute)
	p := s.Dial(ln.Addr())
	s.RunFor(time.Second)
	p.Write([]byte("p"))
	s.RunFor(2 * time.Second)
	look()
	s.RunFor(10 * time.Second)
	p.Write([]byte("w"))
	s.RunFor(time.Second)
	look()
	p.CloseWrite()
	s.RunFor(time.Second)
	look()
	q := s.Dial(ln.Addr())
	q.Write([]byte("d"))
	s.RunFor(time.Second)
	want := "open 0s, paused 3s, paused 10s, write ended 15s, write ended 16s, closed 0s, open 0s, closed 0s"
	if got := strings.Join(log, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.finish()
}
