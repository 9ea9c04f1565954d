//go:build darwin || freebsd || dragonfly

package kqueue

import "golang.org/x/sys/unix"

// waker is a knote that users trigger. No descriptor has to do with it.
type waker struct{}

const wakeIdent = 0

func (waker) open(queue int) error {
	k := unix.Kevent_t{Ident: wakeIdent, Filter: unix.EVFILT_USER, Flags: unix.EV_ADD | unix.EV_CLEAR}
	return kevent(queue, []unix.Kevent_t{k}, nil, &unix.Timespec{})
}

func (waker) close() {}

func (waker) wake(queue int) {
	k := unix.Kevent_t{Ident: wakeIdent, Filter: unix.EVFILT_USER, Fflags: unix.NOTE_TRIGGER}
	_ = kevent(queue, []unix.Kevent_t{k}, nil, &unix.Timespec{})
}

func (waker) heard(e *unix.Kevent_t) bool { return e.Filter == unix.EVFILT_USER }
