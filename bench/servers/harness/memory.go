package harness

import (
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Upgrades is a Work that has a handler of net/http upgrade connections in memory, one after the
// other. The handler closes them when it has done that.
func Upgrades(handler http.Handler) Work {
	return func(o Order) (Report, error) {
		ln := &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{Handler: handler}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(ln) }()
		var r Report
		for range o.Times {
			c := &memoryConn{input: o.Input, over: make(chan struct{})}
			c.moved.L = &c.mu
			ln.conns <- c
			<-c.over
			if len(c.output) > 0 {
				r.Done++
			}
			r.Output = c.output
		}
		err := server.Close()
		<-ended
		return r, err
	}
}

type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return memoryAddr{} }

type memoryAddr struct{}

func (memoryAddr) Network() string { return "tcp" }
func (memoryAddr) String() string  { return "127.0.0.1:1" }

// A memoryConn has one request to read; then reading waits for a deadline that has passed, or the
// end.
type memoryConn struct {
	mu     sync.Mutex
	moved  sync.Cond
	input  []byte
	output []byte
	late   bool
	closed bool
	over   chan struct{}
}

func (c *memoryConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.input) == 0 && !c.late && !c.closed {
		c.moved.Wait()
	}
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.late:
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(p, c.input)
	c.input = c.input[n:]
	return n, nil
}

func (c *memoryConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.output = append(c.output, p...)
	return len(p), nil
}

func (c *memoryConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.over)
		c.moved.Broadcast()
	}
	return nil
}

// SetReadDeadline knows no deadline but one that has passed, which is what the library uses to take
// a reader off.
func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = !t.IsZero() && time.Until(t) <= 0
	c.moved.Broadcast()
	return nil
}

func (c *memoryConn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }
func (c *memoryConn) SetWriteDeadline(t time.Time) error { return nil }
func (c *memoryConn) LocalAddr() net.Addr                { return memoryAddr{} }
func (c *memoryConn) RemoteAddr() net.Addr               { return memoryAddr{} }
