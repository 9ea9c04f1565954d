package myriad

import (
	"net"
	"sync"

	"github.com/myriad-go/myriad/internal/driver"
)

// announce gives nc the addresses that SetAddrs was given.
func announce(nc net.Conn, local, remote net.Addr) net.Conn {
	addrs := announced{local, remote}
	if tcp, ok := nc.(*net.TCPConn); ok {
		return &announcedTCP{tcp, addrs}
	}
	return &announcedConn{nc, addrs}
}

// announced are addresses that a proxy has told.
type announced struct{ local, remote net.Addr }

// An announcedTCP is a TCP connection through a proxy, with the addresses of the proxy's client.
type announcedTCP struct {
	*net.TCPConn
	addrs announced
}

func (c *announcedTCP) LocalAddr() net.Addr  { return c.addrs.local }
func (c *announcedTCP) RemoteAddr() net.Addr { return c.addrs.remote }

// NetConn is the connection with the addresses that it has for the kernel.
func (c *announcedTCP) NetConn() net.Conn { return c.TCPConn }

// An announcedConn is the same for a net.Conn of another kind.
type announcedConn struct {
	net.Conn
	addrs announced
}

func (c *announcedConn) LocalAddr() net.Addr  { return c.addrs.local }
func (c *announcedConn) RemoteAddr() net.Addr { return c.addrs.remote }
func (c *announcedConn) NetConn() net.Conn    { return c.Conn }
func (c *announcedConn) CloseWrite() error    { return closeWrite(c.Conn) }

// unannounced is the connection below the addresses that a proxy has told, if nc has such.
func unannounced(nc net.Conn) (below net.Conn, was bool) {
	switch nc := nc.(type) {
	case *announcedTCP:
		return nc.TCPConn, true
	case *announcedConn:
		return nc.Conn, true
	}
	return nc, false
}

// localAddrs are the addresses that conns of a loop share, at most maxLocalAddrs of them.
type localAddrs map[driver.Addr]net.Addr

// sharedAddr finds the one net.Addr that conns of this loop share for a local address.
func (l *Loop) sharedAddr(a driver.Addr) net.Addr {
	if na, ok := l.locals[a]; ok {
		return na
	}
	na := a.Net()
	if na != nil && len(l.locals) < maxLocalAddrs {
		l.locals[a] = na
	}
	return na
}

// sharedAddrs are local addresses of adopted conns, so that many have one net.Addr, as those have
// that a loop accepts.
type sharedAddrs struct {
	mu   sync.Mutex
	list localAddrs
}

// share finds the one for na, or makes na that one. Above maxLocalAddrs it makes an ownAddr, as of
// connections that were dialled. What is no socket's address stays as it is.
func (s *sharedAddrs) share(na net.Addr) net.Addr {
	a := driver.AddrOf(na)
	if a == (driver.Addr{}) || a == driver.UnixAddr {
		return na
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, ok := s.list[a]; ok {
		return one
	}
	if s.list == nil {
		s.list = localAddrs{}
	}
	if len(s.list) >= maxLocalAddrs {
		return ownAddr{a}
	}
	s.list[a] = na
	return na
}

// An ownAddr is a local address that no other conn has, because its port was chosen for a dial. It
// is converted when it is asked for: that is seldom, and a net.TCPAddr takes twice the memory.
type ownAddr struct{ driver.Addr }

// Network implements net.Addr.
func (a ownAddr) Network() string { return a.Net().Network() }
