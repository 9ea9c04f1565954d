package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
)

// idleTimeout is how long a client may be silent or leave its answers unread.
const idleTimeout = time.Minute

// A server is the first handler of every connection. It gives each connection its own session.
type server struct{ idle time.Duration }

func (s server) Opened(c *myriad.Conn)       { c.SetHandler(s.session(), nil) }
func (server) Received(*myriad.Conn, []byte) {}
func (server) Closed(*myriad.Conn, error)    {}
func (s server) session() *session           { return &session{idle: s.idle} }

// A session is one connection. Its fields belong to the connection's loop: no lock is needed.
type session struct {
	idle time.Duration
	in   buf.Chain  // received and not answered yet
	held *buf.Block // an answer that the full queue refused, or nil
	at   int        // the last number sent of a count
	to   int        // its end
}

func (s *session) Opened(c *myriad.Conn) { c.SetTimer(s.idle) }

// Received stores p, and answers the complete frames.
func (s *session) Received(c *myriad.Conn, p []byte) {
	c.SetTimer(s.idle)
	s.in.Append(p)
	s.answer(c)
}

// answer sends frames until there is none, or the connection's queue is full.
func (s *session) answer(c *myriad.Conn) {
	for {
		frame, err := s.next()
		if err != nil {
			c.Abort(err)
			return
		}
		if frame == nil {
			c.Resume()
			return
		}
		err = c.WriteBlocks(frame.Retain()) // it releases one reference, also if it fails
		if err == myriad.ErrFull {
			s.held = frame
			c.Pause() // reads no requests until the client has read answers
			return
		}
		frame.Release()
		if err != nil {
			return // the connection is closing
		}
	}
}

// Drained is called once after each ErrFull, when half of the queue has been sent.
func (s *session) Drained(c *myriad.Conn) {
	c.SetTimer(s.idle)
	s.answer(c)
}

// next returns the frame to send next. It returns nil if more bytes have to arrive first.
func (s *session) next() (*buf.Block, error) {
	if frame := s.held; frame != nil {
		s.held = nil
		return frame, nil
	}
	for s.at == s.to {
		request, err := nextFrame(&s.in)
		if request == nil || err != nil {
			return nil, err
		}
		payload := request.Bytes()[headLen:]
		number, counts := bytes.CutPrefix(payload, []byte("count "))
		if !counts {
			copy(payload, bytes.ToUpper(payload)) // the request's memory becomes the answer's
			return request, nil
		}
		s.at = 0
		s.to, err = strconv.Atoi(string(number))
		request.Release()
		if err != nil || s.to < 0 {
			s.to = 0
			return newFrame("not a number"), nil
		}
	}
	s.at++
	return newFrame(strconv.Itoa(s.at)), nil
}

// Expired is called when the timer fires.
func (s *session) Expired(c *myriad.Conn) {
	if s.held != nil {
		c.Abort(fmt.Errorf("frames: the client does not read: %w", os.ErrDeadlineExceeded))
		return
	}
	c.Close()
}

// Ended is called when the client has ended its side. The engine still sends what is queued. Ended
// is not called while the connection is paused, so held is nil.
func (s *session) Ended(c *myriad.Conn) {
	if s.in.Len() > 0 {
		c.Abort(io.ErrUnexpectedEOF)
		return
	}
	c.Close()
}

// Truncated is called at the client's FIN without a close_notify of TLS. A frame shows where it
// ends, so this is as good as Ended.
func (s *session) Truncated(c *myriad.Conn, _ error) { s.Ended(c) }

// Closed releases the session's memory.
func (s *session) Closed(*myriad.Conn, error) {
	s.in.Release()
	if s.held != nil {
		s.held.Release()
	}
}
