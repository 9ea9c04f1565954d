package websocket

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/buf"
)

// NetConn shows a connection with Options.Pull as a net.Conn: a stream of the bytes of the peer's
// messages, of either kind, whose boundaries are lost. Each Write is one message of kind op; it
// waits for room. Close sends StatusNormalClosure and does not wait for the answer. Read gives
// io.EOF when the peer has closed with StatusNormalClosure or StatusGoingAway. Deadlines are those
// of a net.Conn, to the millisecond; one that has passed leaves the connection as it is. Not on a
// loop.
func NetConn(c *Conn, op Op) net.Conn { return &netConn{c: c, op: op} }

type netConn struct {
	c  *Conn
	op Op

	mu   sync.Mutex // one Read at a time
	rest *buf.Block // what Read has not returned of a message
	at   int

	closed atomic.Bool
}

var _ net.Conn = (*netConn)(nil)

func (n *netConn) Read(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for n.rest == nil {
		_, b, err := n.c.pullBlock(context.Background(), func(in *inbox) error { return n.late(in.readDue) })
		if err != nil {
			return 0, n.failed("read", err)
		}
		if n.rest, n.at = b, 0; b != nil && b.Len() == 0 {
			n.drop()
		}
	}
	k := copy(p, n.rest.Bytes()[n.at:])
	if n.at += k; n.at == n.rest.Len() {
		n.drop()
	}
	return k, nil
}

func (n *netConn) drop() {
	n.rest.Release()
	n.rest = nil
}

func (n *netConn) Write(p []byte) (int, error) {
	err := checkMessage(n.op, p)
	if err == nil {
		err = n.writeLate()
	}
	if err == nil {
		err = n.c.writeWaiting(context.Background(), outgoing{op: n.op, p: p}, 0, n.writeLate)
	}
	if err != nil {
		return 0, n.failed("write", err)
	}
	return len(p), nil
}

func (n *netConn) writeLate() error {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if !n.c.settings().pull {
		return errNotPulled
	}
	return n.late(n.c.cold.inbox.writeDue)
}

// late reports whether a deadline has passed.
func (n *netConn) late(due int64) error {
	if due > 0 && n.c.nc != nil && n.c.nc.Loop().Engine().System().Now().UnixMilli() >= due {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// failed is err as a net.Conn returns it.
func (n *netConn) failed(op string, err error) error {
	switch code := CloseStatus(err); {
	case op == "read" && (code == StatusNormalClosure || code == StatusGoingAway):
		return io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = os.ErrDeadlineExceeded // as it is: a timeout in the sense of net.Error
	}
	return &net.OpError{Op: op, Net: "websocket", Source: n.c.LocalAddr(), Addr: n.c.RemoteAddr(), Err: err}
}

func (n *netConn) Close() error {
	if n.closed.Swap(true) {
		return n.failed("close", errClosing)
	}
	err := n.c.Close(StatusNormalClosure, "")
	n.mu.Lock() // a Read that waits has been woken by Close
	defer n.mu.Unlock()
	if n.rest != nil {
		n.drop()
	}
	if err != nil && !errors.Is(err, net.ErrClosed) { // the peer may have closed before
		return n.failed("close", err)
	}
	return nil
}

func (n *netConn) LocalAddr() net.Addr  { return orNone(n.c.LocalAddr()) }
func (n *netConn) RemoteAddr() net.Addr { return orNone(n.c.RemoteAddr()) }

// orNone is for a connection that has not arrived at its loop.
func orNone(a net.Addr) net.Addr {
	if a == nil {
		return &net.TCPAddr{}
	}
	return a
}

func (n *netConn) SetDeadline(t time.Time) error      { return n.setDue(t, true, true) }
func (n *netConn) SetReadDeadline(t time.Time) error  { return n.setDue(t, true, false) }
func (n *netConn) SetWriteDeadline(t time.Time) error { return n.setDue(t, false, true) }

func (n *netConn) setDue(t time.Time, read, write bool) error {
	due := int64(0)
	if !t.IsZero() {
		due = max(1, t.Add(time.Millisecond-1).UnixMilli())
	}
	c := n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.settings().pull:
		return n.failed("set", errNotPulled)
	case c.end.over():
		return n.failed("set", errClosing)
	}
	in := c.cold.inbox
	if read {
		in.readDue = due
		in.wake()
	}
	if write {
		in.writeDue = due
		c.slow().Wake()
	}
	if c.nc != nil {
		c.nc.Notify() // the loop sets the timer
	}
	return nil
}
