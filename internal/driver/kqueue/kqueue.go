//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package kqueue

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/posix"
)

// System is an operating system with kqueue.
type System struct{ posix.Sockets }

// Name is what Config.Driver calls it.
func (System) Name() string { return "kqueue" }

// Open implements driver.System.
func (System) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	q, err := openQueue()
	if err != nil {
		return nil, err
	}
	return posix.New(loop, o, newPoller(q)), nil
}

// Facilities implements driver.System.
func (s System) Facilities() driver.Facilities {
	f := s.Sockets.Facilities()
	f.NewWatcher = s.NewWatcher
	return f
}

// NewWatcher makes a driver.Watcher.
func (System) NewWatcher() (driver.Watcher, error) {
	q, err := openQueue()
	if err != nil {
		return nil, err
	}
	return posix.NewWatcher(newPoller(q)), nil
}

// longestWait is within what every kernel takes for a timeout: some fail with EINVAL above 10^8
// seconds.
const longestWait = 24 * time.Hour

// queue is the kernel behind a poller.
type queue struct {
	fd      int
	waker   waker
	changes []unix.Kevent_t
	events  [eventsPerWait]unix.Kevent_t
}

func openQueue() (*queue, error) {
	fd, err := unix.Kqueue()
	if err != nil {
		return nil, fmt.Errorf("kqueue: create: %w", err)
	}
	unix.CloseOnExec(fd) // for exec without fork: a child has no kqueue of its parent's
	q := &queue{fd: fd}
	if err := q.waker.open(fd); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("kqueue: prepare wakes: %w", err)
	}
	return q, nil
}

func (q *queue) close() error {
	q.waker.close()
	return unix.Close(q.fd)
}

func (q *queue) wake() { q.waker.wake(q.fd) }

// apply makes one call for each change, so that an error is that of a known one.
func (q *queue) apply(changes []change) error {
	for i := range changes {
		q.translate(changes[i : i+1])
		if err := kevent(q.fd, q.changes, nil, &unix.Timespec{}); err != nil {
			return err
		}
	}
	return nil
}

// kevent without events fails with the error of its change.
func kevent(fd int, changes, events []unix.Kevent_t, wait *unix.Timespec) error {
	_, err := unix.Kevent(fd, changes, events, wait)
	if err == unix.EINTR { // the changes have been made
		return nil
	}
	return err
}

// translate fills in q.changes.
func (q *queue) translate(changes []change) {
	q.changes = q.changes[:0]
	for _, c := range changes {
		which, how := unix.EVFILT_READ, unix.EV_DELETE
		if c.filter == writeFilter {
			which = unix.EVFILT_WRITE
		}
		switch c.mode {
		case level:
			how = unix.EV_ADD
		case edge:
			how = unix.EV_ADD | unix.EV_CLEAR
		}
		var k unix.Kevent_t
		unix.SetKevent(&k, c.fd, which, how)
		q.changes = append(q.changes, k)
	}
}

func (q *queue) wait(changes []change, reports []report, wait time.Duration) (int, error) {
	q.translate(changes)
	var limit *unix.Timespec
	if wait >= 0 {
		ts := unix.NsecToTimespec(int64(min(wait, longestWait)))
		limit = &ts
	}
	n, err := unix.Kevent(q.fd, q.changes, q.events[:len(reports)], limit)
	if err == unix.EINTR { // the changes have been made
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	count := 0
	for i := range q.events[:n] {
		e := &q.events[i]
		if q.waker.heard(e) || e.Flags&unix.EV_ERROR != 0 {
			continue
		}
		r := report{fd: int(e.Ident)}
		if e.Filter == unix.EVFILT_WRITE {
			r.filter = writeFilter
		}
		if e.Flags&unix.EV_EOF != 0 {
			r.errno = unix.Errno(e.Fflags)
		}
		reports[count] = r
		count++
	}
	return count, nil
}
