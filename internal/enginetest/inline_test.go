package enginetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// taskHost is a handler whose answers are written by tasks: one at a time for a conn, as many as
// there were bytes.
type taskHost struct {
	run       func(v *echoTask)
	loses     func() // on Overtaken; nil: nothing
	runs      atomic.Int64
	overtaken atomic.Int64
	stayed    atomic.Int64 // of these: overstayed
	lost      atomic.Int64
	conns     chan *myriad.Conn
}

// echoTask is one conn's handler and task. It echoes what it was given before its run.
type echoTask struct {
	host    *taskHost
	c       *myriad.Conn
	handoff myriad.Handoff
	pending []byte // the loop's
	given   []byte // the task's, while it runs
	busy    bool   // the loop's
	done    atomic.Bool
	ended   bool
}

func (h *taskHost) Opened(c *myriad.Conn) {
	if h.conns != nil {
		h.conns <- c
	}
	c.SetHandler(&echoTask{host: h, c: c}, nil)
}
func (h *taskHost) Received(*myriad.Conn, []byte) {}
func (h *taskHost) Closed(*myriad.Conn, error)    {}

func (v *echoTask) Opened(*myriad.Conn) {}

func (v *echoTask) Received(_ *myriad.Conn, p []byte) {
	v.pending = append(v.pending, p...)
	v.invite()
}

func (v *echoTask) invite() {
	switch {
	case v.busy:
	case len(v.pending) > 0:
		n := min(len(v.pending), 100)
		v.given = append([]byte(nil), v.pending[:n]...)
		v.pending = v.pending[n:]
		v.busy = true
		v.c.RunInline(v)
	case v.ended:
		v.c.Close()
	}
}

func (v *echoTask) Run(h myriad.Handoff) {
	v.host.runs.Add(1)
	v.handoff = h
	if v.host.run != nil {
		v.host.run(v)
	}
	v.c.Write(v.given)
}

func (v *echoTask) Overtaken(overstayed bool) {
	v.host.overtaken.Add(1)
	if overstayed {
		v.host.stayed.Add(1)
	}
	if v.host.loses != nil {
		v.host.loses()
	}
}

func (v *echoTask) Returned(kept bool) {
	if !kept {
		v.host.lost.Add(1)
		v.done.Store(true)
		v.c.Notify()
		return
	}
	v.busy = false
	v.invite()
}

func (v *echoTask) Notified(*myriad.Conn) {
	if v.done.Swap(false) {
		v.busy = false
		v.invite()
	}
}

func (v *echoTask) Ended(*myriad.Conn) {
	v.ended = true
	v.invite()
}

func (v *echoTask) Closed(*myriad.Conn, error) { v.busy = true }

// A task that blocks for good is overtaken: its neighbours are answered, and it ends as any
// goroutine would.
func TestOverstay(t *testing.T) {
	needsHandoff(t)
	inside, release := make(chan struct{}), make(chan struct{})
	h := &taskHost{run: func(v *echoTask) {
		if v.given[0] == '!' {
			close(inside)
			<-release
		}
	}}
	s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h }}
	s.client = func(nc net.Conn) net.Conn { return nc }
	e := start(t, myriad.Config{Loops: 1})
	ln := s.listen(t, e, h)
	slow, quick := s.dial(t, ln), s.dial(t, ln)
	send(t, slow, []byte("!"))
	await(t, "the task", inside)
	for i := range 100 {
		msg := fmt.Appendf(nil, "message %d", i)
		send(t, quick, msg)
		expect(t, quick, msg)
	}
	close(release)
	expect(t, slow, []byte("!"))
	send(t, slow, []byte("again"))
	expect(t, slow, []byte("again"))
	eventually(t, "the handoff is counted, and those of tasks that the machine has held up", func() bool {
		st, n := e.Stats(), h.overtaken.Load()
		return n > 0 && h.lost.Load() == n && st.Overstays == uint64(n) && st.Handoffs == 0
	})
}

// HandOff makes a blocking call legal at once: here the task waits for its own loop.
func TestHandOff(t *testing.T) {
	needsHandoff(t)
	var e *myriad.Engine
	h := &taskHost{run: func(v *echoTask) {
		first := v.handoff.HandOff()
		if again := v.handoff.HandOff(); !first || !again {
			t.Errorf("HandOff: %v, and again: %v", first, again)
		}
		done := make(chan struct{})
		if err := v.c.Loop().Do(func() { close(done) }); err != nil {
			t.Error(err)
		}
		<-done
	}}
	s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
		client: func(nc net.Conn) net.Conn { return nc }}
	e = start(t, myriad.Config{Loops: 1})
	nc := s.dial(t, s.listen(t, e, h))
	for range 50 {
		send(t, nc, []byte("message"))
		expect(t, nc, []byte("message"))
	}
	eventually(t, "the handoffs are counted, and the tasks that the machine has held up before", func() bool {
		st, late := e.Stats(), uint64(h.stayed.Load())
		return st.Handoffs+late == 50 && st.Overstays == late
	})
}

// Engine.HandOff finds the inline task that calls it, and no other. In fake time nothing else hands
// the loop off.
func TestEngineHandOff(t *testing.T) {
	s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 2})
	other, err := myriad.Start(myriad.Config{Loops: 1, System: s.World})
	if err != nil {
		t.Fatal(err)
	}
	h := &taskHost{run: func(v *echoTask) {
		if !other.HandOff() || !v.handoff.Inline() {
			t.Error("an engine that the task is not on has handed its loop off, or refused to")
		}
		w := s.NewParker()
		s.Go(func() {
			if !s.e.HandOff() || !v.handoff.Inline() {
				t.Error("a goroutine that is no task has handed a loop off, or may not wait")
			}
			w.Unpark()
		})
		w.Park()
		if !s.e.HandOff() || v.handoff.Inline() {
			t.Error("the loop was not handed off")
		}
		if err := v.c.Loop().Do(func() {
			if s.e.HandOff() || other.HandOff() {
				t.Error("a callback of a loop may wait")
			}
			w.Unpark()
		}); err != nil {
			t.Error(err)
		}
		w.Park() // until the loop, which goes on, has called that
		if !s.e.HandOff() {
			t.Error("HandOff is refused the second time")
		}
	}}
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		p := s.Dial(ln.Addr())
		p.Write(pattern(500))
		p.CloseWrite()
	}
	s.Run()
	if n := h.runs.Load(); n < 40 || h.overtaken.Load() != n || s.e.Stats().Handoffs != uint64(n) {
		t.Errorf("%d runs, %d overtaken, %d handed off", n, h.overtaken.Load(), s.e.Stats().Handoffs)
	}
	if err := other.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	s.finish()
}

// Panics and Goexit in a task cost neither the loop nor its other conns.
func TestTaskFails(t *testing.T) {
	for name, fail := range map[string]func(v *echoTask){
		"panic":                 func(*echoTask) { panic("as the test wants") },
		"goexit":                func(*echoTask) { runtime.Goexit() },
		"panic when overtaken":  func(v *echoTask) { v.handoff.HandOff(); panic("as the test wants") },
		"goexit when overtaken": func(v *echoTask) { v.handoff.HandOff(); runtime.Goexit() },
		"goexit after a while":  func(v *echoTask) { time.Sleep(5 * time.Millisecond); runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			came := make(chan struct{})
			h := &taskHost{run: func(v *echoTask) {
				if v.given[0] == '!' {
					close(came)
					fail(v)
				}
			}}
			s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
				client: func(nc net.Conn) net.Conn { return nc }}
			ln := s.listen(t, start(t, myriad.Config{Loops: 1, Logger: quiet}), h)
			bad, good := s.dial(t, ln), s.dial(t, ln)
			for i := range 10 {
				msg := fmt.Appendf(nil, "message %d", i)
				send(t, good, msg)
				expect(t, good, msg)
				if i == 4 {
					send(t, bad, []byte("!"))
				}
			}
			await(t, "the task that fails", came) // with that byte alone
			if name == "goexit" {                 // it was no panic: the conn goes on
				send(t, bad, []byte("more"))
				expect(t, bad, []byte("more"))
			}
		})
	}
}

// A conn whose tasks follow one another lets the loop do other things in between.
func TestTasksOfOneConnTakeTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		most  int64
	}{
		"quick":  {0, 16},
		"slower": {30 * time.Microsecond, 4},
		"slow":   {300 * time.Microsecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if n := runsBeforeWork(t, tc.takes, tc.most); n > tc.most {
				t.Errorf("what the loop was asked by the first task was done after %d", n)
			}
		})
	}
}

// runsBeforeWork runs 600 tasks of one conn in a row. The first gives the loop a function, and the
// result is how many tasks that function waits for.
func runsBeforeWork(t *testing.T, takes time.Duration, most int64) int64 {
	const sent = 60_000
	e := start(t, myriad.Config{Loops: 1})
	asked := make(chan int64, 1)
	h := &taskHost{}
	h.run = func(v *echoTask) {
		if h.runs.Load() == 1 {
			_ = v.c.Loop().Do(func() { asked <- h.runs.Load() })
		}
		for began := time.Now(); time.Since(began) < takes; {
		}
	}
	s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
		client: func(nc net.Conn) net.Conn { return nc }}
	nc := s.dial(t, s.listen(t, e, h))
	eventually(t, "it is in", func() bool { return e.Stats().Conns == 1 })
	written := make(chan struct{})
	if err := e.Loops()[0].Do(func() { <-written }); err != nil {
		t.Fatal(err)
	}
	send(t, nc, pattern(sent))
	close(written)
	expect(t, nc, pattern(sent))
	n := await(t, "the function", asked)
	if n > most && e.Stats().Overstays > 0 { // the monitor gave the loop to another goroutine, which counts anew
		t.Logf("%d, but the loop changed its goroutine: again", n)
		return runsBeforeWork(t, takes, most)
	}
	return n
}

// In simulated worlds tasks are held up by seed, block, and hand the loop off, while peers send,
// reset and leave.
func TestSimulatedTasks(t *testing.T) {
	var overtaken, lost, runs int64
	for seed := range seeds(t) {
		h := simulateTasks(t, seed, sim.Options{Overstay: 0.2})
		overtaken, lost, runs = overtaken+h.overtaken.Load(), lost+h.lost.Load(), runs+h.runs.Load()
		if t.Failed() {
			return
		}
	}
	if overtaken != lost || overtaken == 0 || overtaken == runs {
		t.Errorf("%d runs, %d times overtaken, %d times lost: too simple a world", runs, overtaken, lost)
	}
}

func simulateTasks(t *testing.T, seed uint64, o sim.Options) *taskHost {
	s := simulate(t, seed, o, myriad.Config{LingerTimeout: time.Minute})
	r := rand.New(rand.NewPCG(seed, 2))
	h := &taskHost{run: func(v *echoTask) {
		switch r.IntN(8) {
		case 0:
			v.handoff.HandOff()
			s.Linger()
		case 1:
			s.Linger()
			v.c.Write(nil)
		case 2:
			runtime.Gosched()
		}
	}}
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	type client struct {
		*sim.Peer
		msg []byte
	}
	var clients []client
	for i := range 5 {
		c := client{s.Dial(ln.Addr()), pattern(1 + int(seed*37)%900 + 200*i)}
		half := len(c.msg) / 2
		c.Write(c.msg[:half])
		c.OnOpen = func() { c.Write(c.msg[half:]); c.CloseWrite() }
		clients = append(clients, c)
	}
	s.Run()
	for i, c := range clients {
		if got := c.Received(); string(got) != string(c.msg) && !c.Faulted() {
			t.Errorf("seed %d: peer %d: %d of %d bytes, %v", seed, i, len(got), len(c.msg), c.Err())
		}
	}
	s.finish()
	return h
}

func TestSimulatedTasksRepeat(t *testing.T) {
	hash := func(seed uint64) uint64 {
		s := simulate(t, seed, sim.Options{Overstay: 0.3}, myriad.Config{})
		h := &taskHost{}
		ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			p := s.Dial(ln.Addr())
			p.Write(pattern(1000))
			p.CloseWrite()
		}
		s.Run()
		return s.finish()
	}
	for seed := range uint64(20) {
		if a, b := hash(seed), hash(seed); a != b {
			t.Fatalf("seed %d gave two traces: %x and %x", seed, a, b)
		}
	}
}

// A driver that is bound to its thread keeps its loop, and HandOff says so.
func TestTaskOnBoundThread(t *testing.T) {
	refused := 0
	s := simulate(t, 1, sim.Options{ThreadBound: true, Overstay: 0.5}, myriad.Config{})
	h := &taskHost{run: func(v *echoTask) {
		if !v.handoff.HandOff() && !s.e.HandOff() {
			refused++
		}
	}}
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Dial(ln.Addr())
	p.Write(pattern(500))
	p.CloseWrite()
	s.Run()
	if h.runs.Load() == 0 || int64(refused) != h.runs.Load() || h.overtaken.Load() > 0 {
		t.Errorf("%d runs, %d refused, %d overtaken", h.runs.Load(), refused, h.overtaken.Load())
	}
	s.finish()
}

// Tasks that are still there when the engine ends do not touch it, and are not waited for.
func TestEngineEndsWithTasks(t *testing.T) {
	t.Parallel()
	release, inside := make(chan struct{}), make(chan struct{}, 1)
	h := &taskHost{run: func(*echoTask) { inside <- struct{}{}; <-release }}
	e, err := myriad.Start(myriad.Config{Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h },
		client: func(nc net.Conn) net.Conn { return nc }}
	ln := s.listen(t, e, h)
	send(t, s.dial(t, ln), []byte("x"))
	await(t, "the task", inside)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	close(release)
	eventually(t, "the task has returned", func() bool { return h.lost.Load() == 1 })
}

// A task notifies another conn, whose handler then adds a task, too: it runs although nothing else
// happens.
func TestTaskOfNotifiedConn(t *testing.T) {
	e := start(t, myriad.Config{Loops: 1})
	p := &pair{came: make(chan *myriad.Conn, 2), left: make(chan struct{})}
	ln, err := e.Listen("tcp", "127.0.0.1:0", p)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	p.first.Store(await(t, "Opened", p.came))
	p.second.Store(await(t, "Opened", p.came))
	for range 100 {
		p.first.Load().Notify()
		await(t, "the task of the second conn", p.left)
	}
}

// A pair is the handler of two conns. Each runs a task when it is notified; that of the first
// notifies the second.
type pair struct {
	first, second atomic.Pointer[myriad.Conn]
	came          chan *myriad.Conn
	left          chan struct{}
}

func (p *pair) Opened(c *myriad.Conn)         { p.came <- c }
func (p *pair) Received(*myriad.Conn, []byte) {}
func (p *pair) Closed(*myriad.Conn, error)    {}

func (p *pair) Notified(c *myriad.Conn) {
	if c == p.first.Load() {
		c.RunInline(errand(p.second.Load().Notify))
		return
	}
	c.RunInline(errand(func() { p.left <- struct{}{} }))
}

// An errand is a task that makes it.
type errand func()

func (f errand) Run(myriad.Handoff) { f() }
func (errand) Overtaken(bool)       {}
func (errand) Returned(bool)        {}

// What a task has written is sent soon, however many others run in the same poll cycle: after so
// many of them, and after so much time.
func TestTasksAreSentInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		most  int64 // runs that the first answer waits for
	}{
		"quick":  {0, 32},
		"slower": {300 * time.Microsecond, 8},
	} {
		t.Run(name, func(t *testing.T) {
			var first atomic.Pointer[myriad.Conn]
			var runs, overtaken atomic.Int64
			crowd(t, 200, &crowded{overtaken: &overtaken, run: func(c *myriad.Conn) {
				n := runs.Add(1)
				if n == 1 {
					first.Store(c)
				}
				for began := time.Now(); time.Since(began) < tc.takes; {
				}
				// With the std driver a goroutine of its own sends. The driver uring reports what
				// has left in the next poll. A task that was overtaken writes when it likes.
				name := c.Loop().Engine().System().Name()
				waits := overtaken.Load() == 0 && name != "std" && name != "uring" && first.Load().Queued() > 0
				if n > tc.most && waits {
					t.Errorf("task %d: the answer of the first still waits", n)
				}
				c.Write([]byte("a"))
			}})
		})
	}
}

// A callback that ends the loop's goroutine while answers leave costs no other conn its answer.
func TestTasksAreSentDespiteGoexit(t *testing.T) {
	var runs, overtaken atomic.Int64
	crowd(t, 10, &crowded{lost: 1, overtaken: &overtaken, run: func(c *myriad.Conn) {
		if runs.Add(1) == 3 {
			c.Notify()
		}
		c.Write([]byte("a"))
	}})
}

// crowd runs a task of each of n conns in one poll cycle, as far as that can be had, and waits for
// their answers.
func crowd(t *testing.T, n int, h *crowded) {
	e := start(t, myriad.Config{Loops: 1, Logger: quiet})
	ln, err := e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	var clients []net.Conn
	for range n {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		clients = append(clients, nc)
	}
	eventually(t, "all are in", func() bool { return e.Stats().Conns == n })
	sent := make(chan struct{})
	if err := e.Loops()[0].Do(func() { <-sent }); err != nil {
		t.Fatal(err)
	}
	for _, nc := range clients {
		send(t, nc, []byte("q"))
	}
	close(sent)
	lost := 0
	for _, nc := range clients {
		nc.SetReadDeadline(time.Now().Add(patience))
		if _, err := nc.Read(make([]byte, 1)); err != nil {
			lost++
		}
	}
	if lost > h.lost {
		t.Errorf("%d of %d have no answer", lost, n)
	}
}

// crowded is a handler whose conns have tasks, and which ends its goroutine when it is notified.
type crowded struct {
	run       func(c *myriad.Conn)
	overtaken *atomic.Int64
	lost      int // conns that need not be answered
}

func (*crowded) Opened(*myriad.Conn)                 {}
func (h *crowded) Received(c *myriad.Conn, _ []byte) { c.RunInline(oneOf{h, c}) }
func (*crowded) Notified(*myriad.Conn)               { runtime.Goexit() }
func (*crowded) Closed(*myriad.Conn, error)          {}

// oneOf is the task of one of the crowd.
type oneOf struct {
	h *crowded
	c *myriad.Conn
}

func (g oneOf) Run(myriad.Handoff) { g.h.run(g.c) }
func (g oneOf) Overtaken(bool)     { g.h.overtaken.Add(1) }
func (oneOf) Returned(bool)        {}
