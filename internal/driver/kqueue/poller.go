//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package kqueue

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/posix"
)

const eventsPerWait = 256

// A kernel is kqueue(2) as far as a poller uses it. What is said of knotes is in kevent's manual
// page: one for each descriptor and filter; adding one that exists changes nothing about it;
// closing a descriptor deletes its own.
type kernel interface {
	// apply makes changes at once, up to the first that fails.
	apply(changes []change) error
	// wait makes changes, ignoring those that fail, and fills in reports. A negative wait has no
	// end.
	wait(changes []change, reports []report, wait time.Duration) (int, error)
	wake()
	close() error
}

// A change adds or deletes one knote.
type change struct {
	fd     int
	filter filter
	mode   mode
}

type filter uint8

const (
	readFilter filter = iota
	writeFilter
)

// mode is how a knote reports.
type mode uint8

const (
	absent mode = iota
	level       // as long as it is so
	edge        // EV_CLEAR: each time that something happens to it, and once when it is added
)

// A report is an event that the kernel has returned. Those that are only for the kernel's user are
// left out: wakes, and changes that failed.
type report struct {
	fd     int
	filter filter
	errno  unix.Errno // with EV_EOF: the socket's error
}

// poller is a posix.Poller. Identifiers are looked up by descriptor as soon as the kernel has
// reported, before a descriptor can be closed and its number used again. So nothing needs the
// kernel's udata. That is as wide as a pointer, too small for an id on 32 bits, and typed as one,
// so that the collector would follow it.
type poller struct {
	kernel  kernel
	ids     []driver.ID // by descriptor; an entry outlives its knotes
	changes []change    // of Modify, made by the next Wait
	first   []change    // room for those of Add and Remove
	reports [eventsPerWait]report
}

func newPoller(k kernel) *poller { return &poller{kernel: k} }

// Add implements posix.Poller. It is a system call of its own: its error counts, and a change that
// waited could meet another socket of the same number.
func (p *poller) Add(fd int, id driver.ID, i posix.Interest) error {
	if fd >= len(p.ids) {
		p.ids = append(p.ids, make([]driver.ID, fd+1-len(p.ids))...)
	}
	p.ids[fd] = id
	p.first = appendChanges(p.first[:0], fd, 0, i)
	if err := p.kernel.apply(p.first); err != nil {
		return fmt.Errorf("kqueue: register: %w", err)
	}
	return nil
}

// Modify implements posix.Poller. It is called right before Wait only, when all its descriptors are
// open.
func (p *poller) Modify(fd int, _ driver.ID, last, next posix.Interest) {
	p.changes = appendChanges(p.changes, fd, last, next)
}

// Remove implements posix.Poller.
func (p *poller) Remove(fd int, last posix.Interest) {
	for _, c := range appendChanges(p.first[:0], fd, last, 0) {
		_ = p.kernel.apply([]change{c}) // Refuse may have deleted it
	}
}

// appendChanges lists how to come from one interest to another.
func appendChanges(list []change, fd int, last, next posix.Interest) []change {
	if from, to := readMode(last), readMode(next); from != to {
		if from != absent {
			list = append(list, change{fd, readFilter, absent}) // adding alone would not change the mode
		}
		if to != absent {
			list = append(list, change{fd, readFilter, to})
		}
	}
	if from, to := last&posix.Write, next&posix.Write; from < to {
		list = append(list, change{fd, writeFilter, level})
	} else if from > to {
		list = append(list, change{fd, writeFilter, absent})
	}
	return list
}

// readMode: a watched socket reports what happens to it once, and does not repeat it for bytes that
// are not read.
func readMode(i posix.Interest) mode {
	switch {
	case i&posix.Read != 0:
		return level
	case i&posix.Watch != 0:
		return edge
	}
	return absent
}

// Wait implements posix.Poller.
func (p *poller) Wait(events []posix.Event, wait time.Duration) (int, error) {
	n, err := p.kernel.wait(p.changes, p.reports[:min(len(events), eventsPerWait)], wait)
	p.changes = p.changes[:0]
	if err != nil {
		return 0, fmt.Errorf("kqueue: kevent: %w", err)
	}
	for i, r := range p.reports[:n] {
		events[i] = posix.Event{ID: p.ids[r.fd], Ready: r.ready()}
	}
	return n, nil
}

// ready: a reset is reported by the filter for reading alone, because what came before it is to be
// read. The one for writing reports room, and sending finds out.
func (r report) ready() posix.Ready {
	switch {
	case r.filter == writeFilter:
		return posix.Writable
	case r.errno != 0:
		return posix.Readable | posix.Broken
	}
	return posix.Readable
}

// Wake implements posix.Poller.
func (p *poller) Wake() { p.kernel.wake() }

// Close implements posix.Poller.
func (p *poller) Close() error { return p.kernel.close() }
