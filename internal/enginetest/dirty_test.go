package enginetest

import (
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// Conns that are given work come up once each: few in the order of that work, many in the order of
// their slots, which is that in which they came.
func TestOrderOfDirtyConns(t *testing.T) {
	for _, tt := range []struct {
		name  string
		conns int
		want  func(come, asked []*myriad.Conn) []*myriad.Conn
	}{
		{"few", 10, func(_, asked []*myriad.Conn) []*myriad.Conn { return asked }},
		{"many", 300, func(come, _ []*myriad.Conn) []*myriad.Conn { return come }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 1})
			var come, asked, notified []*myriad.Conn
			h := newProbe()
			h.opened = func(c *myriad.Conn) { come = append(come, c) }
			h.notified = func(c *myriad.Conn) { notified = append(notified, c) }
			ln := s.listen(h)
			for range tt.conns {
				s.Dial(ln.Addr())
				s.RunFor(time.Millisecond)
			}
			if len(come) != tt.conns {
				t.Fatalf("%d of %d conns came", len(come), tt.conns)
			}
			for i := range come {
				asked = append(asked, come[(i*7+3)%len(come)])
			}
			for range 2 { // the second time in the room of the first
				notified = nil
				if err := come[0].Loop().Do(func() {
					for _, c := range asked {
						c.Notify()
						c.Notify()
					}
				}); err != nil {
					t.Fatal(err)
				}
				s.RunFor(time.Second)
				if !slices.Equal(notified, tt.want(come, asked)) {
					t.Errorf("%d of %d conns were notified, or in another order", len(notified), tt.conns)
				}
			}
			s.finish()
		})
	}
}
