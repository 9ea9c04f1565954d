package sim

import (
	"fmt"
	"sort"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// Shutdown implements driver.Driver.
func (d *Driver) Shutdown() error {
	d.enter("Shutdown")
	defer d.exit()
	if d.inPoll {
		d.refuse("Shutdown inside Poll")
	}
	for _, c := range d.slots {
		c.shutdown()
	}
	d.closed, d.queued, d.batch = true, nil, nil
	d.w.note(d.name, "shutdown", 0, 0)
	for i, other := range d.w.drivers {
		if other == d {
			d.w.drivers = append(d.w.drivers[:i], d.w.drivers[i+1:]...)
			break
		}
	}
	return nil
}

func (c *conn) shutdown() {
	switch {
	case c.state == free:
		return
	case c.l != nil:
		c.l.forget(c)
	case c.dial != nil:
		c.dial.cancel()
	case c.e != nil:
		c.e.abort()
	}
	c.release()
}

// TB is the part of testing.TB that Check needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Check fails the test if something remains: connections and listeners that live in a driver,
// sockets that were neither taken nor closed, blocks, goroutines that could go on. Drivers that
// have been shut down hold nothing. Blocks are counted by the process: parallel tests would see
// each other's. Run or Settle comes first.
func (w *World) Check(t TB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, left := range w.leftovers() {
		t.Errorf("sim: seed %d: %s", w.seed, left)
	}
}

// leftovers are in a fixed order. The lock is held.
func (w *World) leftovers() []string {
	var found []string
	for _, d := range w.drivers {
		for _, c := range d.slots {
			if c.state != free {
				found = append(found, fmt.Sprintf("%s: connection or listener %x is still there", d.name,
					uint64(c.id())))
			}
		}
	}
	ends := make([]*end, 0, len(w.sockets))
	for e := range w.sockets {
		ends = append(ends, e)
	}
	sort.Slice(ends, func(i, j int) bool { return ends[i].id < ends[j].id })
	for _, e := range ends {
		found = append(found, fmt.Sprintf("%s socket %x was neither attached nor closed", w.sockets[e], e.id))
	}
	for _, a := range w.runnable {
		found = append(found, a.name+" could still run")
	}
	if n := len(w.tasks.waiting); n > 0 {
		found = append(found, fmt.Sprintf("%d tasks of the executor have not run", n))
	}
	if n := buf.InUse() - w.blocks; n > 0 {
		found = append(found, fmt.Sprintf("%d blocks were not released", n))
	}
	return found
}

// Kill ends every goroutine of the world that still waits, by runtime.Goexit where it waits: for a
// test that gives a world up in the middle and must leave no goroutine behind. Nothing else can be
// done with the world afterwards.
func (w *World) Kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exclusive("Kill", driver.Goroutine())
	for len(w.actors) > 0 {
		a := w.actors[0]
		if !a.started {
			w.actors = w.actors[1:]
			continue
		}
		a.killed = true
		w.run(a)
	}
	w.runnable = nil
	w.endStep()
}
