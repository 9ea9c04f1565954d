package buf

import (
	"fmt"
	"sync"
)

const (
	firstAppend = 512      // size of the block for a first small Append
	growAppend  = 16 << 10 // further small Appends double the block up to this size
	maxAppend   = 64 << 10 // a large Append is split into blocks of this size, so that sent parts are freed early

	// keptViews bounds the room for views (16 bytes each) of a chain in the pool.
	keptViews = 64
)

// A Chain is a sequence of bytes held as views on blocks: output that waits to be sent, or
// incomplete input. The zero value is empty and ready. It has no limit of its own: a caller that
// queues on it must check Len against a limit first.
//
// A chain owns one reference for each of its views. One goroutine at a time owns the chain. Do not
// copy a chain; use Move. End it with Release, or with Put if it came from GetChain.
type Chain struct {
	_      noCopy
	views  []view // views[:head] have been dropped
	n      int    // bytes in views[head:]
	tail   *Block // the last view's block if this chain may append to it, else nil
	head   uint32
	pooled state
}

type view struct {
	b        *Block
	off, end uint32
}

type state uint8

const (
	plain  state = iota // a zero value; Put panics
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

// Put releases c's bytes and returns c to the pool. It panics unless c came from GetChain and was
// not Put since.
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

// Len returns the number of bytes in the chain.
func (c *Chain) Len() int { return c.n }

// Release drops all bytes. c is empty and may be used again.
func (c *Chain) Release() {
	for i := int(c.head); i < len(c.views); i++ {
		c.views[i].b.Release()
	}
	c.reset()
}

func (c *Chain) reset() {
	clear(c.views) // so that a chain in the pool does not retain blocks
	c.views, c.head, c.n, c.tail = c.views[:0], 0, 0, nil
}

// Append copies p to the end. It uses free room in the last block only if the chain got that block
// itself; it never writes into a block from AppendBlock or AppendView.
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

// AppendBlock appends all bytes of b without a copy. It takes over one reference to b.
func (c *Chain) AppendBlock(b *Block) {
	b.mustLive("AppendBlock")
	c.give(b, 0, b.n)
}

// AppendView appends the bytes off to end of b without a copy. It takes over one reference to b. It
// panics unless 0 <= off <= end <= b.Len().
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

// push appends a view with its reference, or widens the last view if v continues it. It clears
// c.tail; the caller may set it again.
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

// compact reuses the room of dropped views when there is no other room. It does so only if they are
// at least half of the table, so that a long chain does not move for each view. Otherwise the
// append that follows grows the table.
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

// First returns the first contiguous run of bytes, nil if the chain is empty. The caller may only
// read it, and only until the bytes leave the chain.
func (c *Chain) First() []byte {
	if c.n == 0 {
		return nil
	}
	return c.views[c.head].bytes()
}

// Vectors appends the chain's contiguous runs to dst for writev, at most limit of them. They are
// valid like First.
func (c *Chain) Vectors(dst [][]byte, limit int) [][]byte {
	views := c.views[c.head:]
	for i := range min(len(views), max(limit, 0)) {
		dst = append(dst, views[i].bytes())
	}
	return dst
}

// CopyTo copies the first bytes of the chain into p, as many as fit, and returns their number. The
// chain keeps them.
func (c *Chain) CopyTo(p []byte) int {
	n := 0
	for i := int(c.head); i < len(c.views) && n < len(p); i++ {
		n += copy(p[n:], c.views[i].bytes())
	}
	return n
}

// AppendTo appends a copy of all bytes of the chain to dst. The chain keeps them.
func (c *Chain) AppendTo(dst []byte) []byte {
	for _, v := range c.views[c.head:] {
		dst = append(dst, v.bytes()...)
	}
	return dst
}

func (v view) bytes() []byte { return v.b.mem[v.off:v.end:v.end] }

// Move appends all of c to dst; c is empty afterwards. Into an empty dst it takes constant time.
func (c *Chain) Move(dst *Chain) {
	if c == dst {
		panic("buf: Move of a chain into itself: it needs another chain")
	}
	if c.n == 0 {
		return
	}
	if dst.n == 0 {
		c.views, dst.views = dst.views, c.views
		c.head, dst.head = dst.head, c.head
		dst.n, dst.tail = c.n, c.tail
	} else {
		for _, v := range c.views[c.head:] {
			dst.push(v)
		}
		dst.tail = c.tail
	}
	c.reset()
}

// packed is the longest view that Pack copies.
const packed = 8 << 10

// fewViews is how many views Pack moves as they are to an empty chain.
const fewViews = 16

// Pack is Move for bytes that will wait. It copies small views together if their blocks have no
// other reference: a queue of short messages takes little more memory than their bytes. A few views
// that are the first to wait are not copied.
func (c *Chain) Pack(dst *Chain) {
	if c == dst {
		panic("buf: Pack of a chain into itself: it needs another chain")
	}
	if dst.n == 0 && len(c.views)-int(c.head) <= fewViews {
		c.Move(dst)
		return
	}
	for _, v := range c.views[c.head:] {
		if v.end-v.off > packed || v.b.refs.Load() > 1 {
			dst.push(v)
			continue
		}
		dst.Append(v.b.mem[v.off:v.end])
		v.b.Release()
	}
	c.reset()
}

// Cut moves the first n bytes of c to the end of dst. It copies nothing: if both sides need a
// block, it retains the block. It panics if n is negative or above Len.
func (c *Chain) Cut(n int, dst *Chain) {
	c.mustHave("Cut", n)
	if n == c.n {
		c.Move(dst)
		return
	}
	if c == dst {
		panic("buf: Cut of a chain into itself: it needs another chain")
	}
	for n > 0 {
		v := &c.views[c.head]
		size := int(v.end - v.off)
		if n < size {
			mid := v.off + uint32(n)
			dst.push(view{v.b.Retain(), v.off, mid})
			v.off = mid
			c.n -= n
			return
		}
		dst.push(*v)
		*v = view{}
		c.head++
		c.n -= size
		n -= size
	}
}

// Share appends views of c's bytes to dst; each chain has its own references. Only c may continue
// to append to its last block. It panics if dst is c.
func (c *Chain) Share(dst *Chain) {
	if c == dst {
		panic("buf: Share of a chain with itself: it needs another chain")
	}
	for _, v := range c.views[c.head:] {
		dst.push(view{v.b.Retain(), v.off, v.end})
	}
}

// Discard drops the first n bytes and releases blocks that are no longer needed. It panics if n is
// negative or above Len.
func (c *Chain) Discard(n int) {
	c.mustHave("Discard", n)
	if n == c.n {
		c.Release()
		return
	}
	c.n -= n
	for n > 0 {
		v := &c.views[c.head]
		size := int(v.end - v.off)
		if n < size {
			v.off += uint32(n)
			return
		}
		v.b.Release()
		*v = view{}
		c.head++
		n -= size
	}
}

func (c *Chain) mustHave(op string, n int) {
	if n < 0 || n > c.n {
		panic(fmt.Sprintf("buf: %s(%d) of a chain that holds %d bytes: need 0 <= n <= Len", op, n, c.n))
	}
}
