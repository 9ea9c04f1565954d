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

// idleTimeout is how long a client may be silent, or not read its answers.
const idleTimeout = time.Minute

// A server is the first handler of every connection: it gives each a session of its own.
type server struct{ idle time.Duration }

func (s server) Opened(c *myriad.Conn)       { c.SetHandler(s.session(), nil) }
func (server) Received(*myriad.Conn, []byte) {}
func (server) Closed(*myriad.Conn, error)    {}
func (s server) session() *session           { return &session{idle: s.idle} }

// A session is one connection. Its fields belong to the connection's loop: no lock is needed.
type session struct {
	idle time.Duration
	in   buf.Chain  // what has come and was not answered
	owed *buf.Block // an answer for which there was no room; nil: none
	at   int        // the last number sent of a count
	to   int        // its end
}

func (s *session) Opened(c *myriad.Conn) { c.SetTimer(s.idle) }

// Received keeps what has come, and answers the frames that are complete.
func (s *session) Received(c *myriad.Conn, p []byte) {
	c.SetTimer(s.idle)
	s.in.Append(p)
	s.answer(c)
}

// answer sends what there is to send, until nothing is left or there is no room.
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
		err = c.WriteBlocks(frame.Retain()) // which releases one reference, also if it fails
		if err == myriad.ErrFull {
			s.owed = frame
			c.Pause() // no more requests until the client has read answers
			return
		}
		frame.Release()
		if err != nil {
			return // the connection is closing
		}
	}
}

// Drained is called once after each ErrFull, when half of the queue has left.
func (s *session) Drained(c *myriad.Conn) {
	c.SetTimer(s.idle)
	s.answer(c)
}

// next is the frame to send next; nil: there is none until more has come.
func (s *session) next() (*buf.Block, error) {
	if frame := s.owed; frame != nil {
		s.owed = nil
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
			return newFrame("that is no number"), nil
		}
	}
	s.at++
	return newFrame(strconv.Itoa(s.at)), nil
}

// Expired is the timer.
func (s *session) Expired(c *myriad.Conn) {
	if s.owed != nil {
		c.Abort(fmt.Errorf("frames: the client does not read: %w", os.ErrDeadlineExceeded))
		return
	}
	c.Close()
}

// Ended is the client's end. What is queued is still sent. A paused connection is not called for it
// until it has resumed, so nothing is owed.
func (s *session) Ended(c *myriad.Conn) {
	if s.in.Len() > 0 {
		c.Abort(io.ErrUnexpectedEOF)
		return
	}
	c.Close()
}

// Truncated is the client's end by TCP where TLS has its own. A frame shows where it ends, so that
// is as good.
func (s *session) Truncated(c *myriad.Conn, _ error) { s.Ended(c) }

// Closed gives back what is held.
func (s *session) Closed(*myriad.Conn, error) {
	s.in.Release()
	if s.owed != nil {
		s.owed.Release()
	}
}
