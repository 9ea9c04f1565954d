package enginetest

import (
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A loop that is late for a crowd calls no timer of a connection before what lies in its socket.
// The timers of silent connections are called before the loop has read all that the crowd has sent.
func TestLateLoopReadsBeforeItExpires(t *testing.T) {
	const crowd, silent = 400, 40
	calm := sim.Calm()
	calm.MaxSteps, calm.Backlog = 1<<30, crowd
	s := simulate(t, 1, calm, myriad.Config{Loops: 1})
	got, expired, received := map[*myriad.Conn]bool{}, map[*myriad.Conn]bool{}, 0
	early := 0 // how many had been received when the last timer was called
	h := newProbe()
	h.opened = func(c *myriad.Conn) { c.SetTimer(time.Second) }
	h.received = func(c *myriad.Conn, _ []byte) {
		received++
		got[c] = true
		c.SetTimer(0)
	}
	h.expired = func(c *myriad.Conn) {
		expired[c] = true
		early = received
		if got[c] {
			t.Error("a timer was called that the handler had switched off")
		}
	}
	ln := s.listen(h)
	peers := make([]*sim.Peer, crowd)
	for i := range peers {
		peers[i] = s.Dial(ln.Addr())
	}
	s.RunFor(900 * time.Millisecond)
	for _, p := range peers[silent:] {
		p.Write([]byte("in time"))
	}
	s.SetCosts(sim.Costs{Event: 10 * time.Millisecond})
	s.RunFor(20 * time.Second)
	if len(got) != crowd-silent || len(expired) != silent {
		t.Errorf("%d connections have received and %d have expired, want %d and %d", len(got), len(expired),
			crowd-silent, silent)
	}
	if early >= crowd-silent {
		t.Errorf("the last timer was called behind all %d receives", early)
	}
	if late := s.e.Stats().MostLate; late < time.Second || late > 5*time.Second {
		t.Errorf("the loop says that it was %v late, want about the 3.6 s that the crowd takes", late)
	}
	if late := s.e.Late(); late != 0 {
		t.Errorf("the loop sleeps, and says that it is %v late", late)
	}
	s.SetCosts(sim.Costs{})
	for _, p := range peers {
		p.Close()
	}
	s.finish()
}
