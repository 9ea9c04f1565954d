package std

import (
	"net"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Socket is a net.Conn that no goroutine reads, with what was read ahead of its owner.
type Socket struct {
	nc    net.Conn // nil once it has been given on
	ahead []byte
}

// Local and Remote are the conn's addresses, unknown once it has been given on.
func (s *Socket) Local() driver.Addr {
	if s.nc == nil {
		return driver.Addr{}
	}
	return driver.AddrOf(s.nc.LocalAddr())
}

// Remote implements driver.Socket.
func (s *Socket) Remote() driver.Addr {
	if s.nc == nil {
		return driver.Addr{}
	}
	return driver.AddrOf(s.nc.RemoteAddr())
}

// Close closes the conn unless it was given on.
func (s *Socket) Close() error {
	if s.nc == nil {
		return nil
	}
	nc := s.nc
	s.nc = nil
	return nc.Close()
}

// Conn is the conn itself, unless bytes were read ahead, which it then returns first.
func (s *Socket) Conn() (net.Conn, error) {
	if s.nc == nil {
		return nil, driver.ErrStale
	}
	nc := s.nc
	s.nc = nil
	return driver.Ahead(nc, s.ahead), nil
}

// importConn takes nc over.
func importConn(nc net.Conn) (*Socket, error) {
	s := new(Socket)
	s.nc, s.ahead = driver.SplitAhead(nc)
	own, err := renewed(s.nc)
	if err != nil {
		return nil, err
	}
	s.nc = own
	_ = s.nc.SetDeadline(time.Time{})
	return s, nil
}

// rawConn is the way below a socket of package net. A type that embeds one may change the bytes, so
// that only these count.
func rawConn(nc net.Conn) syscall.RawConn {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil
	}
	if !canWatch {
		return nil
	}
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
