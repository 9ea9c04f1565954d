package websocket

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/outbox"
)

// burstMembersEnv is how many members read a burst, instead of 20:
//
//	MYRIAD_BURST_MEMBERS=2000 go test -v -timeout 20m -run TestBurst ./websocket
const burstMembersEnv = "MYRIAD_BURST_MEMBERS"

const burstMessage = 10_000 // bytes

// A burst is connections whose peers read at full speed.
type burst struct {
	t       *testing.T
	group   Group
	conns   []*Conn
	readers []*rawPeer
	ends    chan error // what OnClose was called with
}

func newBurst(t *testing.T, n int, o *Options) *burst {
	t.Helper()
	return newBurstIn(t, myriad.Config{}, n, o)
}

func newBurstIn(t *testing.T, cfg myriad.Config, n int, o *Options) *burst {
	t.Helper()
	b := &burst{t: t, ends: make(chan error, n)}
	joined := make(chan *Conn, n)
	o.Workers, o.PingInterval = startPool(t), quiet
	o.OnOpen = func(c *Conn) {
		if _, err := b.group.Join(c); err != nil {
			t.Error(err)
		}
		joined <- c
	}
	o.OnClose = func(_ *Conn, err error) { b.ends <- err }
	addr := listen(t, startEngine(t, cfg), Handler(o))
	for range n {
		b.readers = append(b.readers, dialRaw(t, addr).open())
		b.conns = append(b.conns, <-joined)
	}
	return b
}

func burstMembers(t *testing.T) int {
	t.Helper()
	text := os.Getenv(burstMembersEnv)
	switch {
	case text == "" && testing.Short():
		return 4 // the race detector looks at each byte
	case text == "":
		return 20
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// readAll has every peer read n messages of the given size, and checks their numbers.
func (b *burst) readAll(n, size int) (done func()) {
	var wg sync.WaitGroup
	for i, p := range b.readers {
		wg.Go(func() {
			if err := readNumbered(p, n, size); err != nil {
				b.t.Errorf("member %d: %v", i, err)
			}
		})
	}
	return wg.Wait
}

func readNumbered(p *rawPeer, n, size int) error {
	r := bufio.NewReaderSize(p.Conn, 64<<10)
	frame := frameOf(frameHeader{fin: true, op: OpBinary}, make([]byte, size))
	defer frame.Release()
	got := make([]byte, frame.Len())
	for i := range n {
		if i%100 == 0 {
			_ = p.SetDeadline(time.Now().Add(hangs)) // megabytes are on their way
		}
		if _, err := io.ReadFull(r, got); err != nil {
			return fmt.Errorf("message %d of %d: %w", i, n, err)
		}
		if number := binary.BigEndian.Uint64(got[len(got)-size:]); got[0] != frame.Bytes()[0] || number != uint64(i) {
			return fmt.Errorf("message %d of %d begins with %x", i, n, got[:16])
		}
	}
	return nil
}

func burstPayload(i, size int) []byte {
	p := make([]byte, size)
	binary.BigEndian.PutUint64(p, uint64(i))
	return p
}

func (b *burst) wantAllOpen() {
	b.t.Helper()
	select {
	case err := <-b.ends:
		b.t.Errorf("a member was closed: %v", err)
	default:
	}
	if got := b.group.Len(); got != len(b.readers) {
		b.t.Errorf("%d members are left of %d", got, len(b.readers))
	}
}

// burstSizes are the bytes of a burst in all.
var burstSizes = []int{300_000, 1_000_000, 10_000_000}

func TestBurstByGroup(t *testing.T) {
	for _, total := range burstSizes {
		t.Run(fmt.Sprint(total), func(t *testing.T) {
			b := newBurst(t, burstMembers(t), &Options{})
			n := total / burstMessage
			done := b.readAll(n, burstMessage)
			for i := range n {
				must(t, b.group.Send(OpBinary, burstPayload(i, burstMessage)))
			}
			done()
			b.wantAllOpen()
		})
	}
}

func TestBurstByLoopOfWrites(t *testing.T) {
	for _, total := range burstSizes {
		t.Run(fmt.Sprint(total), func(t *testing.T) {
			b := newBurst(t, burstMembers(t), &Options{})
			n := total / burstMessage
			done := b.readAll(n, burstMessage)
			for i := range n {
				p := burstPayload(i, burstMessage)
				for _, c := range b.conns {
					must(t, c.Write(OpBinary, p))
				}
			}
			done()
			b.wantAllOpen()
		})
	}
}

// By default a writer on a goroutine of its own waits for the loop, as it would in other libraries.
func TestBurstOfSmallWrites(t *testing.T) {
	b := newBurst(t, 1, &Options{})
	b.writeSmall(1000, 500)
}

// A policy that refuses, drops or closes counts only what the kernel has refused: the kernel has
// room for all of this, also while nothing is read. On a busy machine the loop may come late.
func TestOverflowCountsWhatTheKernelRefuses(t *testing.T) {
	for policy := range outbox.Policies {
		t.Run(policy.String(), func(t *testing.T) {
			b := newBurst(t, 1, &Options{Overflow: policy, WriteLimit: slowLimit})
			b.conns[0].settings().flushWait = hangs
			b.writeSmall(120, 500)
		})
	}
}

func (b *burst) writeSmall(n, size int) {
	b.t.Helper()
	done := b.readAll(n, size)
	for i := range n {
		if err := b.conns[0].Write(OpBinary, burstPayload(i, size)); err != nil {
			b.t.Fatalf("message %d: %v", i, err)
		}
	}
	done()
	b.wantAllOpen()
}
