//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// moves are driver.Facilities.Moves.
var moves = driver.Moves{Unread: unread, Share: share, Lend: lendSocket, Receive: receive,
	ShareListener: shareListener, Listener: receiveListener}

// own is a Socket of this package.
func own(sock driver.Socket) (*Socket, error) {
	if s, ok := sock.(*Socket); ok {
		return s, nil
	}
	return nil, fmt.Errorf("posix: move a %T: %w", sock, driver.ErrUnsupported)
}

func unread(sock driver.Socket) []byte {
	if s, err := own(sock); err == nil {
		return s.ahead
	}
	return nil
}

func share(sock driver.Socket) (driver.Socket, error) {
	s, err := own(sock)
	if err != nil {
		return nil, err
	}
	twin := &Socket{fd: -1, remote: s.remote, shared: true}
	var dupErr error
	if err = s.lend(func(fd uintptr) {
		var n int
		n, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		twin.fd = int32(n)
	}); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, os.NewSyscallError("dup", dupErr)
	}
	return twin, nil
}

func lendSocket(sock driver.Socket, f func(fd uintptr)) error {
	s, err := own(sock)
	if err != nil {
		return err
	}
	return s.lend(f)
}

func receive(fd uintptr) (driver.Socket, error) {
	if err := checkStream(int(fd)); err != nil {
		_ = unix.Close(int(fd))
		return nil, fmt.Errorf("posix: receive a descriptor: %w", err)
	}
	unix.CloseOnExec(int(fd))
	s := newSocket(int(fd))
	s.shared = true
	return s, nil
}

// checkStream fails for what is no stream socket, and has the others not block.
func checkStream(fd int) error {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	switch {
	case err != nil:
		return os.NewSyscallError("getsockopt", err)
	case kind != unix.SOCK_STREAM:
		return fmt.Errorf("socket of type %d: %w", kind, driver.ErrUnsupported)
	}
	return os.NewSyscallError("fcntl", unix.SetNonblock(fd, true))
}

func shareListener(l driver.Listener) (driver.Listener, error) {
	own, ok := l.(*Listener)
	if !ok {
		return nil, fmt.Errorf("posix: share a %T: %w", l, driver.ErrUnsupported)
	}
	f, err := own.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	twin, err := receiveListener(f)
	if err != nil {
		own.Unshare()
	}
	return twin, err
}

// receiveListener leaves the path of a unix socket alone until Unshare: the others have the
// address, too.
func receiveListener(f *os.File) (driver.Listener, error) {
	nl, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("posix: receive a listener: %w", err)
	}
	defer nl.Close()
	l := &Listener{addr: nl.Addr(), shared: 1}
	if ul, ok := nl.(*net.UnixListener); ok {
		ul.SetUnlinkOnClose(false)
		l.unlink = path(l.addr)
	}
	if l.fd, err = duplicate(nl.(syscall.Conn)); err != nil {
		return nil, fmt.Errorf("posix: receive a listener on %v: %w", nl.Addr(), err)
	}
	return l, nil
}
