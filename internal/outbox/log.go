package outbox

import "sync/atomic"

// A Log is messages that many readers get, each at its own pace. Messages have consecutive numbers.
// A reader is a cursor: the number of the message that it gets next. Readers that go together have
// one cursor, which their owner passes to Trim. A reader that falls behind has one of its own
// (Hold). A message stays until every cursor is behind it.
//
// The Log has the same owner as its readers' list: a lock under which every method is called. Its
// zero value is ready for use.
type Log[M Message] struct {
	Total *atomic.Int64 // bytes of all logs that share it; nil: none do

	entries []entry[M]
	base    uint64 // the number of entries[0]
	bytes   int
}

type entry[M Message] struct {
	m       M
	cursors int // that stand here
}

// Next is the number that the next message gets: the cursor of a reader that has got everything.
func (l *Log[M]) Next() uint64 { return l.base + uint64(len(l.entries)) }

// Oldest is the number of the oldest message, or Next if there is none.
func (l *Log[M]) Oldest() uint64 { return l.base }

// Bytes is the size of all messages.
func (l *Log[M]) Bytes() int { return l.bytes }

// Append adds a message, whose reference it takes over.
func (l *Log[M]) Append(m M) {
	l.entries = append(l.entries, entry[M]{m: m})
	l.grow(m.Len())
}

// At is the message of a number from Oldest to below Next. Its reference stays the Log's.
func (l *Log[M]) At(number uint64) M { return l.entries[number-l.base].m }

// Hold has a cursor stand at a message, which stays until Unhold is called with the same number.
func (l *Log[M]) Hold(number uint64) { l.entries[number-l.base].cursors++ }

// Unhold takes a cursor away. Trim releases what that has kept.
func (l *Log[M]) Unhold(number uint64) { l.entries[number-l.base].cursors-- }

// Trim releases the messages that all readers have got. common is the cursor of those that have
// none of their own.
func (l *Log[M]) Trim(common uint64) {
	n := 0
	for ; n < len(l.entries) && l.entries[n].cursors == 0 && l.base+uint64(n) < common; n++ {
		l.grow(-l.entries[n].m.Len())
		l.entries[n].m.Release()
	}
	clear(l.entries[:n])
	l.base += uint64(n)
	if l.entries = l.entries[n:]; len(l.entries) == 0 {
		l.entries = nil
	}
}

func (l *Log[M]) grow(n int) {
	l.bytes += n
	if l.Total != nil {
		l.Total.Add(int64(n))
	}
}
