package buf

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// room returns the capacity of the blocks of c, each counted once.
func room(c *Chain) (n int) {
	seen := map[*Block]bool{}
	for _, v := range c.views[c.head:] {
		if !seen[v.b] {
			seen[v.b] = true
			n += v.b.Cap()
		}
	}
	return n
}

// A packed queue of short messages, each from its own chain, takes little more memory than their
// bytes. Pack copies neither long views nor blocks with another reference.
func TestPackTakesLittle(t *testing.T) {
	CheckLeaks(t)
	for _, size := range []int{1, 130, 600, 5000} {
		var dst Chain
		var want []byte
		for i := range 200_000 / (size + 30) {
			var c Chain
			p := pattern(size, byte(i))
			c.Append(p)
			want = append(want, p...)
			if c.Pack(&dst); c.Len() != 0 || len(c.views) != 0 {
				t.Fatalf("%d bytes are left of a chain that was packed", c.Len())
			}
		}
		if got := dst.AppendTo(nil); !bytes.Equal(got, want) || dst.Len() != len(want) {
			t.Fatalf("messages of %d bytes: %d remained of %d", size, len(got), len(want))
		}
		if n := room(&dst); size <= packed && n > len(want)+growAppend || n > 2*len(want) {
			t.Errorf("%d bytes in messages of %d take %d", len(want), size, n)
		}
		dst.Release()
	}
	for _, blocks := range []int{1, fewViews, fewViews + 1, 5000} { // the first chain that waits
		var c, dst Chain
		for range blocks {
			c.AppendBlock(From(pattern(6, 1)))
		}
		n := c.Len()
		if c.Pack(&dst); dst.Len() != n {
			t.Fatalf("%d bytes remained of %d", dst.Len(), n)
		}
		if views := len(dst.views); blocks > fewViews && (views > 20 || room(&dst) > n+growAppend) {
			t.Errorf("%d blocks of 6 bytes take %d views and %d bytes", blocks, views, room(&dst))
		}
		dst.Release()
	}
	shared := From(pattern(100, 1))
	defer shared.Release()
	var c, dst Chain
	defer dst.Release()
	dst.Append(pattern(10, 2))
	c.AppendBlock(shared.Retain())
	c.Pack(&dst)
	if last := dst.views[len(dst.views)-1]; last.b != shared {
		t.Error("a block with another reference was copied")
	}
}

// Pack changes no byte and leaks no block, for any sequence of operations on both chains.
func TestPackIsMove(t *testing.T) {
	CheckLeaks(t)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		var dst Chain
		var want []byte
		for i := range 100 {
			var c Chain
			for range r.IntN(4) {
				p := pattern(r.IntN(1<<r.IntN(14)), byte(i))
				if want = append(want, p...); r.IntN(2) == 0 {
					c.Append(p)
					continue
				}
				b := From(p)
				c.AppendBlock(b)
			}
			var kept Chain // a copy of some views
			if r.IntN(4) == 0 {
				c.Share(&kept)
			}
			c.Pack(&dst)
			kept.Release()
			if r.IntN(3) == 0 {
				n := r.IntN(dst.Len() + 1)
				dst.Discard(n)
				want = want[n:]
			}
			if got := dst.AppendTo(nil); !bytes.Equal(got, want) {
				t.Fatalf("seed %d: %d bytes, want %d", seed, len(got), len(want))
			}
		}
		dst.Release()
	}
}
