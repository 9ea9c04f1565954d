package myriad

import (
	"context"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/epoll"
)

// A conn must fit the allocator's size class of 144 bytes.
func TestConnIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Conn{}); size > 144 {
		t.Errorf("a Conn has %d bytes, at most 144 are allowed", size)
	}
}

type idle struct{}

func (idle) Opened(*Conn)           {}
func (idle) Received(*Conn, []byte) {}
func (idle) Closed(*Conn, error)    {}

// An unladen system has no ballast, which the collector counts as held where it is busy.
type unladen struct{ driver.System }

// idleBytes measures what the engine's own structures take for each of n idle conns: the peers are
// bare descriptors, which cost the heap nothing.
func idleBytes(t testing.TB, n int, use func(c *Conn)) int {
	e, err := Start(Config{Loops: 2, LingerTimeout: 100 * time.Millisecond, System: unladen{epoll.System{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown(context.Background())
	ln, err := e.Listen("tcp", "127.0.0.1:0", idle{})
	if err != nil {
		t.Fatal(err)
	}
	p := newPeers(t, ln, n)
	before := heap()
	p.connect(n)
	waitFor(t, func() bool { return e.Stats().Conns == n })
	for _, l := range e.Loops() {
		runOn(l, func() {
			l.Conns(0, l.conns.Len(), use)
		})
		waitFor(t, func() (done bool) { // until what they have asked for is done
			runOn(l, func() { done = l.todo(allWork) == 0 })
			return done
		})
	}
	return (heap() - before) / n
}

// peers are bare descriptors.
type peers struct {
	t   testing.TB
	to  syscall.SockaddrInet4
	fds []int
}

func newPeers(t testing.TB, ln *Listener, n int) *peers {
	p := &peers{t: t, fds: make([]int, 0, n)}
	p.to = syscall.SockaddrInet4{Port: ln.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	t.Cleanup(p.close)
	return p
}

func (p *peers) close() {
	for _, fd := range p.fds {
		syscall.Close(fd)
	}
	p.fds = nil
}

func (p *peers) connect(n int) {
	for range n {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			p.t.Fatal(err)
		}
		p.fds = append(p.fds, fd)
		if err := syscall.Connect(fd, &p.to); err != nil {
			p.t.Fatal(err)
		}
	}
}

func runOn(l *Loop, f func()) {
	done := make(chan struct{})
	_ = l.Do(func() { defer close(done); f() })
	<-done
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func waitFor(t testing.TB, cond func() bool) {
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited too long")
		}
	}
}

// An idle connection costs at most 320 bytes in all, also with a timer, and after it has been
// paused and full.
func TestIdleConnIsSmall(t *testing.T) {
	for _, tc := range []struct {
		name string
		use  func(c *Conn)
	}{
		{"fresh", func(*Conn) {}},
		{"with a timer", func(c *Conn) { c.SetTimer(time.Hour) }},
		{"after use", func(c *Conn) {
			c.ownCold() // as a pause or a file would
			c.SetTimer(time.Hour)
			_, _ = c.Write([]byte("x"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const limit = 320
			n := connsFor(t)
			if got := idleBytes(t, n, tc.use); got > limit {
				t.Errorf("%d bytes for each of %d idle conns, at most %d are allowed", got, n, limit)
			} else {
				t.Logf("%d bytes for each of %d idle conns", got, n)
			}
		})
	}
}

// A connection that comes leaves next to no garbage, so that what is held by many is what they
// need, before the collector has run as well.
func TestAcceptingLeavesNoGarbage(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector a sync.Pool throws things away")
	}
	// bytes for each; 215 to 235 are measured; a Conn has 128 of them, its rows in tables 40, the
	// driver's Socket 32
	const limit = 256
	for _, addr := range []string{"127.0.0.1:0", ":0"} {
		each := acceptedBytes(t, addr)
		for range 2 { // what the process allocates for other purposes is not in every measurement
			if each > limit {
				each = min(each, acceptedBytes(t, addr))
			}
		}
		if each > limit {
			t.Errorf("%d bytes are allocated for a connection to %s, at most %d are allowed", each, addr, limit)
		} else {
			t.Logf("%d bytes are allocated for a connection to %s", each, addr)
		}
	}
}

// acceptedBytes is what is allocated for each of some thousand connections that come.
func acceptedBytes(t *testing.T, addr string) int {
	e, err := Start(Config{Loops: 2, System: unladen{epoll.System{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown(context.Background())
	ln, err := e.Listen("tcp", addr, idle{})
	if err != nil {
		t.Fatal(err)
	}
	n := connsFor(t) / 2
	p := newPeers(t, ln, n)
	defer p.close()
	p.connect(n / 10) // pools and lists have their size afterwards
	waitFor(t, func() bool { return e.Stats().Conns == n/10 })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for have := n / 10; have < n; { // never more at a time than a loop keeps room for
		some := min(keptIntake, n-have)
		p.connect(some)
		have += some
		waitFor(t, func() bool { return e.loops[0].stats.conns.Load()+e.loops[1].stats.conns.Load() == int64(have) })
	}
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc-before.TotalAlloc) / (n - n/10)
}

// connsFor is how many conns the descriptor limit allows in one process with both ends, at most
// 5,000.
func connsFor(t testing.TB) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	n := int(min(limit.Cur/2-100, 5000))
	if n < 1000 {
		t.Skipf("only %d descriptors are allowed: too few to measure", limit.Cur)
	}
	return n
}

// A dial takes nothing of the loop's table of shared addresses, because its port is its own, and
// its conn has no cold part.
func TestDialedConnIsSmall(t *testing.T) {
	e, err := Start(Config{Loops: 1, System: unladen{epoll.System{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown(t.Context())
	ln, err := e.Listen("tcp", "127.0.0.1:0", idle{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.Dial(t.Context(), "tcp", ln.Addr().String(), idle{})
	if err != nil {
		t.Fatal(err)
	}
	runOn(c.Loop(), func() {
		if _, shared := c.Loop().locals[driver.AddrOf(c.LocalAddr())]; shared {
			t.Errorf("%v, of a dialled conn, is shared", c.LocalAddr())
		}
		if c.cold.Load() != nil {
			t.Error("a dialled conn has an cold part")
		}
		if _, is := c.Handler().(idle); !is {
			t.Errorf("the handler of a dialled conn is a %T", c.Handler())
		}
	})
}
