//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

// A script is a Poller that reports what a test says.
type script struct {
	next   []Event
	full   bool // Add fails
	inside map[int]bool
}

func (p *script) Add(fd int, _ driver.ID, _ Interest) error {
	if p.full {
		return unix.ENOSPC
	}
	p.inside[fd] = true
	return nil
}

func (p *script) Modify(int, driver.ID, Interest, Interest) {}
func (p *script) Remove(fd int, _ Interest)                 { delete(p.inside, fd) }
func (p *script) Wake()                                     {}
func (p *script) Close() error                              { return nil }

func (p *script) Wait(events []Event, _ time.Duration) (int, error) {
	n := copy(events, p.next)
	p.next = nil
	return n, nil
}

// A log is what a driver has emitted of connections.
type log struct {
	driver.Events
	closed, failed error
	dialed         bool
}

func (l *log) Closed(_ driver.ID, err error)     { l.closed = err }
func (l *log) DialFailed(_ driver.ID, err error) { l.failed = err }
func (l *log) Dialed(driver.ID, driver.Addr)     { l.dialed = true }

func open(t *testing.T) (*Driver, *script) {
	p := &script{inside: map[int]bool{}}
	d := New(1, driver.Options{ReadBuffer: 4096}, p)
	t.Cleanup(func() { _ = d.Shutdown() })
	return d, p
}

func poll(t *testing.T, d *Driver, ev driver.Events) {
	t.Helper()
	if _, err := d.Poll(0, ev); err != nil {
		t.Fatal(err)
	}
}

// A connection that was out of the poller, and that the kernel does not take again, is closed:
// nothing would ever be heard of it.
func TestResumeWithoutRoomInThePoller(t *testing.T) {
	d, p := open(t)
	sock, peer, err := Sockets{}.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	id, err := d.Attach(sock)
	if err != nil {
		t.Fatal(err)
	}
	var ev log
	d.Pause(id)
	poll(t, d, &ev)
	p.next = []Event{{ID: id, Ready: Broken}}
	poll(t, d, &ev)
	if poll(t, d, &ev); len(p.inside) != 0 {
		t.Fatal("a hang-up of a paused connection would be reported without end")
	}
	p.full = true
	d.Resume(id)
	if poll(t, d, &ev); !errors.Is(ev.closed, unix.ENOSPC) {
		t.Errorf("closed with %v, want %v", ev.closed, unix.ENOSPC)
	}
}

// A port that programs are given for connecting may have no listener. Then the kernel may give it
// to the program that connects to it.
func TestDialOfItself(t *testing.T) {
	d, p := open(t)
	fd, err := newStream(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, sa); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		t.Skipf("this system connects no socket to itself: %v", err)
	}
	id, err := d.register(fd, kindDialing, Write)
	if err != nil {
		t.Fatal(err)
	}
	var ev log
	p.next = []Event{{ID: id, Ready: Writable}}
	if poll(t, d, &ev); ev.dialed || !errors.Is(ev.failed, unix.ECONNREFUSED) {
		t.Errorf("dialed: %t, failed with %v; want %v", ev.dialed, ev.failed, unix.ECONNREFUSED)
	}
}

// A Listen that fails for want of descriptors leaves no name behind.
func TestListenWithoutDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = min(few.Cur, 128)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	for range 100 { // other code, such as the runtime, may close a descriptor meanwhile
		l, err := listenWithOneDescriptor(path)
		if err == nil {
			_ = l.Close()
			continue
		}
		if _, gone := os.Stat(path); !errors.Is(gone, os.ErrNotExist) {
			t.Errorf("after Listen has failed (%v) its name is still there", err)
		}
		return
	}
	t.Error("Listen has descriptors, however many are taken")
}

// listenWithOneDescriptor leaves one, which is for package net's listener.
func listenWithOneDescriptor(path string) (*Listener, error) {
	var taken []int
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	defer func() {
		for _, fd := range taken {
			unix.Close(fd)
		}
	}()
	if len(taken) > 0 {
		unix.Close(taken[0])
		taken = taken[1:]
	}
	return listen(context.Background(), "unix", path)
}

// A driver of another package can take the descriptor of a socket, once.
func TestTake(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	defer here.Close()
	var sockets Sockets
	if _, err := sockets.Import(here); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Import of a pipe: %v", err)
	}
	sock, nc, err := sockets.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	d, err := Take(sock)
	if err != nil || d.FD < 0 || len(d.Ahead) > 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	defer unix.Close(d.FD)
	if _, err := Take(sock); !errors.Is(err, driver.ErrStale) {
		t.Errorf("Take again: %v", err)
	}
	if err := sock.Close(); err != nil {
		t.Error(err)
	}
	if _, err := unix.Write(d.FD, []byte("taken")); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 10)
	if n, err := nc.Read(p); err != nil || string(p[:n]) != "taken" {
		t.Errorf("the other end reads %q, %v", p[:n], err)
	}
	if _, err := Take(foreign{}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Take of a foreign socket: %v", err)
	}
}

type foreign struct{ driver.Socket }

// An acceptor is a log that counts peers, and closes them.
type acceptor struct {
	log
	peers int
	stop  func() // after the first one, if it is not nil
}

func (a *acceptor) Accepted(_ driver.ID, s driver.Socket) {
	a.peers++
	_ = s.Close()
	if a.stop != nil {
		a.stop()
	}
}

// A listener is served in each Poll, although the kernel has more to report than there is room for.
// It is not served while its owner has stopped it, nor behind its end.
func TestListenersAreServedInEachPoll(t *testing.T) {
	d, p := open(t)
	l, err := Sockets{}.Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	id, err := d.Listen(l)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		peer, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
	}
	ev := &acceptor{stop: func() { d.StopAccept(id) }}
	crowd := make([]Event, eventsPerPoll) // of connections that have gone
	for i := range crowd {
		crowd[i].ID = driver.MakeID(1, uint32(1000+i), 1)
	}
	for _, step := range []struct {
		events int
		before func()
		peers  int
		full   bool
	}{
		{eventsPerPoll - 1, func() {}, 0, false},
		{eventsPerPoll, func() {}, 1, true},
		{eventsPerPoll, func() {}, 1, true}, // it is stopped
		{eventsPerPoll, func() { d.ResumeAccept(id); ev.stop = nil }, 3, true},
		{eventsPerPoll, func() { d.CloseListener(id) }, 3, true},
		{0, func() {}, 3, false},
	} {
		step.before()
		p.next = crowd[:step.events]
		if poll(t, d, ev); ev.peers != step.peers || d.Full() != step.full {
			t.Errorf("%d events: %d peers in all, full %v; want %d, %v", step.events, ev.peers, d.Full(), step.peers,
				step.full)
		}
	}
}
