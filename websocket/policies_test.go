package websocket

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/outbox/outboxtest"
	"github.com/myriad-go/myriad/web"
)

// A connection keeps the promises of every policy: over both versions of HTTP in a simulated world,
// and where writers wait, on real sockets.
func TestPolicies(t *testing.T) {
	var all []outbox.Policy
	for p := range outbox.Policies {
		if p != outbox.Block {
			all = append(all, p)
		}
	}
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		outboxtest.Run(t, outboxtest.Config{Policies: all, Many: 400,
			New: func(t *testing.T, p outbox.Policy) outboxtest.Receiver { return newSlowPeer(t, p, d) }})
	})
	outboxtest.Run(t, outboxtest.Config{Policies: all, Many: 400, New: newSlowStream})
	outboxtest.Run(t, outboxtest.Config{Policies: []outbox.Policy{outbox.Block}, Many: 1000,
		New: func(t *testing.T, _ outbox.Policy) outboxtest.Receiver {
			opened := make(chan *Conn, 1)
			o := &Options{WriteLimit: slowLimit, PingInterval: quiet, Workers: startPool(t),
				OnOpen: func(c *Conn) { opened <- c }}
			p := dialRaw(t, listen(t, startEngine(t, myriad.Config{Loops: 1}), handlerOf(t, o))).open()
			return &waitedFor{peer: p, conn: <-opened}
		}})
}

// A told connection has counted what its program is told.
type told struct {
	options        *Options
	conn           *Conn
	drains, floods int
	refused, lost  uint64
	ended          error
}

func (r *told) count(p outbox.Policy, o *Options) *Options {
	o.Overflow, o.OnDrained = Overflow(p), func(*Conn) { r.drains++ }
	r.options = o
	return o
}

func (r *told) offer(n int) outboxtest.Answer {
	err := r.conn.Write(OpText, numbered(n))
	if errors.Is(err, myriad.ErrFull) {
		r.refused++
	}
	return answerOf(err)
}

// drained is called when the peer has read everything.
func (r *told) drained(t *testing.T) {
	st := r.options.Stats()
	if lost := r.conn.Dropped() + r.refused; lost > r.lost {
		r.lost = lost
		r.floods++
	}
	closed := uint64(0)
	if r.Closed() {
		closed = 1
	}
	if st.Dropped != r.conn.Dropped() || st.Refused != r.refused || st.ClosedSlow != closed || r.drains != r.floods {
		t.Errorf("%+v with %d refusals, %d dropped, closed %v; OnDrained was called %d times, want %d", st, r.refused,
			r.conn.Dropped(), r.Closed(), r.drains, r.floods)
	}
}

// finish ends the world of a peer that has read these frames.
func (r *told) finish(t *testing.T, code StatusCode, read []string, stop func()) {
	closed := r.Closed()
	stop()
	if closed && (read[len(read)-1] != line(OpClose, closeWith(code, tooSlow)) || CloseStatus(r.ended) != code ||
		!errors.Is(r.ended, myriad.ErrFull)) {
		t.Errorf("closed with %q, OnClose(%v)", read[len(read)-1], r.ended)
	}
}

func (r *told) Missed() uint64 { return r.conn.Dropped() }
func (r *told) Closed() bool   { return !r.conn.end.writable() }

// A slowPeer reads only in Drain.
type slowPeer struct {
	told
	h   *held
	got int // messages that Drain has returned
}

func newSlowPeer(t *testing.T, p outbox.Policy, d web.Dispatch) *slowPeer {
	r := new(slowPeer)
	r.h = holdSlow(t, r.count(p, &Options{Dispatch: d, OverflowStatus: StatusPolicyViolation}))
	r.conn = r.h.conn
	t.Cleanup(func() {
		r.finish(t, StatusPolicyViolation, r.h.client.lines(t), func() {
			r.h.finish()
			r.ended = r.h.ended
		})
	})
	return r
}

func (r *slowPeer) Offer(n int) outboxtest.Answer {
	answer := r.offer(n)
	if queued := r.conn.Queued(); queued > slowLimit+600 {
		r.h.t.Fatalf("%d bytes are queued", queued)
	}
	if n%7 == 0 {
		r.h.Settle()
	}
	return answer
}

func (r *slowPeer) Drain() []int {
	all := r.h.numbers()
	got := all[r.got:]
	r.got = len(all)
	r.drained(r.h.t)
	r.h.client.StopReading()
	r.h.Settle()
	return got
}

// A slowStream is a WebSocket over HTTP/2 whose client gives it room only in Drain.
type slowStream struct {
	told
	h   *muxHeld
	got int
}

func newSlowStream(t *testing.T, p outbox.Policy) outboxtest.Receiver {
	r := new(slowStream)
	r.h = holdMux(t, streamWindow, r.count(p, &Options{WriteLimit: slowLimit}))
	r.conn = r.h.conn
	t.Cleanup(func() {
		r.finish(t, StatusTryAgainLater, r.h.c.lines(1), func() {
			r.h.stop(r.h.c)
			r.ended = r.h.ended
		})
	})
	return r
}

const streamWindow = 10 << 10

func (r *slowStream) Offer(n int) outboxtest.Answer { return r.offer(n) }

// Drain reads all, and leaves the window that was there at first.
func (r *slowStream) Drain() []int {
	before := len(r.h.c.stream(1).bytes)
	for round := 0; round == 0 || r.conn.Queued() > 0; round++ {
		r.h.Settle()
		came := len(r.h.c.stream(1).bytes)
		if came > before {
			r.h.c.Write(h2.AppendWindowUpdate(nil, 1, came-before))
		}
		before = came
		r.h.Settle()
	}
	all := numbersIn(r.h.c.lines(1))
	got := all[r.got:]
	r.got = len(all)
	r.drained(r.h.t)
	return got
}

func answerOf(err error) outboxtest.Answer {
	switch {
	case err == nil:
		return outboxtest.Taken
	case errors.Is(err, net.ErrClosed):
		return outboxtest.Ended
	}
	return outboxtest.Full
}

// A waitedFor peer is on a real socket, where a writer waits for it.
type waitedFor struct {
	peer  *rawPeer
	conn  *Conn
	pings int
}

func (r *waitedFor) Offer(n int) outboxtest.Answer {
	return answerOf(r.conn.Write(OpText, append(numbered(n), make([]byte, 4000)...)))
}

func (r *waitedFor) Drain() (got []int) {
	r.pings++
	ping := fmt.Sprint(r.pings)
	r.peer.write(clientFrame(true, OpPing, ping))
	for {
		f := r.peer.frame()
		var n int
		if _, err := fmt.Sscanf(f, `text "%d `, &n); err == nil {
			got = append(got, n)
		} else if f == line(OpPong, ping) || f == "EOF" {
			return got
		}
	}
}

func (r *waitedFor) Missed() uint64 { return r.conn.Dropped() }
func (r *waitedFor) Closed() bool   { return r.conn.end.gone() }
