//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is for drivers that have sockets of this package and no Poller.

// NewSocket makes a Socket of a descriptor, which it takes. Take undoes it.
func NewSocket(d Descriptor) *Socket {
	s := newSocket(d.FD)
	s.ahead, s.shared = d.Ahead, d.Shared
	return s
}

// Listening is the descriptor of a Listener, which stays the Listener's. The connections that are
// accepted from it are probed after so much silence, where the system has them inherit that. It
// fails with driver.ErrUnsupported for a Listener of another System.
func Listening(l driver.Listener, alive time.Duration) (fd int, err error) {
	ln, ok := l.(*Listener)
	if !ok {
		return -1, driver.ErrUnsupported
	}
	if optionsAreInherited {
		setKeepAlive(ln.fd, alive)
	}
	return ln.fd, nil
}

// Accept takes one peer from a listening descriptor, without waiting. The error is a unix.Errno.
func Accept(fd int, alive time.Duration) (driver.Socket, error) {
	conn, peer, err := accept(fd)
	if err != nil {
		return nil, err
	}
	if !optionsAreInherited {
		setKeepAlive(conn, alive)
	}
	return &Socket{fd: int32(conn), remote: peer}, nil
}

// Connect opens a socket and begins to connect. The descriptor can be written to when that has come
// to an end, of which Connected tells.
func Connect(addr net.Addr, alive time.Duration) (fd int, err error) {
	return startConnect(addr, alive)
}

// Connected is the end of Connect: the local address, or why there is no connection.
func Connected(fd int) (local driver.Addr, errno unix.Errno) {
	local, errno = localAddr(fd), socketError(fd)
	if errno == 0 && local == peerAddr(fd) && local != driver.UnixAddr {
		errno = unix.ECONNREFUSED // no listener: the kernel has taken the port for ours, and connected it to itself
	}
	return local, errno
}

// SocketError is the pending error of a socket, which it takes off the socket; 0 if there is none.
func SocketError(fd int) unix.Errno { return socketError(fd) }

// Reset has the close of a descriptor send a reset to the peer.
func Reset(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// SendTo sends one piece of the file to a socket, at most left bytes from off on. It does not wait:
// sent is 0 without an error if there is no room. The error wraps io.ErrUnexpectedEOF if
// the file has no byte at off.
func (f *File) SendTo(fd int, off, left int64) (sent int, err error) {
	sent, err = sendFile(fd, f.fd, off, int(min(left, filePerWrite)))
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return sent, nil
	case err != nil:
		return sent, err
	case sent == 0:
		return 0, fmt.Errorf("posix: sendfile: the file ended %d bytes before what was promised: %w", left,
			io.ErrUnexpectedEOF)
	}
	return sent, nil
}
