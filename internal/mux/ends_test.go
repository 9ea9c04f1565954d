package mux

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// An incomplete frame does not keep a connection open that is to end.
func TestIncompleteFramesDoNotHoldTheEnd(t *testing.T) {
	for name, p := range map[string][]byte{
		"a frame's header":  h2.AppendHeader(nil, 100, 77, 0, 0),
		"a part of DATA":    append(h2.AppendHeader(nil, 100, h2.Data, 0, 1), "abc"...),
		"a part of HEADERS": append(h2.AppendHeader(nil, 100, h2.Headers, 0, 1), "abc"...),
		"HEADERS alone":     frame(h2.Headers, 0, 1, ""),
		"nothing":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.greet()
			r.write(p)
			r.settle()
			r.onLoop(r.conn.Shutdown)
			r.want("GOAWAY 2147483647 NO_ERROR")
			r.want("PING")
			r.RunFor(drainTimeout)
			r.want("GOAWAY 0 NO_ERROR")
			if !r.peer.Ended() {
				t.Error("the connection is open")
			}
		})
		t.Run(name+", and the peer's end", func(t *testing.T) {
			r := newRig(t, Config{})
			r.greet()
			r.write(p)
			r.settle()
			r.peer.CloseWrite()
			r.settle()
			if !r.peer.Ended() {
				t.Error("the connection is open")
			}
		})
	}
}

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

// A failureOwner is a testConn that is told of failures.
type failureOwner struct{ *testConn }

func (h failureOwner) Failed() { h.r.note("failed") }

// newFailureRig has a failureOwner, and one stream that is open.
func newFailureRig(t *testing.T) *rig {
	r := newRig(t, Config{})
	r.conn.owner = failureOwner{r.conn}
	r.greet()
	r.write(headers(1, getBlock, false))
	r.wantLog("1 head GET / last false")
	return r
}

// A FailureOwner is told once when its side ends the connection with an error. That is before the
// streams end, and before Gone, which may wait for the peer.
func TestFailureOwner(t *testing.T) {
	wrong := h2.AppendWindowUpdate(nil, 0, 0)
	for _, c := range []struct {
		name string
		fail func(r *rig)
		code h2.Code
	}{
		{"for what the peer does", func(r *rig) { r.write(wrong, wrong) }, h2.ProtocolError},
		{"by Abort", func(r *rig) {
			r.onLoop(func() { r.conn.Abort(h2.InternalError, "enough") })
			r.write(wrong)
		}, h2.InternalError},
		{"in Shutdown", func(r *rig) {
			r.onLoop(r.conn.Shutdown)
			r.write(wrong)
		}, h2.ProtocolError},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFailureRig(t)
			c.fail(r)
			r.wantLog("failed", "1 ended "+c.code.String()+", error true")
			if r.conn.gone {
				t.Error("Gone was called, although the peer has not closed")
			}
			r.peer.Close()
			r.wantLog()
			if !r.conn.gone {
				t.Error("Gone was not called, although the peer has closed")
			}
		})
	}
}

// A FailureOwner is not told of ends in order, and of those that the peer or the network brings.
func TestFailureOwnerIsNotToldOfOtherEnds(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"Shutdown": func(r *rig) {
			r.onLoop(r.conn.Shutdown)
			r.write(h2.AppendReset(nil, 1, h2.Cancel))
			r.settle()
			r.conn.streams[1].Release()
			r.RunFor(drainTimeout)
			r.peer.Close()
		},
		"the peer's GOAWAY and FIN": func(r *rig) {
			r.write(h2.AppendGoAway(nil, 0, h2.InternalError, "the peer's own"), h2.AppendReset(nil, 1, h2.Cancel))
			r.settle()
			r.conn.streams[1].Release()
			r.peer.Close()
		},
		"a reset": func(r *rig) { r.peer.Reset() },
		"the engine's Abort": func(r *rig) {
			r.onLoop(func() { r.conn.Conn.c.Abort(errLost) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFailureRig(t)
			end(r)
			r.settle()
			if !r.conn.gone || slices.Contains(r.log, "failed") {
				t.Errorf("gone %v; the owner got %q", r.conn.gone, r.log)
			}
		})
	}
}
