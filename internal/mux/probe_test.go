package mux

import (
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
)

// free holds Free and GoingAway against Open, which begins as many streams as Free says.
func (r *rig) free(want int) {
	r.t.Helper()
	r.onLoop(func() {
		if n := r.conn.Free(); n != want || r.conn.GoingAway() && n > 0 {
			r.t.Errorf("%d free, going away %v, want %d", n, r.conn.GoingAway(), want)
		}
	})
}

// openAll opens n streams, of which none has a head, and wants the next one to fail.
func (r *rig) openAll(n int, then error) (all []*testStream) {
	r.t.Helper()
	r.onLoop(func() {
		for i := range n + 1 {
			s := &testStream{r: r}
			s.Init(s)
			switch err := r.conn.Open(&s.Stream); {
			case i < n && err != nil, i == n && err != then:
				r.t.Errorf("Open of stream %d of %d: %v", i, n, err)
			case err == nil:
				all = append(all, s)
			}
		}
	})
	return all
}

// Section 6.5.2: a server that does not say how many streams it allows has no limit. Before its
// SETTINGS nothing is known of that. Later ones that do not say leave what was.
func TestFreeStreamsWithoutSetting(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.free(firstStreams)
	r.greet()
	r.free(usualStreams)
	for _, s := range r.openAll(usualStreams, ErrStreams) {
		s.Cancel(h2.Cancel)
		s.Release()
	}
	r.write(h2.AppendSettings(nil, h2.Setting{ID: h2.MaxConcurrentStreams, Value: 5000}))
	r.settle()
	r.free(5000)
	r.write(h2.AppendSettings(nil))
	r.settle()
	r.free(5000)
}

// A client that has no more numbers for streams takes another connection (section 5.1.1).
func TestLastStreamNumbers(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	r.onLoop(func() { r.conn.last = 1<<31 - 7 })
	r.free(3)
	all := r.openAll(3, ErrGoingAway)
	r.free(0)
	head := pairs(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/")
	for i, s := range all {
		s.Put(head, nil, true)
		r.settle()
		if want := uint32(1<<31 - 5 + 2*i); s.ID() != want {
			t.Errorf("stream %d, want %d", s.ID(), want)
		}
	}
}

func TestProbes(t *testing.T) { playSessions(t, "probes.txt") }
