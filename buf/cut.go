package buf

import "fmt"

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
