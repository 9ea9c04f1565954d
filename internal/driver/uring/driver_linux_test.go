package uring

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// An idle connection takes no more memory of the Go heap than one of epoll.
func TestSizeOfASlot(t *testing.T) {
	if n := unsafe.Sizeof(slot{}); n != 24 {
		t.Errorf("a slot takes %d bytes, want 24", n)
	}
}

// A bed is a driver that this test's goroutine owns, with the events it has emitted.
type bed struct {
	*Driver
	t        *testing.T
	received map[driver.ID][]byte
	over     map[driver.ID]bool
	ids      []driver.ID
}

func newBed(t *testing.T) *bed {
	needsRing(t)
	runtime.LockOSThread() // the ring is this thread's
	t.Cleanup(runtime.UnlockOSThread)
	d, err := newDriver(1, driver.Options{ReadBuffer: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return &bed{Driver: d, t: t, received: map[driver.ID][]byte{}, over: map[driver.ID]bool{}}
}

func (b *bed) Accepted(_ driver.ID, s driver.Socket) {
	id, err := b.Attach(s)
	if err != nil {
		b.t.Fatal(err)
	}
	b.ids = append(b.ids, id)
}

func (b *bed) Received(id driver.ID, p []byte)   { b.received[id] = append(b.received[id], p...) }
func (b *bed) Closed(id driver.ID, _ error)      { b.over[id] = true }
func (b *bed) AcceptFailed(driver.ID, error)     {}
func (b *bed) Dialed(driver.ID, driver.Addr)     {}
func (b *bed) DialFailed(driver.ID, error)       {}
func (b *bed) Ended(driver.ID)                   {}
func (b *bed) Sent(driver.ID, int64)             {}
func (b *bed) Detached(driver.ID, driver.Socket) {}
func (b *bed) until(what string, done func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); {
		if _, err := b.Poll(10*time.Millisecond, b); err != nil || time.Now().After(end) {
			b.t.Fatalf("%s: it never happens (%v)", what, err)
		}
	}
}

// connect makes n connections, which are the first n of ids.
func (b *bed) connect(n int) (peers []net.Conn) {
	b.t.Helper()
	l, err := System{}.Listen(b.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	id, err := b.Listen(l)
	if err != nil {
		b.t.Fatal(err)
	}
	for range n {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { nc.Close() })
		peers = append(peers, nc)
	}
	b.until("all are accepted", func() bool { return len(b.ids) == n })
	b.CloseListener(id)
	b.until("the listener is closed", func() bool { return b.over[id] })
	if err := l.Close(); err != nil {
		b.t.Fatal(err)
	}
	return peers
}

// Connections that have been busy and are idle now have one operation each, and nothing else: all
// buffers are in the ring.
func TestIdleConnectionsHaveNothing(t *testing.T) {
	b := newBed(t)
	peers := b.connect(20)
	for round := range 3 {
		sent := (round + 1) * 5000
		for _, nc := range peers {
			if _, err := nc.Write(make([]byte, 5000)); err != nil {
				t.Fatal(err)
			}
		}
		b.until("all is received", func() bool {
			for _, id := range b.ids {
				if len(b.received[id]) < sent {
					return false
				}
			}
			return true
		})
		for _, id := range b.ids {
			b.Pause(id)
			var c buf.Chain
			c.Append(make([]byte, 1000))
			b.Send(id, &c)
		}
		for range 10 {
			b.Poll(0, b)
		}
		for _, id := range b.ids {
			b.Resume(id)
		}
	}
	idle := func() bool {
		for _, id := range b.ids {
			if s := b.find(id); s.work != nil || s.ops != 1<<opReceive {
				return false
			}
		}
		return b.buffers.out == 0 && b.inFlight == len(b.ids)+1 // and the eventfd's
	}
	b.until("all are idle", idle)
	if err := b.Shutdown(); err != nil {
		t.Error(err)
	}
}

// A connection whose owner wants no input holds no buffers of the ring, and has no more than a read
// buffer.
func TestPausedConnectionLeavesBuffers(t *testing.T) {
	b := newBed(t)
	peers := b.connect(1)
	b.Pause(b.ids[0])
	b.Poll(0, b)
	_ = peers[0].SetWriteDeadline(time.Now().Add(time.Second))
	for {
		if _, err := peers[0].Write(make([]byte, 64<<10)); err != nil {
			break // the kernel's buffers are full
		}
		b.Poll(0, b)
	}
	s := b.find(b.ids[0])
	b.until("it has ceased to receive", func() bool { return !s.runs(opReceive) })
	if n := len(s.work.kept); !b.uncapped && n > b.readBuffer || n == 0 || b.buffers.out != 0 {
		t.Errorf("%d bytes are kept, with a read buffer of %d; %d buffers are out", n, b.readBuffer, b.buffers.out)
	}
	if err := b.Shutdown(); err != nil {
		t.Error(err)
	}
}

// Shutdown unmaps what was shared with the kernel.
func TestShutdownUnmaps(t *testing.T) {
	maps := func() int {
		text, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "io_uring")
	}
	before := maps()
	b := newBed(t)
	b.connect(3)
	if maps() == before {
		t.Error("an open ring is not in the list of mappings")
	}
	if err := b.Shutdown(); err != nil {
		t.Error(err)
	}
	if n := maps(); n != before {
		t.Errorf("%d mappings of rings, %d before", n, before)
	}
}

// A look finds what a peer has sent also where the buffers of the ring have run out.
func TestLookWithoutBuffers(t *testing.T) {
	b := newBed(t)
	peers := b.connect(2)
	id := b.ids[1]
	s := b.find(id)
	out := b.buffers.out
	b.buffers.out = bufferCount // so the driver takes it: it begins no receive operation
	b.until("it has ceased to receive", func() bool {
		b.cancel(id, s, opReceive)
		return !s.runs(opReceive)
	})
	if _, err := peers[1].Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	b.until("a look finds it", func() bool {
		b.Look(id)
		return string(b.received[id]) == "hello"
	})
	b.buffers.out = out
	if _, err := peers[1].Write([]byte(" again")); err != nil {
		t.Fatal(err)
	}
	b.until("the rest comes", func() bool { return string(b.received[id]) == "hello again" })
	if err := b.Shutdown(); err != nil {
		t.Error(err)
	}
}

// What has left and is not reported still counts as queued.
func TestDetachBeforeSent(t *testing.T) {
	b := newBed(t)
	b.connect(1)
	id := b.ids[0]
	var c buf.Chain
	c.Append([]byte("hello"))
	if n := b.Send(id, &c); n != 5 {
		t.Fatalf("%d bytes are queued", n)
	}
	if err := b.applyAll(); err != nil {
		t.Fatal(err)
	}
	if err := b.submit(); err != nil {
		t.Fatal(err)
	}
	if s := b.find(id); s.work == nil || s.work.told != 5 {
		t.Fatal("the kernel has not taken it")
	}
	if err := b.Detach(id); !errors.Is(err, driver.ErrNotIdle) {
		t.Errorf("Detach: %v, want ErrNotIdle", err)
	}
	b.until("it is reported", func() bool { return b.find(id).work == nil })
	if err := b.Detach(id); err != nil {
		t.Errorf("Detach: %v", err)
	}
	if err := b.Shutdown(); err != nil {
		t.Error(err)
	}
}

// A kernel that cannot bound a receive operation refuses all that were begun in one call: each of
// them begins again without a bound.
func TestKernelRefusesManyBounds(t *testing.T) {
	b := newBed(t)
	const n = 5
	peers := b.connect(n)
	for _, id := range b.ids {
		b.cancel(id, b.find(id), opReceive)
	}
	if err := b.submit(); err != nil {
		t.Fatal(err)
	}
	receives := func(id driver.ID) bool { return b.find(id).runs(opReceive) }
	for slices.ContainsFunc(b.ids, receives) {
		if errno := b.ring.wait(time.Minute); errno != 0 {
			t.Fatal(errno)
		}
		b.harvest()
	}
	if err := b.applyAll(); err != nil {
		t.Fatal(err)
	}
	if b.uncapped {
		t.Skip("this kernel refuses them by itself")
	}
	if refused := b.refusePending(); refused != n {
		t.Fatalf("%d receives are pending, want %d", refused, n)
	}
	for _, nc := range peers {
		if _, err := nc.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range b.ids {
		b.until("it is received", func() bool { return b.over[id] || string(b.received[id]) == "hello" })
		if b.over[id] {
			t.Errorf("connection %x is over", uint64(id))
		}
	}
	if !b.uncapped {
		t.Error("receives are still bounded")
	}
	if err := b.Shutdown(); err != nil {
		t.Error(err)
	}
}

// refusePending gives all pending receive operations a flag that does not exist, so that the kernel
// refuses them with EINVAL. It returns how many that are.
func (b *bed) refusePending() (n int) {
	for i := b.ring.tail - uint32(b.ring.pending()); i != b.ring.tail; i++ {
		if e := &b.ring.sqes[i&b.ring.sqMask]; e.opcode == opRecv {
			e.ioprio |= 1 << 15
			n++
		}
	}
	return n
}

// Shutdown may be called again, when the ring is not mapped any more.
func TestShutdownTwice(t *testing.T) {
	b := newBed(t)
	b.connect(1)
	for range 2 {
		if err := b.Shutdown(); err != nil {
			t.Error(err)
		}
	}
}
