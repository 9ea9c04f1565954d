package resp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/outbox/outboxtest"
	"github.com/myriad-go/myriad/resp/wire"
)

// A connection of a server keeps the promises of each policy.
func TestOverflowConforms(t *testing.T) {
	conns := make(chan *Conn, 1)
	addr := serve(t, &Server{WriteLimit: 64 << 10, PushTimeout: time.Minute, OnOpen: func(c *Conn) { conns <- c }})
	outboxtest.Run(t, outboxtest.Config{
		Policies: []outbox.Policy{outbox.Block, outbox.Fail, outbox.DropNewest, outbox.DropOldest, outbox.Latest,
			outbox.Close, outbox.Sample},
		New: func(t *testing.T, p outbox.Policy) outboxtest.Receiver {
			peer := dial(t, addr)
			c := <-conns
			if err := c.SetOverflow(Overflow(p), 0); err != nil {
				t.Fatal(err)
			}
			return &pushReceiver{t, c, peer}
		},
		Many: 2000, // 20 MB, of which the kernel takes a few
	})
}

// A pushReceiver is a connection whose messages are numbers with 10,000 bytes of padding.
type pushReceiver struct {
	t    *testing.T
	c    *Conn
	peer *peer
}

func (r *pushReceiver) Offer(n int) outboxtest.Answer {
	text := binary.BigEndian.AppendUint32(make([]byte, 0, 10_000), uint32(n))
	err := r.c.Push(wire.AppendBulk(nil, text[:cap(text)]))
	switch {
	case err == nil:
		return outboxtest.Taken
	case errors.Is(err, myriad.ErrFull):
		return outboxtest.Full
	case !errors.Is(err, net.ErrClosed):
		r.t.Errorf("message %d: %v", n, err)
	}
	return outboxtest.Ended
}

// Drain asks for an answer, before and behind which messages come, until nothing waits.
func (r *pushReceiver) Drain() (got []int) {
	for rest := true; rest; {
		r.c.mu.Lock()
		rest = r.c.nc.Queued() > 0 || r.c.read().outbox.Waits()
		r.c.mu.Unlock()
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
			if !strings.HasPrefix(line, "$10000") {
				r.t.Fatalf("%.40q", line)
			}
			text := make([]byte, 10_002)
			if _, err := io.ReadFull(r.peer.r, text); err != nil {
				return got
			}
			got = append(got, int(binary.BigEndian.Uint32(text)))
		}
	}
	return got
}

func (r *pushReceiver) Missed() uint64 { return r.c.Dropped() }

func (r *pushReceiver) Closed() bool { return r.c.is(stateClosing) }
