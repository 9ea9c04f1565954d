// Package epoll is the Linux driver: level-triggered epoll, one instance per loop. All but that is
// package posix.
//
// A poll that does not wait goes to the kernel by a raw system call, as reads and writes do there;
// one that may sleep is an ordinary call, so that its processor serves other goroutines meanwhile
// (docs/adr/0002).
package epoll

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/posix"
)

const (
	eventsPerWait = 256
	wakeSlot      = -1 // the eventfd's mark in an epoll event
)

// poller is one epoll instance. An event carries the slot and the generation of an id.
type poller struct {
	loop   uint8
	fd     int
	wakeFD int
	events [eventsPerWait]unix.EpollEvent
}

func newPoller(loop uint8) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: create: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("epoll: eventfd: %w", err)
	}
	p := &poller{loop: loop, fd: fd, wakeFD: wake}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: wakeSlot}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, wake, &ev); err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("epoll: register eventfd: %w", err)
	}
	return p, nil
}

// Wake implements posix.Poller. The eventfd is edge-triggered and never read: each write is an edge
// of its own, and its counter cannot overflow in the lifetime of a process.
func (p *poller) Wake() {
	one := [8]byte{1}
	_, _ = unix.Write(p.wakeFD, one[:])
}

// Wait implements posix.Poller.
func (p *poller) Wait(events []posix.Event, wait time.Duration) (int, error) {
	ms := -1
	if wait >= 0 {
		ms = int(min(wait/time.Millisecond+min(wait%time.Millisecond, 1), math.MaxInt32))
	}
	n, err := epollWait(p.fd, p.events[:min(len(events), eventsPerWait)], ms)
	if err == unix.EINTR {
		return 0, nil
	}
	count := 0
	for i := range p.events[:max(n, 0)] {
		e := &p.events[i]
		if e.Fd == wakeSlot {
			continue
		}
		events[count] = posix.Event{ID: driver.MakeID(p.loop, uint32(e.Fd), uint32(e.Pad)), Ready: ready(e.Events)}
		count++
	}
	return count, err
}

// epollWait waits by an ordinary call, which gives the processor away, only if it may sleep.
func epollWait(fd int, events []unix.EpollEvent, ms int) (int, error) {
	if ms != 0 {
		return unix.EpollWait(fd, events, ms)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func ready(events uint32) (r posix.Ready) {
	if events&unix.EPOLLIN != 0 {
		r = posix.Readable
	}
	if events&unix.EPOLLOUT != 0 {
		r |= posix.Writable
	}
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		r |= posix.Broken
	}
	return r
}

// Add, Modify, Remove and Close implement posix.Poller. What Watch asks for is reported always.
func (p *poller) Add(fd int, id driver.ID, i posix.Interest) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, id, i)
}

// Modify implements posix.Poller.
func (p *poller) Modify(fd int, id driver.ID, _, next posix.Interest) {
	_ = p.control(unix.EPOLL_CTL_MOD, fd, id, next)
}

func (p *poller) control(op, fd int, id driver.ID, i posix.Interest) error {
	var events uint32
	if i&posix.Read != 0 {
		events = unix.EPOLLIN
	}
	if i&posix.Write != 0 {
		events |= unix.EPOLLOUT
	}
	e := unix.EpollEvent{Events: events, Fd: int32(id.Slot()), Pad: int32(id.Generation())}
	return unix.EpollCtl(p.fd, op, fd, &e)
}

// Remove implements posix.Poller.
func (p *poller) Remove(fd int, _ posix.Interest) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
}

// Close implements posix.Poller.
func (p *poller) Close() error {
	unix.Close(p.wakeFD)
	return unix.Close(p.fd)
}
