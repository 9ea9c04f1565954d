package enginetest

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A mortal is an echo that ends the loop's goroutine in one of its callbacks, named by at; "" in
// none.
type mortal struct {
	at            string
	opened, ended int
	exited        bool
	late          int // calls after Closed, or before Opened
	err           error
	c             *myriad.Conn
}

func (m *mortal) reach(callback string) {
	if m.ended > 0 || m.opened == 0 {
		m.late++
	}
	if m.at == callback {
		m.exited = true
		runtime.Goexit()
	}
}

func (m *mortal) Opened(c *myriad.Conn) {
	m.opened++
	m.c = c
	switch m.at {
	case "Expired":
		c.SetTimer(5 * time.Millisecond)
	case "Notified":
		c.Notify()
	case "next":
		c.SetHandler(&mortalNext{m}, nil)
	case "Detached":
		c.Detach(func(nc net.Conn, _ []byte, _ error) {
			if nc != nil {
				nc.Close()
			}
			m.ended++ // there is no Closed then
			runtime.Goexit()
		})
	}
	m.reach("Opened")
}

func (m *mortal) Received(c *myriad.Conn, p []byte) {
	if m.at == "Drained" {
		for {
			if _, err := c.Write(make([]byte, 900)); err != nil {
				break
			}
		}
	}
	_, _ = c.Write(p)
	m.reach("Received")
}

func (m *mortal) Ended(c *myriad.Conn)    { _ = c.Close(); m.reach("Ended") }
func (m *mortal) Drained(*myriad.Conn)    { m.reach("Drained") }
func (m *mortal) Expired(*myriad.Conn)    { m.reach("Expired") }
func (m *mortal) Notified(*myriad.Conn)   { m.reach("Notified") }
func (m *mortal) Stopping(c *myriad.Conn) { _ = c.Close(); m.reach("Stopping") }

func (m *mortal) Closed(_ *myriad.Conn, err error) {
	m.reach("before Closed")
	m.ended++
	m.err = err
	if m.at == "Closed" {
		runtime.Goexit()
	}
}

// mortalNext takes a conn over from a mortal, and ends the goroutine at once.
type mortalNext struct{ *mortal }

func (n *mortalNext) Opened(*myriad.Conn) { n.reach("next") }

// Each callback ends the goroutine for some conns of each loop. Their neighbours, in the same batch
// of events, notice nothing.
func TestSimulatedExits(t *testing.T) {
	callbacks := []string{"Opened", "Received", "Ended", "Drained", "Expired", "Notified", "next", "Detached",
		"Stopping", "Closed"}
	for name, o := range map[string]sim.Options{"lossless": sim.Lossless(), "faulty": {}, "bound": boundWorld()} {
		t.Run(name, func(t *testing.T) {
			n := seeds(t) / 4
			if o.ThreadBound {
				n = 2 // a run is slow where each step is another thread's
			}
			for seed := range n {
				if simulateExits(t, seed, o, callbacks); t.Failed() {
					return
				}
			}
		})
	}
}

func simulateExits(t *testing.T, seed uint64, o sim.Options, callbacks []string) {
	s := simulate(t, seed, o, myriad.Config{WriteLimit: 3000, ReadBuffer: 500, LingerTimeout: time.Minute})
	type client struct {
		*sim.Peer
		m   *mortal
		msg []byte
	}
	var clients []client
	for i := range 4 * len(callbacks) {
		m := &mortal{}
		if i%2 == 0 {
			m.at = callbacks[i/2%len(callbacks)]
		}
		ln, err := s.e.Listen("tcp", "127.0.0.1:0", m)
		if err != nil {
			t.Fatal(err)
		}
		c := client{s.Dial(ln.Addr()), m, pattern(1700 + i)}
		c.Write(c.msg)
		if m.at != "Stopping" {
			c.CloseWrite()
		}
		clients = append(clients, c)
	}
	s.RunFor(time.Hour)
	for i, c := range clients {
		whole := string(c.Received()) == string(c.msg) && c.Ended()
		if c.m.at == "" && !whole && !c.Faulted() {
			t.Errorf("seed %d: %d, whose handler is in order, got %d of %d bytes, ended %v, %v", seed, i,
				len(c.Received()), len(c.msg), c.Ended(), c.Err())
		}
	}
	s.finish()
	for i, c := range clients {
		if m := c.m; m.opened != m.ended || m.opened > 1 || m.late > 0 || m.opened == 0 && !c.Faulted() {
			t.Errorf("seed %d: %d, which ends in %q: opened %d times and closed %d times, %d calls out of turn", seed,
				i, m.at, m.opened, m.ended, m.late)
		}
		if m := c.m; m.exited && m.err == nil && m.at != "Ended" && m.at != "Stopping" && m.at != "Closed" {
			t.Errorf("seed %d: %d: Closed(nil) after an end in %q", seed, i, m.at)
		}
	}
}

// A dialled conn whose Opened ends the goroutine is returned nevertheless, and closed; Adopt's
// likewise.
func TestExitInOpenedOfDial(t *testing.T) {
	e := start(t, myriad.Config{Logger: quiet})
	ln := setting{wrap: func(h myriad.Handler) myriad.Handler { return h }}.listen(t, e, echo{})
	h := newProbe()
	h.opened = func(*myriad.Conn) { runtime.Goexit() }
	if _, err := e.Dial(context.Background(), "tcp", ln.Addr().String(), h); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "Closed", h.closes); err == nil {
		t.Error("Closed(nil) after an exit")
	}
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Adopt(nc, []byte("unread"), h); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "Closed", h.closes); err == nil {
		t.Error("Closed(nil) after an exit")
	}
}

// A breakable world's drivers fail when err is set.
type breakable struct {
	*sim.World
	err error
}

func (b *breakable) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	d, err := b.World.Open(loop, o)
	return &breakableDriver{d, b}, err
}

type breakableDriver struct {
	driver.Driver
	of *breakable
}

func (d *breakableDriver) Poll(wait time.Duration, ev driver.Events) (int, error) {
	n, err := d.Driver.Poll(wait, ev)
	return n, errors.Join(err, d.of.err)
}

// When the driver has failed, every conn's Closed is called, though each ends the goroutine.
func TestExitsWhileTheDriverFails(t *testing.T) {
	w := &breakable{World: newWorld(1, sim.Lossless())}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	var ms []*mortal
	for range 5 {
		m := &mortal{at: "Closed"}
		ln, err := e.Listen("tcp", "127.0.0.1:0", m)
		if err != nil {
			t.Fatal(err)
		}
		w.Dial(ln.Addr())
		ms = append(ms, m)
	}
	w.RunUntil(func() bool { return e.Stats().Conns == len(ms) })
	w.err = errors.New("out of order")
	ms[0].c.Notify()
	w.Run()
	for i, m := range ms {
		if m.opened != 1 || m.ended != 1 || !errors.Is(m.err, w.err) {
			t.Errorf("conn %d: opened %d times, closed %d times with %v", i, m.opened, m.ended, m.err)
		}
	}
	if err := e.Shutdown(atLength(t)); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A postponer has something done at the end of the turn in which its conn closes.
type postponer struct {
	echo
	done int
}

func (a *postponer) Closed(c *myriad.Conn, _ error) { c.Loop().Later(func() { a.done++ }) }

// What Closed puts off is done, though the driver's failure has ended the loop.
func TestLaterWhileTheDriverFails(t *testing.T) {
	w := &breakable{World: newWorld(1, sim.Lossless())}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	a := new(postponer)
	ln, err := e.Listen("tcp", "127.0.0.1:0", a)
	if err != nil {
		t.Fatal(err)
	}
	w.Dial(ln.Addr())
	w.RunUntil(func() bool { return e.Stats().Conns == 1 })
	w.err = errors.New("out of order")
	if err := e.Loops()[0].Do(func() {}); err != nil {
		t.Fatal(err)
	}
	w.Run()
	if a.done != 1 {
		t.Errorf("Later's function was called %d times", a.done)
	}
	if err := e.Shutdown(atLength(t)); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A listener goes on accepting though Opened ends the goroutine for a peer that it had kept
// waiting: for room, or for its time.
func TestExitInOpenedOfWhoHasWaited(t *testing.T) {
	for name, cfg := range map[string]myriad.Config{"MaxConns": {MaxConns: 1}, "AcceptRate": {AcceptRate: 20}} {
		t.Run(name, func(t *testing.T) {
			cfg.Loops = 1
			s := simulate(t, 1, sim.Calm(), cfg)
			var conns []*myriad.Conn
			h := newProbe()
			h.opened = func(c *myriad.Conn) {
				if conns = append(conns, c); len(conns) == 2 {
					runtime.Goexit()
				}
			}
			ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
			if err != nil {
				t.Fatal(err)
			}
			for range 4 {
				s.Dial(ln.Addr())
			}
			for range 4 {
				s.RunFor(time.Second)
				for _, c := range conns {
					c.Abort(nil)
				}
			}
			if len(conns) != 4 {
				t.Errorf("%d of 4 peers were accepted", len(conns))
			}
			s.finish()
		})
	}
}

// A taskHost whose conn has a task when another conn of the loop ends the goroutine keeps its conn.
func TestExitBesideATask(t *testing.T) {
	for seed := range seeds(t) {
		s := simulate(t, seed, sim.Lossless(), myriad.Config{Loops: 1})
		h := new(taskHost)
		ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
		if err != nil {
			t.Fatal(err)
		}
		m := &mortal{at: "Closed"}
		other, err := s.e.Listen("tcp", "127.0.0.1:0", m)
		if err != nil {
			t.Fatal(err)
		}
		task, victim := s.Dial(ln.Addr()), s.Dial(other.Addr())
		s.RunFor(10 * time.Second)
		task.Write([]byte("x"))
		victim.Reset()
		s.RunFor(10 * time.Second)
		if got := task.Received(); string(got) != "x" || task.Err() != nil {
			t.Fatalf("seed %d: the task's peer got %q, %v", seed, got, task.Err())
		}
		task.Close()
		s.finish()
	}
}
