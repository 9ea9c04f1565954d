package myriad

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

const (
	// defaultStreamLimit is Stream's limit for 0.
	defaultStreamLimit = 64 << 10
	// streamSlice is how much of a Write is queued at a time.
	streamSlice = 64 << 10
)

// Stream is the blocking view of one conn: give the Handler to Dial, Adopt or SetHandler, and use
// the net.Conn from any goroutine but a loop's. There Read and Write would stop the loop that they
// wait for.
//
// Read waits for bytes. When limit unread bytes are held (0: 64 KiB) the conn is paused until half
// of them have been read, so that it holds at most limit and one Config.ReadBuffer. Write returns
// when all of p is queued, and waits while the queue is full; Close flushes in the background as
// Conn.Close does. CloseWrite is there too. Deadlines, EOF and errors are those of a net.Conn:
// os.ErrDeadlineExceeded, io.EOF after the peer's FIN, *net.OpError. If TLS lacks its close_notify,
// Read fails with an error that wraps io.ErrUnexpectedEOF, and Write goes on.
//
// Before the handler is opened both calls wait, until Close or a deadline. So call Close after a
// Dial that failed. The net.Conn must be closed in any case. A second conn that is given the same
// handler is aborted.
func Stream(limit int) (Handler, net.Conn) {
	if limit <= 0 {
		limit = defaultStreamLimit
	}
	s := &streamConn{limit: limit, world: driver.Process{}}
	return (*streamHandler)(s), s
}

// A world is the part of a driver.System that a stream waits by.
type world interface {
	Now() time.Time
	NewParker() driver.Parker
}

// streamConn is what the goroutines use. Its lock is held while it queues on the conn, so that no
// event comes in between.
type streamConn struct {
	limit int

	mu       sync.Mutex
	world    world // the engine's system, as soon as the handler is given to an engine
	c        *Conn // nil until Opened
	in       buf.Chain
	paused   bool  // the conn, because of limit
	ended    bool  // the peer's FIN
	cut      error // that FIN came before the end of the layer's stream
	dead     bool  // Closed was heard
	err      error // its error
	closed   bool  // Close was called
	finSent  bool  // CloseWrite was called
	writing  bool  // a Write is under way: others wait, so that each leaves in one piece
	readers  []driver.Parker
	writers  []driver.Parker
	spare    driver.Parker
	readDue  time.Time
	writeDue time.Time
}

// bind lets a stream wait by the engine's means from the moment its handler is given to it, also
// behind a handler that negotiates first and names its successor (Heir).
func (e *Engine) bind(h Handler) {
	if first, ok := h.(interface{ Heir() Handler }); ok {
		h = first.Heir()
	}
	if s, ok := h.(*streamHandler); ok {
		s.mu.Lock()
		s.world = e.sys
		s.mu.Unlock()
	}
}

// Read implements net.Conn.
func (s *streamConn) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			return 0, s.failed("read", net.ErrClosed)
		}
		if s.passed(s.readDue) {
			return 0, s.failed("read", os.ErrDeadlineExceeded)
		}
		switch {
		case len(p) == 0:
			return 0, nil
		case s.in.Len() > 0:
			return s.take(p), nil
		case s.cut != nil:
			return 0, s.failed("read", s.cut)
		case s.ended:
			return 0, io.EOF
		case s.dead && s.err != nil:
			return 0, s.failed("read", s.err)
		case s.dead: // closed by the engine
			return 0, s.failed("read", net.ErrClosed)
		}
		s.wait(&s.readers)
	}
}

// take moves unread bytes to p and lets the conn go on when there is room again.
func (s *streamConn) take(p []byte) int {
	n := s.in.CopyTo(p)
	s.in.Discard(n)
	if s.paused && s.in.Len() <= s.limit/2 {
		s.c.Notify()
	}
	return n
}

// Write implements net.Conn.
func (s *streamConn) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.writing {
		if err := s.unwritable(); err != nil {
			return 0, s.failed("write", err)
		}
		s.wait(&s.writers)
	}
	s.writing = true
	defer func() {
		s.writing = false
		s.wake(&s.writers)
	}()
	for {
		if err := s.unwritable(); err != nil {
			return n, s.failed("write", err)
		}
		if n == len(p) {
			return n, nil
		}
		if s.c == nil {
			s.wait(&s.writers)
			continue
		}
		slice := p[n:min(len(p), n+min(streamSlice, s.c.loop.engine.cfg.MaxWrite))]
		switch written, err := s.c.Write(slice); err {
		case nil:
			n += written
		case ErrFull:
			s.wait(&s.writers)
		default:
			return n, s.failed("write", err)
		}
	}
}

// unwritable says why nothing can be written any more, if so.
func (s *streamConn) unwritable() error {
	switch {
	case s.closed:
		return net.ErrClosed
	case s.passed(s.writeDue):
		return os.ErrDeadlineExceeded
	case s.dead && s.err != nil:
		return s.err
	case s.dead || s.finSent:
		return syscall.EPIPE
	}
	return nil
}

func (s *streamConn) failed(op string, err error) error {
	e := &net.OpError{Op: op, Net: "stream", Err: err}
	if s.c != nil {
		e.Source, e.Addr = s.c.LocalAddr(), s.c.RemoteAddr()
		e.Net = e.Addr.Network()
	}
	return e
}

func (s *streamConn) passed(due time.Time) bool {
	return !due.IsZero() && !s.world.Now().Before(due)
}

// wait gives the lock up until wake is called for the list; it may also return for no reason.
func (s *streamConn) wait(list *[]driver.Parker) {
	p := s.spare
	if s.spare = nil; p == nil {
		p = s.world.NewParker()
	}
	world := s.world
	*list = append(*list, p)
	s.mu.Unlock()
	p.Park()
	s.mu.Lock()
	for i, q := range *list {
		if q == p { // it was a permit left from an earlier wait
			*list = append((*list)[:i], (*list)[i+1:]...)
			break
		}
	}
	if s.world == world {
		s.spare = p
	}
}

// wake lets all waiting calls of the list look again.
func (s *streamConn) wake(list *[]driver.Parker) {
	for _, p := range *list {
		p.Unpark()
	}
	clear(*list)
	*list = (*list)[:0]
}

// Close implements net.Conn. Bytes not read are dropped.
func (s *streamConn) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.failed("close", net.ErrClosed)
	}
	s.closed = true
	s.in.Release()
	s.wake(&s.readers)
	s.wake(&s.writers)
	if s.c != nil {
		return s.c.Close()
	}
	return nil
}

// CloseWrite ends our side after what has been written; reading goes on.
func (s *streamConn) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || s.dead:
		return s.failed("close", net.ErrClosed)
	case s.finSent:
		return nil
	}
	s.finSent = true
	s.wake(&s.writers)
	if s.c != nil {
		_ = s.c.CloseWrite() // else it is closing for another reason, of which Closed tells
	}
	return nil
}

// SetDeadline implements net.Conn.
func (s *streamConn) SetDeadline(t time.Time) error { return s.setDue(t, &s.readDue, &s.writeDue) }

// SetReadDeadline implements net.Conn.
func (s *streamConn) SetReadDeadline(t time.Time) error { return s.setDue(t, &s.readDue) }

// SetWriteDeadline implements net.Conn.
func (s *streamConn) SetWriteDeadline(t time.Time) error { return s.setDue(t, &s.writeDue) }

func (s *streamConn) setDue(t time.Time, dues ...*time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.failed("set", net.ErrClosed)
	}
	for _, due := range dues {
		*due = t
	}
	s.arm()
	return nil
}

// arm wakes calls that have waited long enough, and sets the conn's one timer to the next deadline.
func (s *streamConn) arm() {
	if s.passed(s.readDue) {
		s.wake(&s.readers)
	}
	if s.passed(s.writeDue) {
		s.wake(&s.writers)
	}
	if s.c == nil || s.dead {
		return
	}
	var next time.Time
	for _, due := range [...]time.Time{s.readDue, s.writeDue} {
		if !due.IsZero() && !s.passed(due) && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	_ = s.c.SetDeadline(next) // a conn that is gone needs none
}

// LocalAddr implements net.Conn. It is empty before the conn is opened.
func (s *streamConn) LocalAddr() net.Addr { return s.addr((*Conn).LocalAddr) }

// RemoteAddr implements net.Conn. It is empty before the conn is opened.
func (s *streamConn) RemoteAddr() net.Addr { return s.addr((*Conn).RemoteAddr) }

func (s *streamConn) addr(of func(*Conn) net.Addr) net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		return &net.TCPAddr{}
	}
	return of(s.c)
}

// streamHandler is the loop's side of a stream.
type streamHandler streamConn

func (h *streamHandler) Opened(c *Conn) {
	s := (*streamConn)(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		c.Abort(fmt.Errorf("myriad: a second connection for one Stream: %w", ErrUnsupported))
		return
	}
	s.c = c
	c.Resume() // whatever spoke before may have paused it
	s.arm()
	if s.finSent {
		_ = c.CloseWrite()
	}
	if s.closed {
		_ = c.Close()
	}
	s.wake(&s.readers)
	s.wake(&s.writers)
}

func (h *streamHandler) Received(c *Conn, p []byte) {
	s := (*streamConn)(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.in.Append(p)
	if s.in.Len() >= s.limit && !s.paused {
		s.paused = true
		c.Pause()
	}
	s.wake(&s.readers)
}

func (h *streamHandler) Ended(*Conn)                  { (*streamConn)(h).inputEnded(nil) }
func (h *streamHandler) Truncated(_ *Conn, err error) { (*streamConn)(h).inputEnded(err) }

func (s *streamConn) inputEnded(cut error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.cut = true, cut
	s.wake(&s.readers)
}

// Notified lets input go on after Read has made room.
func (h *streamHandler) Notified(c *Conn) {
	s := (*streamConn)(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused && s.in.Len() <= s.limit/2 {
		s.paused = false
		c.Resume()
	}
}

func (h *streamHandler) Drained(*Conn) {
	s := (*streamConn)(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake(&s.writers)
}

func (h *streamHandler) Expired(*Conn) {
	s := (*streamConn)(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arm()
}

func (h *streamHandler) Closed(c *Conn, err error) {
	s := (*streamConn)(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != c {
		return
	}
	s.dead, s.err = true, err
	s.wake(&s.readers)
	s.wake(&s.writers)
}
