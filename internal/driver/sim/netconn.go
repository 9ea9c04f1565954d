package sim

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// netConn is a connection that has left its driver, with the blocking calls of net.Conn.
type netConn struct {
	w               *World
	e               *end
	closed          bool
	readBy, writeBy time.Time
	waiters         []*waiter
}

func (c *netConn) endChanged() { c.wakeAll() }

func (c *netConn) wakeAll() {
	for _, wt := range c.waiters {
		c.w.wake(wt)
	}
	c.waiters = c.waiters[:0]
}

// block waits for the end to change. It fails when the deadline has passed.
func (c *netConn) block(by time.Time, doing string) error {
	timeout := time.Duration(0)
	if !by.IsZero() {
		if timeout = by.Sub(c.w.now); timeout <= 0 {
			return os.ErrDeadlineExceeded
		}
	}
	wt := c.w.newWaiter(timeout)
	c.waiters = append(c.waiters, wt)
	c.w.wait(wt, doing)
	return nil
}

// Read implements net.Conn.
func (c *netConn) Read(p []byte) (int, error) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.error("read", net.ErrClosed)
		case len(p) == 0:
			return 0, nil
		case len(c.e.in) > 0:
			return c.e.read(p[:w.portion(min(len(p), len(c.e.in)))]), nil
		case c.e.reset != nil:
			return 0, c.error("read", c.e.reset)
		case c.e.finArrived:
			return 0, io.EOF
		}
		if err := c.block(c.readBy, "Conn.Read"); err != nil {
			return 0, c.error("read", err)
		}
	}
}

// Write implements net.Conn.
func (c *netConn) Write(p []byte) (int, error) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for {
		switch {
		case c.closed:
			return n, c.error("write", net.ErrClosed)
		case c.e.reset != nil:
			return n, c.error("write", c.e.reset)
		case c.e.finQueued:
			return n, c.error("write", syscall.EPIPE)
		}
		take := min(len(p)-n, c.e.room())
		c.e.write(p[n : n+take])
		if n += take; n == len(p) {
			return n, nil
		}
		if err := c.block(c.writeBy, "Conn.Write"); err != nil {
			return n, c.error("write", err)
		}
	}
}

// CloseWrite is that of *net.TCPConn.
func (c *netConn) CloseWrite() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.closed {
		return c.error("close", net.ErrClosed)
	}
	c.e.closeWrite()
	return nil
}

// Close implements net.Conn.
func (c *netConn) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.closed {
		return c.error("close", net.ErrClosed)
	}
	c.closed = true
	c.w.unkeep(c.e)
	c.e.close()
	c.wakeAll()
	return nil
}

// LocalAddr implements net.Conn.
func (c *netConn) LocalAddr() net.Addr { return c.e.local.Net() }

// RemoteAddr implements net.Conn.
func (c *netConn) RemoteAddr() net.Addr { return c.e.remote.Net() }

// SetDeadline implements net.Conn, in fake time.
func (c *netConn) SetDeadline(t time.Time) error { return c.setDeadlines(&t, &t) }

// SetReadDeadline implements net.Conn.
func (c *netConn) SetReadDeadline(t time.Time) error { return c.setDeadlines(&t, nil) }

// SetWriteDeadline implements net.Conn.
func (c *netConn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }

func (c *netConn) setDeadlines(read, write *time.Time) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.closed {
		return c.error("set", net.ErrClosed)
	}
	if read != nil {
		c.readBy = *read
	}
	if write != nil {
		c.writeBy = *write
	}
	c.wakeAll()
	return nil
}

func (c *netConn) error(op string, err error) error {
	return &net.OpError{Op: op, Net: "sim", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
