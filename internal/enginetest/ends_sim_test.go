package enginetest

import (
	"errors"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A conn that ends has one time for each phase, however often it is settled meanwhile.
func TestSettlingProlongsNoPhase(t *testing.T) {
	const linger = time.Second
	for _, tt := range []struct {
		name  string
		reads bool // the peer does
		lasts time.Duration
		want  error
		state string
	}{
		{"draining", false, 2 * linger, myriad.ErrSlow, "closing"}, // in the first one the kernel takes some of it
		{"closing", true, 500 * time.Millisecond, nil, "lingering"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1, LingerTimeout: linger, WriteLimit: 1 << 20})
			var c *myriad.Conn
			h := newProbe()
			h.opened = func(opened *myriad.Conn) { c = opened }
			h.received = func(c *myriad.Conn, _ []byte) {
				if _, err := c.Write(pattern(500_000)); err != nil {
					t.Error(err)
				}
				c.Close()
			}
			p := s.Dial(s.listen(h).Addr())
			if !tt.reads {
				p.StopReading()
			}
			p.Write([]byte("request"))
			s.RunFor(time.Millisecond)
			const step = 100 * time.Millisecond
			for spent := step; spent < tt.lasts; spent += step {
				c.Notify() // which settles it
				s.RunFor(step)
				if state := s.stateOf(c); state != tt.state || len(h.closes) > 0 {
					t.Fatalf("after %v: %q, closed %d times, want %q", spent, state, len(h.closes), tt.state)
				}
			}
			s.RunFor(step + step/2)
			if len(h.closes) != 1 {
				t.Fatalf("closed %d times after %v", len(h.closes), tt.lasts)
			}
			if err := <-h.closes; !errors.Is(err, tt.want) {
				t.Errorf("closed by %v, want %v", err, tt.want)
			}
			s.finish()
		})
	}
}

// stateOf is the conn's State.
func (s *simulation) stateOf(c *myriad.Conn) (state string) {
	s.t.Helper()
	if err := c.Loop().Do(func() { state = c.State() }); err != nil {
		s.t.Fatal(err)
	}
	s.RunFor(0)
	return state
}
