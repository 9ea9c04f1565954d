package buf

import (
	"fmt"
	"sync"
)

const (
	firstAppend = 512      // the block that a first small Append gets
	growAppend  = 16 << 10 // small Appends double their blocks up to here
	maxAppend   = 64 << 10 // one large Append is split into blocks of at most this, so that sent parts are freed early

	// keptViews is how many views a chain that goes back to the pool may keep room for (16 bytes
	// each).
	keptViews = 64
)

// A Chain is a sequence of bytes held as views on blocks: output that waits to be sent, or input
// that waits for its rest. The zero value is empty and ready. It is not bounded itself: whoever
// queues on it checks Len against a limit first.
//
// A chain owns one reference for each of its views and is itself owned by one goroutine at a time.
// Do not copy it; give it on with Move. Every chain ends with Release, or Put if it came from
// GetChain.
type Chain struct {
	_      noCopy
	views  []view // the first head of them are already gone
	n      int    // bytes in views[head:]
	tail   *Block // the last view's block while this chain alone may append to it, else nil
	head   uint32
	pooled state
}

type view struct {
	b        *Block
	off, end uint32
}

type state uint8

const (
	plain  state = iota // a zero value, not to be Put
	taken               // between GetChain and Put
	parked              // in the pool
)

var chains = sync.Pool{New: func() any { return &Chain{views: make([]view, 0, 4)} }}

// GetChain returns an empty chain from a pool; Put gives it back. A connection holds one only while
// it has output queued.
func GetChain() *Chain {
	c := chains.Get().(*Chain)
	c.pooled = taken
	return c
}

// Put releases what is left in c and gives c itself back. It panics unless c came from GetChain and
// was not Put since.
func (c *Chain) Put() {
	if c.pooled != taken {
		panic("buf: Put of a chain that is not from GetChain or was put before: use Release for others")
	}
	c.Release()
	if cap(c.views) > keptViews {
		c.views = nil
	}
	c.pooled = parked
	chains.Put(c)
}

// Len is the number of bytes in the chain.
func (c *Chain) Len() int { return c.n }

// Release drops everything; c is empty and may be used again.
func (c *Chain) Release() {
	for i := int(c.head); i < len(c.views); i++ {
		c.views[i].b.Release()
	}
	c.reset()
}

func (c *Chain) reset() {
	clear(c.views) // a chain in the pool keeps no block from being collected
	c.views, c.head, c.n, c.tail = c.views[:0], 0, 0, nil
}

// Append copies p to the end. It continues in the last block where this chain got that block itself
// and there is room; it never writes into a block it was given.
func (c *Chain) Append(p []byte) {
	next := firstAppend
	if b := c.tail; b != nil {
		n := b.Append(p)
		c.views[len(c.views)-1].end += uint32(n)
		c.n += n
		p = p[n:]
		next = min(2*b.Cap(), growAppend)
	}
	for len(p) > 0 {
		b := Get(min(max(len(p), next), maxAppend))
		n := b.Append(p)
		c.push(view{b, 0, uint32(n)})
		c.tail = b
		p = p[n:]
	}
}

// AppendBlock adds all bytes of b without copying and consumes one reference to it.
func (c *Chain) AppendBlock(b *Block) {
	b.mustLive("AppendBlock")
	c.give(b, 0, b.n)
}

// AppendView adds bytes off to end of b without copying and consumes one reference to it. It panics
// if they are not among the bytes appended to b so far.
func (c *Chain) AppendView(b *Block, off, end int) {
	b.mustLive("AppendView")
	if off < 0 || off > end || end > b.n {
		panic(fmt.Sprintf("buf: AppendView(%d, %d) of a block that holds %d bytes: need 0 <= off <= end <= Len", off,
			end, b.n))
	}
	c.give(b, off, end)
}

func (c *Chain) give(b *Block, off, end int) {
	if off == end {
		b.Release()
		return
	}
	c.push(view{b, uint32(off), uint32(end)})
}

// push appends a view with its reference, or widens the last one where v continues it. It takes
// away the right to append in place, which the caller may set again.
func (c *Chain) push(v view) {
	c.n += int(v.end - v.off)
	c.tail = nil
	if last := len(c.views) - 1; last >= int(c.head) && c.views[last].b == v.b && c.views[last].end == v.off {
		c.views[last].end = v.end
		v.b.Release()
		return
	}
	if len(c.views) == cap(c.views) && c.head > 0 {
		c.compact()
	}
	c.views = append(c.views, v)
}

// compact re-uses the room of the views that are gone. It runs when that room is all there is, and
// only if it is at least half, so that a long chain does not move for each view; else the append
// that follows grows it.
func (c *Chain) compact() {
	if int(c.head) < len(c.views)/2 {
		return
	}
	n := copy(c.views, c.views[c.head:])
	clear(c.views[n:])
	c.views, c.head = c.views[:n], 0
}

type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
