package enginetest

import (
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// How long a connection that has flushed waits for its peer's FIN depends on what the peer sends:
// none of these ever ends.
func TestLingerTimes(t *testing.T) {
	const limit, patience, short = 1000, time.Minute, 500 * time.Millisecond
	for _, tt := range []struct {
		name  string
		sends int // bytes behind what is answered
		want  time.Duration
	}{
		{"nothing", 0, short},
		{"a little", limit, patience},
		{"too much", limit + 1, short},
		{"far too much", 100 * limit, short},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1, LingerBytes: limit, LingerTimeout: patience,
				ReadBuffer: 100})
			h := newProbe()
			h.received = func(c *myriad.Conn, _ []byte) { c.Write([]byte("answer")); c.Close() }
			ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
			if err != nil {
				t.Fatal(err)
			}
			p := s.Dial(ln.Addr())
			p.Write([]byte("request"))
			s.RunFor(time.Millisecond)
			p.Write(pattern(tt.sends))
			const margin = 10 * time.Millisecond
			s.RunFor(tt.want - margin)
			if len(h.closes) != 0 || string(p.Received()) != "answer" {
				t.Errorf("%v before its time: closed: %v, answer %q", margin, len(h.closes) != 0, p.Received())
			}
			if s.RunFor(2 * margin); len(h.closes) != 1 {
				t.Errorf("not closed after %v", tt.want)
			}
			s.finish()
		})
	}
}
