package epoll

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/posix"
)

const patience = time.Minute

// counted counts how often a Watcher asks the kernel, and can refuse descriptors.
type counted struct {
	posix.Poller
	waits   atomic.Int64
	refuses atomic.Bool
}

func (c *counted) Wait(events []posix.Event, wait time.Duration) (int, error) {
	c.waits.Add(1)
	return c.Poller.Wait(events, wait)
}

func (c *counted) Add(fd int, id driver.ID, i posix.Interest) error {
	if c.refuses.Load() {
		return driver.ErrFull
	}
	return c.Poller.Add(fd, id, i)
}

func newCounted(t *testing.T) (*counted, *posix.Watcher) {
	p, err := newPoller(0)
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Poller: p}
	return c, posix.NewWatcher(c)
}

func pair(t *testing.T) (ours, peer net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if peer, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if ours, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); peer.Close() })
	return ours, peer
}

// A watched is a connection with what a Watcher has said of it.
type watched struct {
	driver.Watch
	t    *testing.T
	said chan struct{}
	peer net.Conn
	ours net.Conn
}

func watch(t *testing.T, w *posix.Watcher) *watched {
	t.Helper()
	x := &watched{t: t, said: make(chan struct{}, 100)}
	x.ours, x.peer = pair(t)
	var err error
	if x.Watch, err = w.Watch(x.ours, func() { x.said <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *watched) told(what string) {
	x.t.Helper()
	select {
	case <-x.said:
	case <-time.After(patience):
		x.t.Fatalf("nothing is said of %s", what)
	}
}

// untold has another connection told of first, which is watched later.
func (x *watched) untold(w *posix.Watcher, what string) {
	x.t.Helper()
	other := watch(x.t, w)
	defer other.Close()
	_, _ = other.peer.Write([]byte("x"))
	other.Arm()
	other.told("the other connection")
	select {
	case <-x.said:
		x.t.Fatalf("ready without %s", what)
	default:
	}
}

func TestWatcherTellsOnceForEachArm(t *testing.T) {
	c, w := newCounted(t)
	x := watch(t, w)
	_, _ = x.peer.Write([]byte("before"))
	x.untold(w, "Arm")
	x.Arm()
	x.told("bytes that were there")
	waits := c.waits.Load()
	x.untold(w, "another Arm")
	if more := c.waits.Load() - waits; more > 10 {
		t.Errorf("the kernel was asked %d times while nobody wanted to know", more)
	}
	if _, err := x.ours.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	x.Arm()
	x.Arm()
	x.untold(w, "new bytes")
	_, _ = x.peer.Write([]byte("new"))
	x.told("new bytes")
	x.untold(w, "a third Arm")
	x.peer.Close()
	x.Arm()
	x.told("the end")
	x.Close()
	w.Close()
}

func TestWatcherForgets(t *testing.T) {
	_, w := newCounted(t)
	x := watch(t, w)
	x.Arm()
	x.Close()
	x.Arm() // by a watcher that does not know it yet
	_, _ = x.peer.Write([]byte("x"))
	x.untold(w, "Watch")
	if _, err := x.ours.Write([]byte("still there")); err != nil {
		t.Errorf("the connection was closed: %v", err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := w.Watch(a, func() {}); err == nil {
		t.Error("a net.Pipe can be watched")
	}
	w.Close()
}

// Where the kernel takes no more descriptors, a reader has to look for itself.
func TestWatcherThatIsFull(t *testing.T) {
	c, w := newCounted(t)
	x := watch(t, w)
	c.refuses.Store(true)
	x.Arm()
	x.told("what cannot be watched")
	x.Close()
	w.Close()
}
