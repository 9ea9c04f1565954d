// Package buf shares bytes between several owners without copies, in reference-counted blocks and
// chains of views on blocks.
//
// A broadcast is encoded once into a [Block]. Queued on a hundred thousand connections, it is a
// hundred thousand references to the same bytes. One rule makes that safe: bytes appended to a
// block do not change while the block has a reference. Only the free tail is written, and only by
// the goroutine that got the block.
//
// The program counts references itself, because a garbage collector frees memory too late to bound
// it. A detectable mistake panics (see [Block]). [InUse] counts the blocks in use, and [CheckLeaks]
// fails a test that forgot a Release.
package buf

import (
	"fmt"
	"sync/atomic"
)

// A Block is memory of fixed capacity with a reference count. [Get] and [From] return it with one
// reference.
//
// Retain and Release may be called from any goroutine that holds a reference. Only the goroutine
// that got the block may call Append, Extend, Commit and Reset. Calls of Bytes, Len or Free must be
// synchronized with them. A view in a [Chain] stays valid and free of races while the block grows.
//
// A call on a free block panics, and so does a Release too many. If the memory is already in use
// again for another block, the mistake goes undetected. In builds with the race detector, freed
// memory is overwritten, so that a stale view shows.
type Block struct {
	mem   []byte // the whole capacity: constant, so that views can be cut from it while n grows
	n     int
	refs  atomic.Int32
	class int8  // index in pools, or unpooled
	shard uint8 // index in live
}

// From returns a block with one reference that holds a copy of p. It panics above [MaxBlock] bytes.
func From(p []byte) *Block {
	b := Get(len(p))
	b.n = copy(b.mem, p)
	return b
}

// Bytes returns the appended bytes. The caller may only read them, and only while it holds a
// reference.
func (b *Block) Bytes() []byte {
	b.mustLive("Bytes")
	return b.mem[:b.n:b.n]
}

// Len returns the number of bytes appended.
func (b *Block) Len() int { return b.n }

// Cap returns the block's capacity in bytes, which is constant.
func (b *Block) Cap() int { return len(b.mem) }

// Free returns how many more bytes can be appended.
func (b *Block) Free() int { return len(b.mem) - b.n }

// Append copies as much of p as fits and returns the number of bytes. Only the goroutine that got
// the block may call it; others may hold references.
func (b *Block) Append(p []byte) int {
	b.mustLive("Append")
	n := copy(b.mem[b.n:], p)
	b.n += n
	return n
}

// Extend returns the free room. The caller fills it in place, and then calls Commit. An
// append-style encoder starts from Extend()[:0]; its caller must check that the result stayed
// within Free. Only the goroutine that got the block may call it.
func (b *Block) Extend() []byte {
	b.mustLive("Extend")
	return b.mem[b.n:]
}

// Commit appends the first n bytes of the room that Extend returned. It panics if n is negative or
// above Free.
func (b *Block) Commit(n int) {
	b.mustLive("Commit")
	if n < 0 || n > b.Free() {
		panic(fmt.Sprintf("buf: Commit(%d) in a block with room for %d: commit only what was written into Extend", n,
			b.Free()))
	}
	b.n += n
}

// Reset empties the block for new use. It panics if there is a second reference, because its bytes
// would change.
func (b *Block) Reset() {
	if refs := b.refs.Load(); refs != 1 {
		panic(fmt.Sprintf("buf: Reset of a block with %d references: it needs to be the only one", refs))
	}
	b.n = 0
}

// Retain adds a reference and returns b. The caller must hold a reference.
func (b *Block) Retain() *Block {
	if b.refs.Add(1) <= 1 {
		panic("buf: Retain of a block that is already free: retain before the last Release")
	}
	return b
}

// Release drops a reference. The last Release frees the block.
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
