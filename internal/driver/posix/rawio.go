//go:build (linux && race) || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Raw calls are for Linux, where they were measured. And under the race detector the calls of
// package syscall are used: they tell it that what was done before a write happened before what
// follows the read, also between our sockets and those of package net. Without it, programs that
// are ordered by a request and its answer would be reported.

func rawRead(fd int, p []byte) (int, unix.Errno) { return asErrno(syscall.Read(fd, p)) }

func rawWrite(fd int, p []byte) (int, unix.Errno) { return asErrno(syscall.Write(fd, p)) }

func asErrno(n int, err error) (int, unix.Errno) {
	if err == nil {
		return n, 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return 0, errno
	}
	return 0, unix.EIO
}
