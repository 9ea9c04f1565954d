package myriad

import "fmt"

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

func (h *streamHandler) Ended(*Conn) { (*streamConn)(h).inputEnded(nil) }

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
