// Package table holds rows by number, as a loop does with its connections by slot. A table grows by
// a piece at a time and never moves a row: growing leaves no garbage behind, where a slice that is
// appended to leaves up to four times its own length.
package table

// chunk is how many rows a table grows by.
const chunk = 256

// A Table is rows from 0 on. Its zero value is empty and ready. It belongs to one goroutine.
type Table[T any] struct {
	chunks []*[chunk]T
}

// Len is the number of rows, used or not: a multiple of 256.
func (t *Table[T]) Len() int { return len(t.chunks) * chunk }

// Row is the row of that number, or nil if the table does not reach there. It stays where it is for
// the table's life.
func (t *Table[T]) Row(i uint32) *T {
	if c := int(i / chunk); c < len(t.chunks) {
		return &t.chunks[c][i%chunk]
	}
	return nil
}

// Grow is Row, after the table has grown to it; new rows are zero.
func (t *Table[T]) Grow(i uint32) *T {
	for int(i/chunk) >= len(t.chunks) {
		t.chunks = append(t.chunks, new([chunk]T))
	}
	return &t.chunks[i/chunk][i%chunk]
}
