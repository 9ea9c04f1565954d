package resp

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/outbox/outboxtest"
	"github.com/myriad-go/myriad/resp/wire"
)

// A connection of a server keeps the promises of each policy: in a simulated world, whose kernel
// takes what it has room for once, and where a Push waits, on sockets.
func TestOverflowConforms(t *testing.T) {
	outboxtest.Run(t, outboxtest.Config{
		Policies: []outbox.Policy{outbox.Fail, outbox.DropNewest, outbox.DropOldest, outbox.Latest, outbox.Close,
			outbox.Sample},
		New:  newSimReceiver,
		Many: 400,
	})
	conns := make(chan *Conn, 1)
	addr := serve(t, &Server{WriteLimit: 64 << 10, PushTimeout: time.Minute, OnOpen: func(c *Conn) { conns <- c }})
	outboxtest.Run(t, outboxtest.Config{
		Policies: []outbox.Policy{outbox.Block},
		New: func(t *testing.T, _ outbox.Policy) outboxtest.Receiver {
			peer := dial(t, addr)
			return &socketReceiver{counted{<-conns}, t, peer}
		},
		Many: 2000, // 20 MB, of which the kernel takes a few
	})
}

// A counted connection is pushed numbers, each with 10,000 bytes of padding.
type counted struct{ c *Conn }

func (r counted) Offer(n int) outboxtest.Answer {
	text := binary.BigEndian.AppendUint32(make([]byte, 0, numberSize), uint32(n))
	switch err := r.c.Push(wire.AppendBulk(nil, text[:cap(text)])); {
	case err == nil:
		return outboxtest.Taken
	case errors.Is(err, net.ErrClosed):
		return outboxtest.Ended
	}
	return outboxtest.Full
}

const numberSize = 10_000

func (r counted) Missed() uint64 { return r.c.Dropped() }
func (r counted) Closed() bool   { return r.c.is(stateClosing) }

// A simReceiver reads only in Drain.
type simReceiver struct {
	counted
	t    *testing.T
	w    *sim.World
	peer *sim.Peer
}

func newSimReceiver(t *testing.T, p outbox.Policy) outboxtest.Receiver {
	w := sim.New(1, sim.Lossless())
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	r := &simReceiver{t: t, w: w}
	s := &Server{Engine: e, WriteLimit: 8 * numberSize, Overflow: Overflow(p), OnOpen: func(c *Conn) { r.c = c }}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.peer = w.Dial(ln.Addr())
	r.Drain()
	t.Cleanup(func() {
		r.peer.Close()
		w.RunFor(time.Minute)
		if err := errors.Join(s.Shutdown(context.Background()), e.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
		w.Run()
		w.Check(t)
	})
	return r
}

func (r *simReceiver) Offer(n int) outboxtest.Answer {
	defer r.w.RunFor(time.Second)
	return r.counted.Offer(n)
}

func (r *simReceiver) Drain() (got []int) {
	r.peer.Resume()
	r.w.RunFor(time.Minute)
	r.peer.StopReading()
	for in := r.peer.TakeReceived(); len(in) > 0; {
		n, v, err := wire.ParseValue(in, Limits{})
		if n == 0 || err != nil {
			r.t.Fatalf("%.40q: %v", in, err)
		}
		got, in = append(got, int(binary.BigEndian.Uint32(v.Str))), in[n:]
	}
	return got
}

// A socketReceiver is on a socket, where a Push waits for it.
type socketReceiver struct {
	counted
	t    *testing.T
	peer *peer
}

// Drain asks for an answer, before and behind which messages come, until nothing is queued.
func (r *socketReceiver) Drain() (got []int) {
	for rest := true; rest; {
		rest = r.c.Queued() > 0
		if _, err := io.WriteString(r.peer, "PING\r\n"); err != nil {
			return got
		}
		for {
			line, err := r.peer.r.ReadString('\n')
			if err != nil {
				return got
			}
			if line == "+PONG\r\n" {
				break
			}
			text := make([]byte, numberSize+2)
			if _, err := io.ReadFull(r.peer.r, text); err != nil || !strings.HasPrefix(line, "$10000") {
				r.t.Fatalf("%.40q: %v", line, err)
			}
			got = append(got, int(binary.BigEndian.Uint32(text)))
		}
	}
	return got
}

// TryPush takes no message past those that wait, although the kernel has room again.
func TestTryPushOvertakesNothing(t *testing.T) {
	r := newSimReceiver(t, outbox.DropOldest).(*simReceiver)
	n := 0
	for ; r.c.get().outbox.Len() < 3; n++ {
		r.Offer(n)
	}
	r.peer.Resume()
	tried := false
	for w := r.w; w.Step(); {
		if !tried && r.c.get().outbox.Waits() && r.c.Queued()+numberSize < r.c.limit() {
			tried = true
			text := binary.BigEndian.AppendUint32(make([]byte, 0, numberSize), uint32(n))
			if err := r.c.TryPush(buf.From(wire.AppendBulk(nil, text[:cap(text)]))); !errors.Is(err, myriad.ErrFull) {
				t.Errorf("TryPush says %v while messages wait", err)
			}
		}
	}
	if got := r.Drain(); !tried || !slices.IsSorted(got) {
		t.Errorf("tried: %v; got %v", tried, got)
	}
}
