package sim_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// detached takes the rig's connection out of its driver as a net.Conn.
func (r *rig) detached() net.Conn {
	r.t.Helper()
	if err := r.d.Detach(r.id); err != nil {
		r.t.Fatal(err)
	}
	k := &connKeeper{}
	for k.nc == nil && k.err == nil {
		if _, err := r.d.Poll(time.Second, k); err != nil {
			r.t.Fatal(err)
		}
	}
	if k.err != nil {
		r.t.Fatal(k.err)
	}
	return k.nc
}

// A connKeeper makes a net.Conn where the engine does: in Detached.
type connKeeper struct {
	driver.Events
	nc  net.Conn
	err error
}

func (k *connKeeper) Detached(_ driver.ID, s driver.Socket) { k.nc, k.err = s.Conn() }

func TestConnBlocksInFakeTime(t *testing.T) {
	r := newRig(t, sim.Calm())
	nc := r.detached()
	begin := r.w.Now()
	if err := nc.SetReadDeadline(begin.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read: %v", err)
	}
	if passed := r.w.Now().Sub(begin); passed < time.Hour || passed > time.Hour+time.Second {
		t.Errorf("a deadline of an hour took %v", passed)
	}
	if err := nc.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	r.w.Go(func() { r.p.Write([]byte("at last")) })
	b := make([]byte, 100)
	if n, err := nc.Read(b); err != nil || string(b[:n]) != "at last" {
		t.Errorf("Read: %q, %v", b[:n], err)
	}
	if err := nc.Close(); err != nil {
		t.Error(err)
	}
	if _, err := nc.Read(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read after Close: %v", err)
	}
	if err := nc.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Close after Close: %v", err)
	}
	r.done()
}

func TestConnWriteWaitsForRoom(t *testing.T) {
	r := newRig(t, sim.Calm())
	nc := r.detached()
	want := pattern(1<<20, 1)
	r.p.StopReading()
	if err := nc.SetWriteDeadline(r.w.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := nc.Write(want)
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n >= len(want) {
		t.Errorf("Write to a peer that does not read: %d, %v", n, err)
	}
	r.p.Resume()
	if err := nc.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	done := false
	r.w.Go(func() {
		if _, err := nc.Write(want[n:]); err != nil {
			t.Errorf("Write: %v", err)
		}
		if err := nc.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Errorf("CloseWrite: %v", err)
		}
		if _, err := nc.Write(want[:1]); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write after CloseWrite: %v", err)
		}
		done = true
	})
	r.w.Run()
	if !done || !slices.Equal(r.p.Received(), want) || !r.p.Ended() {
		t.Errorf("done %v, %d of %d bytes, ended %v", done, r.p.Count(), len(want), r.p.Ended())
	}
	r.p.Reset()
	r.w.Run()
	if _, err := io.ReadAll(nc); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read after a reset: %v", err)
	}
	nc.Close()
	r.done()
}

func TestCheckReportsOpenConn(t *testing.T) {
	r := newRig(t, sim.Calm())
	nc := r.detached()
	var rep reports
	r.w.Check(&rep)
	mustSay(t, strings.Join(rep, "\n"), "net.Conn socket")
	nc.Close()
	r.done()
}

func TestPeerScript(t *testing.T) {
	w := sim.New(4, sim.Calm())
	l, stop := serveEcho(t, w)
	var story []string
	p := w.Dial(l.Addr())
	p.OnOpen = func() { story = append(story, "open"); p.Write([]byte("ping")) }
	p.OnReceived = func(b []byte) {
		story = append(story, string(b))
		p.CloseWrite()
		p.Write([]byte("ignored"))
	}
	p.OnEnded = func() { story = append(story, "ended") }
	p.OnClosed = func(err error) { story = append(story, "closed") }
	if p.Open() || p.Closed() {
		t.Error("a peer is open before the first step")
	}
	w.Run()
	if got := strings.Join(story, " "); got != "open ping ended closed" {
		t.Errorf("the peer's story: %s", got)
	}
	if string(p.TakeReceived()) != "ping" || p.Count() != 0 {
		t.Error("TakeReceived")
	}
	stop()
	w.Check(t)
}

func TestPeerCloseWithUnreadBytesResets(t *testing.T) {
	r := newRig(t, sim.Calm())
	r.p.StopReading()
	r.send([]byte("never read"))
	r.w.Settle()
	r.p.Close()
	events := []string{}
	r.on = func(event string, _ driver.ID) { events = append(events, event) }
	r.poll(func() bool { return len(events) > 0 })
	if events[0] != "Closed" {
		t.Errorf("the driver was told %v, want the reset", events)
	}
	r.done()
}

func TestPeersThatAccept(t *testing.T) {
	w := sim.New(4, sim.Calm())
	var accepted *sim.Peer
	l, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) {
		accepted = p
		p.OnReceived = func(b []byte) { p.Write(append([]byte("you said "), b...)); p.Close() }
	})
	if err != nil {
		t.Fatal(err)
	}
	p := w.Dial(l.Addr())
	p.Write([]byte("hello"))
	w.Run()
	if string(p.Received()) != "you said hello" || !p.Ended() || p.Local() != accepted.Remote() ||
		p.Remote() != accepted.Local() {
		t.Errorf("received %q, ended %v, %v to %v", p.Received(), p.Ended(), p.Local(), p.Remote())
	}
	p.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	refused := w.Dial(l.Addr())
	var why error
	refused.OnClosed = func(err error) { why = err }
	w.Run()
	if !errors.Is(why, syscall.ECONNREFUSED) || refused.Open() || refused.Faulted() {
		t.Errorf("dial of nobody: %v", why)
	}
	w.Check(t)
}

func TestBacklogIsBounded(t *testing.T) {
	o := sim.Calm()
	o.Backlog = 3
	w := sim.New(4, o)
	l, err := w.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var peers []*sim.Peer
	for range 5 {
		peers = append(peers, w.Dial(l.Addr()))
		w.RunFor(time.Millisecond)
	}
	w.Run()
	for i, p := range peers {
		if timedOut := errors.Is(p.Err(), syscall.ETIMEDOUT); timedOut != (i >= 3) {
			t.Errorf("peer %d of a backlog of 3: open %v, %v", i, p.Open(), p.Err())
		}
	}
	l.Refuse()
	w.Run()
	if peers[0].Err() == nil {
		t.Error("Refuse left a peer in the backlog")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	w.Check(t)
}

// TestBacklogIsBoundedForManyAtOnce dials before any of them has come to the backlog.
func TestBacklogIsBoundedForManyAtOnce(t *testing.T) {
	o := sim.Calm()
	o.Backlog = 3
	w := sim.New(4, o)
	l, err := w.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var peers []*sim.Peer
	for range 20 {
		peers = append(peers, w.Dial(l.Addr()))
	}
	w.Run()
	connected := 0
	for _, p := range peers {
		if !errors.Is(p.Err(), syscall.ETIMEDOUT) {
			connected++
		}
	}
	if connected != 3 {
		t.Errorf("a backlog of 3 has %d connections", connected)
	}
	l.Refuse()
	w.Run()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	w.Check(t)
}

func TestAddresses(t *testing.T) {
	w := sim.New(4, sim.Calm())
	ctx := context.Background()
	l, err := w.Listen(ctx, "tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Listen(ctx, "tcp", ":8080"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	for _, addr := range []string{"127.0.0.1:8080", "localhost:8080", "[::1]:8080", "10.1.2.3:8080"} {
		addrs, err := w.Resolve(ctx, "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		p := w.Dial(addrs[0])
		w.Run()
		if !p.Open() || p.Remote() != driver.AddrOf(addrs[0]) {
			t.Errorf("%s: open %v, remote %v", addr, p.Open(), p.Remote())
		}
	}
	for _, bad := range []string{"example.org:80", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"} {
		if addrs, err := w.Resolve(ctx, "tcp", bad); err == nil {
			t.Errorf("Resolve(%q) = %v", bad, addrs)
		}
	}
	if _, err := l.File(); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("File: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestSlotsAreBounded(t *testing.T) {
	o := sim.Calm()
	o.MaxConns = 2
	r := newRig(t, o) // the listener and one connection
	if _, err := r.d.Dial(r.l.Addr()); !errors.Is(err, driver.ErrFull) {
		t.Errorf("a third slot of two: %v", err)
	}
	r.done()
}

func TestDetachUnsupported(t *testing.T) {
	o := sim.Calm()
	o.NoDetach, o.ThreadBound = true, true
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := newRig(t, o)
	if err := r.d.Detach(r.id); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Detach: %v", err)
	}
	if !r.d.Capabilities().ThreadBound {
		t.Error("not bound to a thread")
	}
	r.done()
}

// A dial to a silent listener waits, connects when the silence has ended, and fails after 75 s.
func TestSilentListener(t *testing.T) {
	w := sim.New(1, sim.Calm())
	accepted := 0
	ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) { accepted++; p.Close() })
	if err != nil {
		t.Fatal(err)
	}
	ln.Silence(true)
	p, given := w.Dial(ln.Addr()), w.Dial(ln.Addr())
	w.RunFor(10 * time.Second)
	if given.Close(); w.Dials(ln.Addr()) != 1 || p.Open() || p.Closed() {
		t.Errorf("%d dials, open %v, closed %v", w.Dials(ln.Addr()), p.Open(), p.Closed())
	}
	ln.Silence(false)
	w.RunFor(2 * time.Second)
	if !p.Open() || accepted != 1 || w.Dials(ln.Addr()) != 0 {
		t.Errorf("open %v, %d accepted, %d dials", p.Open(), accepted, w.Dials(ln.Addr()))
	}
	p.Close()
	ln.Silence(true)
	p = w.Dial(ln.Addr())
	w.RunFor(time.Minute)
	if p.Closed() {
		t.Errorf("closed after a minute: %v", p.Err())
	}
	w.RunFor(time.Minute)
	if !errors.Is(p.Err(), syscall.ETIMEDOUT) {
		t.Errorf("closed %v: %v", p.Closed(), p.Err())
	}
	w.Run()
	w.Check(t)
}
