package driver

import (
	"context"
	"net"
)

// A Handshaker is what a *tls.Conn has. Its package is not linked for that.
type Handshaker interface {
	NetConn() net.Conn
	HandshakeContext(ctx context.Context) error
}

// CloseBelow closes what a *tls.Conn writes to, so that no close_notify of its own Close says that
// the peer has had all. It does nothing with any other conn.
func CloseBelow(nc net.Conn) {
	if outer, ok := nc.(Handshaker); ok {
		_ = outer.NetConn().Close()
	}
}

// BreakOff has the output of a *tls.Conn end in the middle of a record: without a close_notify, and
// many peers, crypto/tls among them, take an end between two records for an orderly one. It gives
// the conn below, whose end is to follow; any other conn is returned as it is.
func BreakOff(nc net.Conn) net.Conn {
	outer, ok := nc.(Handshaker)
	if !ok {
		return nc
	}
	below := outer.NetConn()
	_, _ = below.Write([]byte{23, 3, 3})
	return below
}
