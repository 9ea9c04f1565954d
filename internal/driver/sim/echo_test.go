package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// echo is a loop that sends back what it receives, with back-pressure: a small engine.
type echo struct {
	d      driver.Driver
	conns  map[driver.ID]*echoConn
	stop   bool
	report func(format string, args ...any)
}

type echoConn struct {
	queued int64
	ended  bool
	paused bool
}

const echoLimit = 8 << 10

// serveEcho starts an echo loop as a goroutine of the world, and returns its address and how to
// stop it.
func serveEcho(t *testing.T, w *sim.World) (driver.Listener, func()) {
	t.Helper()
	l, err := w.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d, err := w.Open(1, driver.Options{ReadBuffer: 4096})
	if err != nil {
		t.Fatal(err)
	}
	s := &echo{d: d, conns: map[driver.ID]*echoConn{}, report: t.Errorf}
	done := w.NewParker()
	w.Go(func() {
		defer done.Unpark()
		s.loop(l)
	})
	return l, func() {
		t.Helper()
		s.stop = true
		d.Wake()
		done.Park()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (s *echo) loop(l driver.Listener) {
	id, err := s.d.Listen(l)
	if err != nil {
		s.report("listen: %v", err)
		return
	}
	for !s.stop {
		if _, err := s.d.Poll(-1, s); err != nil {
			s.report("poll: %v", err)
			return
		}
	}
	s.d.CloseListener(id)
	if err := s.d.Shutdown(); err != nil {
		s.report("shutdown: %v", err)
	}
}

func (s *echo) Accepted(_ driver.ID, sk driver.Socket) {
	id, err := s.d.Attach(sk)
	if err != nil {
		s.report("attach: %v", err)
		return
	}
	s.conns[id] = &echoConn{}
}

func (s *echo) AcceptFailed(id driver.ID, _ error)     { s.d.ResumeAccept(id) }
func (s *echo) Dialed(driver.ID, driver.Addr)          { s.report("unexpected Dialed") }
func (s *echo) DialFailed(driver.ID, error)            { s.report("unexpected DialFailed") }
func (s *echo) Detached(_ driver.ID, sk driver.Socket) { s.report("unexpected Detached"); sk.Close() }

func (s *echo) Received(id driver.ID, p []byte) {
	c := s.conns[id]
	var out buf.Chain
	out.Append(p)
	c.queued += s.d.Send(id, &out)
	if c.queued > echoLimit && !c.paused {
		c.paused = true
		s.d.Pause(id)
	}
}

func (s *echo) Sent(id driver.ID, n int64) {
	c := s.conns[id]
	c.queued -= n
	if c.paused && c.queued < echoLimit/2 {
		c.paused = false
		s.d.Resume(id)
	}
	s.closeIfDone(id)
}

func (s *echo) Ended(id driver.ID) {
	s.conns[id].ended = true
	s.closeIfDone(id)
}

func (s *echo) closeIfDone(id driver.ID) {
	if c := s.conns[id]; c.ended && c.queued == 0 {
		s.d.Close(id)
	}
}

func (s *echo) Closed(id driver.ID, _ error) { delete(s.conns, id) }

func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = seed + byte(i*7) + byte(i>>8)
	}
	return p
}

// runEcho lets some peers talk to an echo server and returns the hash of the run.
func runEcho(t *testing.T, seed uint64, o sim.Options, lossless bool) (uint64, string) {
	t.Helper()
	w := sim.New(seed, o)
	l, stop := serveEcho(t, w)
	var peers []*sim.Peer
	for i := range 5 {
		p := w.Dial(l.Addr())
		p.Write(pattern(1+i*i*700, byte(seed)))
		p.OnOpen = func() { p.Write(pattern(100, byte(i))); p.CloseWrite() }
		if i == 4 {
			p.StopReading()
		}
		peers = append(peers, p)
	}
	w.RunFor(time.Second)
	peers[4].Resume()
	w.Run()
	for i, p := range peers {
		want := append(pattern(1+i*i*700, byte(seed)), pattern(100, byte(i))...)
		got := p.Received()
		switch {
		case !bytes.HasPrefix(want, got):
			t.Errorf("seed %d: peer %d received %d bytes that are no prefix of what it sent", seed, i, len(got))
		case p.Faulted() && !lossless:
		case p.Faulted() || len(got) != len(want) || !p.Ended() || p.Err() != nil:
			t.Errorf("seed %d: peer %d: %d of %d bytes, ended %v, err %v, faulted %v",
				seed, i, len(got), len(want), p.Ended(), p.Err(), p.Faulted())
		}
	}
	stop()
	w.Run()
	w.Check(t)
	return w.Hash(), w.Trace()
}

func TestEchoLosesNoByte(t *testing.T) {
	for seed := range soak.Size[uint64](t, 40, 200) {
		runEcho(t, seed, sim.Lossless(), true)
		if t.Failed() {
			return
		}
	}
}

func TestEchoUnderResets(t *testing.T) {
	for seed := range soak.Size[uint64](t, 40, 200) {
		runEcho(t, seed, sim.Options{Reset: 0.5, Accept: 0.2, Dial: 0.2}, false)
		if t.Failed() {
			return
		}
	}
}

func TestSameSeedSameTrace(t *testing.T) {
	seen := map[uint64]uint64{}
	for seed := range uint64(50) {
		hash, trace := runEcho(t, seed, sim.Options{}, false)
		again, trace2 := runEcho(t, seed, sim.Options{}, false)
		if hash != again || trace != trace2 {
			t.Fatalf("seed %d: hash %x, then %x\n%s", seed, hash, again, firstDifference(trace, trace2))
		}
		if other, ok := seen[hash]; ok {
			t.Errorf("seeds %d and %d have the same trace", seed, other)
		}
		seen[hash] = seed
	}
}

func firstDifference(a, b string) string {
	r, s := bytes.NewBufferString(a), bytes.NewBufferString(b)
	for {
		x, err := r.ReadString('\n')
		y, err2 := s.ReadString('\n')
		if x != y {
			return fmt.Sprintf("first: %ssecond: %s", x, y)
		}
		if err == io.EOF || err2 == io.EOF {
			return "no difference in what is kept"
		}
	}
}
