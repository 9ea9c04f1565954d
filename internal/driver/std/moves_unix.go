//go:build unix

package std

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/myriad-go/myriad/internal/driver"
)

// moves are driver.Facilities.Moves.
var moves = &driver.Moves{Unread: unread, Share: share, Lend: lendSocket, Receive: receive, Listener: receiveListener}

// own is a Socket of this package that has not been given on, and its net.Conn if that has a
// descriptor.
func own(sock driver.Socket) (*Socket, filer, error) {
	s, ok := sock.(*Socket)
	switch {
	case !ok:
		return nil, nil, fmt.Errorf("std: move a %T: %w", sock, driver.ErrUnsupported)
	case s.nc == nil:
		return nil, nil, driver.ErrStale
	}
	switch nc := s.nc.(type) {
	case *net.TCPConn:
		return s, nc, nil
	case *net.UnixConn:
		return s, nc, nil
	}
	return s, nil, fmt.Errorf("std: move a %T: %w", s.nc, driver.ErrUnsupported)
}

// A filer is a net.Conn that has a descriptor.
type filer interface {
	syscall.Conn
	File() (*os.File, error)
}

func unread(sock driver.Socket) []byte {
	if s, ok := sock.(*Socket); ok && s.nc != nil {
		return s.ahead
	}
	return nil
}

func share(sock driver.Socket) (driver.Socket, error) {
	_, nc, err := own(sock)
	if err != nil {
		return nil, err
	}
	f, err := nc.File()
	if err != nil {
		return nil, err
	}
	return fromFile(f)
}

func lendSocket(sock driver.Socket, f func(fd uintptr)) error {
	_, nc, err := own(sock)
	if err != nil {
		return err
	}
	raw, err := nc.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(f)
}

func receive(fd uintptr) (driver.Socket, error) {
	return fromFile(os.NewFile(fd, "myriad-received"))
}

// fromFile takes f.
func fromFile(f *os.File) (driver.Socket, error) {
	defer f.Close() // FileConn has a duplicate of its own
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("std: receive a descriptor: %w", err)
	}
	switch nc := nc.(type) {
	case *net.TCPConn:
		return &Socket{nc: nc}, nil
	case *net.UnixConn:
		if nc.LocalAddr().Network() == "unix" {
			return &Socket{nc: nc}, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("std: receive a descriptor of a %T, which is no stream: %w", nc,
		driver.ErrUnsupported), nc.Close())
}

// receiveListener leaves the path of a unix socket alone until Unshare: the others have the
// address, too.
func receiveListener(f *os.File) (driver.Listener, error) {
	nl, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("std: receive a listener: %w", err)
	}
	own, ok := nl.(netListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("std: receive a %T: %w", nl, driver.ErrUnsupported), nl.Close())
	}
	l := &Listener{nl: own, shared: 1}
	l.resumed.L = &l.mu
	return l, nil
}
