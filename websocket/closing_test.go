package websocket

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// held is a server on a calm world with one open connection, which the test also has in its hand.
type held struct {
	*world
	conn   *Conn
	client *client
	heard  *logLines
	ended  error
}

func hold(t *testing.T, o *Options, cfg myriad.Config) *held {
	t.Helper()
	h := &held{}
	open := o.OnOpen
	o.OnOpen = func(c *Conn) {
		h.conn = c
		if open != nil {
			open(c)
		}
	}
	o, h.heard = recorded(o)
	o.OnClose = func(_ *Conn, err error) {
		if h.ended != nil {
			t.Errorf("OnClose twice: %v, %v", h.ended, err)
		}
		h.ended = err
	}
	h.world = newWorld(t, 1, sim.Calm(), cfg, handlerOf(t, o))
	h.client = h.world.client(sampleRequest)
	h.Settle()
	if h.conn == nil {
		t.Fatalf("not opened; the client read %q", h.client.Received())
	}
	return h
}

func (h *held) wantRead(want ...string) {
	h.t.Helper()
	if got := h.client.lines(h.t); !slices.Equal(got, want) {
		h.t.Errorf("the client read %q, want %q", got, want)
	}
}

func (h *held) wantEnd(code StatusCode, is error) {
	h.t.Helper()
	if CloseStatus(h.ended) != code || is != nil && !errors.Is(h.ended, is) || h.ended == nil {
		h.t.Errorf("OnClose got %v, want status %d and %v", h.ended, code, is)
	}
}

func TestCloseByServer(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		h := hold(t, &Options{Dispatch: d, PingInterval: quiet}, myriad.Config{})
		must(t, h.conn.Write(OpText, []byte("last")))
		must(t, h.conn.Close(4001, "enough"))
		for what, err := range map[string]error{
			"Write": h.conn.Write(OpText, nil), "Ping": h.conn.Ping(nil), "Close": h.conn.Close(1000, ""),
		} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s after Close: %v, want net.ErrClosed", what, err)
			}
		}
		h.Settle()
		h.client.send(OpText, "not heard any more")
		h.client.send(OpPing, "not answered")
		h.Settle()
		if h.ended != nil || h.client.Ended() {
			t.Fatalf("ended before the client has answered: %v", h.ended)
		}
		h.client.send(OpClose, closeWith(4001, ""))
		h.Run()
		h.wantRead(`text "last"`, line(OpClose, closeWith(4001, "enough")))
		h.wantEnd(4001, nil)
		if got := h.heard.all(); !slices.Equal(got, lines("open")) {
			t.Errorf("heard %q", got)
		}
		h.stop()
	})
}

func TestCloseAtTheSameTime(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet}, myriad.Config{})
	h.client.send(OpClose, closeWith(4000, "mine"))
	_ = h.conn.Close(4001, "yours")
	h.Run()
	h.wantRead(line(OpClose, closeWith(4001, "yours")))
	h.wantEnd(4000, nil)
	h.stop()
}

func TestCloseInsideCallbacks(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		h := hold(t, &Options{Dispatch: d, PingInterval: quiet, OnMessage: func(c *Conn, _ Op, _ []byte) {
			noError(t, c.Close(StatusPolicyViolation, "one is enough"))
		}}, myriad.Config{})
		h.client.Write([]byte(clientFrame(true, OpText, "1") + clientFrame(true, OpText, "2")))
		h.Settle()
		h.client.send(OpClose, closeWith(1008, ""))
		h.Run()
		h.wantEnd(1008, nil)
		h.wantRead(line(OpClose, closeWith(1008, "one is enough")))
		if got := h.heard.all(); !slices.Equal(got, lines("open", `text "1"`)) {
			t.Errorf("heard %q", got)
		}
		h.stop()
	})
}

func TestCloseInOnOpen(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		h := hold(t, &Options{Dispatch: d, PingInterval: quiet,
			OnOpen: func(c *Conn) { _ = c.Close(StatusTryAgainLater, "full") }}, myriad.Config{})
		h.client.send(OpClose, closeWith(1013, ""))
		h.Run()
		h.wantRead(line(OpClose, closeWith(1013, "full")))
		h.wantEnd(1013, nil)
		h.stop()
	})
}

func TestCloseTimeout(t *testing.T) {
	h := hold(t, &Options{CloseTimeout: 3 * time.Second}, myriad.Config{})
	_ = h.conn.Close(1000, "")
	h.RunFor(2900 * time.Millisecond)
	if h.client.Ended() || h.ended != nil {
		t.Fatal("ended before the time was up")
	}
	h.RunFor(200 * time.Millisecond)
	if !h.client.Ended() {
		t.Fatal("not ended in time")
	}
	h.Run()
	h.wantEnd(0, os.ErrDeadlineExceeded)
	h.stop()
}

// A peer that reads nothing cannot hold the close up either: what waits is dropped.
func TestCloseTimeoutOfSlowReader(t *testing.T) {
	h := hold(t, &Options{CloseTimeout: 3 * time.Second, PingInterval: quiet, WriteLimit: 1 << 20}, myriad.Config{})
	h.client.StopReading()
	h.Settle()
	for n := 60 << 10; n > 0; n /= 2 {
		for h.conn.Write(OpBinary, make([]byte, n)) == nil {
			h.Settle()
		}
	}
	for h.conn.Write(OpBinary, nil) == nil {
		h.Settle()
	}
	if err := h.conn.Close(1000, "kept above the limit"); err != nil {
		t.Fatalf("Close with a full queue: %v", err)
	}
	h.RunFor(3100 * time.Millisecond)
	h.wantEnd(0, os.ErrDeadlineExceeded)
	h.stop()
}

// A peer that reads slowly gets all that was written before the close, however many times
// CloseTimeout that takes, and may answer.
func TestCloseTimeoutOfMovingOutput(t *testing.T) {
	h := hold(t, &Options{CloseTimeout: 3 * time.Second, PingInterval: quiet, WriteLimit: 1 << 20}, myriad.Config{})
	h.client.StopReading()
	h.client.OnReceived = func([]byte) { h.client.StopReading() }
	h.Settle()
	const size = 10 << 10
	sent := 0
	for ; h.conn.Write(OpBinary, make([]byte, size)) == nil; sent++ {
		h.Settle()
	}
	must(t, h.conn.Close(1000, ""))
	steps := 0
	for before := -1; h.conn.Queued() > 0; steps++ {
		if queued := h.conn.Queued(); queued == before || h.ended != nil {
			t.Fatalf("%d bytes are stuck after %d steps, ended with %v", queued, steps, h.ended)
		} else {
			before = queued
		}
		h.client.Resume() // for one look
		h.RunFor(2900 * time.Millisecond)
	}
	if steps < 5 {
		t.Fatalf("read in %d steps: the test shows nothing", steps)
	}
	h.client.OnReceived = nil
	h.client.Resume()
	h.RunFor(time.Millisecond)
	h.client.send(OpClose, closeWith(1000, ""))
	h.Run()
	h.wantEnd(1000, nil)
	if got := len(h.client.lines(t)); got != sent+1 {
		t.Errorf("the client read %d messages and closes, %d were written", got, sent+1)
	}
	h.stop()
}

func TestAbort(t *testing.T) {
	for _, why := range []error{nil, errors.New("the game is over")} {
		testAbort(t, why)
	}
}

func testAbort(t *testing.T, why error) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		h := hold(t, &Options{Dispatch: d, PingInterval: quiet}, myriad.Config{})
		h.conn.Abort(why)
		h.conn.Abort(nil)
		if err := h.conn.Write(OpText, nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after Abort: %v", err)
		}
		h.Run()
		h.wantRead()
		h.wantEnd(0, cmp.Or(why, net.ErrClosed))
		if h.client.Err() == nil {
			t.Error("the client saw no reset")
		}
		h.stop()
	})
}

func TestCloseRefusesCodes(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet}, myriad.Config{})
	for _, code := range []StatusCode{1, 999, 1004, 1006, 1015, 1016, 2999, 5000, 65535} {
		if err := h.conn.Close(code, ""); err == nil || errors.Is(err, net.ErrClosed) {
			t.Errorf("Close(%d): %v, want a refusal", code, err)
		}
	}
	noError(t, h.conn.Close(0, "no code, so no reason"))
	h.Settle()
	h.wantRead(`close ""`)
	h.client.send(OpClose, "")
	h.Run()
	h.wantEnd(StatusNoStatusReceived, nil)
	h.stop()
}

func TestLongReasonIsCut(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet}, myriad.Config{})
	_ = h.conn.Close(1000, strings.Repeat("é", 100))
	h.Settle()
	h.wantRead(line(OpClose, closeWith(1000, strings.Repeat("é", 61))))
	h.finish()
}

func TestPeerLeavesWithoutClose(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		h := hold(t, &Options{Dispatch: d, PingInterval: quiet}, myriad.Config{})
		h.client.Write([]byte(clientFrame(false, OpText, "unfinished")))
		h.client.CloseWrite()
		h.Run()
		h.wantEnd(0, io.ErrUnexpectedEOF)
		h.stop()

		h = hold(t, &Options{Dispatch: d, PingInterval: quiet}, myriad.Config{})
		h.client.Reset()
		h.Run()
		if h.ended == nil || CloseStatus(h.ended) != 0 || errors.Is(h.ended, net.ErrClosed) {
			t.Errorf("OnClose after a reset got %v", h.ended)
		}
		h.stop()
	})
}

// The engine's shutdown says goodbye. A peer that does not answer holds it up for CloseTimeout at
// most.
func TestEngineShutdownEndsConnections(t *testing.T) {
	h := hold(t, &Options{}, myriad.Config{})
	h.stop()
	h.wantRead(line(OpClose, closeWith(1001, "shutting down")))
	h.wantEnd(0, os.ErrDeadlineExceeded)
	if !h.client.Ended() {
		t.Error("the client does not know")
	}
}

// A client leaves it to the server to close the connection, for as long as CloseTimeout, and what
// was agreed stays the reason.
func TestClientWaitsForServer(t *testing.T) {
	for _, serverCloses := range []bool{true, false} {
		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(&Options{}))
		var peer *sim.Peer
		ln := w.listenPeer(func(p *sim.Peer, key string) {
			peer = p
			p.Write([]byte(switching(key)))
		})
		var ended error
		o := &DialOptions{Random: seeded(1)}
		o.Engine, o.CloseTimeout, o.PingInterval = w.e, 3*time.Second, quiet
		o.OnClose = func(_ *Conn, err error) { ended = err }
		if _, _, err := Dial(context.Background(), "ws://"+ln.Addr().String(), o); err != nil {
			t.Fatal(err)
		}
		peer.Write(appendFrame(nil, frameHeader{fin: true, op: OpClose}, []byte(closeWith(4000, "bye"))))
		w.RunFor(2900 * time.Millisecond)
		if peer.Ended() || ended != nil {
			t.Fatalf("the client has closed already: %v", ended)
		}
		if serverCloses {
			peer.CloseWrite()
		}
		w.RunFor(200 * time.Millisecond)
		if !peer.Ended() {
			t.Error("the client has not closed")
		}
		peer.CloseWrite()
		w.Run()
		if CloseStatus(ended) != 4000 {
			t.Errorf("OnClose got %v", ended)
		}
		noError(t, ln.Close())
		w.stop()
	}
}
