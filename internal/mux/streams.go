package mux

import (
	"slices"

	"github.com/myriad-go/myriad/internal/h2"
)

// begin opens a stream.
func (c *Conn) begin(s *Stream, id uint32) {
	s.conn, s.id = c, id
	s.send = c.peerWindow
	s.recv = int32(c.cfg.window())
	if !c.is(acked) { // section 6.9.2: until then the peer may use the initial one
		s.recv = max(s.recv, h2.InitialWindow)
	}
	s.box.Reset(c.cfg.outbox())
	s.bits |= counted
	c.count++
	c.budgets.Return(glitches, streamPays)
	if n := c.cfg.Counters; n != nil {
		n.Opened.Add(1)
	}
	if id != 0 {
		c.act.streams[id] = s
	}
}

// Open begins a stream; its owner puts the head then. It fails with ErrGoingAway if GoingAway says
// so, and else with ErrStreams if Free is 0. L, at a client, after Opened.
func (c *Conn) Open(s *Stream) error {
	switch {
	case c.GoingAway():
		return ErrGoingAway
	case c.Free() == 0:
		return ErrStreams
	}
	a := c.wake()
	c.begin(s, 0)
	a.opening = append(a.opening, s)
	return nil
}

// Free is how many streams Open can begin now: what the peer's SETTINGS_MAX_CONCURRENT_STREAMS
// leaves. It is 0 if the connection is going away. L, at a client.
func (c *Conn) Free() int {
	if c.GoingAway() {
		return 0
	}
	left := int64(c.peerMax)
	if a := c.act; a != nil {
		left -= int64(len(a.streams) + len(a.opening))
	}
	return int(max(0, min(left, int64(c.idsLeft()))))
}

// Barred reports whether the peer of a client allows no stream, and none is open. Streams may wait
// for their heads to leave. L.
func (c *Conn) Barred() bool {
	return c.is(gotSettings) && c.peerMax == 0 && (c.act == nil || len(c.act.streams) == 0)
}

// Withdraw ends the streams of a client whose heads have not left, which the peer has not processed
// therefore. L.
func (c *Conn) Withdraw() {
	if c.act == nil {
		return
	}
	defer c.leave(c.enter())
	for _, s := range slices.Clone(c.act.opening) {
		c.close(s, h2.RefusedStream, &h2.Error{Code: h2.RefusedStream, Reason: "not sent: the server allows no stream"})
	}
}

// GoingAway reports whether the connection takes no more streams. The peer has sent GOAWAY or its
// FIN, Shutdown was called, an error ends the connection, or a client has no numbers for streams
// left. L.
func (c *Conn) GoingAway() bool {
	return c.is(draining|peerGoesAway|failed|inputEnded) || c.cfg.Client && c.idsLeft() == 0
}

// idsLeft is how many streams a client can still number (section 5.1.1).
func (c *Conn) idsLeft() int {
	left := (1<<31 - 1 - int(c.last)) / 2
	if c.act != nil {
		left -= len(c.act.opening)
	}
	return left
}

// allowed reports whether the peer's limit has room for another stream of ours. Open has seen to
// it, but the limit may have fallen since, before the stream's head leaves.
func (c *Conn) allowed() bool { return len(c.act.streams) < int(c.peerMax) }

// openAllowed lets heads leave that have waited for room.
func (c *Conn) openAllowed() {
	if c.act == nil || !c.cfg.Client || !c.allowed() {
		return
	}
	for _, s := range c.act.opening {
		c.enqueue(s)
	}
}

// number gives a client's stream its id, in the order in which heads leave (section 5.1.1).
func (c *Conn) number(s *Stream) {
	if c.last == 0 {
		s.id = 1
	} else {
		s.id = c.last + 2
	}
	c.last = s.id
	a := c.act
	a.opening = slices.DeleteFunc(a.opening, func(o *Stream) bool { return o == s })
	a.streams[s.id] = s
}

// visit does what streams have asked for.
func (c *Conn) visit() {
	for {
		c.mu.Lock()
		s := c.dirty
		if s == nil {
			c.mu.Unlock()
			return
		}
		if c.dirty = s.dirty; c.dirty == nil {
			c.dirtyTail = nil
		}
		asked, code := s.asked, s.code
		s.asked, s.dirty = 0, nil
		c.mu.Unlock()
		c.answer(s, asked, code)
	}
}

func (c *Conn) answer(s *Stream, asked asked, code h2.Code) {
	if asked&askCredit != 0 && !s.is(closed) {
		c.credit(s, s.owner.Credit())
	}
	if asked&askOutput != 0 {
		c.enqueue(s)
	}
	if asked&askReset != 0 && !s.is(closed) {
		c.flush()
	}
	if asked&askReset != 0 && !s.is(closed) {
		c.reset(s, code, streamError(s.id, code, "cancelled"))
	}
	if asked&askRelease != 0 && !s.is(released) {
		s.bits |= released
		c.uncount(s)
	}
}

// uncount frees the place of a stream that has ended and been released.
func (c *Conn) uncount(s *Stream) {
	if s.bits&(closed|released|counted) != closed|released|counted {
		return
	}
	s.bits &^= counted
	if s.is(done) {
		c.done--
	}
	if c.count--; c.count == 0 {
		c.owner.Idle()
	}
}

// endIfDone closes a stream that both sides have ended.
func (c *Conn) endIfDone(s *Stream) {
	if s.bits&(remoteDone|localDone|closed) == remoteDone|localDone {
		c.close(s, h2.NoError, nil)
	}
}

// close ends a stream, whatever the reason. What it has not consumed is the connection's again.
func (c *Conn) close(s *Stream, code h2.Code, err error) {
	if s.is(closed) {
		return
	}
	s.bits |= closed
	if s.bits&(counted|released) == counted {
		s.bits |= done
		c.done++
	}
	a := c.act
	if s.id == 0 {
		a.opening = slices.DeleteFunc(a.opening, func(o *Stream) bool { return o == s })
	} else {
		delete(a.streams, s.id)
		c.openAllowed()
	}
	c.dequeue(s)
	if err == nil {
		s.box.Fail(errDone)
	} else {
		s.box.Fail(err)
	}
	unread := int(s.unread)
	s.unread = 0
	c.credit(nil, unread)
	s.owner.Ended(code, err)
	c.uncount(s)
}

// reset ends a stream and tells the peer.
func (c *Conn) reset(s *Stream, code h2.Code, err error) {
	if s.id != 0 {
		c.sayReset(s.id, code)
	}
	c.close(s, code, err)
}

func (c *Conn) sayReset(id uint32, code h2.Code) {
	a := c.act
	a.control = h2.AppendReset(a.control, id, code)
	a.controls++
	if len(a.resets) == keptResets {
		c.ignored = max(c.ignored, a.resets[0])
		a.resets = append(a.resets[:0], a.resets[1:]...)
	}
	a.resets = append(a.resets, id)
}

// wasReset reports whether we have reset a stream that is closed, or may have.
func (c *Conn) wasReset(id uint32) bool {
	return id <= c.ignored || c.is(saidLast) && id > c.said || slices.Contains(c.act.resets, id)
}

// refuse resets a stream for what the peer has done, open or not, and counts that.
func (c *Conn) refuse(e *h2.Error) {
	c.resetFor(e)
	if err := c.mistaken(); err != nil {
		c.wrong(err)
	}
}

// resetFor resets a stream for an error, and tells of it.
func (c *Conn) resetFor(e *h2.Error) {
	id, code := e.Stream, e.Code
	c.countError("stream_", code)
	c.report(id, code, e.Reason)
	if n := c.cfg.Counters; n != nil {
		n.Resets.Add(1)
	}
	if s := c.act.streams[id]; s != nil {
		c.reset(s, code, e)
	} else if !slices.Contains(c.act.resets, id) { // one RST_STREAM is enough
		c.sayReset(id, code)
	}
}
