package mux

import (
	"testing"
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
