package sim_test

import (
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// counting counts what a driver says.
type counting struct {
	driver.Events
	accepted, received int
	sockets            []driver.Socket
}

func (c *counting) Accepted(_ driver.ID, s driver.Socket) {
	c.accepted++
	c.sockets = append(c.sockets, s)
}

func (c *counting) Received(driver.ID, []byte) { c.received++ }
func (c *counting) Closed(driver.ID, error)    {}

// What a driver does takes the processor's time, and so does Work. The network goes on meanwhile.
func TestCosts(t *testing.T) {
	o := sim.Calm()
	o.Accepts = 3
	w := sim.New(1, o)
	d, err := w.Open(0, driver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id, err := d.Listen(l)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		w.Dial(l.Addr()).Write([]byte("hello"))
	}
	w.SetCosts(sim.Costs{Event: 2 * time.Millisecond, Accept: 5 * time.Millisecond})
	w.Settle()
	c := new(counting)
	poll := func() {
		if _, err := d.Poll(0, c); err != nil {
			t.Fatal(err)
		}
	}
	for ; c.accepted == 0; poll() {
	}
	if spent := w.Spent(); c.accepted != 3 || spent != 15*time.Millisecond {
		t.Errorf("a poll accepted %d, want 3, and took %v", c.accepted, spent)
	}
	for ; c.accepted < 5; poll() {
	}
	for _, s := range c.sockets {
		if _, err := d.Attach(s); err != nil {
			t.Fatal(err)
		}
	}
	for ; c.received < 5; poll() {
	}
	before := w.Now()
	w.Work(time.Second)
	if passed := w.Now().Sub(before); passed != time.Second {
		t.Errorf("a second of work took %v", passed)
	}
	if spent := w.Spent(); spent != time.Second+25*time.Millisecond+10*time.Millisecond {
		t.Errorf("the processor has worked for %v", spent)
	}
	d.CloseListener(id)
	for range 10 {
		poll()
	}
	if err := d.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// With OwnPools a pool that is full keeps no other one from its work.
func TestOwnPools(t *testing.T) {
	for _, own := range []bool{false, true} {
		w := sim.New(1, sim.Options{Workers: 2, Queue: 1, OwnPools: own})
		slow, other := w.Executor(), w.Executor()
		gates := []driver.Parker{w.NewParker(), w.NewParker(), w.NewParker()}
		for _, gate := range gates {
			if !slow.TryGo(gate.Park) {
				t.Fatal("a pool of two, with room for one that waits, does not take three tasks")
			}
		}
		if slow.TryGo(func() {}) {
			t.Error("a pool takes more than it has room for")
		}
		ran := false
		if took := other.TryGo(func() { ran = true }); took != own {
			t.Errorf("own pools %v: the other one took a task: %v", own, took)
		}
		if n := w.Tasks(); own && n != 4 || !own && n != 3 {
			t.Errorf("own pools %v: there are %d tasks", own, n)
		}
		w.Settle()
		if ran != own || w.Tasks() != 3 {
			t.Errorf("own pools %v: the task of the other one ran: %v", own, ran)
		}
		for _, gate := range gates {
			gate.Unpark()
		}
		w.Run()
		w.Check(t)
	}
}
