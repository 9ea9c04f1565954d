package enginetest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A dormitory is the Waker of the conns of a listener.
type dormitory struct {
	*probe
	wake  func(c *myriad.Conn, last myriad.Handler)
	woken chan *myriad.Conn
}

func newDormitory() *dormitory {
	d := &dormitory{probe: newProbe(), woken: make(chan *myriad.Conn, 1024)}
	d.received = func(c *myriad.Conn, p []byte) { c.Write(p) }
	return d
}

func (d *dormitory) Wake(c *myriad.Conn, last myriad.Handler) myriad.Handler {
	if d.wake != nil {
		d.wake(c, last)
	}
	d.woken <- c
	return d
}

// served starts an engine of one loop for d, and returns a peer and its conn.
func (d *dormitory) served(t *testing.T, cfg myriad.Config) (*myriad.Engine, net.Conn, *myriad.Conn) {
	cfg.Loops, cfg.Logger = 1, quiet
	e := start(t, cfg)
	nc, c := d.join(t, setting{client: func(nc net.Conn) net.Conn { return nc }}.listenTo(t, e, d))
	return e, nc, c
}

func (s setting) listenTo(t *testing.T, e *myriad.Engine, h myriad.Handler) func() net.Conn {
	ln, err := e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	return func() net.Conn { return s.dial(t, ln) }
}

func (d *dormitory) join(t *testing.T, dial func() net.Conn) (net.Conn, *myriad.Conn) {
	nc := dial()
	return nc, await(t, "Opened", d.opens)
}

// sleep has c hibernate, and reports whether it does.
func (d *dormitory) sleep(t *testing.T, c *myriad.Conn, alone bool) (ok bool) {
	t.Helper()
	onLoop(t, c, func() { ok = c.Hibernate(d, alone) })
	return ok
}

// The tag of a hibernation is known in Wake, each time anew.
func TestHibernateAs(t *testing.T) {
	d := newDormitory()
	tags := make(chan uint8, 1)
	d.wake = func(c *myriad.Conn, _ myriad.Handler) { tags <- c.HibernatedAs() }
	_, nc, c := d.served(t, myriad.Config{})
	for _, tag := range []uint8{3, 0, 255, 7} {
		asleep := false
		onLoop(t, c, func() {
			if tag == 0 {
				asleep = c.Hibernate(d, true)
			} else {
				asleep = c.HibernateAs(d, tag, true)
			}
		})
		if !asleep {
			t.Fatal("a conn at rest does not hibernate")
		}
		send(t, nc, []byte("x"))
		expect(t, nc, []byte("x"))
		c = await(t, "Wake", d.woken)
		if got := await(t, "the tag", tags); got != tag {
			t.Errorf("hibernated as %d, woken as %d", tag, got)
		}
	}
}

// A connection that hibernates goes on, with the same addresses and age, when bytes come, and
// again; neither Opened nor Closed is called.
func TestHibernate(t *testing.T) {
	d := newDormitory()
	e, nc, c := d.served(t, myriad.Config{})
	for range 3 {
		if !d.sleep(t, c, false) {
			t.Fatal("a conn at rest does not hibernate")
		}
		eventually(t, "it is counted", func() bool { st := e.Stats(); return st.Hibernating == 1 && st.Conns == 1 })
		if _, err := c.Write([]byte("late")); !errors.Is(err, myriad.ErrClosed) {
			t.Errorf("Write on what was its conn: %v", err)
		}
		c.Notify() // no callback is called
		onLoop(t, c, func() { c.Pause(); c.Abort(nil) })
		send(t, nc, []byte("hello"))
		expect(t, nc, []byte("hello"))
		woken := await(t, "Wake", d.woken)
		if woken == c {
			t.Error("the same conn, though somebody else may have it")
		}
		if c = woken; c.RemoteAddr().String() != nc.LocalAddr().String() ||
			c.LocalAddr().String() != nc.RemoteAddr().String() {
			t.Errorf("woken as %v to %v", c.RemoteAddr(), c.LocalAddr())
		}
	}
	eventually(t, "it is counted as awake", func() bool { return e.Stats().Hibernating == 0 })
	nc.Close()
	if err := await(t, "Closed", d.closes); err != nil || d.openings.Load() != 1 {
		t.Errorf("closed with %v, opened %d times", err, d.openings.Load())
	}
}

// A Conn that no other code holds becomes another connection, with the handler that it had.
func TestHibernateSharesConns(t *testing.T) {
	d := newDormitory()
	e := start(t, myriad.Config{Loops: 1})
	dial := setting{client: func(nc net.Conn) net.Conn { return nc }}.listenTo(t, e, d)
	one, c := d.join(t, dial)
	two, other := d.join(t, dial)
	last := make(chan myriad.Handler, 1)
	d.wake = func(_ *myriad.Conn, h myriad.Handler) { last <- h }
	d.sleep(t, other, false) // its conn is not kept
	d.sleep(t, c, true)
	send(t, two, []byte("two"))
	expect(t, two, []byte("two"))
	if woken := await(t, "Wake", d.woken); woken != c || woken.RemoteAddr().String() != two.LocalAddr().String() {
		t.Errorf("the second peer is served by another conn than the first had, or as %v", woken.RemoteAddr())
	}
	if h := <-last; h != d {
		t.Errorf("its handler was %v", h)
	}
	send(t, one, []byte("one"))
	expect(t, one, []byte("one"))
	if woken := await(t, "Wake", d.woken); woken == c || <-last != nil {
		t.Error("the first peer has a conn that was another's, too")
	}
}

// A caller of Loop.Conns may keep the conns that it got: they never become other ones.
func TestHibernateAfterWalk(t *testing.T) {
	d := newDormitory()
	_, nc, c := d.served(t, myriad.Config{})
	onLoop(t, c, func() { c.Loop().Conns(0, 1<<20, func(*myriad.Conn) {}) })
	if !d.sleep(t, c, true) {
		t.Fatal("it does not hibernate")
	}
	onLoop(t, c, func() {
		c.Loop().Conns(0, 1<<20, func(*myriad.Conn) { t.Error("a connection that hibernates is shown") })
	})
	send(t, nc, []byte("x"))
	expect(t, nc, []byte("x"))
	if await(t, "Wake", d.woken) == c {
		t.Error("the conn was used again")
	}
}

// What is not at rest stays awake, and loses nothing.
func TestHibernateRefused(t *testing.T) {
	for name, unrest := range map[string]func(c *myriad.Conn, d *dormitory){
		"queued":    func(c *myriad.Conn, _ *dormitory) { c.Write([]byte("answer")) },
		"notified":  func(c *myriad.Conn, _ *dormitory) { c.Notify() },
		"paused":    func(c *myriad.Conn, _ *dormitory) { c.Pause() },
		"limited":   func(c *myriad.Conn, _ *dormitory) { c.SetWriteLimit(7) },
		"closing":   func(c *myriad.Conn, _ *dormitory) { c.Close() },
		"deadline":  func(c *myriad.Conn, _ *dormitory) { c.SetDeadline(time.Now().Add(time.Hour)) },
		"switching": func(c *myriad.Conn, d *dormitory) { c.SetHandler(d, nil) },
		"inviting":  func(c *myriad.Conn, _ *dormitory) { c.RunInline(errand(func() {})) },
		"layered":   func(c *myriad.Conn, _ *dormitory) { c.SetLayer(new(xorLayer)) },
		"write end": func(c *myriad.Conn, _ *dormitory) { c.CloseWrite() },
		"detaching": func(c *myriad.Conn, _ *dormitory) {
			c.Detach(func(nc net.Conn, _ []byte, _ error) { nc.Close() })
		},
		"hibernates": func(c *myriad.Conn, d *dormitory) { c.Hibernate(d, false) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDormitory()
			_, _, c := d.served(t, myriad.Config{})
			onLoop(t, c, func() {
				if unrest(c, d); c.Hibernate(d, true) {
					t.Error("it hibernates")
				}
			})
		})
	}
	t.Run("its callback", func(t *testing.T) {
		d := newDormitory()
		d.received = func(c *myriad.Conn, p []byte) {
			if c.Hibernate(d, true) {
				t.Error("it hibernates")
			}
			c.Write(p)
		}
		_, nc, _ := d.served(t, myriad.Config{})
		send(t, nc, []byte("x"))
		expect(t, nc, []byte("x"))
	})
}

// The timer goes on, and the peer's end is heard.
func TestHibernateHearsEnds(t *testing.T) {
	t.Parallel()
	d := newDormitory()
	d.expired = func(c *myriad.Conn) { c.Abort(os.ErrDeadlineExceeded) }
	_, _, c := d.served(t, myriad.Config{})
	onLoop(t, c, func() { c.SetTimer(time.Millisecond); c.SetTimer(300 * time.Millisecond) })
	d.sleep(t, c, false)
	if err := await(t, "Closed", d.closes); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after its timer: %v", err)
	}
	_, nc, c := d.served(t, myriad.Config{})
	d.sleep(t, c, false)
	nc.Close()
	if err := await(t, "Closed", d.closes); err != nil || d.endings.Load() != 1 {
		t.Errorf("after the FIN: %v, %d FINs", err, d.endings.Load())
	}
	_, nc, c = d.served(t, myriad.Config{})
	d.sleep(t, c, false)
	nc.(*net.TCPConn).SetLinger(0)
	nc.Close()
	if err := await(t, "Closed", d.closes); err == nil {
		t.Error("a reset is no error")
	}
}

// WakeAll wakes those that are chosen, and Shutdown all.
func TestWakeAll(t *testing.T) {
	d, stranger := newDormitory(), newDormitory()
	_, _, c := d.served(t, myriad.Config{})
	wakeAll := func(w myriad.Waker) {
		onLoop(t, c, func() { c.Loop().WakeAll(func(one myriad.Waker) bool { return one == w }) })
	}
	d.sleep(t, c, false)
	if wakeAll(stranger); len(d.woken) != 0 {
		t.Error("a stranger's was woken")
	}
	wakeAll(d)
	if c = await(t, "Wake", d.woken); !d.sleep(t, c, false) {
		t.Error("it does not hibernate again")
	} // and start has the engine shut down, for which it must end
}

// What a Wake asks of its conn is done when WakeAll has called it, too.
func TestWakeAllSettles(t *testing.T) {
	d := newDormitory()
	_, nc, c := d.served(t, myriad.Config{})
	d.wake = func(c *myriad.Conn, _ myriad.Handler) { c.Write([]byte("awake")) }
	d.sleep(t, c, false)
	onLoop(t, c, func() { c.Loop().WakeAll(func(myriad.Waker) bool { return true }) })
	expect(t, nc, []byte("awake"))
	d.wake = func(*myriad.Conn, myriad.Handler) { panic("not now") }
	d.sleep(t, await(t, "Wake", d.woken), false)
	onLoop(t, c, func() { c.Loop().WakeAll(func(myriad.Waker) bool { return true }) })
	if err := await(t, "Closed", d.closes); err == nil {
		t.Error("closed in order")
	}
}

// A choice that panics leaves no conn behind whose output is not sent.
func TestWakeAllPanics(t *testing.T) {
	d := newDormitory()
	e := start(t, myriad.Config{Loops: 1, Logger: quiet})
	dial := setting{client: func(nc net.Conn) net.Conn { return nc }}.listenTo(t, e, d)
	peers := map[string]net.Conn{}
	for range 2 {
		nc, c := d.join(t, dial)
		peers[nc.LocalAddr().String()] = nc
		d.sleep(t, c, false)
	}
	sleeps, asked := make(chan uint64, 1), 0
	if err := e.Loops()[0].Do(func() {
		sleeps <- e.Stats().Sleeps
		e.Loops()[0].WakeAll(func(myriad.Waker) bool {
			if asked++; asked == 2 {
				panic("no choice")
			}
			return true
		})
	}); err != nil {
		t.Fatal(err)
	}
	before := await(t, "the panic", sleeps)
	eventually(t, "the loop sleeps", func() bool { return e.Stats().Sleeps > before })
	c := await(t, "Wake", d.woken)
	if _, err := c.Write([]byte("awake")); err != nil {
		t.Fatal(err)
	}
	expect(t, peers[c.RemoteAddr().String()], []byte("awake"))
}

// Shutdown wakes those whose peers go on.
func TestShutdownWakes(t *testing.T) {
	t.Parallel()
	d := newDormitory()
	e, nc, c := d.served(t, myriad.Config{})
	d.sleep(t, c, false)
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectEnd(t, nc, nil)
	if len(d.woken) != 1 || len(d.closes) != 1 {
		t.Errorf("%d woken, %d closed", len(d.woken), len(d.closes))
	}
}

// A Waker cannot have the conn hibernate that it is given.
func TestWakeStaysAwake(t *testing.T) {
	d := newDormitory()
	_, nc, c := d.served(t, myriad.Config{})
	d.wake = func(c *myriad.Conn, _ myriad.Handler) {
		if c.Hibernate(d, true) {
			t.Error("it hibernates")
		}
	}
	d.sleep(t, c, true)
	send(t, nc, []byte("x"))
	expect(t, nc, []byte("x"))
}

// A conn becomes only connections with its local address.
func TestHibernateKeepsLocalAddr(t *testing.T) {
	d := newDormitory()
	e := start(t, myriad.Config{Loops: 1})
	ln, err := e.Listen("tcp4", "0.0.0.0:0", d)
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(ln.Addr().(*net.TCPAddr).Port)
	var peers []net.Conn
	for _, host := range []string{"127.0.0.1:", "127.0.0.2:"} {
		nc, err := net.Dial("tcp4", host+port)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(patience))
		peers = append(peers, nc)
		d.sleep(t, await(t, "Opened", d.opens), true)
	}
	for range 2 {
		for _, nc := range peers {
			send(t, nc, []byte("x"))
			expect(t, nc, []byte("x"))
			c := await(t, "Wake", d.woken)
			if c.LocalAddr().String() != nc.RemoteAddr().String() {
				t.Errorf("%v is served at %v", nc.RemoteAddr(), c.LocalAddr())
			}
			d.sleep(t, c, true)
		}
	}
}

// A loop tells 64 kinds apart at a time; those that no connection has make way.
func TestHibernateManyKinds(t *testing.T) {
	d := newDormitory()
	e := start(t, myriad.Config{Loops: 1})
	dial := setting{client: func(nc net.Conn) net.Conn { return nc }}.listenTo(t, e, d)
	nc, c := d.join(t, dial)
	for range 100 {
		one := newDormitory()
		if !one.sleep(t, c, true) {
			t.Fatal("it does not hibernate")
		}
		send(t, nc, []byte("x"))
		expect(t, nc, []byte("x"))
		c = await(t, "Wake", one.woken)
	}
	asleep := 0
	for range 70 {
		if _, c := d.join(t, dial); newDormitory().sleep(t, c, true) {
			asleep++
		}
	}
	if asleep != 64 {
		t.Errorf("%d of 70 with a Waker each hibernate, want 64", asleep)
	}
}

// A Wake that panics costs its connection alone.
func TestWakePanics(t *testing.T) {
	d := newDormitory()
	e := start(t, myriad.Config{Loops: 1, Logger: quiet})
	dial := setting{client: func(nc net.Conn) net.Conn { return nc }}.listenTo(t, e, d)
	one, c := d.join(t, dial)
	two, _ := d.join(t, dial)
	d.wake = func(*myriad.Conn, myriad.Handler) { panic("not now") }
	d.sleep(t, c, true)
	send(t, one, []byte("x"))
	if err := await(t, "Closed", d.closes); err == nil {
		t.Error("closed in order")
	}
	send(t, two, []byte("two"))
	expect(t, two, []byte("two"))
}

// Echoes whose conns hibernate at the end of each turn, in faulty worlds: every peer gets its own
// bytes, and nothing is left.
func TestSimulatedHibernation(t *testing.T) {
	shared := 0
	for seed := range seeds(t) {
		s := simulate(t, seed, sim.Options{Reset: 0.1 * float64(seed%3)},
			myriad.Config{WriteLimit: 3000, ReadBuffer: 2000})
		d := newDormitory()
		d.received = func(c *myriad.Conn, p []byte) {
			if _, err := c.Write(p); err != nil {
				c.Abort(err)
			}
			c.Loop().Later(func() { c.Hibernate(d, seed%2 == 0) })
		}
		d.wake = func(c *myriad.Conn, last myriad.Handler) {
			if last != nil {
				shared++
			}
			c.Loop().Later(func() { c.Hibernate(d, seed%2 == 0) }) // unless it is busy then
		}
		ln, err := s.e.Listen("tcp", "127.0.0.1:0", d)
		if err != nil {
			t.Fatal(err)
		}
		var peers []*sim.Peer
		var sent [][]byte
		for i := range 6 {
			p, msg := s.Dial(ln.Addr()), pattern(int(seed)+i*97)
			p.OnOpen = func() { p.Write(msg[:len(msg)/2]) }
			peers, sent = append(peers, p), append(sent, msg)
		}
		s.RunFor(time.Second)
		for i, p := range peers {
			p.Write(sent[i][len(sent[i])/2:])
			p.CloseWrite()
		}
		s.Run()
		for i, p := range peers {
			if got := p.Received(); !bytes.HasPrefix(sent[i], got) || len(got) < len(sent[i]) && !p.Faulted() &&
				p.Err() == nil {
				t.Fatalf("seed %d: peer %d has %d of %d bytes, faulted %v, %v", seed, i, len(got), len(sent[i]),
					p.Faulted(), p.Err())
			}
		}
		s.finish()
	}
	if shared == 0 {
		t.Error("no conn has become another connection")
	}
}

// A Wake that ends the loop's goroutine costs its connection alone, whatever it was woken for.
func TestWakeExits(t *testing.T) {
	for name, wake := range map[string]func(nc *net.TCPConn){
		"bytes":   func(nc *net.TCPConn) { nc.Write([]byte("x")) },
		"end":     func(nc *net.TCPConn) { nc.CloseWrite() },
		"reset":   func(nc *net.TCPConn) { nc.SetLinger(0); nc.Close() },
		"WakeAll": nil,
	} {
		t.Run(name, func(t *testing.T) {
			d := newDormitory()
			e, nc, c := d.served(t, myriad.Config{})
			d.wake = func(*myriad.Conn, myriad.Handler) { runtime.Goexit() }
			d.sleep(t, c, true)
			if wake != nil {
				wake(nc.(*net.TCPConn))
			} else if err := wakeEach(c.Loop()); err != nil {
				t.Fatal(err)
			}
			if err := await(t, "Closed", d.closes); err == nil {
				t.Error("closed in order")
			}
			eventually(t, "nothing is left",
				func() bool { st := e.Stats(); return st.Conns == 0 && st.Hibernating == 0 && e.Limits().Open == 0 })
		})
	}
}

// The handler that Wake sets with SetHandler gets what has woken the connection.
func TestWakeSwitches(t *testing.T) {
	d, next := newDormitory(), newProbe()
	next.received = func(c *myriad.Conn, p []byte) { c.Write(p) }
	d.received = func(*myriad.Conn, []byte) { t.Error("the former handler is given bytes") }
	_, nc, c := d.served(t, myriad.Config{})
	d.wake = func(c *myriad.Conn, _ myriad.Handler) { c.SetHandler(next, nil) }
	d.sleep(t, c, true)
	send(t, nc, []byte("x"))
	expect(t, nc, []byte("x"))
	if next.openings.Load() != 1 {
		t.Errorf("the new handler was opened %d times", next.openings.Load())
	}
}

// A loop that is stopping has told all conns: none of them hibernates any more, for nothing would
// wake it.
func TestHibernateRefusedWhileStopping(t *testing.T) {
	d := newDormitory()
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	nc, c := d.join(t, setting{client: func(nc net.Conn) net.Conn { return nc }}.listenTo(t, e, lingerer{d}))
	down := make(chan error, 1)
	go func() { down <- e.Shutdown(t.Context()) }()
	await(t, "Stopping", d.woken)
	if d.sleep(t, c, true) {
		t.Error("it hibernates")
	}
	nc.Close()
	if err := await(t, "the end of Shutdown", down); err != nil {
		t.Error(err)
	}
}

// A lingerer does nothing when the engine stops.
type lingerer struct{ *dormitory }

func (l lingerer) Stopping(c *myriad.Conn) { l.woken <- c }

// A Wake that ends the goroutine inside another conn's callback ends that conn too: of its callback
// the rest has not run.
func TestWakeExitsInACallback(t *testing.T) {
	d := newDormitory()
	e := start(t, myriad.Config{Loops: 1, Logger: quiet})
	dial := setting{client: func(nc net.Conn) net.Conn { return nc }}.listenTo(t, e, d)
	_, c := d.join(t, dial)
	other, _ := d.join(t, dial)
	d.wake = func(*myriad.Conn, myriad.Handler) { runtime.Goexit() }
	d.received = func(c *myriad.Conn, _ []byte) {
		c.Loop().WakeAll(func(myriad.Waker) bool { return true })
	}
	d.sleep(t, c, true)
	send(t, other, []byte("x"))
	for range 2 {
		if err := await(t, "Closed", d.closes); err == nil {
			t.Error("closed in order")
		}
	}
}

// wakeEach asks the loop to wake every conn that hibernates on it.
func wakeEach(l *myriad.Loop) error {
	return l.Do(func() { l.WakeAll(func(myriad.Waker) bool { return true }) })
}
