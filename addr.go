package myriad

import (
	"net"
	"net/netip"

	"github.com/myriad-go/myriad/internal/driver"
)

// AppendRemoteAddr appends RemoteAddr().String() to dst without the address in between. Any
// goroutine.
func (c *Conn) AppendRemoteAddr(dst []byte) []byte {
	if x := c.extra.Load(); x != nil && (x.bridge != nil || x.peer != nil) {
		return append(dst, c.RemoteAddr().String()...)
	}
	return c.remote.AppendTo(dst)
}

// SetAddrs replaces what LocalAddr and RemoteAddr say, for a protocol in which a proxy sends the
// addresses of its client (package proxyproto). An address that is not valid stays as it is. The
// net.Conn that Detach gives has the new addresses, too. On the loop only, before other goroutines
// ask for an address.
func (c *Conn) SetAddrs(local, remote netip.AddrPort) {
	if local.IsValid() {
		c.local = c.loop.sharedAddr(driver.AddrOfPort(local))
	}
	if !remote.IsValid() {
		return
	}
	c.remote = driver.AddrOfPort(remote).AsAnnounced()
	if x := c.extra.Load(); x != nil && (x.bridge != nil || x.peer != nil) {
		x.peer = c.remote.Net()
	}
}

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
