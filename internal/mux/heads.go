package mux

import (
	"math"

	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// headers is section 6.2. The field block is complete, or continues in CONTINUATION.
func (c *Conn) headers(f *h2.Frame, self bool) error {
	if f.Stream%2 == 0 || c.cfg.Client && f.Stream > c.last { // section 5.1.1
		return c.connError(h2.ProtocolError, "HEADERS for a stream that the peer cannot open")
	}
	end := f.Has(h2.EndStream)
	if f.Has(h2.EndHeaders) {
		return c.fieldBlock(f.Stream, f.Data, end, self)
	}
	b := &c.act.block
	b.stream, b.end, b.self, b.frames = f.Stream, end, self, 0
	b.p = append(b.p[:0], f.Data...)
	return nil
}

// continuation is section 6.10. A block has a limit in bytes, and one in frames, because empty ones
// cost time as well (CVE-2023-45288).
func (c *Conn) continuation(f *h2.Frame) error {
	b := &c.act.block
	if b.stream == 0 {
		return c.connError(h2.ProtocolError, "CONTINUATION without HEADERS")
	}
	b.frames++
	if limit := c.cfg.headerList(); len(b.p)+len(f.Data) > limit+h2.MinFrameSize || b.frames > 16+limit/4096 {
		return c.connError(h2.EnhanceYourCalm, "a field block is too long")
	}
	b.p = append(b.p, f.Data...)
	if !f.Has(h2.EndHeaders) {
		return nil
	}
	id := b.stream
	b.stream = 0
	return c.fieldBlock(id, b.p, b.end, b.self)
}

// fieldBlock decodes a block, also for a stream that takes none: the next one depends on it
// (section 4.3).
func (c *Conn) fieldBlock(id uint32, block []byte, end, self bool) error {
	a := c.act
	limit := c.cfg.headerList()
	fields, size, err := a.decoder.Decode(a.fields[:0], block, limit)
	defer a.shrink()
	a.fields = fields
	switch {
	case err == hpack.ErrNames:
		return c.connError(h2.EnhanceYourCalm, err.Error())
	case err != nil:
		return c.connError(h2.CompressionError, err.Error())
	}
	if n := c.cfg.Counters; n != nil && size > limit {
		n.TooLarge.Add(1)
	}
	s := a.streams[id]
	switch {
	case s == nil && c.cfg.Client, s == nil && id <= c.last:
		return c.lateHeaders(id)
	case self && s == nil:
		c.last = id
		return streamError(id, h2.ProtocolError, "a stream depends on itself")
	case self:
		return streamError(id, h2.ProtocolError, "a stream depends on itself")
	case s == nil:
		return c.request(id, fields, size > limit, end)
	case s.is(remoteDone): // section 5.1
		return streamError(id, h2.StreamClosed, "HEADERS after the stream's end")
	case s.is(connected): // section 8.5
		return streamError(id, h2.ProtocolError, "HEADERS on the stream of a CONNECT")
	case s.is(gotHead):
		return c.trailers(s, fields, size > limit, end)
	}
	return c.response(s, fields, size > limit, end)
}

// lateHeaders is a block for a stream that is closed. Section 5.1: if we have reset it, the peer
// may not know that yet.
func (c *Conn) lateHeaders(id uint32) error {
	if c.wasReset(id) {
		return c.glitch(1)
	}
	return c.connError(h2.StreamClosed, "HEADERS for a stream that is closed")
}

// request opens a stream.
func (c *Conn) request(id uint32, fields []hpack.Field, large, end bool) error {
	c.last = id
	if c.is(saidLast) { // section 6.8: not processed
		return c.glitch(1)
	}
	// The peer does not count a stream that has ended (section 5.1.2), and may open the next one
	// before our handler has returned. But all handlers together have a bound: else a peer that
	// resets its streams could start any number.
	switch most := int32(min(c.cfg.streams(), math.MaxInt32/2)); {
	case c.count-c.done >= most:
		c.turnAway(id, "too many streams are open")
		if !c.is(acked) { // section 6.5.2: until then the peer need not know of a limit
			return c.glitch(earlyCost)
		}
		return c.mistaken()
	case c.count >= 2*most:
		c.turnAway(id, "too many handlers of streams that have ended run")
		c.budgets.Return(glitches, streamPays)
		return c.cancelled()
	}
	h := &c.act.head
	err := h.Request(fields)
	if large {
		h.TooLarge = true
	} else if err == nil {
		err = c.checkRequest(h, end)
	}
	if err != nil && !large {
		return forStream(err, id)
	}
	s := c.owner.Accept(id)
	if s == nil {
		return streamError(id, h2.RefusedStream, "refused")
	}
	c.begin(s, id)
	s.priority = c.early(id, h.Priority)
	s.left, s.length = h.Length, h.Length
	s.bits |= gotHead
	if h.Method == "CONNECT" { // Content-Length has no meaning in it (RFC 9110 section 9.3.6)
		s.bits |= connected
		s.left = -1
	}
	return c.deliverHead(s, h, end)
}

// turnAway refuses a stream beyond a limit.
func (c *Conn) turnAway(id uint32, reason string) {
	if n := c.cfg.Counters; n != nil {
		n.Refused.Add(1)
	}
	c.resetFor(&h2.Error{Code: h2.RefusedStream, Stream: id, Reason: reason})
}

func (c *Conn) checkRequest(h *h2.Head, end bool) error {
	switch {
	case h.Protocol != "" && !c.cfg.Connect: // RFC 8441 section 3
		return &h2.Error{Code: h2.ProtocolError, Reason: "the extended CONNECT was not offered"}
	case end && h.Length > 0: // section 8.1.1
		return &h2.Error{Code: h2.ProtocolError, Reason: "the body is not as long as Content-Length says"}
	}
	return nil
}

// response is an interim or a final head from a server.
func (c *Conn) response(s *Stream, fields []hpack.Field, large, end bool) error {
	h := &c.act.head
	if err := h.Response(fields); err != nil && !large {
		return forStream(err, s.id)
	}
	h.TooLarge = large
	c.reportDropped(s, h.Dropped)
	interim := h.Status >= 100 && h.Status < 200
	if interim {
		if end && !large { // section 8.1
			return streamError(s.id, h2.ProtocolError, "an interim response ends the stream")
		}
		return c.deliverHead(s, h, end)
	}
	s.bits |= gotHead
	s.left, s.length = h.Length, h.Length
	if s.is(tunnel) && h.Status/100 == 2 { // RFC 9110 section 9.3.6
		s.bits |= connected
		s.left, h.Length = -1, -1
	}
	if s.is(noBody) || h.Status == 204 || h.Status == 304 {
		s.bits |= noBody
	} else if end && h.Length > 0 && !large { // the head is good, and its body has no byte
		if err := c.deliverHead(s, h, false); err != nil || s.is(closed) {
			return err
		}
		return s.tooShort()
	}
	return c.deliverHead(s, h, end)
}

func (c *Conn) deliverHead(s *Stream, h *h2.Head, end bool) error {
	if end {
		s.bits |= remoteDone
	}
	switch code := s.owner.Head(h, end); {
	case code == h2.NoError || s.is(closed):
	case code == h2.ProtocolError: // the owner knows more rules
		return streamError(s.id, code, "the head is malformed for its owner")
	default:
		c.reset(s, code, streamError(s.id, code, "refused by its owner"))
		return nil
	}
	c.endIfDone(s)
	return nil
}

// trailers end a message (section 8.1).
func (c *Conn) trailers(s *Stream, fields []hpack.Field, large, end bool) error {
	switch {
	case !end:
		return streamError(s.id, h2.ProtocolError, "trailers do not end the stream")
	case large:
		return streamError(s.id, h2.ProtocolError, "trailers are too large")
	}
	fields, dropped, err := h2.Trailers(fields, !c.cfg.Client)
	if err != nil {
		return forStream(err, s.id)
	}
	c.reportDropped(s, dropped)
	if s.left > 0 && !s.is(noBody) {
		return s.tooShort()
	}
	s.bits |= remoteDone
	s.owner.Trailers(fields)
	c.endIfDone(s)
	return nil
}

// reportDropped tells the log of fields that a response must not have (section 8.2.2). Its owner
// must not see them: a proxy would send them on, and its client would read the next message where
// they say.
func (c *Conn) reportDropped(s *Stream, fields h2.ConnectionFields) {
	if fields != 0 {
		c.report(s.id, h2.NoError, "fields of a connection of HTTP/1 in a response are dropped: "+fields.String())
	}
}

func forStream(err error, id uint32) error {
	if e, ok := err.(*h2.Error); ok {
		e.Stream = id
	}
	return err
}

// early is the priority that a PRIORITY_UPDATE has given a stream before it was opened.
func (c *Conn) early(id uint32, otherwise h2.Priority) h2.Priority {
	a := c.act
	kept := a.early[:0]
	for _, e := range a.early {
		switch {
		case e.stream == id:
			otherwise = e.priority
		case e.stream > id: // the others will not be opened any more
			kept = append(kept, e)
		}
	}
	a.early = kept
	return otherwise
}
