package kqueue

import (
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/drivertest"
	"github.com/myriad-go/myriad/internal/driver/posix"
)

// TestPollerConformance runs the suite over a kernel that reports as kqueue does, made of one epoll
// for each filter. It shows that the poller and package posix ask for the right things; not that a
// BSD answers as the emulation does.
func TestPollerConformance(t *testing.T) {
	drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
		return emulatedSystem{}, drivertest.NetHarness(t)
	})
}

type emulatedSystem struct{ posix.Sockets }

func (emulatedSystem) Name() string { return "emulated kqueue" }

func (emulatedSystem) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	k, err := openEmulation()
	if err != nil {
		return nil, err
	}
	return posix.New(loop, o, newPoller(k)), nil
}

// An emulation has a knote for each descriptor in the epoll of the filter. Epoll drops it when the
// descriptor is closed, as kqueue does. Unlike epoll with one entry for both, a filter that was not
// asked for reports nothing, not even a reset.
type emulation struct {
	filters [2]int // epolls, by filter
	all     int    // an epoll of these and wakeFD
	wakeFD  int
	events  [eventsPerWait / 2]unix.EpollEvent
}

func openEmulation() (*emulation, error) {
	k := &emulation{}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	k.wakeFD = wake
	for _, fd := range []*int{&k.all, &k.filters[readFilter], &k.filters[writeFilter]} {
		if err == nil {
			*fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		}
	}
	for _, fd := range []int{k.wakeFD, k.filters[readFilter], k.filters[writeFilter]} {
		if err == nil {
			err = unix.EpollCtl(k.all, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
		}
	}
	return k, err
}

func (k *emulation) close() error {
	unix.Close(k.filters[readFilter])
	unix.Close(k.filters[writeFilter])
	unix.Close(k.all)
	return unix.Close(k.wakeFD)
}

func (k *emulation) wake() {
	one := [8]byte{1}
	_, _ = unix.Write(k.wakeFD, one[:])
}

func (k *emulation) apply(changes []change) error {
	for _, c := range changes {
		if err := k.applyOne(c); err != nil {
			return err
		}
	}
	return nil
}

func (k *emulation) applyOne(c change) error {
	e := unix.EpollEvent{Fd: int32(c.fd), Events: unix.EPOLLIN | unix.EPOLLRDHUP}
	if c.filter == writeFilter {
		e.Events = unix.EPOLLOUT
	}
	if c.mode == edge {
		e.Events |= unix.EPOLLET
	}
	if c.mode == absent {
		return unix.EpollCtl(k.filters[c.filter], unix.EPOLL_CTL_DEL, c.fd, nil)
	}
	err := unix.EpollCtl(k.filters[c.filter], unix.EPOLL_CTL_ADD, c.fd, &e)
	if err == unix.EEXIST {
		return nil // and its mode stays what it was
	}
	return err
}

func (k *emulation) wait(changes []change, reports []report, wait time.Duration) (int, error) {
	for _, c := range changes {
		_ = k.applyOne(c)
	}
	ms := -1
	if wait >= 0 {
		ms = int(min((wait+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
	}
	if _, err := unix.EpollWait(k.all, k.events[:3], ms); err != nil && err != unix.EINTR {
		return 0, err
	}
	var count [8]byte
	_, _ = unix.Read(k.wakeFD, count[:])
	n := 0
	for f := range k.filters {
		got, err := unix.EpollWait(k.filters[f], k.events[:], 0)
		if err != nil && err != unix.EINTR {
			return 0, err
		}
		for _, e := range k.events[:max(got, 0)] {
			r := report{fd: int(e.Fd), filter: filter(f)}
			if e.Events&unix.EPOLLERR != 0 { // the socket has an error that was not reported
				r.errno = unix.ECONNRESET
			}
			reports[n] = r
			n++
		}
	}
	return n, nil
}

func TestAppendChanges(t *testing.T) {
	const fd = 7
	readOff, readLevel, readEdge := change{fd, readFilter, absent}, change{fd, readFilter, level},
		change{fd, readFilter, edge}
	writeOff, writeOn := change{fd, writeFilter, absent}, change{fd, writeFilter, level}
	for _, tt := range []struct {
		last, next posix.Interest
		want       []change
	}{
		{0, posix.Read, []change{readLevel}},
		{0, posix.Write, []change{writeOn}},
		{posix.Read, posix.Read, nil},
		{posix.Read, posix.Watch, []change{readOff, readEdge}},
		{posix.Watch, posix.Read, []change{readOff, readLevel}},
		{posix.Read, posix.Read | posix.Write, []change{writeOn}},
		{posix.Watch | posix.Write, posix.Read, []change{readOff, readLevel, writeOff}},
		{posix.Read | posix.Write, 0, []change{readOff, writeOff}},
		{posix.Write, posix.Read, []change{readLevel, writeOff}},
	} {
		got := appendChanges(nil, fd, tt.last, tt.next)
		if len(got) != len(tt.want) {
			t.Errorf("from %b to %b: %v, want %v", tt.last, tt.next, got, tt.want)
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("from %b to %b: %v, want %v", tt.last, tt.next, got, tt.want)
			}
		}
	}
}
