package enginetest

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A peer that stops reading costs its write limit and no more, whatever the handler goes on
// writing.
func TestPeerThatStopsReading(t *testing.T) {
	const limit = 10_000
	eachLayer(t, func(t *testing.T, set setting) {
		for seed := range seeds(t) / 20 {
			s := simulate(t, seed, sim.Lossless(), myriad.Config{Loops: 1, WriteLimit: limit})
			h := newProbe()
			wrote, refused, most := 0, 0, 0
			h.opened = func(c *myriad.Conn) { c.SetTimer(time.Millisecond) }
			h.expired = func(c *myriad.Conn) {
				for i := range 10 {
					n, err := c.Write(pattern(1 + (wrote+i*977)%limit))
					wrote, most = wrote+n, max(most, c.Queued())
					if errors.Is(err, myriad.ErrFull) && n == 0 {
						refused++
					} else if err != nil {
						t.Errorf("seed %d: Write took %d bytes: %v", seed, n, err)
					}
				}
				c.SetTimer(time.Millisecond)
			}
			p := s.Dial(set.listen(t, s.e, h).Addr())
			p.StopReading()
			for range 100 {
				s.RunFor(50 * time.Millisecond)
				if st := s.e.Stats(); st.Queued > limit {
					t.Fatalf("seed %d: the driver holds %d bytes for a peer whose limit is %d", seed, st.Queued, limit)
				}
			}
			// What has left the queue is in the two sockets' buffers, of 64 KiB each.
			if most > limit || most < limit/2 || refused < 1000 || wrote > limit+2*(64<<10) {
				t.Errorf("seed %d: %d bytes queued at most, the limit is %d; %d written, %d refused", seed, most, limit,
					wrote, refused)
			}
			p.Reset()
			s.finish()
		}
	})
}

// deadlined is a handler that gives its peer a time for all it has to say, or for each piece of it.
type deadlined struct {
	limit  time.Duration
	each   bool
	opened time.Time // loop time, as heard is of the last piece
	heard  time.Time
	closed time.Time
	err    error
	now    func() time.Time
}

func (d *deadlined) Opened(c *myriad.Conn) {
	d.opened = c.Loop().Now()
	c.SetTimer(d.limit)
}

func (d *deadlined) Received(c *myriad.Conn, _ []byte) {
	d.heard = c.Loop().Now()
	if d.each {
		c.SetTimer(d.limit)
	}
}

func (d *deadlined) Closed(_ *myriad.Conn, err error) { d.closed, d.err = d.now(), err }

// A peer that trickles is closed by its deadline: never early, and late by no more than the tick of
// the loop's timers.
func TestPeerThatTrickles(t *testing.T) {
	const tick = 8 * time.Millisecond
	eachLayer(t, func(t *testing.T, set setting) {
		for seed := range seeds(t) / 5 {
			for _, each := range []bool{false, true} {
				s := simulate(t, seed, sim.Calm(), myriad.Config{Loops: 1})
				d := &deadlined{limit: time.Second + time.Duration(seed)*37*time.Millisecond, each: each, now: s.Now}
				p := s.Dial(set.listen(t, s.e, d).Addr())
				for range 100 { // for 10 s, if it is let
					p.Write([]byte("x"))
					s.RunFor(100 * time.Millisecond)
				}
				due := d.opened.Add(d.limit)
				if each {
					if !d.closed.IsZero() {
						t.Fatalf("seed %d: closed at %v, although each piece was in time", seed, d.closed.Sub(d.opened))
					}
					due = d.heard.Add(d.limit)
					s.RunFor(time.Minute)
				}
				if late := d.closed.Sub(due); late < 0 || late > tick || !errors.Is(d.err, os.ErrDeadlineExceeded) {
					t.Errorf("seed %d: closed %v after its deadline of %v, with %v", seed, late, d.limit, d.err)
				}
				s.finish()
			}
		}
	})
}
