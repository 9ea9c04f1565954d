package buf

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// After any sequence of operations, a block and its views hold the same bytes as a byte slice
// would.
func TestRandomBlockOpsMatchByteSlice(t *testing.T) {
	CheckLeaks(t)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		script := make([]byte, 400)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		if err := runBlockScript(script); err != "" {
			t.Fatalf("seed %d: %s", seed, err)
		}
	}
}

func FuzzBlock(f *testing.F) {
	f.Add([]byte("\x10\x00\x20\x03\x05\x01\x20\x04\x02"))
	f.Add(bytes.Repeat([]byte{0, 255, 1, 90, 2, 0, 3, 200, 4, 1}, 20))
	f.Fuzz(func(t *testing.T, script []byte) {
		CheckLeaks(t)
		if err := runBlockScript(script[:min(len(script), 600)]); err != "" {
			t.Fatal(err)
		}
	})
}

// blockModel is a block and views cut from it, with the bytes that they must hold.
type blockModel struct {
	b     *Block
	want  []byte
	views []*Chain
	wants [][]byte
	seed  byte
}

// runBlockScript runs (operation, size) pairs and returns the first difference. The script's first
// byte is the block's size class.
func runBlockScript(script []byte) string {
	if len(script) == 0 {
		return ""
	}
	m := &blockModel{b: Get(1 << (script[0] % 14))}
	defer func() {
		m.dropViews()
		m.b.Release()
	}()
	for i := 1; i+1 < len(script); i += 2 {
		m.step(script[i], int(script[i+1]))
		if err := m.check(); err != "" {
			return err
		}
	}
	return ""
}

func (m *blockModel) step(op byte, size int) {
	m.seed++
	p := pattern(size*2, m.seed)
	switch op % 5 {
	case 0:
		n := m.b.Append(p)
		m.want = append(m.want, p[:n]...)
	case 1:
		n := copy(m.b.Extend(), p)
		m.b.Commit(n / 2) // the rest of Extend stays unused
		m.want = append(m.want, p[:n/2]...)
	case 2, 3:
		to := len(m.want) * size / 255
		from := to * int(op>>3) / 31
		c := GetChain()
		c.AppendView(m.b.Retain(), from, to)
		m.views, m.wants = append(m.views, c), append(m.wants, bytes.Clone(m.want[from:to]))
	case 4:
		if m.dropViews(); size%4 == 0 {
			m.b.Reset()
			m.want = m.want[:0]
		}
	}
}

func (m *blockModel) dropViews() {
	for _, c := range m.views {
		c.Put()
	}
	m.views, m.wants = nil, nil
}

func (m *blockModel) check() string {
	switch {
	case !bytes.Equal(m.b.Bytes(), m.want):
		return "Bytes differ"
	case m.b.Len() != len(m.want), m.b.Len()+m.b.Free() != m.b.Cap(), len(m.b.Extend()) != m.b.Free():
		return "Len, Free, Cap and Extend do not agree"
	}
	for i, c := range m.views {
		if !bytes.Equal(c.AppendTo(nil), m.wants[i]) {
			return "a view changed while its block grew"
		}
	}
	return ""
}

// Vectors returns the queued memory itself. For a chain of blocks, views, cuts and shares it copies
// nothing, and with room in dst it allocates nothing.
func TestVectorsAreTheQueuedMemory(t *testing.T) {
	CheckLeaks(t)
	a, b := From(pattern(5000, 1)), From(pattern(300, 2))
	defer a.Release()
	defer b.Release()
	c := GetChain()
	defer c.Put()
	c.AppendBlock(a.Retain())
	c.AppendView(b.Retain(), 100, 200)
	var front, shared Chain
	defer front.Release()
	defer shared.Release()
	c.Cut(1000, &front)
	c.Share(&shared)
	for _, tt := range []struct {
		about string
		run   []byte
		want  []byte
	}{
		{"cut off", front.First(), a.Bytes()[:1000]},
		{"left by the cut", c.Vectors(nil, 9)[0], a.Bytes()[1000:]},
		{"a view", c.Vectors(nil, 9)[1], b.Bytes()[100:200]},
		{"shared", shared.Vectors(nil, 9)[0], a.Bytes()[1000:]},
		{"a shared view", shared.Vectors(nil, 9)[1], b.Bytes()[100:200]},
	} {
		if len(tt.run) != len(tt.want) || unsafe.SliceData(tt.run) != unsafe.SliceData(tt.want) {
			t.Errorf("%s: %d bytes that are not the %d of the block", tt.about, len(tt.run), len(tt.want))
		}
		if cap(tt.run) != len(tt.run) {
			t.Errorf("%s: an append would write into the block", tt.about)
		}
	}
	table := make([][]byte, 0, 8)
	if n := testing.AllocsPerRun(100, func() { table = c.Vectors(table[:0], 8) }); n != 0 {
		t.Errorf("gathering allocates %v times", n)
	}
}
