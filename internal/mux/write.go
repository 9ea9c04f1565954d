package mux

import (
	"errors"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

const (
	// blockSize is what leaves at a time: one TLS record. Every peer accepts frames of that size.
	blockSize = h2.MinFrameSize
	// leastData is the room below which a block is not filled up with data.
	leastData = 512
)

// enqueue puts a stream where flush finds it, if it has something to send.
func (c *Conn) enqueue(s *Stream) {
	if s.is(closed | queued) {
		return
	}
	head, data, end := s.box.Visit()
	switch {
	case head || data == 0 && end:
		s.bits |= queued
		c.act.heads.push(s)
	case data > 0 && s.send > 0 && (s.id != 0 || !c.cfg.Client):
		s.bits |= queued
		c.act.ready[s.priority.Urgency&7].push(s)
	}
}

func (c *Conn) dequeue(s *Stream) {
	if !s.is(queued) {
		return
	}
	s.bits &^= queued
	if c.act.heads.remove(s) {
		return
	}
	for i := range c.act.ready {
		if c.act.ready[i].remove(s) {
			return
		}
	}
}

// flush writes what is ready until the conn takes no more. Drained goes on.
func (c *Conn) flush() {
	a := c.act
	if a == nil {
		return
	}
	defer c.pauseOrResume()
	for c.sendOut() && c.sendControl() {
		if c.is(failed) || !c.fill() {
			return
		}
	}
}

// sendOut passes the block that is complete to the conn. It reports whether there is room for more.
func (c *Conn) sendOut() bool {
	a := c.act
	if a.out == nil {
		return true
	}
	a.out.Retain()
	if err := c.c.WriteBlocks(a.out); errors.Is(err, myriad.ErrFull) {
		return false
	}
	a.wrote += uint32(a.out.Len())
	a.out.Release() // sent, or the connection is over, and Closed follows
	a.out = nil
	return true
}

func (c *Conn) sendControl() bool {
	a := c.act
	if len(a.control) == 0 {
		return true
	}
	if _, err := c.c.Write(a.control); errors.Is(err, myriad.ErrFull) {
		return false
	}
	a.wrote += uint32(len(a.control))
	a.control, a.controls = kept(a.control), 0
	return true
}

// pauseOrResume stops reading while too many control frames wait: each was an answer.
func (c *Conn) pauseOrResume() {
	switch a := c.act; {
	case a.controls > maxControls && !c.is(pausedInput):
		c.bits |= pausedInput
		c.c.Pause()
		if n := c.cfg.Counters; n != nil {
			n.Paused.Add(1)
		}
	case a.controls <= maxControls && c.is(pausedInput):
		c.bits &^= pausedInput
		c.c.Resume()
	}
}

// fill makes the next block. It reports whether there is something in it, or in control.
func (c *Conn) fill() bool {
	a := c.act
	if a.heads.first == nil && !c.hasData() {
		return len(a.control) > 0
	}
	a.out = buf.Get(blockSize)
	for a.heads.first != nil {
		if !c.sendHead(a.heads.first) {
			return true
		}
	}
	for c.send > 0 && a.out.Free() >= h2.HeaderSize+leastData {
		s, from := c.pick()
		if s == nil {
			break
		}
		c.sendData(s, from)
	}
	if a.out.Len() == 0 {
		a.out.Release()
		a.out = nil
		return len(a.control) > 0
	}
	return true
}

func (c *Conn) hasData() bool {
	if c.send <= 0 {
		return false
	}
	for i := range c.act.ready {
		if c.act.ready[i].first != nil {
			return true
		}
	}
	return false
}

// sendHead writes the first head of a stream, its trailers, or its end. It reports false if the
// block is full; the stream stays first then.
func (c *Conn) sendHead(s *Stream) bool {
	a := c.act
	if a.out.Len() > 0 && a.out.Free() < leastHead {
		return false
	}
	a.heads.pop()
	s.bits &^= queued
	if s.id == 0 && c.cfg.Client && !c.allowed() {
		return true // openAllowed comes back to it
	}
	pairs, ok, end, room := s.box.NextHead(a.scratch[:0])
	a.scratch = pairs
	if ok && h2.ListExceeds(pairs, int64(c.peerList)) {
		c.tooLarge(s)
		return true
	}
	if s.id == 0 && c.cfg.Client {
		c.number(s)
	}
	switch {
	case ok:
		c.appendBlock(s.id, pairs, end)
	default:
		_, end, room = s.box.Cut(nil)
		if end {
			c.appendFrame(h2.AppendHeader(nil, 0, h2.Data, h2.EndStream, s.id))
		} else {
			end = c.sendTail(s)
		}
	}
	c.sent(s, end, room)
	return true
}

// tooLarge ends a stream in place of fields that the peer does not accept. Sent, they could cost
// the whole connection (section 10.5.1).
func (c *Conn) tooLarge(s *Stream) {
	if c.cfg.Client {
		c.reset(s, h2.Cancel, ErrHeaderList)
		return
	}
	const reason = "the fields of a response are more than the client accepts (SETTINGS_MAX_HEADER_LIST_SIZE)"
	c.countError("stream_", h2.InternalError)
	c.report(s.id, h2.InternalError, reason)
	c.reset(s, h2.InternalError, streamError(s.id, h2.InternalError, reason))
}

// leastHead is the room below which a head goes to the next block.
const leastHead = 1 << 10

// sendTail writes trailers if it is their turn.
func (c *Conn) sendTail(s *Stream) bool {
	tail := s.box.Tail()
	switch {
	case tail == nil:
		return false
	case h2.ListExceeds(tail, int64(c.peerList)):
		c.tooLarge(s)
		return false
	}
	c.appendBlock(s.id, tail, true)
	return true
}

// appendBlock compresses fields into HEADERS.
func (c *Conn) appendBlock(id uint32, pairs []byte, end bool) {
	a := c.act
	var room [2 << 10]byte
	block := room[:0]
	if c.is(owesForget) {
		c.bits &^= owesForget
		block = hpack.AppendForget(block)
	}
	for len(pairs) > 0 {
		name, value, sensitive, rest := h2.NextPair(pairs)
		block = hpack.AppendField(block, name, value, sensitive)
		pairs = rest
	}
	a.scratch = h2.AppendHeaders(a.scratch[:0], id, block, end, blockSize)
	c.appendFrame(a.scratch)
}

// appendFrame adds frames to the block, which is replaced by a larger one if it has to be.
func (c *Conn) appendFrame(p []byte) {
	a := c.act
	if a.out.Free() < len(p) {
		larger := buf.Get(a.out.Len() + len(p))
		larger.Append(a.out.Bytes())
		a.out.Release()
		a.out = larger
	}
	a.out.Append(p)
}

// lowerEach is how often data of a lower urgency has its turn, so that it does not starve.
const lowerEach = 16

// pick returns the stream whose data is next, and where it stands (RFC 9218 section 10).
func (c *Conn) pick() (*Stream, *queue) {
	a := c.act
	a.quanta++
	var first *queue
	for i := range a.ready {
		q := &a.ready[i]
		if q.first == nil {
			continue
		}
		if first != nil {
			return q.first, q
		}
		if first = q; a.quanta%lowerEach != 0 {
			break
		}
	}
	if first == nil {
		return nil, nil
	}
	return first.first, first
}

// sendData writes one frame of a stream. An incremental stream goes behind the others of its
// urgency then, another one stays first until it has no more.
func (c *Conn) sendData(s *Stream, from *queue) {
	a := c.act
	from.remove(s)
	s.bits &^= queued
	if s.send <= 0 { // a setting has taken its window away
		return
	}
	room := a.out.Extend()
	n := min(len(room)-h2.HeaderSize, int(s.send), int(c.send), blockSize)
	n, end, more := s.box.Cut(room[h2.HeaderSize : h2.HeaderSize+n])
	flags := uint8(0)
	if end {
		flags = h2.EndStream
	}
	h2.AppendHeader(room[:0], n, h2.Data, flags, s.id)
	a.out.Commit(h2.HeaderSize + n)
	s.send -= int32(n)
	c.send -= int32(n)
	c.budgets.Return(glitches, dataPays+n/pieceSize)
	if !end {
		end = c.sendTail(s)
	}
	c.sent(s, end, more)
	if s.is(queued) && !s.priority.Incremental && from.remove(s) {
		from.pushFront(s)
	}
}

// prioritize moves a stream to where it belongs.
func (c *Conn) prioritize(s *Stream, p h2.Priority) {
	s.priority = p
	if s.is(queued) {
		c.dequeue(s)
		c.enqueue(s)
	}
}

// sent goes on after a frame of a stream: its end, or what it has behind.
func (c *Conn) sent(s *Stream, end, room bool) {
	if !end {
		c.enqueue(s)
	} else {
		s.bits |= localDone
		c.endLocal(s)
	}
	if (room || end && c.cfg.Client) && !s.is(closed) {
		s.owner.Room()
	}
}

// endLocal follows our END_STREAM. A server that has answered needs no more of the request (section
// 8.1), unless it has become a tunnel.
func (c *Conn) endLocal(s *Stream) {
	switch {
	case s.is(remoteDone):
		c.close(s, h2.NoError, nil)
	case !c.cfg.Client && !s.is(tunnel):
		c.reset(s, h2.NoError, nil)
	}
}
