package myriad_test

import (
	"testing"

	"github.com/myriad-go/myriad"
)

// While a message goes out to many, who asks for something does not wait for all of them: the loop sends to a slice of them and looks
// for events again. Nobody is left out, and what is written meanwhile comes behind.
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
