package myriad_test

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

// host is a handler whose answers are written by guests: one at a time for a conn, as many as there were bytes.
type host struct {
	visit  func(v *visitor)
	loses  func() // on Taken; nil: nothing
	visits atomic.Int64
	taken  atomic.Int64
	stayed atomic.Int64 // of these: overstayed
	lost   atomic.Int64
	conns  chan *myriad.Conn
}

// visitor is one conn's handler and guest. It echoes what it was given before its visit.
type visitor struct {
	host    *host
	c       *myriad.Conn
	lease   myriad.Lease
	pending []byte // the loop's
	given   []byte // the guest's, during a visit
	busy    bool   // the loop's
	done    atomic.Bool
	ended   bool
}

func (h *host) Opened(c *myriad.Conn) {
	if h.conns != nil {
		h.conns <- c
	}
	c.SetHandler(&visitor{host: h, c: c}, nil)
}
func (h *host) Received(*myriad.Conn, []byte) {}
func (h *host) Closed(*myriad.Conn, error)    {}

func (v *visitor) Opened(*myriad.Conn) {}

func (v *visitor) Received(_ *myriad.Conn, p []byte) {
	v.pending = append(v.pending, p...)
	v.invite()
}

func (v *visitor) invite() {
	switch {
	case v.busy:
	case len(v.pending) > 0:
		n := min(len(v.pending), 100)
		v.given = append([]byte(nil), v.pending[:n]...)
		v.pending = v.pending[n:]
		v.busy = true
		v.c.Invite(v)
	case v.ended:
		v.c.Close()
	}
}

func (v *visitor) Visit(l myriad.Lease) {
	v.host.visits.Add(1)
	v.lease = l
	if v.host.visit != nil {
		v.host.visit(v)
	}
	v.c.Write(v.given)
}

func (v *visitor) Taken(overstayed bool) {
	v.host.taken.Add(1)
	if overstayed {
		v.host.stayed.Add(1)
	}
	if v.host.loses != nil {
		v.host.loses()
	}
}

func (v *visitor) Left(kept bool) {
	if !kept {
		v.host.lost.Add(1)
		v.done.Store(true)
		v.c.Notify()
		return
	}
	v.busy = false
	v.invite()
}

func (v *visitor) Notified(*myriad.Conn) {
	if v.done.Swap(false) {
		v.busy = false
		v.invite()
	}
}

func (v *visitor) Ended(*myriad.Conn) {
	v.ended = true
	v.invite()
}

func (v *visitor) Closed(*myriad.Conn, error) { v.busy = true }

// A guest that blocks for good is taken over: its neighbours are answered, and it ends as any goroutine would.
func TestTakeover(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	h := &host{visit: func(v *visitor) {
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
	await(t, "the guest", inside)
	for i := range 100 {
		msg := fmt.Appendf(nil, "message %d", i)
		send(t, quick, msg)
		expect(t, quick, msg)
	}
	close(release)
	expect(t, slow, []byte("!"))
	send(t, slow, []byte("again"))
	expect(t, slow, []byte("again"))
	eventually(t, "the takeover is counted, and those of guests that the machine has held up", func() bool {
		st, n := e.Stats(), h.taken.Load()
		return n > 0 && h.lost.Load() == n && st.Takeovers == uint64(n) && st.HandOvers == 0
	})
}

// HandOver makes a blocking call legal at once: here the guest waits for its own loop.
func TestHandOver(t *testing.T) {
	var e *myriad.Engine
	h := &host{visit: func(v *visitor) {
		first := v.lease.HandOver()
		if again := v.lease.HandOver(); !first || !again {
			t.Errorf("HandOver: %v, and again: %v", first, again)
		}
		done := make(chan struct{})
		if err := v.c.Loop().Do(func() { close(done) }); err != nil {
			t.Error(err)
		}
		<-done
	}}
	s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h }, client: func(nc net.Conn) net.Conn { return nc }}
	e = start(t, myriad.Config{Loops: 1})
	nc := s.dial(t, s.listen(t, e, h))
	for range 50 {
		send(t, nc, []byte("message"))
		expect(t, nc, []byte("message"))
	}
	eventually(t, "the hand-overs are counted, and the guests that the machine has held up before", func() bool {
		st, late := e.Stats(), uint64(h.stayed.Load())
		return st.HandOvers+late == 50 && st.Takeovers == late
	})
}

// Engine.HandOver finds the lease of the guest that calls it, and nobody else's. In fake time nobody else takes the loop over.
func TestEngineHandOver(t *testing.T) {
	s := simulate(t, 1, sim.Calm(), myriad.Config{Loops: 2})
	other, err := myriad.Start(myriad.Config{Loops: 1, System: s.World})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{visit: func(v *visitor) {
		if !other.HandOver() || !v.lease.Held() {
			t.Error("an engine that the guest is not on has taken its loop over, or refused to")
		}
		w := s.NewParker()
		s.Go(func() {
			if !s.e.HandOver() || !v.lease.Held() {
				t.Error("a goroutine that is no guest has handed a loop over, or may not wait")
			}
			w.Unpark()
		})
		w.Park()
		if !s.e.HandOver() || v.lease.Held() {
			t.Error("the loop was not handed over")
		}
		if err := v.c.Loop().Do(func() {
			if s.e.HandOver() || other.HandOver() {
				t.Error("a callback of a loop may wait")
			}
			w.Unpark()
		}); err != nil {
			t.Error(err)
		}
		w.Park() // until the loop, which goes on, has called that
		if !s.e.HandOver() {
			t.Error("HandOver is refused the second time")
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
	if n := h.visits.Load(); n < 40 || h.taken.Load() != n || s.e.Stats().HandOvers != uint64(n) {
		t.Errorf("%d visits, %d taken over, %d handed over", n, h.taken.Load(), s.e.Stats().HandOvers)
	}
	if err := other.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	s.finish()
}

// Panics and Goexit in a guest cost neither the loop nor its other conns.
func TestGuestFails(t *testing.T) {
	for name, fail := range map[string]func(v *visitor){
		"panic":                func(*visitor) { panic("as the test wants") },
		"goexit":               func(*visitor) { runtime.Goexit() },
		"panic when taken":     func(v *visitor) { v.lease.HandOver(); panic("as the test wants") },
		"goexit when taken":    func(v *visitor) { v.lease.HandOver(); runtime.Goexit() },
		"goexit after a while": func(v *visitor) { time.Sleep(5 * time.Millisecond); runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			came := make(chan struct{})
			h := &host{visit: func(v *visitor) {
				if v.given[0] == '!' {
					close(came)
					fail(v)
				}
			}}
			s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h }, client: func(nc net.Conn) net.Conn { return nc }}
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
			await(t, "the guest that fails", came) // with that byte alone
			if name == "goexit" {                  // it was no panic: the conn goes on
				send(t, bad, []byte("more"))
				expect(t, bad, []byte("more"))
			}
		})
	}
}

// A conn whose guests follow one another lets the loop do other things in between.
func TestGuestsOfOneConnTakeTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		most  int64
	}{
		"quick":  {0, 16},
		"slower": {30 * time.Microsecond, 4},
		"slow":   {300 * time.Microsecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if n := visitsBeforeWork(t, tc.takes); n > tc.most {
				t.Errorf("what the loop was asked in the first visit was done after %d", n)
			}
		})
	}
}

// visitsBeforeWork has one conn visited 600 times in a row, and returns how many of these a function waits for that the loop is given in the first.
func visitsBeforeWork(t *testing.T, takes time.Duration) int64 {
	const sent = 60_000
	e := start(t, myriad.Config{Loops: 1})
	asked := make(chan int64, 1)
	h := &host{}
	h.visit = func(v *visitor) {
		if h.visits.Load() == 1 {
			_ = v.c.Loop().Do(func() { asked <- h.visits.Load() })
		}
		for began := time.Now(); time.Since(began) < takes; {
		}
	}
	s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h }, client: func(nc net.Conn) net.Conn { return nc }}
	nc := s.dial(t, s.listen(t, e, h))
	eventually(t, "it is in", func() bool { return e.Stats().Conns == 1 })
	written := make(chan struct{})
	if err := e.Loops()[0].Do(func() { <-written }); err != nil {
		t.Fatal(err)
	}
	send(t, nc, pattern(sent))
	close(written)
	expect(t, nc, pattern(sent))
	return await(t, "the function", asked)
}

// In simulated worlds guests are held up by seed, block, and hand over, while peers send, reset and leave.
func TestSimulatedGuests(t *testing.T) {
	var taken, lost, visits int64
	for seed := range seeds(t) {
		h := simulateGuests(t, seed, sim.Options{Overstay: 0.2})
		taken, lost, visits = taken+h.taken.Load(), lost+h.lost.Load(), visits+h.visits.Load()
		if t.Failed() {
			return
		}
	}
	if taken != lost || taken == 0 || taken == visits {
		t.Errorf("%d visits, %d times taken, %d times lost: too simple a world", visits, taken, lost)
	}
}

func simulateGuests(t *testing.T, seed uint64, o sim.Options) *host {
	s := simulate(t, seed, o, myriad.Config{LingerTimeout: time.Minute})
	r := rand.New(rand.NewPCG(seed, 2))
	h := &host{visit: func(v *visitor) {
		switch r.IntN(8) {
		case 0:
			v.lease.HandOver()
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

func TestSimulatedGuestsRepeat(t *testing.T) {
	hash := func(seed uint64) uint64 {
		s := simulate(t, seed, sim.Options{Overstay: 0.3}, myriad.Config{})
		h := &host{}
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

// A driver that is bound to its thread keeps its loop, and HandOver says so.
func TestGuestOnBoundThread(t *testing.T) {
	refused := 0
	s := simulate(t, 1, sim.Options{ThreadBound: true, Overstay: 0.5}, myriad.Config{})
	h := &host{visit: func(v *visitor) {
		if !v.lease.HandOver() && !s.e.HandOver() {
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
	if h.visits.Load() == 0 || int64(refused) != h.visits.Load() || h.taken.Load() > 0 {
		t.Errorf("%d visits, %d refused, %d taken over", h.visits.Load(), refused, h.taken.Load())
	}
	s.finish()
}

// Guests that are still there when the engine ends do not touch it, and are not waited for.
func TestEngineEndsWithGuests(t *testing.T) {
	release, inside := make(chan struct{}), make(chan struct{}, 1)
	h := &host{visit: func(*visitor) { inside <- struct{}{}; <-release }}
	e, err := myriad.Start(myriad.Config{Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := setting{wrap: func(h myriad.Handler) myriad.Handler { return h }, client: func(nc net.Conn) net.Conn { return nc }}
	ln := s.listen(t, e, h)
	send(t, s.dial(t, ln), []byte("x"))
	await(t, "the guest", inside)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	close(release)
	eventually(t, "the guest has left", func() bool { return h.lost.Load() == 1 })
}

// A guest's visit notifies another conn, whose handler then invites a guest, too: that one comes though nothing else happens.
func TestGuestInvitedByNotifiedConn(t *testing.T) {
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
		await(t, "the guest of the second conn", p.left)
	}
}

// A pair is the handler of two conns. Each invites a guest when it is notified; that of the first notifies the second.
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
		c.Invite(errand(p.second.Load().Notify))
		return
	}
	c.Invite(errand(func() { p.left <- struct{}{} }))
}

// An errand is a guest that makes it.
type errand func()

func (f errand) Visit(myriad.Lease) { f() }
func (errand) Taken(bool)           {}
func (errand) Left(bool)            {}

// What a guest has written leaves soon, however many others visit in the same turn: after so many of them, and after so much time.
func TestGuestsLeaveInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		most  int64 // visits that the first answer waits for
	}{
		"quick":  {0, 32},
		"slower": {300 * time.Microsecond, 8},
	} {
		t.Run(name, func(t *testing.T) {
			var first atomic.Pointer[myriad.Conn]
			var visits, taken atomic.Int64
			crowd(t, 200, &crowded{taken: &taken, visit: func(c *myriad.Conn) {
				n := visits.Add(1)
				if n == 1 {
					first.Store(c)
				}
				for began := time.Now(); time.Since(began) < tc.takes; {
				}
				// With the std driver a goroutine of its own sends; and one whose visit was taken over writes, and is the first, when it likes.
				waits := taken.Load() == 0 && c.Loop().Engine().System().Name() != "std" && first.Load().Queued() > 0
				if n > tc.most && waits {
					t.Errorf("visit %d: the answer of the first still waits", n)
				}
				c.Write([]byte("a"))
			}})
		})
	}
}

// A callback that ends the loop's goroutine while answers leave costs nobody else his.
func TestGuestsLeaveDespiteGoexit(t *testing.T) {
	var visits, taken atomic.Int64
	crowd(t, 10, &crowded{lost: 1, taken: &taken, visit: func(c *myriad.Conn) {
		if visits.Add(1) == 3 {
			c.Notify()
		}
		c.Write([]byte("a"))
	}})
}

// crowd has n conns visited in one turn, as far as that can be had, and waits for their answers.
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

// crowded is a handler whose conns are visited, and which ends its goroutine when it is notified.
type crowded struct {
	visit func(c *myriad.Conn)
	taken *atomic.Int64
	lost  int // conns that need not be answered
}

func (*crowded) Opened(*myriad.Conn)                 {}
func (h *crowded) Received(c *myriad.Conn, _ []byte) { c.Invite(oneOf{h, c}) }
func (*crowded) Notified(*myriad.Conn)               { runtime.Goexit() }
func (*crowded) Closed(*myriad.Conn, error)          {}

// oneOf is the guest of one of the crowd.
type oneOf struct {
	h *crowded
	c *myriad.Conn
}

func (g oneOf) Visit(myriad.Lease) { g.h.visit(g.c) }
func (g oneOf) Taken(bool)         { g.h.taken.Add(1) }
func (oneOf) Left(bool)            {}
