//go:build unix

package std

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/myriad-go/myriad/buf"
)

// canWatch: the kernel tells of a reset whatever is unread before it.
const canWatch = true

// watch waits for the reset of a connection without reading from it. The runtime wakes it for
// everything that comes, once each. It returns the error, or that of a deadline.
func watch(raw syscall.RawConn) error {
	var broken error
	err := raw.Read(func(fd uintptr) bool {
		errno, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		switch {
		case err != nil:
			broken = os.NewSyscallError("getsockopt", err)
		case errno != 0:
			broken = syscall.Errno(errno)
		}
		return broken != nil
	})
	return firstOf(broken, err)
}

// sendNow writes until the socket takes no more. It never waits: no other goroutine is writing.
func sendNow(raw syscall.RawConn, chain *buf.Chain) error {
	var failed error
	err := raw.Write(func(fd uintptr) bool {
		failed = writeAll(int(fd), chain)
		return true
	})
	return firstOf(failed, err)
}

func writeAll(fd int, chain *buf.Chain) error {
	for chain.Len() > 0 {
		p := chain.First()
		n, err := syscall.Write(fd, p)
		if n > 0 {
			chain.Discard(n)
		}
		switch {
		case err == syscall.EAGAIN || err == nil && n < len(p):
			return nil
		case err != nil && err != syscall.EINTR:
			return err
		}
	}
	return nil
}

// peerGone tells a reset from other reasons why nothing can be sent.
func peerGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// renewed gives a socket of package net a conn of its own, so that the old one cannot be used any
// more.
func renewed(nc net.Conn) (net.Conn, error) {
	filer, ok := nc.(interface{ File() (*os.File, error) })
	if !ok || rawConn(nc) == nil {
		return nc, nil
	}
	defer nc.Close()
	f, err := filer.File()
	if err != nil {
		return nil, fmt.Errorf("std: import of %v: %w", nc.RemoteAddr(), err)
	}
	defer f.Close()
	own, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("std: import of %v: %w", nc.RemoteAddr(), err)
	}
	return own, nil
}
