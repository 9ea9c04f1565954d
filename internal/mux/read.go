package mux

import (
	"bytes"
	"fmt"
	"io"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h2"
)

// Received implements myriad.Handler.
func (c *Conn) Received(_ *myriad.Conn, p []byte) {
	if c.is(failed) {
		return
	}
	a := c.wake()
	defer c.leave(c.enter())
	c.heardNow()
	for a.partial != nil && len(p) > 0 && !c.is(failed) {
		p = c.complete(p)
	}
	if rest := c.frames(p); len(rest) > 0 && !c.is(failed) {
		a.partial = buf.Get(min(c.missing(rest)+len(rest), max(2*len(rest), firstPartial)))
		a.partial.Append(rest)
	}
	if c.is(failed) {
		a.dropPartial()
	}
	c.timeHead()
}

// timeHead bounds the time of a field block from where it is incomplete.
func (c *Conn) timeHead() {
	a := c.act
	coming := a.block.stream != 0
	if p := a.partial; p != nil && p.Len() >= h2.HeaderSize && c.is(gotPreface) {
		coming = coming || h2.Type(p.Bytes()[3]) == h2.Headers
	}
	switch {
	case c.cfg.HeadTimeout <= 0 || coming == c.is(headArmed):
	case coming:
		c.bits |= headArmed
		c.Timers.Set(c.c, headTimer, c.cfg.HeadTimeout)
	default:
		c.bits &^= headArmed
		c.Timers.Set(c.c, headTimer, 0)
	}
}

// firstPartial is the room that an incomplete frame has at first; a larger one doubles it as it
// comes, so that its header alone takes little memory.
const firstPartial = 512

// complete adds to the incomplete frame what it lacks, and handles it if that was all. It copies no
// more, so that a connection keeps at most one frame.
func (c *Conn) complete(p []byte) (rest []byte) {
	a := c.act
	n := min(len(p), c.missing(a.partial.Bytes()))
	if a.partial.Free() < n {
		larger := buf.Get(min(a.partial.Len()+c.missing(a.partial.Bytes()), max(2*a.partial.Len(), a.partial.Len()+n)))
		larger.Append(a.partial.Bytes())
		a.dropPartial()
		a.partial = larger
	}
	a.partial.Append(p[:n])
	if len(c.frames(a.partial.Bytes())) == 0 {
		a.dropPartial()
	}
	return p[n:]
}

// missing is how many bytes an incomplete frame lacks, or its header, or the preface.
func (c *Conn) missing(p []byte) int {
	switch {
	case !c.is(gotPreface):
		return len(h2.Preface) - len(p)
	case len(p) < h2.HeaderSize:
		return h2.HeaderSize - len(p)
	}
	return h2.HeaderSize + int(p[0])<<16 + int(p[1])<<8 + int(p[2]) - len(p)
}

func (a *active) dropPartial() {
	if a.partial != nil {
		a.partial.Release()
		a.partial = nil
	}
}

// frames handles what is complete and returns the rest.
func (c *Conn) frames(p []byte) (rest []byte) {
	if !c.is(gotPreface) {
		n := min(len(p), len(h2.Preface))
		if !bytes.Equal(p[:n], []byte(h2.Preface)[:n]) { // section 3.4
			c.fail(h2.ProtocolError, "the connection does not begin with the preface", nil)
			return nil
		}
		if n < len(h2.Preface) {
			return p
		}
		c.bits |= gotPreface
		p = p[n:]
	}
	for len(p) > 0 && !c.is(failed) {
		n, f, err := h2.ParseFrame(p, c.cfg.readFrame())
		if n == 0 && err == nil {
			return p
		}
		if err == nil || n > 0 {
			err = c.frame(&f, err)
		} else if !c.is(gotSettings) && bytes.HasPrefix(p, []byte("HTTP/1.")) {
			err = c.connError(h2.ProtocolError, "the server answers in HTTP/1")
		}
		if err != nil {
			c.wrong(err)
		}
		p = p[n:]
	}
	return nil
}

// wrong ends a stream or the connection for what the peer has done.
func (c *Conn) wrong(err error) {
	e, ok := err.(*h2.Error)
	switch {
	case !ok:
		c.fail(h2.InternalError, err.Error(), err)
	case e.Stream == 0:
		c.fail(e.Code, e.Reason, nil)
	default:
		c.refuse(e)
	}
}

func (c *Conn) connError(code h2.Code, reason string) error {
	return &h2.Error{Code: code, Reason: reason}
}

func streamError(s uint32, code h2.Code, reason string) error {
	return &h2.Error{Code: code, Stream: s, Reason: reason}
}

// frame handles one frame. bad is what ParseFrame has found wrong with it for its stream.
func (c *Conn) frame(f *h2.Frame, bad error) error {
	a := c.act
	switch {
	case !c.is(gotSettings) && (f.Type != h2.Settings || f.Has(h2.Ack)): // section 3.4
		return c.connError(h2.ProtocolError, "the first frame is not SETTINGS")
	case a.block.stream != 0 && (f.Type != h2.Continuation || f.Stream != a.block.stream): // section 6.10
		return c.connError(h2.ProtocolError, "a field block is interrupted")
	}
	if e, ok := bad.(*h2.Error); ok && (e.Stream == 0 || f.Type != h2.Headers) {
		if c.isIdle(f.Stream) { // which cannot be reset
			return c.connError(e.Code, e.Reason)
		}
		return bad
	}
	switch f.Type {
	case h2.Data:
		c.bits &^= probedOnce | probedTwice
		return c.data(f)
	case h2.Headers:
		c.bits &^= probedOnce | probedTwice
		return c.headers(f, bad != nil)
	case h2.Continuation:
		return c.continuation(f)
	case h2.ResetStream:
		return c.peerReset(f)
	case h2.Settings:
		return c.peerSettings(f)
	case h2.PushPromise: // section 8.4: a client cannot push, and a server was told not to
		return c.connError(h2.ProtocolError, "PUSH_PROMISE is not allowed")
	case h2.Ping:
		return c.ping(f)
	case h2.GoAway:
		return c.goAway(f)
	case h2.WindowUpdate:
		return c.windowUpdate(f)
	case h2.PriorityUpdate:
		return c.priorityUpdate(f)
	}
	return c.glitch(1) // PRIORITY has no effect (section 5.3.2), unknown types are ignored (5.5)
}

func (c *Conn) now() int64 { return c.cfg.Now().UnixMilli() }

// isIdle reports whether a stream has never been opened (section 5.1).
func (c *Conn) isIdle(id uint32) bool {
	return id%2 == 0 || id > c.last // a server opens none
}

// data is section 6.1.
func (c *Conn) data(f *h2.Frame) error {
	if c.isIdle(f.Stream) {
		return c.connError(h2.ProtocolError, "DATA for a stream that is not open")
	}
	if c.recv -= int32(f.Length); c.recv < 0 { // section 6.9.1
		return c.connError(h2.FlowControlError, "more DATA than the connection's window")
	}
	s := c.act.streams[f.Stream]
	if s == nil || s.is(remoteDone) {
		c.credit(nil, f.Length)
		if s == nil && c.wasReset(f.Stream) {
			if len(f.Data) == 0 {
				return c.glitch(1)
			}
			return nil // it was under way, and costs no more than DATA of a stream that is open
		}
		return streamError(f.Stream, h2.StreamClosed, "DATA after the stream's end") // section 5.1
	}
	last := f.Has(h2.EndStream)
	if len(f.Data) == 0 && !last {
		cost := emptyCost
		if c.cfg.Client {
			cost = 1
		}
		if err := c.glitch(cost); err != nil {
			return err
		}
	}
	if s.recv -= int32(f.Length); s.recv < 0 {
		c.credit(nil, f.Length)
		return streamError(f.Stream, h2.FlowControlError, "more DATA than the stream's window")
	}
	s.unread += int32(f.Length)
	c.credit(s, f.Length-len(f.Data)) // padding is consumed at once
	p, fault := s.measure(f.Data, last)
	if fault != nil {
		if len(p) > 0 {
			s.owner.Data(p, false)
		}
		return fault
	}
	if last {
		s.bits |= remoteDone
	}
	s.owner.Data(p, last)
	if !s.is(closed) {
		c.credit(s, s.owner.Credit())
		c.endIfDone(s)
	}
	return nil
}

// measure holds the body against its Content-Length (section 8.1.1). It returns what of p belongs
// to the body, and what is wrong: the reader of a body that is cut gets what has come of it first.
func (s *Stream) measure(p []byte, last bool) (body []byte, fault error) {
	switch {
	case !s.is(gotHead):
		return nil, streamError(s.id, h2.ProtocolError, "DATA before the response")
	case s.is(noBody):
		if len(p) > 0 {
			return nil, streamError(s.id, h2.ProtocolError, "DATA of a response without a body")
		}
	case s.left >= 0 && int64(len(p)) > s.left:
		return p[:s.left], s.tooLong()
	case s.left >= 0:
		if s.left -= int64(len(p)); last && s.left > 0 {
			return p, s.tooShort()
		}
	}
	return p, nil
}

// tooLong and tooShort are said in the words of net/http, if it has some: a handler, or the reader
// of a response, gets them from the body.
func (s *Stream) tooLong() error {
	if s.conn.cfg.Client {
		return &h2.Error{Code: h2.ProtocolError, Stream: s.id, Cause: errTooLong, Reason: fmt.Sprintf(
			"server replied with more than declared Content-Length of %d bytes; truncated", s.length)}
	}
	return streamError(s.id, h2.ProtocolError,
		fmt.Sprintf("sender tried to send more than declared Content-Length of %d bytes", s.length))
}

// tooShort is io.ErrUnexpectedEOF, as the cut body of HTTP/1 is.
func (s *Stream) tooShort() error {
	message := "request"
	if s.conn.cfg.Client {
		message = "response"
	}
	return &h2.Error{Code: h2.ProtocolError, Stream: s.id, Cause: io.ErrUnexpectedEOF, Reason: fmt.Sprintf(
		"%s declared a Content-Length of %d but only wrote %d bytes", message, s.length, s.length-s.left)}
}

// credit notes that n bytes of a stream's window have been consumed, and grants the peer as many
// when it is worth a frame. Without a stream, it is the connection's window alone.
func (c *Conn) credit(s *Stream, n int) {
	if s != nil {
		n = min(n, int(s.unread))
		s.unread -= int32(n)
		if s.owed += int32(n); s.owed >= int32(c.cfg.window())/2 && !s.is(remoteDone|closed) {
			c.act.control = h2.AppendWindowUpdate(c.act.control, s.id, int(s.owed))
			c.act.controls++
			s.recv += s.owed
			s.owed = 0
		}
	}
	if c.owed += int32(n); c.owed > 0 && c.owed >= int32(c.cfg.connWindow())/4 && !c.is(failed) {
		a := c.wake()
		a.control = h2.AppendWindowUpdate(a.control, 0, int(c.owed))
		a.controls++
		c.recv += c.owed
		c.owed = 0
	}
}

// peerReset is section 6.4.
func (c *Conn) peerReset(f *h2.Frame) error {
	if c.isIdle(f.Stream) {
		return c.connError(h2.ProtocolError, "RST_STREAM for a stream that is not open")
	}
	s := c.act.streams[f.Stream]
	if s == nil {
		return c.glitch(1)
	}
	if n := c.cfg.Counters; n != nil {
		n.PeerResets.Add(1)
	}
	// A server may reset a request that it has answered (section 8.1), which is no reason to give
	// up what it has sent; but what we have to send is of no use.
	c.close(s, h2.Code(f.Value), streamError(f.Stream, h2.Code(f.Value), ResetByPeer))
	return c.cancelled()
}

// ping is section 6.7.
func (c *Conn) ping(f *h2.Frame) error {
	if f.Has(h2.Ack) {
		if c.is(pinged) && f.Ping() == drainPing {
			c.sayLast()
			return nil
		}
		if c.paid(f.Ping()) {
			return nil
		}
		return c.glitch(1)
	}
	c.act.control = h2.AppendPing(c.act.control, f.Ping(), true)
	c.act.controls++
	return c.glitch(1)
}

// goAway is section 6.8.
func (c *Conn) goAway(f *h2.Frame) error {
	c.bits |= peerGoesAway
	if c.cfg.Client {
		for _, s := range c.open() {
			if s.id > f.Last || s.id == 0 {
				c.close(s, h2.RefusedStream, &h2.Error{Code: h2.RefusedStream, Stream: s.id,
					Reason: "not processed, by GOAWAY", Cause: errNotProcessed})
			}
		}
		c.act.away = &goAwayError{f.Last, h2.Code(f.Value), string(f.Data[:min(len(f.Data), keptDebug)])}
	}
	c.owner.GoAway(f.Last, h2.Code(f.Value))
	return c.glitch(1)
}

// windowUpdate is section 6.9.
func (c *Conn) windowUpdate(f *h2.Frame) error {
	if f.Stream == 0 {
		sum, ok := h2.AddWindow(c.send, int64(f.Value))
		if !ok {
			return c.connError(h2.FlowControlError, "the connection's window is too large")
		}
		c.send = sum
		return c.glitch(1)
	}
	if c.isIdle(f.Stream) {
		return c.connError(h2.ProtocolError, "WINDOW_UPDATE for a stream that is not open")
	}
	s := c.act.streams[f.Stream]
	if s == nil {
		return c.glitch(1)
	}
	sum, ok := h2.AddWindow(s.send, int64(f.Value))
	if !ok {
		return streamError(f.Stream, h2.FlowControlError, "the stream's window is too large")
	}
	s.send = sum
	c.enqueue(s)
	return c.glitch(1)
}

// priorityUpdate is RFC 9218 section 7.1.
func (c *Conn) priorityUpdate(f *h2.Frame) error {
	if c.cfg.Client || f.Value%2 == 0 {
		return c.connError(h2.ProtocolError, "PRIORITY_UPDATE from a server, or for its stream")
	}
	p := h2.ParsePriority(string(f.Data[:min(len(f.Data), 64)]))
	a := c.act
	switch s := a.streams[f.Value]; {
	case s != nil:
		c.prioritize(s, p)
	case f.Value > c.last && len(a.early) < maxEarlyPriorities:
		a.early = append(a.early, earlyPriority{f.Value, p})
	}
	return c.glitch(1)
}
