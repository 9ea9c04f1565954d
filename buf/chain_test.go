package buf

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"testing"
	"unsafe"
)

func TestChainIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Chain{}); size > 48 {
		t.Fatalf("a Chain is %d bytes, want at most 48: connections hold them", size)
	}
}

func TestAppendGrowsWithDemand(t *testing.T) {
	CheckLeaks(t)
	var c Chain
	defer c.Release()
	for range 400 {
		c.Append(pattern(128, 9))
	}
	for i, want := range []int{512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 16 << 10, 16 << 10} {
		if got := c.views[i].b.Cap(); got != want {
			t.Errorf("block %d has room for %d, want %d", i, got, want)
		}
	}
	c.Release()
	c.Append(pattern(1<<20, 0))
	if got := len(c.Vectors(nil, 1000)); got != 16 {
		t.Errorf("1 MiB became %d runs, want 16 of 64 KiB", got)
	}
}

func TestAppendNeverWritesIntoGivenBlock(t *testing.T) {
	CheckLeaks(t)
	b := From([]byte("given"))
	defer b.Release()
	var c Chain
	defer c.Release()
	c.AppendBlock(b.Retain())
	c.Append([]byte("own"))
	if b.Len() != 5 || string(c.AppendTo(nil)) != "givenown" {
		t.Fatalf("block holds %q, chain %q", b.Bytes(), c.AppendTo(nil))
	}
	var shared Chain
	defer shared.Release()
	c.Share(&shared)
	shared.Append([]byte("theirs"))
	c.Append([]byte("mine"))
	if got := string(shared.AppendTo(nil)); got != "givenowntheirs" {
		t.Fatalf("the sharing chain holds %q", got)
	}
	if got := string(c.AppendTo(nil)); got != "givenownmine" {
		t.Fatalf("the shared chain holds %q", got)
	}
}

func TestAppendContinuesAfterMove(t *testing.T) {
	CheckLeaks(t)
	var a, b Chain
	defer b.Release()
	a.Append([]byte("one "))
	b.Append([]byte("zero "))
	a.Move(&b)
	before := InUse()
	b.Append([]byte("two"))
	if got := string(b.AppendTo(nil)); got != "zero one two" || InUse() != before || a.Len() != 0 {
		t.Fatalf("holds %q in %d new blocks", got, InUse()-before)
	}
}

func TestNeighbouringViewsJoin(t *testing.T) {
	CheckLeaks(t)
	c := chainOf(t, "hello, world")
	var front Chain
	defer front.Release()
	c.Cut(5, &front)
	c.Move(&front)
	if runs := front.Vectors(nil, 9); len(runs) != 1 || string(runs[0]) != "hello, world" {
		t.Fatalf("cut and moved back: %q", runs)
	}
}

func TestVectorsAreBounded(t *testing.T) {
	c := chainOf(t, "a", "bb", "ccc")
	for _, tc := range []struct{ limit, want int }{{-1, 0}, {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 3}} {
		if got := len(c.Vectors(nil, tc.limit)); got != tc.want {
			t.Errorf("limit %d gave %d runs, want %d", tc.limit, got, tc.want)
		}
	}
}

func TestLongQueueKeepsItsViewsBounded(t *testing.T) {
	CheckLeaks(t)
	var c Chain
	defer c.Release()
	for range 10_000 {
		c.AppendBlock(From([]byte("0123456789")))
		if c.Len() > 100 {
			c.Discard(10)
		}
	}
	most := 32
	if bits.UintSize == 32 {
		most = 34 // append rounds a table of 12-byte views differently
	}
	if cap(c.views) > most {
		t.Fatalf("a queue of 10 views grew its table to %d", cap(c.views))
	}
}

func TestPutKeepsNoLargeTable(t *testing.T) {
	CheckLeaks(t)
	c := GetChain()
	for range 10 * keptViews {
		c.AppendBlock(From([]byte("x")))
	}
	c.Put()
	if c.views != nil {
		t.Fatalf("a chain went to the pool with room for %d views", cap(c.views))
	}
}

func TestRandomOpsMatchByteSlice(t *testing.T) {
	CheckLeaks(t)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 300)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		if err := runScript(script); err != "" {
			t.Fatalf("seed %d: %s", seed, err)
		}
	}
}

func FuzzChain(f *testing.F) {
	f.Add([]byte("\x00\x10\x03\x05\x01\x20\x05\x02"))
	f.Add(bytes.Repeat([]byte{0, 255, 3, 9, 4, 0, 6, 1}, 20))
	f.Fuzz(func(t *testing.T, script []byte) {
		CheckLeaks(t)
		if err := runScript(script[:min(len(script), 600)]); err != "" {
			t.Fatal(err)
		}
	})
}

// runScript runs (operation, size) pairs on three chains and on plain byte slices, and returns the
// first difference.
func runScript(script []byte) string {
	m := &model{}
	for i := range m.chain {
		m.chain[i] = GetChain()
		defer m.chain[i].Put()
	}
	for i := 0; i+1 < len(script); i += 2 {
		m.step(script[i], int(script[i+1]))
		if err := m.check(); err != "" {
			return err
		}
	}
	return ""
}

type model struct {
	chain [3]*Chain
	want  [3][]byte
	seed  byte
}

func (m *model) step(op byte, size int) {
	i := int(op>>4) % 3
	j := (i + 1 + int(op>>7)) % 3
	c, d := m.chain[i], m.chain[j]
	n := size * len(m.want[i]) / 255
	m.seed++
	switch p := pattern(size*size/40, m.seed); op % 8 {
	case 0:
		c.Append(p[:min(len(p), 300)])
		m.want[i] = append(m.want[i], p[:min(len(p), 300)]...)
	case 1:
		c.Append(p)
		m.want[i] = append(m.want[i], p...)
	case 2:
		c.AppendBlock(From(p))
		m.want[i] = append(m.want[i], p...)
	case 3:
		from := len(p) / 3
		c.AppendView(From(p), from, len(p)-from)
		m.want[i] = append(m.want[i], p[from:len(p)-from]...)
	case 4:
		c.Move(d)
		m.want[i], m.want[j] = nil, append(m.want[j], m.want[i]...)
	case 5:
		c.Cut(n, d)
		m.want[j] = append(m.want[j], m.want[i][:n]...)
		m.want[i] = m.want[i][n:]
	case 6:
		if len(m.want[j]) < 1<<13 {
			c.Share(d)
			m.want[j] = append(m.want[j], m.want[i]...)
		}
	case 7:
		c.Discard(n)
		m.want[i] = m.want[i][n:]
	}
}

func (m *model) check() string {
	for i, c := range m.chain {
		want := m.want[i]
		half := make([]byte, len(want)/2)
		switch {
		case c.Len() != len(want):
			return "Len differs"
		case !bytes.Equal(c.AppendTo(nil), want):
			return "AppendTo differs"
		case !bytes.Equal(bytes.Join(c.Vectors(nil, len(want)), nil), want):
			return "Vectors differ"
		case c.CopyTo(half) != len(half) || !bytes.Equal(half, want[:len(half)]):
			return "CopyTo differs"
		case !bytes.HasPrefix(want, c.First()) || (len(want) > 0) != (len(c.First()) > 0):
			return "First differs"
		case c.tail != nil && (c.views[len(c.views)-1].b != c.tail || int(c.views[len(c.views)-1].end) != c.tail.n):
			return "the tail is not the end of the last view: an Append would overwrite shared bytes"
		}
	}
	return ""
}
