package buf

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestGetGivesRoomByClass(t *testing.T) {
	CheckLeaks(t)
	for _, tc := range []struct{ n, capacity int }{
		{0, 256}, {1, 256}, {256, 256}, {257, 512}, {512, 512}, {513, 1 << 10}, {4097, 8 << 10},
		{64 << 10, 64 << 10}, {1<<20 - 1, 1 << 20}, {1 << 20, 1 << 20}, {1<<20 + 1, 1<<20 + 1}, {3 << 20, 3 << 20},
	} {
		b := Get(tc.n)
		if b.Cap() != tc.capacity || b.Len() != 0 || b.Free() != tc.capacity || len(b.Bytes()) != 0 {
			t.Errorf("Get(%d): cap %d, len %d, free %d, want an empty block of %d", tc.n, b.Cap(), b.Len(), b.Free(),
				tc.capacity)
		}
		b.Release()
	}
}

func TestFromCopies(t *testing.T) {
	CheckLeaks(t)
	for _, n := range []int{0, 1, 256, 300, 1 << 20, 1<<20 + 7} {
		p := pattern(n, 3)
		b := From(p)
		clear(p)
		if !bytes.Equal(b.Bytes(), pattern(n, 3)) {
			t.Errorf("From(%d bytes) holds other bytes, or shares them with its argument", n)
		}
		b.Release()
	}
}

func TestAppendStopsAtCapacity(t *testing.T) {
	CheckLeaks(t)
	b := Get(256)
	defer b.Release()
	p := pattern(200, 1)
	if n := b.Append(p); n != 200 {
		t.Fatalf("first Append took %d, want 200", n)
	}
	if n := b.Append(p); n != 56 {
		t.Fatalf("second Append took %d, want the 56 that fit", n)
	}
	if want := append(pattern(200, 1), p[:56]...); !bytes.Equal(b.Bytes(), want) || b.Free() != 0 {
		t.Fatal("block does not hold the appended bytes")
	}
}

func TestExtendAndCommit(t *testing.T) {
	CheckLeaks(t)
	b := From([]byte("HTTP/1.1 "))
	defer b.Release()
	b.Commit(len(fmt.Appendf(b.Extend()[:0], "%d OK", 200)))
	if got := string(b.Bytes()); got != "HTTP/1.1 200 OK" {
		t.Fatalf("got %q", got)
	}
	if p := b.Bytes(); cap(p) != len(p) {
		t.Fatal("an append to Bytes would write into the block")
	}
}

func TestResetOfOnlyReference(t *testing.T) {
	CheckLeaks(t)
	b := From([]byte("old"))
	b.Retain().Release()
	b.Reset()
	b.Append([]byte("new"))
	if got := string(b.Bytes()); got != "new" {
		t.Fatalf("got %q", got)
	}
	b.Release()
}

func TestMisusePanics(t *testing.T) {
	freed := func() *Block { b := Get(MaxBlock / 64); b.Release(); return b } // unpooled: its memory is not reused
	live := func(t *testing.T) *Block { b := From([]byte("abc")); t.Cleanup(b.Release); return b }
	for name, f := range map[string]func(t *testing.T){
		"Get(-1): a block holds":             func(*testing.T) { Get(-1) },
		"a block holds 0 to":                 func(*testing.T) { Get(MaxBlock + 1) },
		"Release of a block that is already": func(*testing.T) { freed().Release() },
		"Retain of a block that is already":  func(*testing.T) { freed().Retain() },
		"Bytes of a block that is already":   func(*testing.T) { freed().Bytes() },
		"Append of a block that is already":  func(*testing.T) { freed().Append(nil) },
		"Extend of a block that is already":  func(*testing.T) { freed().Extend() },
		"Commit of a block that is already":  func(*testing.T) { freed().Commit(0) },
		"Reset of a block with 0":            func(*testing.T) { freed().Reset() },
		"AppendBlock of a block that is":     func(*testing.T) { new(Chain).AppendBlock(freed()) },
		"AppendView of a block that is":      func(*testing.T) { new(Chain).AppendView(freed(), 0, 0) },
		"Reset of a block with 2": func(t *testing.T) {
			b := live(t).Retain()
			defer b.Release()
			b.Reset()
		},
		"Commit(-1)":                          func(t *testing.T) { live(t).Commit(-1) },
		"Commit(254) in a block with":         func(t *testing.T) { live(t).Commit(254) },
		"AppendView(-1, 2)":                   func(t *testing.T) { new(Chain).AppendView(live(t), -1, 2) },
		"AppendView(2, 1)":                    func(t *testing.T) { new(Chain).AppendView(live(t), 2, 1) },
		"AppendView(0, 4) of a block that":    func(t *testing.T) { new(Chain).AppendView(live(t), 0, 4) },
		"Discard(1) of a chain that holds 0":  func(*testing.T) { new(Chain).Discard(1) },
		"Discard(-1) of a chain":              func(*testing.T) { new(Chain).Discard(-1) },
		"Cut(1) of a chain that holds 0":      func(*testing.T) { new(Chain).Cut(1, new(Chain)) },
		"Cut of a chain into itself":          func(t *testing.T) { c := chainOf(t, "ab"); c.Cut(1, c) },
		"Move of a chain into itself":         func(t *testing.T) { c := chainOf(t, "ab"); c.Move(c) },
		"Share of a chain with itself":        func(t *testing.T) { c := chainOf(t, "ab"); c.Share(c) },
		"Put of a chain that is not from":     func(*testing.T) { new(Chain).Put() },
		"from GetChain or was put before: us": func(*testing.T) { c := &Chain{pooled: parked}; c.Put() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), name) ||
					!strings.HasPrefix(fmt.Sprint(v), "buf: ") {
					t.Errorf("panic value %v, want one with prefix %q that says %q", v, "buf: ", name)
				}
			}()
			f(t)
		})
	}
}

// One goroutine appends while others read views of earlier bytes. The bytes must not change, and
// the race detector must find no race.
func TestTailGrowsBehindSharedViews(t *testing.T) {
	CheckLeaks(t)
	var src Chain
	var readers sync.WaitGroup
	for i := range 50 {
		src.Append(pattern(37, byte(i)))
		dst := GetChain()
		src.Share(dst)
		want := src.AppendTo(nil)
		readers.Go(func() {
			if got := dst.AppendTo(nil); !bytes.Equal(got, want) {
				t.Errorf("a shared view of %d bytes changed", len(want))
			}
			dst.Put()
		})
	}
	src.Release()
	readers.Wait()
}

func TestCheckLeaksReports(t *testing.T) {
	var r reporter
	CheckLeaks(&r)
	b := Get(1)
	r.cleanup()
	b.Release()
	if want := "buf: 1 blocks not released (1 in use, 0 at the start)"; r.said != want {
		t.Fatalf("reported %q, want %q", r.said, want)
	}
	r = reporter{}
	CheckLeaks(&r)
	r.cleanup()
	if r.said != "" {
		t.Fatalf("reported %q without a leak", r.said)
	}
}

type reporter struct {
	said    string
	cleanup func()
}

func (r *reporter) Helper()                        {}
func (r *reporter) Errorf(format string, a ...any) { r.said = fmt.Sprintf(format, a...) }
func (r *reporter) Cleanup(f func())               { r.cleanup = f }

func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = seed + byte(i*7) + byte(i>>8)
	}
	return p
}

func chainOf(t *testing.T, parts ...string) *Chain {
	c := GetChain()
	for _, p := range parts {
		c.AppendBlock(From([]byte(p)))
	}
	t.Cleanup(c.Put)
	return c
}

func TestFreedBytesAreOverwrittenUnderRace(t *testing.T) {
	b := From(pattern(5000, 0))
	stale := b.Bytes()
	b.Release()
	if overwritten := bytes.Equal(stale, bytes.Repeat([]byte{0xDB}, 5000)); overwritten != poison {
		t.Fatalf("overwritten: %v, want %v", overwritten, poison)
	}
}
