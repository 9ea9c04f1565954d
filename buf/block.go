// Package buf holds bytes that several owners share without copying them: reference-counted blocks,
// and chains of views on blocks.
//
// A broadcast is encoded once into a [Block] and queued on a hundred thousand connections as a
// hundred thousand references to the same bytes. What makes that safe is one rule: bytes once
// appended to a block never change while a reference to it lives. Only the tail behind them is
// still written, and only by the one holder that got the block.
//
// References are counted by hand, because a garbage collector frees memory too late to bound it.
// Every mistake that can be noticed panics (see [Block]), [InUse] counts what lives, and
// [CheckLeaks] fails a test that forgot a Release.
package buf

import (
	"fmt"
	"sync/atomic"
)

// A Block is a piece of memory of fixed capacity with a count of its references. [Get] and [From]
// return it with one.
//
// Retain and Release may be called from any goroutine that holds a reference. Append, Extend,
// Commit and Reset are for the holder that got the block, and whoever reads with Bytes, Len or Free
// must be ordered after them; a view in a [Chain] stays valid and race-free while the block grows
// behind it.
//
// A call on a block whose last reference is gone panics, as does a Release too many, unless the
// memory is already in use again for somebody else: that cannot be noticed. Under the race detector
// freed memory is overwritten, so that a stale view shows.
type Block struct {
	mem   []byte // the whole capacity: never changed, so that views can be cut from it while n moves
	n     int
	refs  atomic.Int32
	class int8  // in pools, or unpooled
	shard uint8 // of the gauge behind InUse
}

// From returns a block with one reference that holds a copy of p. It panics above [MaxBlock] bytes.
func From(p []byte) *Block {
	b := Get(len(p))
	b.n = copy(b.mem, p)
	return b
}

// Bytes returns what has been appended. It is for reading only and valid while the caller holds a
// reference.
func (b *Block) Bytes() []byte {
	b.mustLive("Bytes")
	return b.mem[:b.n:b.n]
}

// Len is the number of bytes appended.
func (b *Block) Len() int { return b.n }

// Cap is the number of bytes the block can hold in all; it never changes.
func (b *Block) Cap() int { return len(b.mem) }

// Free is how many more bytes can be appended.
func (b *Block) Free() int { return len(b.mem) - b.n }

// Append copies as much of p as there is room for and returns how much that was. Only the holder
// that got the block may call it; others may hold references meanwhile.
func (b *Block) Append(p []byte) int {
	b.mustLive("Append")
	n := copy(b.mem[b.n:], p)
	b.n += n
	return n
}

// Extend returns the free room, to be filled in place and then made part of the block by Commit. An
// append-style encoder starts from Extend()[:0] and must be seen to have stayed within Free. Only
// the holder that got the block may call it.
func (b *Block) Extend() []byte {
	b.mustLive("Extend")
	return b.mem[b.n:]
}

// Commit makes the first n bytes of what Extend returned part of the block. It panics if n is
// negative or above Free.
func (b *Block) Commit(n int) {
	b.mustLive("Commit")
	if n < 0 || n > b.Free() {
		panic(fmt.Sprintf("buf: Commit(%d) in a block with room for %d: commit only what was written into Extend", n,
			b.Free()))
	}
	b.n += n
}

// Reset empties the block, to be filled anew. It panics while there is a second reference, because
// the bytes behind that one would change.
func (b *Block) Reset() {
	if refs := b.refs.Load(); refs != 1 {
		panic(fmt.Sprintf("buf: Reset of a block with %d references: it needs to be the only one", refs))
	}
	b.n = 0
}

// Retain adds a reference and returns b. The caller must hold one itself.
func (b *Block) Retain() *Block {
	if b.refs.Add(1) <= 1 {
		panic("buf: Retain of a block that is already free: retain before the last Release")
	}
	return b
}

// Release gives one reference back. The last one frees the block.
func (b *Block) Release() {
	switch refs := b.refs.Add(-1); {
	case refs == 0:
		put(b)
	case refs < 0:
		panic("buf: Release of a block that is already free: one Release for each Get, From and Retain")
	}
}

func (b *Block) mustLive(op string) {
	if b.refs.Load() <= 0 {
		panicFreed(op)
	}
}

func panicFreed(op string) {
	panic("buf: " + op + " of a block that is already free: hold a reference while it is used")
}
