package enginetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/wheel"
)

// timed serves one connection of the simulator, whose handler has timers.
func timed(t *testing.T, opened, expired func(c *myriad.Conn, timers *myriad.Timers)) (*simulation, *sim.Peer) {
	t.Helper()
	s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1})
	var timers myriad.Timers
	h := newProbe()
	h.opened = func(c *myriad.Conn) { opened(c, &timers) }
	h.expired = func(c *myriad.Conn) { expired(c, &timers) }
	h.received = func(c *myriad.Conn, _ []byte) { c.Close() }
	return s, s.Dial(s.listen(h).Addr())
}

// Each timer expires at its time, in their order, whatever order they were set in.
func TestTimers(t *testing.T) {
	const idle, answer, never, keepAlive = 0, 1, 2, 200
	var got []string
	var begin time.Time
	var s *simulation
	s, _ = timed(t, func(c *myriad.Conn, timers *myriad.Timers) {
		begin = s.Now()
		timers.Set(c, idle, 600*time.Millisecond)
		timers.Set(c, never, 100*time.Millisecond)
		timers.Set(c, keepAlive, 200*time.Millisecond)
		timers.Set(c, answer, time.Hour)
		timers.Set(c, answer, 500*time.Millisecond) // earlier than before
		timers.Set(c, never, 0)
	}, func(c *myriad.Conn, timers *myriad.Timers) {
		for n := range timers.Expired(c) {
			got = append(got, fmt.Sprint(n, " after ", s.Now().Sub(begin).Truncate(100*time.Millisecond)))
			if len(got) == 1 {
				timers.Set(c, keepAlive, 200*time.Millisecond)
			}
		}
	})
	s.RunFor(10 * time.Second)
	want := []string{"200 after 200ms", "200 after 400ms", "1 after 500ms", "0 after 600ms"}
	if !slices.Equal(got, want) {
		t.Errorf("expired: %q, want %q", got, want)
	}
	s.finish()
}

// A handler that breaks off is called again for the remaining timers, and a conn that closes for
// nothing.
func TestTimersBreak(t *testing.T) {
	var got []uint8
	s, p := timed(t, func(c *myriad.Conn, timers *myriad.Timers) {
		for n := range uint8(3) {
			timers.Set(c, n, -1)
		}
	}, func(c *myriad.Conn, timers *myriad.Timers) {
		for n := range timers.Expired(c) {
			got = append(got, n)
			break
		}
		if len(got) == 3 {
			timers.Set(c, 3, time.Second)
		}
	})
	s.RunFor(100 * time.Millisecond)
	p.Write([]byte("close"))
	s.RunFor(10 * time.Second)
	if want := []uint8{0, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("expired: %v, want %v", got, want)
	}
	s.finish()
}

// Whatever is set and reset, no timer expires early by the loop's clock, which counts milliseconds,
// nor later than a tick of the wheel.
func TestTimersAtRandom(t *testing.T) {
	const numbers, late = 8, (wheel.Tick + 1) * time.Millisecond
	for seed := range seeds(t) / 20 {
		random := rand.New(rand.NewPCG(seed, 1))
		var due [numbers]time.Time
		var s *simulation
		step := func(c *myriad.Conn, timers *myriad.Timers) {
			for range random.IntN(4) {
				n := random.IntN(numbers)
				d := time.Duration(random.IntN(300)) * time.Millisecond
				due[n] = s.Now().Add(d)
				if d == 0 {
					due[n] = time.Time{}
				}
				timers.Set(c, uint8(n), d)
			}
		}
		total := 0
		s, _ = timed(t, func(c *myriad.Conn, timers *myriad.Timers) {
			step(c, timers)
			timers.Set(c, numbers, 10*time.Millisecond)
		}, func(c *myriad.Conn, timers *myriad.Timers) {
			for n := range timers.Expired(c) {
				if n == numbers {
					timers.Set(c, numbers, 10*time.Millisecond)
					step(c, timers)
					continue
				}
				total++
				if off := s.Now().Sub(due[n]); due[n].IsZero() || off <= -time.Millisecond || off > late {
					t.Errorf("seed %d: timer %d expired %v after its time (set: %v)", seed, n, off, !due[n].IsZero())
				}
				due[n] = time.Time{}
			}
		})
		s.RunFor(10 * time.Second)
		for n, at := range due {
			if !at.IsZero() && s.Now().Sub(at) > late {
				t.Errorf("seed %d: timer %d was due %v ago", seed, n, s.Now().Sub(at))
			}
		}
		if total < 100 {
			t.Errorf("seed %d: %d timers expired, that proves little", seed, total)
		}
		s.finish()
	}
}

// Setting a timer again, as a protocol does for each message, allocates nothing.
func TestTimersAllocateOnce(t *testing.T) {
	var allocs float64
	s, _ := timed(t, func(c *myriad.Conn, timers *myriad.Timers) {
		timers.Set(c, 3, time.Hour)
		allocs = testing.AllocsPerRun(100, func() { timers.Set(c, 1, time.Minute) })
		timers.Set(c, 1, 0)
		timers.Set(c, 3, 0)
	}, func(*myriad.Conn, *myriad.Timers) { t.Error("expired") })
	s.RunFor(2 * time.Hour)
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	s.finish()
}
