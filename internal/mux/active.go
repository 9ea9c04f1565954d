package mux

import (
	"slices"
	"sync"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// An active is the part of a connection that it has only while it has work: open streams, an
// incomplete frame, output. An idle connection keeps the packed table of its decoder alone.
type active struct {
	streams  map[uint32]*Stream
	opening  []*Stream  // of a client, whose heads are not written yet
	partial  *buf.Block // an incomplete frame; nil: there is none
	block    fieldBlock
	early    []earlyPriority
	resets   []uint32 // streams that we have reset, the oldest first
	decoder  hpack.Decoder
	fields   []hpack.Field
	head     h2.Head
	scratch  []byte // a head, before it is compressed and after
	control  []byte // control frames
	controls int    // how many
	out      *buf.Block
	heads    queue    // streams with a head, trailers or an end without data
	ready    [8]queue // streams with data, by urgency
	quanta   uint8
	wrote    uint32       // bytes of output, modulo 2^32
	left     uint32       // what gone was when stallTimer was set
	probed   uint32       // when the PING left that is out, in milliseconds; with probing
	away     *goAwayError // of a client: the peer's GOAWAY
	cancels  int          // that no PING is to pay for yet
	paying   int          // those that the PING under way is to pay for; with paying
	receipt  [8]byte
}

// A fieldBlock is HEADERS whose CONTINUATION is still to come.
type fieldBlock struct {
	stream uint32 // 0: none
	end    bool   // END_STREAM
	frames int
	self   bool // the stream depends on itself
	p      []byte
}

type earlyPriority struct {
	stream   uint32
	priority h2.Priority
}

var actives = sync.Pool{New: func() any { return &active{streams: map[uint32]*Stream{}} }}

const (
	// keptScratch bounds what each buffer keeps that was large once, because a connection may have
	// its streams open for hours.
	keptScratch = 4 << 10
	// keptFields is the same for the fields of a request.
	keptFields = 64
)

// wake gives the connection its active part.
func (c *Conn) wake() *active {
	if c.act != nil {
		return c.act
	}
	a := actives.Get().(*active)
	c.act = a
	if c.table == "" {
		a.decoder.Reset()
	} else {
		a.scratch = append(a.scratch[:0], c.table...)
		a.decoder.Unpack(a.scratch)
		c.table = ""
	}
	c.limitTable()
	return a
}

// limitTable has the decoder hold the peer to our setting, a smaller one when the peer has
// acknowledged it.
func (c *Conn) limitTable() {
	if n := c.cfg.table(); n > hpack.TableSize || c.is(acked) {
		c.act.decoder.Limit(n)
	} else {
		c.act.decoder.Limit(hpack.TableSize)
	}
}

// busy reports whether the active part holds something that the connection needs.
func (c *Conn) busy() bool { return c.sending() || c.receiving() }

// sending reports whether streams are open, or output waits.
func (c *Conn) sending() bool {
	a := c.act
	return a != nil && (len(a.streams) > 0 || len(a.opening) > 0 || len(a.control) > 0 || a.out != nil)
}

// receiving reports whether a frame or a field block is incomplete.
func (c *Conn) receiving() bool {
	return c.act != nil && (c.act.partial != nil || c.act.block.stream != 0)
}

// doze gives the active part back. The streams that were reset cannot be told from others any more:
// what still comes for them is ignored.
func (c *Conn) doze() {
	a := c.act
	if len(a.resets) > 0 {
		c.ignored = max(c.ignored, slices.Max(a.resets))
	}
	if !a.decoder.Empty() {
		a.scratch = a.decoder.Pack(a.scratch[:0])
		c.table = string(a.scratch)
	}
	c.bits &^= paying
	c.act = nil
	a.free()
}

// free returns a to the pool.
func (a *active) free() {
	if a.out != nil {
		a.out.Release()
	}
	a.dropPartial()
	clear(a.streams)
	clear(a.opening)
	clear(a.fields)
	*a = active{
		streams: a.streams, opening: a.opening[:0], block: fieldBlock{p: kept(a.block.p)},
		early: a.early[:0], resets: a.resets[:0], decoder: a.decoder, fields: a.fields[:0], scratch: kept(a.scratch),
		control: kept(a.control),
	}
	actives.Put(a)
}

// shrink lets go of what a request has needed: its strings, and buffers that are large.
func (a *active) shrink() {
	a.head = h2.Head{}
	clear(a.fields)
	a.block.p, a.scratch = kept(a.block.p), kept(a.scratch)
	if cap(a.fields) > keptFields {
		a.fields = nil
	}
	a.decoder.Shrink(keptScratch)
}

func kept(p []byte) []byte {
	if cap(p) > keptScratch {
		return nil
	}
	return p[:0]
}

// open lists the streams that have not ended, in no order.
func (c *Conn) open() (all []*Stream) {
	if c.act == nil {
		return nil
	}
	all = append(all, c.act.opening...)
	for _, s := range c.act.streams {
		all = append(all, s)
	}
	slices.SortFunc(all[len(c.act.opening):], func(a, b *Stream) int { return int(int64(a.id) - int64(b.id)) })
	return all
}

// A queue is a list of streams.
type queue struct{ first, last *Stream }

func (q *queue) push(s *Stream) {
	s.next = nil
	if q.first == nil {
		q.first = s
	} else {
		q.last.next = s
	}
	q.last = s
}

func (q *queue) pushFront(s *Stream) {
	if s.next = q.first; q.last == nil {
		q.last = s
	}
	q.first = s
}

func (q *queue) pop() *Stream {
	s := q.first
	if q.first = s.next; q.first == nil {
		q.last = nil
	}
	s.next = nil
	return s
}

// remove takes s out, wherever it is.
func (q *queue) remove(s *Stream) bool {
	var before *Stream
	for p := q.first; p != nil; before, p = p, p.next {
		if p != s {
			continue
		}
		if before == nil {
			q.first = p.next
		} else {
			before.next = p.next
		}
		if q.last == p {
			q.last = before
		}
		p.next = nil
		return true
	}
	return false
}
