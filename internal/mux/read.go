package mux

import (
	"bytes"
	"fmt"
	"io"
	"math"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// This file follows what the peer sends: frames, the field blocks that they make up, and what each
// type of frame means.

// Received implements myriad.Handler.
func (c *Conn) Received(_ *myriad.Conn, p []byte) {
	if c.state == failed {
		return
	}
	a := c.wake()
	defer c.leave(c.enter())
	c.health.heardNow(c.cfg)
	for a.partial != nil && len(p) > 0 && c.state != failed {
		p = c.complete(p)
	}
	if rest := c.frames(p); len(rest) > 0 && c.state != failed {
		a.partial = buf.Get(min(c.missing(rest)+len(rest), max(2*len(rest), firstPartial)))
		a.partial.Append(rest)
	}
	if c.state == failed {
		a.dropPartial()
	}
	if c.cfg.HeadTimeout <= 0 {
		return
	}
	coming := a.block.stream != 0 // a field block, whose time is bounded from where it is incomplete
	if p := a.partial; p != nil && p.Len() >= h2.HeaderSize && c.peer.awaited != awaitsPreface {
		coming = coming || h2.Type(p.Bytes()[3]) == h2.Headers
	}
	switch {
	case coming && !a.headTimed:
		c.Timers.Set(c.c, headTimer, c.cfg.HeadTimeout)
	case !coming && a.headTimed:
		c.Timers.Set(c.c, headTimer, 0)
	}
	a.headTimed = coming
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
	case c.peer.awaited == awaitsPreface:
		return len(h2.Preface) - len(p)
	case len(p) < h2.HeaderSize:
		return h2.HeaderSize - len(p)
	}
	return h2.HeaderSize + int(p[0])<<16 + int(p[1])<<8 + int(p[2]) - len(p)
}

// frames handles what is complete and returns the rest.
func (c *Conn) frames(p []byte) (rest []byte) {
	if c.peer.awaited == awaitsPreface {
		n := min(len(p), len(h2.Preface))
		if !bytes.Equal(p[:n], []byte(h2.Preface)[:n]) { // section 3.4
			c.fail(h2.ProtocolError, "the connection does not begin with the preface", nil)
			return nil
		}
		if n < len(h2.Preface) {
			return p
		}
		c.peer.awaited = awaitsSettings
		p = p[n:]
	}
	for len(p) > 0 && c.state != failed {
		n, f, err := h2.ParseFrame(p, c.cfg.ReadFrame)
		if n == 0 && err == nil {
			return p
		}
		if err == nil || n > 0 {
			err = c.frame(&f, err)
		} else if c.peer.awaited <= awaitsSettings && bytes.HasPrefix(p, []byte("HTTP/1.")) {
			err = connError(h2.ProtocolError, "the server answers in HTTP/1")
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
	default: // the stream is reset, and that counts
		c.resetFor(e)
		if err := c.budgets.mistaken(c.cfg); err != nil {
			c.wrong(err)
		}
	}
}

func connError(code h2.Code, reason string) error {
	return &h2.Error{Code: code, Reason: reason}
}

func streamError(s uint32, code h2.Code, reason string) error {
	return &h2.Error{Code: code, Stream: s, Reason: reason}
}

// frame handles one frame. bad is what ParseFrame has found wrong with it for its stream.
func (c *Conn) frame(f *h2.Frame, bad error) error {
	a := c.act
	switch {
	case c.peer.awaited <= awaitsSettings && (f.Type != h2.Settings || f.Has(h2.Ack)): // section 3.4
		return connError(h2.ProtocolError, "the first frame is not SETTINGS")
	case a.block.stream != 0 && (f.Type != h2.Continuation || f.Stream != a.block.stream): // section 6.10
		return connError(h2.ProtocolError, "a field block is interrupted")
	}
	if e, ok := bad.(*h2.Error); ok && (e.Stream == 0 || f.Type != h2.Headers) {
		if c.isIdle(f.Stream) { // which cannot be reset
			return connError(e.Code, e.Reason)
		}
		return bad
	}
	switch f.Type {
	case h2.Data:
		c.health.probes = 0
		return c.data(f)
	case h2.Headers:
		c.health.probes = 0
		return c.headers(f, bad != nil)
	case h2.Continuation:
		return c.continuation(f)
	case h2.ResetStream:
		return c.peerReset(f)
	case h2.Settings:
		return c.peerSettings(f)
	case h2.PushPromise: // section 8.4: a client cannot push, and a server was told not to
		return connError(h2.ProtocolError, "PUSH_PROMISE is not allowed")
	case h2.Ping:
		return c.ping(f)
	case h2.GoAway:
		return c.goAway(f)
	case h2.WindowUpdate:
		return c.windowUpdate(f)
	case h2.PriorityUpdate:
		return c.priorityUpdate(f)
	}
	return c.budgets.glitch(c.cfg, 1) // PRIORITY has no effect (section 5.3.2), unknown types are ignored (5.5)
}

// isIdle reports whether a stream has never been opened (section 5.1). Those that the peer opens
// behind our GOAWAY are not counted.
func (c *Conn) isIdle(id uint32) bool {
	return id%2 == 0 || id > c.last && (c.cfg.Client || c.state != draining) // a server opens none
}

// data is section 6.1.
func (c *Conn) data(f *h2.Frame) error {
	if c.isIdle(f.Stream) {
		return connError(h2.ProtocolError, "DATA for a stream that is not open")
	}
	if c.window.recv -= int32(f.Length); c.window.recv < 0 { // section 6.9.1
		return connError(h2.FlowControlError, "more DATA than the connection's window")
	}
	s := c.act.streams[f.Stream]
	if s == nil || s.state >= halfClosedRemote {
		c.credit(nil, f.Length)
		if s == nil && c.wasReset(f.Stream) {
			if len(f.Data) == 0 {
				return c.budgets.glitch(c.cfg, 1)
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
		if err := c.budgets.glitch(c.cfg, cost); err != nil {
			return err
		}
	}
	if s.window.recv -= int32(f.Length); s.window.recv < 0 {
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
		s.remoteEnds()
	}
	s.owner.Data(p, last)
	if s.state != closed {
		c.credit(s, s.owner.Credit())
		s.closeIfEnded()
	}
	return nil
}

// measure holds the body against its Content-Length (section 8.1.1). It returns what of p belongs
// to the body, and what is wrong: the reader of a body that is cut gets what has come of it first.
func (s *Stream) measure(p []byte, last bool) (body []byte, fault error) {
	switch {
	case !s.gotHead:
		return nil, streamError(s.id, h2.ProtocolError, "DATA before the response")
	case s.noBody:
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
	}
	if n == 0 {
		return
	}
	if s != nil {
		s.window.owed += int32(n)
		if by := s.window.grant(c.cfg.Window / 2); by > 0 && s.state < halfClosedRemote {
			c.act.control = h2.AppendWindowUpdate(c.act.control, s.id, by)
			c.act.controls++
		}
	}
	c.window.owed += int32(n)
	if by := c.window.grant(c.cfg.ConnWindow / 4); by > 0 && c.state != failed {
		a := c.wake()
		a.control = h2.AppendWindowUpdate(a.control, 0, by)
		a.controls++
	}
}

// headers is section 6.2. The field block is complete, or continues in CONTINUATION.
func (c *Conn) headers(f *h2.Frame, self bool) error {
	if f.Stream%2 == 0 || c.cfg.Client && f.Stream > c.last { // section 5.1.1
		return connError(h2.ProtocolError, "HEADERS for a stream that the peer cannot open")
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
		return connError(h2.ProtocolError, "CONTINUATION without HEADERS")
	}
	b.frames++
	if limit := c.cfg.HeaderList; len(b.p)+len(f.Data) > limit+h2.MinFrameSize || b.frames > 16+limit/4096 {
		return connError(h2.EnhanceYourCalm, "a field block is too long")
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
	limit := c.cfg.HeaderList
	fields, size, err := a.decoder.Decode(a.fields[:0], block, limit)
	defer a.shrink()
	a.fields = fields
	switch {
	case err == hpack.ErrNames:
		return connError(h2.EnhanceYourCalm, err.Error())
	case err != nil:
		return connError(h2.CompressionError, err.Error())
	}
	if n := c.cfg.Counters; n != nil && size > limit {
		n.TooLarge.Add(1)
	}
	s := a.streams[id]
	switch {
	case s == nil && c.cfg.Client, s == nil && id <= c.last:
		return c.lateHeaders(id)
	case self:
		if s == nil && c.state != draining {
			c.last = id
		}
		return streamError(id, h2.ProtocolError, "a stream depends on itself")
	case s == nil:
		return c.request(id, fields, size > limit, end)
	case s.state >= halfClosedRemote: // section 5.1
		return streamError(id, h2.StreamClosed, "HEADERS after the stream's end")
	case s.connected: // section 8.5
		return streamError(id, h2.ProtocolError, "HEADERS on the stream of a CONNECT")
	case s.gotHead:
		return c.trailers(s, fields, size > limit, end)
	}
	return c.response(s, fields, size > limit, end)
}

// lateHeaders is a block for a stream that is closed. Section 5.1: if we have reset it, the peer
// may not know that yet.
func (c *Conn) lateHeaders(id uint32) error {
	if c.wasReset(id) {
		return c.budgets.glitch(c.cfg, 1)
	}
	return connError(h2.StreamClosed, "HEADERS for a stream that is closed")
}

// request opens a stream.
func (c *Conn) request(id uint32, fields []hpack.Field, large, end bool) error {
	if c.state == draining { // section 6.8: not processed
		return c.budgets.glitch(c.cfg, 1)
	}
	c.last = id
	// The peer does not count a stream that has ended (section 5.1.2), and may open the next one
	// before our handler has returned. But all handlers together have a bound: else a peer that
	// resets its streams could start any number.
	switch most := int32(min(c.cfg.Streams, math.MaxInt32/2)); {
	case c.places.count-c.places.ended >= most:
		c.turnAway(id, "too many streams are open")
		if c.peer.awaited != handshakeDone { // section 6.5.2: until then the peer need not know of a limit
			return c.budgets.glitch(c.cfg, earlyCost)
		}
		return c.budgets.mistaken(c.cfg)
	case c.places.count >= 2*most:
		c.turnAway(id, "too many handlers of streams that have ended run")
		c.budgets.Return(glitches, streamPays)
		return c.cancelled()
	}
	h := &c.act.head
	err := h.Request(fields)
	switch {
	case large:
		h.TooLarge = true
	case err != nil:
		return forStream(err, id)
	case h.Protocol != "" && !c.cfg.Connect: // RFC 8441 section 3
		return streamError(id, h2.ProtocolError, "the extended CONNECT was not offered")
	case end && h.Length > 0: // section 8.1.1
		return streamError(id, h2.ProtocolError, "the body is not as long as Content-Length says")
	}
	s := c.owner.Accept(id)
	if s == nil {
		return streamError(id, h2.RefusedStream, "refused")
	}
	s.begin(c, id)
	s.priority = c.early(id, h.Priority)
	s.left, s.length, s.gotHead = h.Length, h.Length, true
	if h.Method == "CONNECT" { // Content-Length has no meaning in it (RFC 9110 section 9.3.6)
		s.connected, s.left = true, -1
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
	s.left, s.length, s.gotHead = h.Length, h.Length, true
	if s.tunnel && h.Status/100 == 2 { // RFC 9110 section 9.3.6
		s.connected, s.left, h.Length = true, -1, -1
	}
	if s.noBody || h.Status == 204 || h.Status == 304 {
		s.noBody = true
	} else if end && h.Length > 0 && !large { // the head is good, and its body has no byte
		if err := c.deliverHead(s, h, false); err != nil || s.state == closed {
			return err
		}
		return s.tooShort()
	}
	return c.deliverHead(s, h, end)
}

func (c *Conn) deliverHead(s *Stream, h *h2.Head, end bool) error {
	if end {
		s.remoteEnds()
	}
	switch code := s.owner.Head(h, end); {
	case code == h2.NoError || s.state == closed:
	case code == h2.ProtocolError: // the owner knows more rules
		return streamError(s.id, code, "the head is malformed for its owner")
	default:
		s.reset(code, streamError(s.id, code, "refused by its owner"))
		return nil
	}
	s.closeIfEnded()
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
	if s.left > 0 && !s.noBody {
		return s.tooShort()
	}
	s.remoteEnds()
	s.owner.Trailers(fields)
	s.closeIfEnded()
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

// peerReset is section 6.4.
func (c *Conn) peerReset(f *h2.Frame) error {
	if c.isIdle(f.Stream) {
		return connError(h2.ProtocolError, "RST_STREAM for a stream that is not open")
	}
	s := c.act.streams[f.Stream]
	if s == nil {
		return c.budgets.glitch(c.cfg, 1)
	}
	if n := c.cfg.Counters; n != nil {
		n.PeerResets.Add(1)
	}
	// A server may reset a request that it has answered (section 8.1), which is no reason to give
	// up what it has sent; but what we have to send is of no use.
	s.close(h2.Code(f.Value), streamError(f.Stream, h2.Code(f.Value), ResetByPeer))
	return c.cancelled()
}

// cancelled counts a stream that the peer has given up.
func (c *Conn) cancelled() error {
	if a := c.act; a.payment.cancelled(c.cfg) {
		a.control = h2.AppendPing(a.control, a.payment.ping, false)
	}
	return c.budgets.cancelled(c.cfg)
}

// ping is section 6.7.
func (c *Conn) ping(f *h2.Frame) error {
	a := c.act
	if !f.Has(h2.Ack) {
		a.control = h2.AppendPing(a.control, f.Ping(), true)
		a.controls++
		return c.budgets.glitch(c.cfg, 1)
	}
	if c.state == announced && f.Ping() == drainPing {
		c.nameLast()
		return nil
	}
	if back := a.payment.acknowledged(f.Ping()); back > 0 {
		c.budgets.Return(cancels, back)
		return nil
	}
	return c.budgets.glitch(c.cfg, 1)
}

// goAway is section 6.8.
func (c *Conn) goAway(f *h2.Frame) error {
	c.peer.state = max(c.peer.state, peerGoesAway)
	if c.cfg.Client {
		for _, s := range c.open() {
			if s.id > f.Last || s.id == 0 {
				s.close(h2.RefusedStream, &h2.Error{Code: h2.RefusedStream, Stream: s.id,
					Reason: "not processed, by GOAWAY", Cause: errNotProcessed})
			}
		}
		c.act.away = &goAwayError{f.Last, h2.Code(f.Value), string(f.Data[:min(len(f.Data), keptDebug)])}
	}
	c.owner.GoAway(f.Last, h2.Code(f.Value))
	return c.budgets.glitch(c.cfg, 1)
}

// windowUpdate is section 6.9.
func (c *Conn) windowUpdate(f *h2.Frame) error {
	if f.Stream == 0 {
		sum, ok := h2.AddWindow(c.window.send, int64(f.Value))
		if !ok {
			return connError(h2.FlowControlError, "the connection's window is too large")
		}
		c.window.send = sum
		return c.budgets.glitch(c.cfg, 1)
	}
	if c.isIdle(f.Stream) {
		return connError(h2.ProtocolError, "WINDOW_UPDATE for a stream that is not open")
	}
	s := c.act.streams[f.Stream]
	if s == nil {
		return c.budgets.glitch(c.cfg, 1)
	}
	sum, ok := h2.AddWindow(s.window.send, int64(f.Value))
	if !ok {
		return streamError(f.Stream, h2.FlowControlError, "the stream's window is too large")
	}
	s.window.send = sum
	c.enqueue(s)
	return c.budgets.glitch(c.cfg, 1)
}

// priorityUpdate is RFC 9218 section 7.1.
func (c *Conn) priorityUpdate(f *h2.Frame) error {
	if c.cfg.Client || f.Value%2 == 0 {
		return connError(h2.ProtocolError, "PRIORITY_UPDATE from a server, or for its stream")
	}
	p := h2.ParsePriority(string(f.Data[:min(len(f.Data), 64)]))
	a := c.act
	switch s := a.streams[f.Value]; {
	case s != nil:
		s.Prioritize(p)
	case f.Value > c.last && len(a.early) < maxEarlyPriorities:
		a.early = append(a.early, earlyPriority{f.Value, p})
	}
	return c.budgets.glitch(c.cfg, 1)
}

// peerSettings is section 6.5: they take effect in order, then one ACK says so.
func (c *Conn) peerSettings(f *h2.Frame) error {
	if f.Has(h2.Ack) {
		if c.peer.awaited == handshakeDone {
			return c.budgets.glitch(c.cfg, 1)
		}
		c.peer.awaited = handshakeDone
		c.limitTable()
		c.Timers.Set(c.c, handshakeTimer, 0)
		return nil
	}
	if c.peer.awaited <= awaitsSettings {
		c.peer.streams = usualStreams
	}
	count := 0
	for s := range f.Settings {
		if count++; count > maxSettings {
			return connError(h2.EnhanceYourCalm, "too many settings in one frame")
		}
		if err := c.setting(s); err != nil {
			return err
		}
	}
	if c.peer.awaited <= awaitsSettings {
		c.peer.awaited, c.health.heardMore = awaitsAck, false
		if c.cfg.Client { // some servers acknowledge ours with their first response, however late that is
			c.Timers.Set(c.c, handshakeTimer, 0)
		}
	} else if err := c.budgets.glitch(c.cfg, settingsCost); err != nil {
		return err
	}
	c.act.control = h2.AppendSettingsAck(c.act.control)
	c.act.controls++
	c.owner.Settings()
	return nil
}

func (c *Conn) setting(s h2.Setting) error {
	if err := s.Check(); err != nil {
		return err
	}
	switch s.ID {
	case h2.HeaderTableSize:
		c.peer.forgets = true // our encoder has no table
	case h2.EnablePush:
		if c.cfg.Client && s.Value != 0 { // section 6.5.2
			return connError(h2.ProtocolError, "a server enables push")
		}
	case h2.MaxConcurrentStreams:
		c.peer.streams = s.Value
		c.openAllowed()
	case h2.MaxHeaderListSize:
		c.peer.list = s.Value
	case h2.InitialWindowSize:
		return c.initialWindow(int32(s.Value))
	case h2.EnableConnectProtocol:
		if s.Value == 0 && c.peer.connect { // RFC 8441 section 3
			return connError(h2.ProtocolError, "the extended CONNECT is taken back")
		}
		c.peer.connect = s.Value == 1
	}
	return nil
}

// initialWindow changes the windows of all streams, which may become negative (section 6.9.2).
func (c *Conn) initialWindow(n int32) error {
	by := int64(n) - int64(c.peer.window)
	c.peer.window = n
	for _, s := range c.open() {
		sum, ok := h2.AddWindow(s.window.send, by)
		if !ok {
			return connError(h2.FlowControlError, "a setting makes a stream's window too large")
		}
		s.window.send = sum
		c.enqueue(s)
	}
	return nil
}
