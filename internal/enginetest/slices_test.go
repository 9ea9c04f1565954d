package enginetest

import (
	"testing"

	"github.com/myriad-go/myriad"
)

// While a message goes out to many, a client's request does not wait for all of them: the loop
// sends to a slice of them and looks for events again. No member is left out, and what is written
// meanwhile follows.
func TestSlicesOfDirtyConns(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		const many = 200
		e := start(t, myriad.Config{Loops: 1})
		h := newProbe()
		ln := s.listen(t, e, h)
		var conns [many]*myriad.Conn
		var want [many]string
		for i := range conns {
			nc := s.dial(t, ln)
			conns[i] = await(t, "Opened", h.opens)
			defer func() { expect(t, nc, []byte(want[i])) }()
		}
		waiting := make(chan int, 1)
		meanwhile := func() {
			n := 0
			for i, c := range conns {
				want[i] = "first "
				if c.Queued() > 0 { // only these: the others would have the loop come back for them
					n++
					want[i] = "first second"
					c.Write([]byte("second"))
				}
			}
			waiting <- n
		}
		onLoop(t, conns[0], func() {
			for _, c := range conns {
				c.Write([]byte("first "))
			}
			if err := conns[0].Loop().Do(meanwhile); err != nil {
				t.Error(err)
			}
		})
		if n := await(t, "the loop's next turn", waiting); n < many/2 || n == many {
			t.Errorf("the next turn came when %d of %d still waited: want most of them, not all", n, many)
		}
	})
}

// A counter is a task that counts the conns that still wait.
type counter struct {
	conns  []*myriad.Conn
	waited chan int // -1: the loop did not wait for it, so the number says nothing
}

func (g *counter) Run(h myriad.Handoff) {
	n := 0
	for _, c := range g.conns {
		if c.Queued() > 0 {
			n++
		}
	}
	if !h.Inline() {
		n = -1
	}
	g.waited <- n
}

func (g *counter) Overtaken(bool) {}
func (g *counter) Returned(bool)  {}

// A task does not wait for a whole slice either: a few conns go first, which may have answers to
// others.
func TestTasksGoAheadOfDirtyConns(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		const many, few = 200, 16
		e := start(t, myriad.Config{Loops: 1})
		h := newProbe()
		ln := s.listen(t, e, h)
		g := &counter{waited: make(chan int, 1)}
		for range many {
			nc := s.dial(t, ln)
			defer func() { expect(t, nc, []byte("x")) }()
			g.conns = append(g.conns, await(t, "Opened", h.opens))
		}
		for n := -1; n < 0; {
			onLoop(t, g.conns[0], func() {
				g.conns[0].RunInline(g)
				for _, c := range g.conns {
					c.Write([]byte("x"))
				}
			})
			if n = await(t, "the task", g.waited); n < 0 {
				continue
			}
			if n < many-few {
				t.Errorf("the task came when %d of %d waited: want all but a few", n, many)
			}
		}
	})
}
