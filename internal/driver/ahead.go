package driver

import "net"

// Ahead is nc with bytes before those that can still be read from it.
func Ahead(nc net.Conn, p []byte) net.Conn {
	if len(p) == 0 {
		return nc
	}
	a := &aheadConn{Conn: nc, ahead: p}
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		return halfConn{a, half.CloseWrite}
	}
	return a
}

// SplitAhead undoes Ahead: it returns the conn below, and the bytes that have not been read of it.
// Any other conn is returned as it is.
func SplitAhead(nc net.Conn) (below net.Conn, p []byte) {
	switch c := nc.(type) {
	case halfConn:
		return c.Conn, c.ahead
	case *aheadConn:
		return c.Conn, c.ahead
	}
	return nc, nil
}

// An aheadConn begins with bytes that were read before. Reading is for one goroutine at a time
// until they are gone.
type aheadConn struct {
	net.Conn
	ahead []byte
}

func (c *aheadConn) Read(p []byte) (int, error) {
	if len(c.ahead) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// NetConn is the connection below, whose next bytes are not the first.
func (c *aheadConn) NetConn() net.Conn { return c.Conn }

type halfConn struct {
	*aheadConn
	closeWrite func() error
}

func (c halfConn) CloseWrite() error { return c.closeWrite() }
