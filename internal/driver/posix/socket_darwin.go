package posix

import (
	"syscall"

	"golang.org/x/sys/unix"
)

var keepAliveOptions = probeOptions{unix.TCP_KEEPALIVE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT}

func newStream(family int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, err
	}
	if err := unblock(fd); err != nil {
		return -1, err
	}
	return fd, nil
}

func newStreams() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return fds, err
	}
	if err := unblock(fds[0]); err != nil {
		unix.Close(fds[1])
		return fds, err
	}
	if err := unblock(fds[1]); err != nil {
		unix.Close(fds[0])
		return fds, err
	}
	return fds, nil
}

// noSignals spares the process the signal of a write to a peer that has gone.
func noSignals(fd int) { _ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1) }

// replace makes the number of one descriptor another one's.
func replace(fd, by int) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if unix.Dup2(by, fd) == nil {
		unix.CloseOnExec(fd)
	}
}
