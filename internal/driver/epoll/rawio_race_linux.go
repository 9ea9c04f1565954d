//go:build race

package epoll

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Under the race detector the calls of package syscall are used: they tell it that what was done before a write
// happened before what follows the read, also between our sockets and those of package net. Without it, programs
// that are ordered by a request and its answer would be reported.

func rawRead(fd int, p []byte) (int, unix.Errno) { return asErrno(syscall.Read(fd, p)) }

func rawWrite(fd int, p []byte) (int, unix.Errno) { return asErrno(syscall.Write(fd, p)) }

// rawWritev writes one vector after the other, until one is not taken whole.
func rawWritev(fd int, vectors [][]byte, _ *[vectorsPerWrite]unix.Iovec) (int, unix.Errno) {
	total := 0
	for _, p := range vectors {
		n, errno := rawWrite(fd, p)
		total += n
		if errno != 0 && total == 0 {
			return 0, errno
		}
		if n < len(p) {
			break
		}
	}
	return total, 0
}

func asErrno(n int, err error) (int, unix.Errno) {
	if err == nil {
		return n, 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return 0, errno
	}
	return 0, unix.EIO
}
