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
	"math/bits"
	"sync"
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

const (
	minBlock = 1 << minShift
	maxPool  = 1 << maxShift // larger blocks are allocated, and left to the garbage collector

	minShift = 8
	maxShift = 20
	classes  = maxShift - minShift + 1
	unpooled = -1

	// MaxBlock is the largest size of a block in bytes. Get and From panic above it. A caller whose
	// peer chooses a size must check it against its own limit first.
	MaxBlock = 1 << 30
)

// pools holds free blocks by class: 256 B, 512 B, 1 KiB and so on up to 1 MiB.
var pools [classes]sync.Pool

// live counts blocks in use. It has shards, so that loops on different cores do not share a cache
// line. A block keeps its shard, and sync.Pool tends to return it to the core that freed it.
var live [16]struct {
	n atomic.Int64
	_ [56]byte
}

var made atomic.Uint32 // assigns new blocks to shards in turn

// Get returns an empty block with one reference and room for at least n bytes. Up to 1 MiB the room
// is the next power of two, and the memory is pooled. Above, the room is exactly n, and the memory
// is not pooled. It panics if n is negative or above [MaxBlock].
func Get(n int) *Block {
	if uint(n) > maxPool {
		return getLarge(n)
	}
	class := classOf(n)
	b, _ := pools[class].Get().(*Block)
	if b == nil {
		b = newBlock(minBlock<<class, int8(class))
	}
	b.refs.Store(1)
	live[b.shard&15].n.Add(1)
	return b
}

func getLarge(n int) *Block {
	if n < 0 || n > MaxBlock {
		panic(fmt.Sprintf("buf: Get(%d): a block holds 0 to %d bytes, use a Chain for more", n, MaxBlock))
	}
	b := newBlock(n, unpooled)
	b.refs.Store(1)
	live[b.shard&15].n.Add(1)
	return b
}

func newBlock(size int, class int8) *Block {
	return &Block{mem: make([]byte, size), class: class, shard: uint8(made.Add(1) & 15)}
}

// put returns a block without references to its pool.
func put(b *Block) {
	live[b.shard&15].n.Add(-1)
	if poison {
		overwrite(b.mem[:b.n])
	}
	b.n = 0
	if b.class == unpooled {
		b.mem = nil
		return
	}
	pools[b.class].Put(b)
}

func classOf(n int) int {
	if n <= minBlock {
		return 0
	}
	return bits.Len(uint(n-1)) - minShift
}

// InUse returns the number of blocks in the process that have references. It is exact if no block
// is got or released meanwhile.
func InUse() int {
	sum := int64(0)
	for i := range live {
		sum += live[i].n.Load()
	}
	return int(sum)
}
