//go:build darwin || netbsd || openbsd

package posix

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// acceptStream accepts and then sets the flags, which x/sys cannot ask for in one call here. No
// program is started in between, so that none inherits the descriptor.
func acceptStream(fd int) (int, unix.Sockaddr, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	conn, sa, err := unix.Accept(fd)
	if err != nil {
		return -1, nil, err
	}
	if unblock(conn) != nil {
		return -1, nil, unix.ECONNABORTED // the fault of this peer, not of the listener
	}
	return conn, sa, nil
}

// unblock makes a new descriptor what its driver needs, or closes it. The fork lock is held.
func unblock(fd int) error {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return err
	}
	return nil
}
