package mux

import (
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// An incomplete frame takes memory as it comes, not as its header says.
func TestIncompleteFramesTakeWhatHasCome(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.write(headers(1, getBlock, false), h2.AppendHeader(nil, 1<<14, h2.Data, 0, 1))
	r.settle()
	if n := r.conn.act.partial.Free(); n > 1<<10 {
		t.Errorf("room for %d bytes", n)
	}
	r.write([]byte(strings.Repeat("x", 1<<14)))
	r.settle()
	if n := r.conn.streams[1].in.State().Unread; n != 1<<14 {
		t.Errorf("%d bytes have come", n)
	}
}

// A peer that does not read cannot hold a connection that is to end: the last output waits as long
// as some of it leaves.
func TestPeerThatDoesNotReadDoesNotHoldTheEnd(t *testing.T) {
	r := newRig(t, Config{Ahead: 1 << 10})
	r.greet()
	r.peer.StopReading()
	for range 200 {
		for range 20 {
			r.write(h2.AppendPing(nil, [8]byte{}, false))
		}
		r.settle()
	}
	if len(r.conn.act.control) == 0 {
		t.Fatal("no output waits")
	}
	r.onLoop(r.conn.Shutdown)
	r.RunFor(drainTimeout + lastTimeout/2)
	if r.conn.Conn.c.Queued() == 0 || r.conn.gone {
		t.Error("the connection has ended before its time")
	}
	r.RunFor(lastTimeout + 2*time.Minute)
	if !r.conn.gone {
		t.Error("the connection is open")
	}
	if n := r.cfg.Counters; n.Paused.Load() == 0 || n.Stalled.Load() != 1 {
		t.Errorf("%d pauses and %d stalls are counted", n.Paused.Load(), n.Stalled.Load())
	}
}

// The strings of a request are not kept by its connection.
func TestStringsOfARequestAreLetGo(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.write(headers(1, get("x", strings.Repeat("v", 10000)), false))
	r.settle()
	a := r.conn.act
	for _, f := range a.fields[:cap(a.fields)] {
		if f.Name != "" || f.Value != "" {
			t.Errorf("a field %q is kept", f.Name)
		}
	}
	if a.head.Path != "" || a.head.Fields != nil {
		t.Errorf("a head is kept: %+v", a.head)
	}
}

// What still asks for something behind the end of its connection is not kept by that.
func TestStreamsAreLetGoBehindTheEnd(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.write(headers(1, getBlock, false))
	r.settle()
	s := r.conn.streams[1]
	r.peer.Reset()
	r.settle()
	if !r.conn.gone || s.err == nil {
		t.Fatalf("gone %v, the stream's error is %v", r.conn.gone, s.err)
	}
	s.Notify()
	s.Cancel(h2.Cancel)
	s.Release()
	if r.conn.asks.last != nil {
		t.Error("the connection keeps the stream")
	}
}

// A failureOwner is a testConn that is told of failures, too.
type failureOwner struct{ *testConn }

func (h failureOwner) Failed() { h.r.note("Failed was called") }
