package websocket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// A waitingRoom is an engine of one loop whose callbacks run on it, with a peer that does not read
// and one that does not send.
type waitingRoom struct {
	*world
	slow, silent *client
	slowConn     *Conn
	silentConn   *Conn // with Pull
	wait         func(r *waitingRoom, c *Conn) error
	returned     bool
}

func newWaitingRoom(t *testing.T) *waitingRoom {
	t.Helper()
	r := new(waitingRoom)
	o := &Options{Dispatch: quickly, PingInterval: quiet, Overflow: OverflowBlock, WriteLimit: slowLimit}
	o.OnOpen = func(c *Conn) {
		if r.slowConn == nil {
			r.slowConn = c
		}
	}
	o.OnMessage = func(c *Conn, op Op, p []byte) {
		if string(p) != "wait" {
			echoBack(c, op, p)
			return
		}
		noError(t, r.wait(r, c))
		r.returned = true
	}
	r.world = newWorld(t, 1, sim.Calm(), myriad.Config{Loops: 1}, handlerOf(t, o))
	pull := &Options{Pull: true, PingInterval: quiet, OnOpen: func(c *Conn) { r.silentConn = c }}
	ln, err := r.e.Listen("tcp", "127.0.0.1:0", Handler(pull))
	must(t, err)
	r.slow = r.client(sampleRequest)
	r.silent = &client{r.Dial(ln.Addr())}
	r.silent.Write([]byte(sampleRequest))
	r.Settle()
	r.slow.StopReading()
	return r
}

// writeMuch writes more than the peer that does not read has room for.
func writeMuch(write func(op Op, p []byte) error) error {
	for i := range 400 {
		if err := write(OpText, numbered(i)); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// A callback on the loop that calls a waiting function hands the loop over before. Its neighbours
// do not wait, and the monitor need not take the loop away from it. It makes no difference whether
// it waits for its own connection.
func TestAutoHandsOver(t *testing.T) {
	for name, wait := range map[string]func(r *waitingRoom, c *Conn) error{
		"own Write":    func(_ *waitingRoom, c *Conn) error { return writeMuch(c.Write) },
		"Write":        func(r *waitingRoom, _ *Conn) error { return writeMuch(r.slowConn.Write) },
		"WriteContext": func(r *waitingRoom, _ *Conn) error { return writeMuch(r.writeContext) },
		"Read": func(r *waitingRoom, _ *Conn) error {
			_, _, err := r.silentConn.Read(context.Background())
			return err
		},
		"NetConn": func(r *waitingRoom, _ *Conn) error {
			_, err := NetConn(r.silentConn, OpText).Read(make([]byte, 10))
			return err
		},
		"Dial": func(r *waitingRoom, _ *Conn) error {
			c, _, err := Dial(context.Background(), "ws://"+r.ln.Addr().String(),
				&DialOptions{Options: Options{Engine: r.e, PingInterval: quiet}, Random: seeded(1)})
			if err == nil {
				c.Abort(nil)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWaitingRoom(t)
			r.wait = wait
			asks, neighbour := r.client(sampleRequest), r.client(sampleRequest)
			if name == "own Write" {
				asks = r.slow
			}
			r.Settle()
			asks.send(OpText, "wait")
			neighbour.send(OpText, "quick")
			r.Settle()
			if got := neighbour.lines(t); !slices.Equal(got, lines(`text "quick"`)) {
				t.Errorf("the neighbour read %q at once", got)
			}
			if r.returned && name != "Dial" {
				t.Error("the call has not waited")
			}
			if st := r.e.Stats(); st.Handoffs != 1 || st.Overstays != 0 {
				t.Errorf("%d hand-overs and %d takeovers, want 1 and 0", st.Handoffs, st.Overstays)
			}
			r.slow.Resume()
			r.silent.send(OpText, "come")
			asks.send(OpText, "more")
			r.RunFor(time.Second)
			if got := asks.lines(t); !r.returned || len(got) == 0 || got[len(got)-1] != `text "more"` {
				t.Errorf("returned: %v; the one who asked read %.100q", r.returned, got)
			}
			r.stop()
		})
	}
}

func (r *waitingRoom) writeContext(op Op, p []byte) error {
	return r.slowConn.WriteContext(context.Background(), op, p)
}

// A loop that is bound to its thread cannot be handed off: with DispatchInline a Write that would
// wait fails. With DispatchAuto callbacks run on the pool, where it waits.
func TestBoundLoopDoesNotWait(t *testing.T) {
	for d, want := range map[web.Dispatch]error{web.DispatchInline: myriad.ErrOnLoop, quickly: nil} {
		world := sim.Calm()
		world.ThreadBound = true
		written := errors.New("the callback has not returned")
		o := &Options{Dispatch: d, PingInterval: quiet, Overflow: OverflowBlock, WriteLimit: slowLimit,
			OnMessage: func(c *Conn, _ Op, _ []byte) { written = writeMuch(c.Write) }}
		w := newWorld(t, 1, world, myriad.Config{Loops: 1}, handlerOf(t, o))
		c := w.client(sampleRequest)
		c.StopReading()
		c.send(OpText, "go")
		w.Settle()
		if done := written == nil || errors.Is(written, myriad.ErrOnLoop); done != (want != nil) {
			t.Errorf("dispatch %v, the peer does not read: Write: %v", d, written)
		}
		c.Resume()
		w.Settle()
		if !errors.Is(written, want) {
			t.Errorf("dispatch %v: Write: %v, want %v", d, written, want)
		}
		w.stop()
	}
}

// One message in a hundred takes 20 ms, the others nothing, on one loop and in fake time, where
// delays are exact: neighbours of the slow one wait for the monitor twice, and never longer than it
// takes to look twice. Then the callbacks run on the pool, and stay there.
func TestAutoKeepsNeighbours(t *testing.T) {
	const (
		step, steps = 250 * time.Microsecond, 8000
		peers       = 10 // the last one's messages are slow, one in ten of them
		atMost      = 8  // steps: two ticks of the monitor
	)
	var w *world
	o := &Options{Dispatch: quickly, PingInterval: quiet, OnMessage: func(c *Conn, op Op, p []byte) {
		if p[0] == 's' {
			w.NewParker().ParkFor(20 * time.Millisecond)
		}
		echoBack(c, op, p)
	}}
	w = newWorld(t, 1, sim.Calm(), myriad.Config{Loops: 1}, handlerOf(t, o))
	var clients []*client
	var sent [peers][]int    // in which step
	var want [peers][]string // to be read
	for range peers {
		clients = append(clients, w.client(sampleRequest))
	}
	w.Settle()
	frame := len("..") + len("q0000")
	head, waited := len(clients[0].Received()), map[int]int{}
	for at := range steps {
		i := at % peers
		text := fmt.Sprintf("q%04d", at)
		if at%(10*peers) == peers-1 {
			text = fmt.Sprintf("s%04d", at)
		}
		clients[i].send(OpText, text)
		sent[i], want[i] = append(sent[i], at), append(want[i], fmt.Sprintf("text %q", text))
		w.RunFor(step)
		for i, c := range clients[:peers-1] {
			if done := (len(c.Received()) - head) / frame; done < len(sent[i]) {
				waited[at-sent[i][done]]++
			}
		}
	}
	w.RunFor(time.Second)
	for i, c := range clients {
		if got := c.lines(t); !slices.Equal(got, want[i]) {
			t.Errorf("client %d read %d messages of %d, or in another order", i, len(got), len(want[i]))
		}
	}
	for late, n := range waited {
		if late > atMost {
			t.Errorf("a neighbour waited for %v, %d times", time.Duration(late)*step, n)
		}
	}
	if n := w.e.Stats().Overstays; n != 2 {
		t.Errorf("%d takeovers, want 2", n)
	}
	w.stop()
}
