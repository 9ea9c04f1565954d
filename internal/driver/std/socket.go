package std

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Socket is a net.Conn that no goroutine reads, with what was read ahead of its owner.
type Socket struct {
	mu     sync.Mutex // of a frozen connection: its loop may close what another goroutine lends
	nc     net.Conn   // guarded by mu; nil once it has been given on, or closed
	lent   int        // guarded by mu: calls of Lend that use nc
	closes bool       // guarded by mu: the last of them closes it
	ahead  []byte
}

// conn is the net.Conn, nil once it has been given on.
func (s *Socket) conn() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nc
}

// take is conn for one that takes it.
func (s *Socket) take() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	nc := s.nc
	s.nc = nil
	return nc
}

// Local and Remote are the conn's addresses, unknown once it has been given on.
func (s *Socket) Local() driver.Addr {
	nc := s.conn()
	if nc == nil {
		return driver.Addr{}
	}
	return driver.AddrOf(nc.LocalAddr())
}

// Remote implements driver.Socket.
func (s *Socket) Remote() driver.Addr {
	nc := s.conn()
	if nc == nil {
		return driver.Addr{}
	}
	return driver.AddrOf(nc.RemoteAddr())
}

// Close closes the conn unless it was given on. While it is lent that comes later, because a conn's
// own Close would wait for it.
func (s *Socket) Close() error {
	s.mu.Lock()
	nc := s.nc
	s.nc = nil
	later := nc != nil && s.lent > 0
	if later {
		s.closes = true
	}
	s.mu.Unlock()
	if nc == nil || later {
		return nil
	}
	return nc.Close()
}

// borrow is conn for one that calls giveBack with it.
func (s *Socket) borrow() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nc != nil {
		s.lent++
	}
	return s.nc
}

func (s *Socket) giveBack(nc net.Conn) {
	s.mu.Lock()
	s.lent--
	closes := s.closes && s.lent == 0
	s.mu.Unlock()
	if closes {
		_ = nc.Close()
	}
}

// Conn is the conn itself, unless bytes were read ahead, which it then returns first.
func (s *Socket) Conn() (net.Conn, error) {
	nc := s.take()
	if nc == nil {
		return nil, driver.ErrStale
	}
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
