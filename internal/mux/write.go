package mux

import (
	"errors"
	"slices"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// This file writes what is ready: control frames, heads, data.

const (
	// blockSize is what leaves at a time: one TLS record. Every peer accepts frames of that size.
	blockSize = h2.MinFrameSize
	// leastData is the room below which a block is not filled up with data.
	leastData = 512
	// leastHead is the room below which a head goes to the next block.
	leastHead = 1 << 10
)

// A queue is a list of streams with output. A stream is in one at a time.
type queue struct{ first, last *Stream }

func (q *queue) push(s *Stream) {
	s.queued = q
	if q.first == nil {
		q.first = s
	} else {
		q.last.next = s
	}
	q.last = s
}

// toFront has s, which is in q, come first.
func (q *queue) toFront(s *Stream) {
	q.remove(s)
	s.queued = q
	if s.next = q.first; q.last == nil {
		q.last = s
	}
	q.first = s
}

// remove takes s out, which is in q.
func (q *queue) remove(s *Stream) {
	if q.first == s {
		if q.first = s.next; q.first == nil {
			q.last = nil
		}
	} else {
		before := q.first
		for before.next != s {
			before = before.next
		}
		if before.next = s.next; q.last == s {
			q.last = before
		}
	}
	s.queued, s.next = nil, nil
}

// enqueue puts a stream where flush finds it, if it has something to send.
func (c *Conn) enqueue(s *Stream) {
	if s.state == closed || s.queued != nil {
		return
	}
	head, data, end := s.box.Visit()
	switch {
	case head || data == 0 && end:
		c.act.heads.push(s)
	case data > 0 && s.window.send > 0 && (s.id != 0 || !c.cfg.Client):
		c.act.ready[s.priority.Urgency&7].push(s)
	}
}

// flush writes what is ready until the conn takes no more. Drained goes on.
func (c *Conn) flush() {
	a := c.act
	if a == nil {
		return
	}
	for more := true; more; more = c.state != failed && c.fill() {
		if a.out != nil {
			a.out.Retain()
			if err := c.c.WriteBlocks(a.out); errors.Is(err, myriad.ErrFull) {
				break
			}
			a.wrote += uint32(a.out.Len())
			a.out.Release() // sent, or the connection is over, and Closed follows
			a.out = nil
		}
		if len(a.control) > 0 {
			if _, err := c.c.Write(a.control); errors.Is(err, myriad.ErrFull) {
				break
			}
			a.wrote += uint32(len(a.control))
			a.control, a.controls = kept(a.control), 0
		}
	}
	switch { // each control frame that waits was an answer
	case a.controls > maxControls && !a.paused:
		a.paused = true
		c.c.Pause()
		if n := c.cfg.Counters; n != nil {
			n.Paused.Add(1)
		}
	case a.controls <= maxControls && a.paused:
		a.paused = false
		c.c.Resume()
	}
}

// hasLeft is how many bytes of output have left the conn, modulo 2^32.
func (c *Conn) hasLeft() uint32 { return c.act.wrote - uint32(c.c.Queued()) }

// fill makes the next block. It reports whether there is something in it, or in control.
func (c *Conn) fill() bool {
	a := c.act
	s := a.heads.first
	if s == nil && c.window.send > 0 {
		s = a.pick()
	}
	if s == nil {
		return len(a.control) > 0
	}
	a.out = buf.Get(blockSize)
	for a.heads.first != nil {
		if !c.sendHead(a.heads.first) {
			return true
		}
	}
	for c.window.send > 0 && a.out.Free() >= h2.HeaderSize+leastData {
		s := a.pick()
		if s == nil {
			break
		}
		c.sendData(s)
	}
	if a.out.Len() == 0 {
		a.out.Release()
		a.out = nil
		return len(a.control) > 0
	}
	return true
}

// lowerEach is how often data of a lower urgency has its turn, so that it does not starve.
const lowerEach = 16

// pick returns the stream whose data is next (RFC 9218 section 10); nil: none has data.
func (o *output) pick() (s *Stream) {
	for i := range o.ready {
		q := &o.ready[i]
		switch {
		case q.first == nil:
		case s != nil:
			return q.first
		default:
			if s = q.first; (o.picks+1)%lowerEach != 0 {
				return s
			}
		}
	}
	return s
}

// sendHead writes the first head of a stream, its trailers, or its end. It reports false if the
// block is full; the stream stays first then.
func (c *Conn) sendHead(s *Stream) bool {
	a := c.act
	if a.out.Len() > 0 && a.out.Free() < leastHead {
		return false
	}
	a.heads.remove(s)
	if s.id == 0 && c.cfg.Client && !c.allowed() {
		return true // openAllowed comes back to it
	}
	pairs, ok, end, room := s.box.NextHead(a.scratch[:0])
	a.scratch = pairs
	if ok && h2.ListExceeds(pairs, int64(c.peer.list)) {
		c.tooLarge(s)
		return true
	}
	if s.id == 0 && c.cfg.Client { // numbers are in the order in which heads leave (section 5.1.1)
		if s.id = 1; c.last > 0 {
			s.id = c.last + 2
		}
		c.last = s.id
		a.opening = slices.DeleteFunc(a.opening, func(o *Stream) bool { return o == s })
		a.streams[s.id] = s
	}
	if ok {
		c.appendBlock(s.id, pairs, end)
	} else if _, end, room = s.box.Cut(nil); end {
		a.appendFrame(h2.AppendHeader(nil, 0, h2.Data, h2.EndStream, s.id))
	} else {
		end = c.sendTail(s)
	}
	c.sent(s, end, room)
	return true
}

// tooLarge ends a stream in place of fields that the peer does not accept. Sent, they could cost
// the whole connection (section 10.5.1).
func (c *Conn) tooLarge(s *Stream) {
	if c.cfg.Client {
		s.reset(h2.Cancel, ErrHeaderList)
		return
	}
	const reason = "the fields of a response are more than the client accepts (SETTINGS_MAX_HEADER_LIST_SIZE)"
	c.countError("stream_", h2.InternalError)
	c.report(s.id, h2.InternalError, reason)
	s.reset(h2.InternalError, streamError(s.id, h2.InternalError, reason))
}

// sendTail writes trailers if it is their turn.
func (c *Conn) sendTail(s *Stream) bool {
	tail := s.box.Tail()
	switch {
	case tail == nil:
		return false
	case h2.ListExceeds(tail, int64(c.peer.list)):
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
	if c.peer.forgets {
		c.peer.forgets = false
		block = hpack.AppendForget(block)
	}
	for f := range h2.Pairs(pairs) {
		block = hpack.AppendField(block, f.Name, f.Value, f.Sensitive)
	}
	a.scratch = h2.AppendHeaders(a.scratch[:0], id, block, end, blockSize)
	a.appendFrame(a.scratch)
}

// appendFrame adds frames to the block, which is replaced by a larger one if it has to be.
func (o *output) appendFrame(p []byte) {
	if o.out.Free() < len(p) {
		larger := buf.Get(o.out.Len() + len(p))
		larger.Append(o.out.Bytes())
		o.out.Release()
		o.out = larger
	}
	o.out.Append(p)
}

// sendData writes one frame of a stream. An incremental stream goes behind the others of its
// urgency then, another one stays first until it has no more.
func (c *Conn) sendData(s *Stream) {
	a, from := c.act, s.queued
	a.picks++
	from.remove(s)
	if s.window.send <= 0 { // a setting has taken its window away
		return
	}
	room := a.out.Extend()
	n := min(len(room)-h2.HeaderSize, int(s.window.send), int(c.window.send), blockSize)
	n, end, more := s.box.Cut(room[h2.HeaderSize : h2.HeaderSize+n])
	flags := uint8(0)
	if end {
		flags = h2.EndStream
	}
	h2.AppendHeader(room[:0], n, h2.Data, flags, s.id)
	a.out.Commit(h2.HeaderSize + n)
	s.window.send -= int32(n)
	c.window.send -= int32(n)
	c.budgets.Return(glitches, dataPays+n/pieceSize)
	if !end {
		end = c.sendTail(s)
	}
	c.sent(s, end, more)
	if s.queued == from && !s.priority.Incremental {
		from.toFront(s)
	}
}

// sent goes on after a frame of a stream: its end, or what it has behind.
func (c *Conn) sent(s *Stream, end, room bool) {
	if end {
		s.localEnds()
	} else {
		c.enqueue(s)
	}
	if (room || end && c.cfg.Client) && s.state != closed {
		s.owner.Room()
	}
}
