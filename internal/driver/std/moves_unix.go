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
var moves = &driver.Moves{Unread: unread, Share: share, Lend: lendSocket, Receive: receive,
	ShareListener: shareListener, Listener: receiveListener}

// borrow calls f with the net.Conn of a Socket of this package that has not been given on, if it
// has a descriptor.
func borrow(sock driver.Socket, f func(nc filer) error) error {
	s, ok := sock.(*Socket)
	if !ok {
		return fmt.Errorf("std: move a %T: %w", sock, driver.ErrUnsupported)
	}
	nc := s.borrow()
	if nc == nil {
		return driver.ErrStale
	}
	defer s.giveBack(nc)
	switch nc := nc.(type) {
	case *net.TCPConn:
		return f(nc)
	case *net.UnixConn:
		return f(nc)
	default:
		return fmt.Errorf("std: move a %T: %w", nc, driver.ErrUnsupported)
	}
}

// A filer is a net.Conn that has a descriptor.
type filer interface {
	syscall.Conn
	File() (*os.File, error)
}

func unread(sock driver.Socket) []byte {
	if s, ok := sock.(*Socket); ok && s.conn() != nil {
		return s.ahead
	}
	return nil
}

func share(sock driver.Socket) (twin driver.Socket, err error) {
	err = borrow(sock, func(nc filer) error {
		f, err := nc.File()
		if err == nil {
			twin, err = fromFile(f)
		}
		return err
	})
	return twin, err
}

func lendSocket(sock driver.Socket, f func(fd uintptr)) error {
	return borrow(sock, func(nc filer) error {
		raw, err := nc.SyscallConn()
		if err != nil {
			return err
		}
		return raw.Control(f)
	})
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

func shareListener(l driver.Listener) (driver.Listener, error) {
	own, ok := l.(*Listener)
	if !ok {
		return nil, fmt.Errorf("std: share a %T: %w", l, driver.ErrUnsupported)
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
