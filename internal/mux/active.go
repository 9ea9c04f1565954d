package mux

import (
	"sync"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// An active is the part of a connection that it has only while it has work: open streams, an
// incomplete frame, output. An idle connection keeps the packed table of its decoder alone.
type active struct {
	streams map[uint32]*Stream
	opening []*Stream // of a client, whose heads are not written yet
	early   []earlyPriority
	resets  []uint32     // streams that we have reset, the oldest first, at most keptResets
	away    *goAwayError // of a client: the peer's GOAWAY
	payment payment
	pinged  uint32 // when the PING left that health.ping says is out, in ms
	input
	output
}

// input is what has come of the peer's frames and is not complete, and what decodes field blocks.
type input struct {
	partial   *buf.Block // an incomplete frame; nil: there is none
	block     fieldBlock
	headTimed bool // headTimer is set
	decoder   hpack.Decoder
	fields    []hpack.Field
	head      h2.Head
}

// A fieldBlock is HEADERS whose CONTINUATION is still to come.
type fieldBlock struct {
	stream uint32 // 0: none
	end    bool   // END_STREAM
	frames int
	self   bool // the stream depends on itself
	p      []byte
}

// output is what is to leave: control frames, then out, which is made of the streams in the queues.
type output struct {
	control   []byte // control frames
	controls  int    // how many
	out       *buf.Block
	heads     queue    // streams with a head, trailers or an end without data
	ready     [8]queue // streams with data, by urgency
	picks     uint8
	scratch   []byte // a head, before it is compressed and after
	wrote     uint32 // bytes of output, modulo 2^32
	paused    bool   // the conn is not read, because control frames wait
	watched   bool   // stallTimer is set
	watchedAt uint32 // what Conn.hasLeft was when stallTimer was set, or drainTimer for the last output
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

// sending reports whether streams are open, or output waits.
func (a *active) sending() bool {
	return len(a.streams) > 0 || len(a.opening) > 0 || len(a.control) > 0 || a.out != nil
}

// receiving reports whether a frame or a field block is incomplete.
func (a *active) receiving() bool { return a.partial != nil || a.block.stream != 0 }

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
		streams: a.streams, opening: a.opening[:0], early: a.early[:0], resets: a.resets[:0],
		input:  input{block: fieldBlock{p: kept(a.block.p)}, decoder: a.decoder, fields: a.fields[:0]},
		output: output{scratch: kept(a.scratch), control: kept(a.control)},
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

func (a *active) dropPartial() {
	if a.partial != nil {
		a.partial.Release()
		a.partial = nil
	}
}

func kept(p []byte) []byte {
	if cap(p) > keptScratch {
		return nil
	}
	return p[:0]
}
