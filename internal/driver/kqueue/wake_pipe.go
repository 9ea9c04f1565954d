//go:build netbsd || openbsd

package kqueue

import "golang.org/x/sys/unix"

// waker is a pipe, because these systems have no EVFILT_USER. A byte in it is a pending wake.
type waker struct{ ends [2]int }

func (w *waker) open(queue int) error {
	if err := unix.Pipe2(w.ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return err
	}
	var k unix.Kevent_t
	unix.SetKevent(&k, w.ends[0], unix.EVFILT_READ, unix.EV_ADD)
	if err := kevent(queue, []unix.Kevent_t{k}, nil, &unix.Timespec{}); err != nil {
		w.close()
		return err
	}
	return nil
}

func (w *waker) close() {
	unix.Close(w.ends[0])
	unix.Close(w.ends[1])
}

// wake fails only if the pipe is full, and then there is a wake in it.
func (w *waker) wake(int) { _, _ = unix.Write(w.ends[1], []byte{0}) }

// heard empties the pipe. Wakes that come while it does may be taken with it: their Wait has not
// ended yet either.
func (w *waker) heard(e *unix.Kevent_t) bool {
	if int(e.Ident) != w.ends[0] || e.Filter != unix.EVFILT_READ {
		return false
	}
	var bytes [256]byte
	for {
		if n, err := unix.Read(w.ends[0], bytes[:]); n < len(bytes) && err != unix.EINTR {
			return true
		}
	}
}
