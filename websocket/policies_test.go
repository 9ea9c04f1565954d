package websocket

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/outbox/outboxtest"
)

// A connection keeps the promises of every policy: in a simulated world, and where writers wait, on
// real sockets.
func TestPolicies(t *testing.T) {
	var all []outbox.Policy
	for p := range outbox.Policies {
		if p != outbox.Block {
			all = append(all, p)
		}
	}
	outboxtest.Run(t, outboxtest.Config{Policies: all, Many: 400,
		New: func(t *testing.T, p outbox.Policy) outboxtest.Receiver {
			r := &slowPeer{held: holdSlow(t, &Options{Overflow: Overflow(p)})}
			t.Cleanup(r.finish)
			return r
		}})
	outboxtest.Run(t, outboxtest.Config{Policies: []outbox.Policy{outbox.Block}, Many: 1000,
		New: func(t *testing.T, _ outbox.Policy) outboxtest.Receiver {
			opened := make(chan *Conn, 1)
			o := &Options{WriteLimit: slowLimit, PingInterval: quiet, Workers: startPool(t),
				OnOpen: func(c *Conn) { opened <- c }}
			p := dialRaw(t, listen(t, startEngine(t, myriad.Config{Loops: 1}), handlerOf(t, o))).open()
			return &waitedFor{peer: p, conn: <-opened}
		}})
}

// A slowPeer reads only in Drain.
type slowPeer struct {
	*held
	got int // messages that Drain has returned
}

func (r *slowPeer) Offer(n int) outboxtest.Answer {
	err := r.conn.Write(OpText, numbered(n))
	if n%7 == 0 {
		r.Settle()
	}
	return answerOf(err)
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

func (r *slowPeer) Drain() []int {
	all := r.numbers()
	got := all[r.got:]
	r.got = len(all)
	r.client.StopReading()
	r.Settle()
	return got
}

func (r *slowPeer) Missed() uint64 { return r.conn.Dropped() }
func (r *slowPeer) Closed() bool   { return !r.conn.end.writable() }

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
