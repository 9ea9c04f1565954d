package sim

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Socket is a connection between drivers.
type Socket struct {
	w             *World
	e             *end // nil once it has been given on
	local, remote driver.Addr
}

func (w *World) newSocket(e *end, how string) *Socket {
	w.keep(e, how)
	return &Socket{w: w, e: e, local: e.local, remote: e.remote}
}

// give hands the connection on. The lock is held.
func (s *Socket) give(op string) *end {
	e := s.e
	if e == nil {
		s.w.mu.Unlock()
		defer s.w.mu.Lock()
		s.w.fail("contract: %s of a socket that was closed or given on", op)
	}
	s.e = nil
	s.w.unkeep(e)
	return e
}

// keep notes that one more socket or net.Conn has e.
func (w *World) keep(e *end, how string) {
	e.kept++
	w.sockets[e] = how
}

func (w *World) unkeep(e *end) {
	if e.kept--; e.kept == 0 {
		delete(w.sockets, e)
	}
}

// Local implements driver.Socket.
func (s *Socket) Local() driver.Addr { return s.local }

// Remote implements driver.Socket.
func (s *Socket) Remote() driver.Addr { return s.remote }

// Close closes the connection, unless it was given on.
func (s *Socket) Close() error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.e != nil {
		s.give("Close").close()
	}
	return nil
}

// Conn makes a net.Conn of the socket, whose Read and Write are turns of the world and whose
// deadlines are in fake time.
func (s *Socket) Conn() (net.Conn, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.e == nil {
		return nil, driver.ErrStale
	}
	c := &netConn{w: s.w, e: s.give("Conn")}
	c.e.holder = c
	s.w.keep(c.e, "net.Conn")
	return c, nil
}

// unread is nothing: a Socket of this world has no bytes beside its end's.
func (w *World) unread(driver.Socket) []byte { return nil }

// share is what dup is for a descriptor.
func (w *World) share(sock driver.Socket) (driver.Socket, error) {
	s, ok := sock.(*Socket)
	if !ok || s.w != w {
		return nil, fmt.Errorf("sim: share of %T: %w", sock, driver.ErrUnsupported)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.e == nil:
		return nil, driver.ErrStale
	case w.noFiles:
		return nil, syscall.EMFILE
	}
	s.e.shares++
	w.note("net", "share", s.e.id, 0)
	return w.newSocket(s.e, "shared"), nil
}

// Import takes back a net.Conn that came from a Socket of this world, and knows no other. It
// implements driver.System.
func (w *World) Import(nc net.Conn) (driver.Socket, error) {
	c, ok := nc.(*netConn)
	if !ok || c.w != w {
		return nil, fmt.Errorf("sim: import of %T: %w", nc, driver.ErrUnsupported)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	c.closed = true
	c.wakeAll()
	e := c.e
	e.holder = nil
	w.unkeep(e)
	return w.newSocket(e, "imported"), nil
}

// Duplicate implements driver.System.
func (w *World) Duplicate(f *os.File) (driver.File, error) { return duplicate(f) }
