package myriad

import (
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A sleepyhead is a Waker that does nothing.
type sleepyhead struct{}

func (sleepyhead) Opened(*Conn)                         {}
func (sleepyhead) Received(*Conn, []byte)               {}
func (sleepyhead) Closed(*Conn, error)                  {}
func (w sleepyhead) Wake(_ *Conn, last Handler) Handler { return w }

// However many connections hibernate, a loop keeps a bounded number of Conns for those that wake,
// and those are used first.
func TestKeptConnsAreBounded(t *testing.T) {
	_, s := newStub(1)
	l := s.loop
	l.engine.sys = sim.New(1, sim.Calm())
	const many = 2*keptConns + 1
	first := map[*Conn]bool{}
	for i := range uint32(many) {
		c := newConn(l, sleepyhead{})
		l.enter(c, driver.MakeID(0, i, 1), open)
		first[c] = true
		if !c.Hibernate(sleepyhead{}, true) {
			t.Fatalf("conn %d does not hibernate", i)
		}
	}
	if n := len(l.hibernation.kinds[0].spare); n != keptConns {
		t.Errorf("%d Conns are kept, want %d", n, keptConns)
	}
	again := 0
	for i := range uint32(many) {
		if first[l.hibernation.wake(i)] {
			again++
		}
	}
	if again != keptConns || len(l.hibernation.kinds[0].spare) != 0 || l.stats.hibernating != 0 {
		t.Errorf("%d Conns were used again, %d are kept, %d connections hibernate; want %d, 0 and 0",
			again, len(l.hibernation.kinds[0].spare), l.stats.hibernating, keptConns)
	}
}
