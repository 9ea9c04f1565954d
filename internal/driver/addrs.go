package driver

import (
	"net"
	"sync"
)

// This file is the addresses of connections: those that a proxy has told, and local ones that many
// connections share.

// Announce gives nc the addresses that a proxy has told.
func Announce(nc net.Conn, local, remote net.Addr) net.Conn {
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
func (c *announcedConn) CloseWrite() error    { return HalfClose(c.Conn) }

// Unannounced is the connection below the addresses that a proxy has told, if nc has such.
func Unannounced(nc net.Conn) (below net.Conn, was bool) {
	switch nc := nc.(type) {
	case *announcedTCP:
		return nc.TCPConn, true
	case *announcedConn:
		return nc.Conn, true
	}
	return nc, false
}

// LocalAddrs are the addresses that conns of a loop share, at most maxLocalAddrs of them.
type LocalAddrs map[Addr]net.Addr

// Of finds the one net.Addr that conns of this loop share for a local address.
func (t LocalAddrs) Of(a Addr) net.Addr {
	if na, ok := t[a]; ok {
		return na
	}
	na := a.Net()
	if na != nil && len(t) < maxLocalAddrs {
		t[a] = na
	}
	return na
}

// SharedAddrs are local addresses of adopted conns, so that many have one net.Addr, as those have
// that a loop accepts.
type SharedAddrs struct {
	mu   sync.Mutex
	list LocalAddrs
}

// Share finds the one for na, or makes na that one. Above maxLocalAddrs it makes an OwnAddr, as of
// connections that were dialled. What is no socket's address stays as it is.
func (s *SharedAddrs) Share(na net.Addr) net.Addr {
	a := AddrOf(na)
	if a == (Addr{}) || a == UnixAddr {
		return na
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, ok := s.list[a]; ok {
		return one
	}
	if s.list == nil {
		s.list = LocalAddrs{}
	}
	if len(s.list) >= maxLocalAddrs {
		return OwnAddr{a}
	}
	s.list[a] = na
	return na
}

// An OwnAddr is a local address that no other conn has, because its port was chosen for a dial. It
// is converted when it is asked for: that is seldom, and a net.TCPAddr takes twice the memory.
type OwnAddr struct{ Addr }

// Network implements net.Addr.
func (a OwnAddr) Network() string { return a.Net().Network() }

// HalfClose ends nc's sending side. It fails with ErrUnsupported if nc cannot end one side alone.
func HalfClose(nc net.Conn) error {
	if hc, ok := nc.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return ErrUnsupported
}

// maxLocalAddrs bounds each table of shared local addresses.
const maxLocalAddrs = 1024

// AskAddr asks a net.Conn for an address. One that panics has none: wrappers around nothing do,
// which have only what net/http calls.
func AskAddr(ask func() net.Addr) (a net.Addr) {
	defer func() {
		if recover() != nil {
			a = nil
		}
	}()
	return ask()
}
