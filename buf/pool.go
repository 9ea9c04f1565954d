package buf

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

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
