//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Watcher is a driver.Watcher over a Poller. Its goroutine owns the Poller; others ask it to do
// things.
type Watcher struct {
	poller Poller
	ended  chan struct{}

	mu      sync.Mutex
	watches map[uint32]*watch // guarded by mu: by generation of the id
	last    uint32            // guarded by mu: generation
	asked   []func()          // guarded by mu
	closed  bool              // guarded by mu: the Poller cannot be woken any more
}

// watch is a duplicate of a connection's descriptor. When the connection is closed, our number does
// not soon mean another one.
type watch struct {
	w     *Watcher
	fd    int // the goroutine's; -1 when closed
	id    driver.ID
	ready func()
	armed bool // the goroutine's
}

// NewWatcher starts a Watcher, which owns the poller.
func NewWatcher(p Poller) *Watcher {
	w := &Watcher{poller: p, watches: map[uint32]*watch{}, ended: make(chan struct{})}
	go w.run()
	return w
}

// Watch implements driver.Watcher.
func (w *Watcher) Watch(nc net.Conn, ready func()) (driver.Watch, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("posix: watch a %T: %w", nc, driver.ErrUnsupported)
	}
	fd, err := duplicate(sc)
	if err != nil {
		return nil, fmt.Errorf("posix: watch %v: %w", nc.RemoteAddr(), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.last++; w.last == 0 || w.watches[w.last] != nil; w.last++ {
	}
	x := &watch{w: w, fd: fd, id: driver.MakeID(0, 1, w.last), ready: ready}
	w.watches[w.last] = x
	return x, nil
}

// Close implements driver.Watcher.
func (w *Watcher) Close() {
	w.ask(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.closed = true
	})
	<-w.ended
}

// ask has f called by the goroutine.
func (w *Watcher) ask(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, f)
	if !w.closed {
		w.poller.Wake()
	}
}

func (w *Watcher) run() {
	defer close(w.ended)
	var events [64]Event
	for w.answer() {
		n, err := w.poller.Wait(events[:], -1)
		if err != nil {
			n = 0 // it is for signals and bad arguments only, and both are our own affair
		}
		for _, e := range events[:n] {
			if x := w.find(e.ID); x != nil && x.armed {
				x.fire()
			}
		}
	}
	_ = w.poller.Close()
}

// answer does what was asked, and reports whether there is more to come.
func (w *Watcher) answer() bool {
	w.mu.Lock()
	asked := w.asked
	w.asked = nil
	w.mu.Unlock()
	for _, f := range asked {
		f()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed
}

func (w *Watcher) find(id driver.ID) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watches[id.Generation()]
}

// fire takes the descriptor out of the poller, which would report a hang-up without end, and tells.
func (x *watch) fire() {
	x.armed = false
	x.w.poller.Remove(x.fd, Read)
	x.ready()
}

// Arm implements driver.Watch. Where the kernel takes no more descriptors the reader is told at
// once, and so comes back to look for itself.
func (x *watch) Arm() {
	x.w.ask(func() {
		if x.fd < 0 || x.armed {
			return
		}
		if x.w.poller.Add(x.fd, x.id, Read) != nil {
			x.ready()
			return
		}
		x.armed = true
	})
}

// Close implements driver.Watch.
func (x *watch) Close() {
	done := make(chan struct{})
	x.w.ask(func() {
		defer close(done)
		if x.armed {
			x.w.poller.Remove(x.fd, Read)
			x.armed = false
		}
		unix.Close(x.fd)
		x.fd = -1
		x.w.mu.Lock()
		defer x.w.mu.Unlock()
		delete(x.w.watches, x.id.Generation())
	})
	<-done
}
