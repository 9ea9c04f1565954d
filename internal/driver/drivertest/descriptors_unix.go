//go:build unix

package drivertest

import "golang.org/x/sys/unix"

func duplicateFD(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

// isOpen reports whether fd is an open descriptor.
func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func closeFD(fd int) { _ = unix.Close(fd) }
