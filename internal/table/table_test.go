package table

import (
	"math"
	"runtime"
	"testing"
)

func TestRowsKeepTheirPlaceAndValue(t *testing.T) {
	var tab Table[uint32]
	const n = 10*chunk + 3
	var at [n]*uint32
	for i := range uint32(n) {
		at[i] = tab.Grow(i)
		if *at[i] != 0 {
			t.Fatalf("row %d is %d when it is new, want 0", i, *at[i])
		}
		*at[i] = i + 1
	}
	for i := range uint32(n) {
		if p := tab.Row(i); p != at[i] || *p != i+1 || tab.Grow(i) != p {
			t.Fatalf("row %d is %v with %d, want %v with %d", i, p, *p, at[i], i+1)
		}
	}
	if tab.Len() != 11*chunk {
		t.Errorf("%d rows, want %d", tab.Len(), 11*chunk)
	}
}

func TestNoRowBeyondTheEnd(t *testing.T) {
	var tab Table[struct{ a, b int }]
	if tab.Len() != 0 || tab.Row(0) != nil {
		t.Error("an empty table has a row")
	}
	tab.Grow(chunk)
	for _, i := range []uint32{2 * chunk, 1<<32 - 1} {
		if tab.Row(i) != nil {
			t.Errorf("a table of %d rows has one of number %d", tab.Len(), i)
		}
	}
	if tab.Row(2*chunk-1) == nil {
		t.Errorf("a table of %d rows does not have its last", tab.Len())
	}
}

// What a table allocates is what it keeps, apart from a pointer or so for each 256 rows.
func TestGrowingLeavesNoGarbage(t *testing.T) {
	const n = 100 * chunk
	got := uint64(math.MaxUint64)
	for range 3 { // what the process allocates beside is not in every measurement
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var tab Table[[2]uint64]
		for i := range uint32(n) {
			tab.Grow(i)
		}
		runtime.ReadMemStats(&after)
		got = min(got, after.TotalAlloc-before.TotalAlloc)
	}
	if kept := uint64(16 * n); got > kept+kept/50 {
		t.Errorf("growing to %d bytes allocates %d", kept, got)
	}
}

func BenchmarkRow(b *testing.B) {
	var tab Table[[3]uint64]
	tab.Grow(1 << 16)
	sum := uint64(0)
	for i := range b.N {
		sum += tab.Row(uint32(i) & (1<<16 - 1))[0]
	}
	if sum != 0 {
		b.Fatal("rows are not zero")
	}
}
