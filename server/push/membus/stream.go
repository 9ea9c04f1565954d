package membus

import (
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A stream is the history of one channel: its latest publications and their positions. The owner's
// lock guards it.
type stream struct {
	epoch string
	keep  bus.Retention
	top   uint64      // offset of the last publication
	last  bus.Version // of the last publication
	items []kept      // their offsets are consecutive and end with top
	bytes int         // memory of the items
}

// kept is a publication with the time of its arrival.
type kept struct {
	bus.Publication
	at int64 // nanoseconds since 1970
}

// keptOverhead approximates an item's memory besides its text: the struct and unused capacity of
// the slice.
const keptOverhead = 192

func (k *kept) size() int { return keptOverhead + k.Publication.Size() + len(k.Client) + len(k.User) }

// add appends p and returns its position.
func (st *stream) add(p bus.Publication, now time.Time) bus.Position {
	st.top++
	st.last = bus.Version{}
	if p.Version != nil {
		st.last, p.Version = *p.Version, nil
	}
	p.Position = bus.Position{Offset: st.top, Epoch: st.epoch}
	item := kept{p, now.UnixNano()}
	st.items = append(st.items, item)
	st.bytes += item.size()
	for len(st.items) > st.keep.Size {
		st.drop()
	}
	st.expire(now)
	return p.Position
}

// drop removes the oldest item.
func (st *stream) drop() {
	st.bytes -= st.items[0].size()
	st.items[0] = kept{}
	st.items = st.items[1:]
	if len(st.items) == 0 {
		st.items = nil
	}
}

// expire removes the items that are older than the Retention's age.
func (st *stream) expire(now time.Time) {
	for oldest := now.Add(-st.keep.Age).UnixNano(); len(st.items) > 0 && st.items[0].at <= oldest; {
		st.drop()
	}
}

func (st *stream) clear() { st.items, st.bytes, st.last = nil, 0, bus.Version{} }

// read answers a query, as if top were the offset of the last publication.
func (st *stream) read(q bus.Query, top uint64, now time.Time) bus.History {
	st.expire(now)
	h := bus.History{Top: bus.Position{Offset: top, Epoch: st.epoch}}
	if q.Since != nil && q.Since.Epoch != "" && q.Since.Epoch != st.epoch {
		return h
	}
	items := st.behind(q)
	for len(items) > 0 && items[len(items)-1].Offset > top {
		items = items[:len(items)-1]
	}
	n := len(items)
	if q.Limit >= 0 {
		n = min(n, q.Limit)
	}
	// offsets are contiguous here, so their difference is the number of publications
	h.Complete = q.Since != nil && !q.Reverse && q.Since.Offset <= top && uint64(n) == top-q.Since.Offset
	if n == 0 {
		return h
	}
	h.Publications = make([]bus.Publication, n)
	for i := range n {
		at := i
		if q.Reverse {
			at = len(items) - 1 - i
		}
		h.Publications[i] = items[at].Publication
	}
	return h
}

// behind returns the items that q selects, oldest first.
func (st *stream) behind(q bus.Query) []kept {
	if q.Since == nil || len(st.items) == 0 {
		return st.items
	}
	first, last := st.items[0].Offset, st.top
	since := q.Since.Offset
	switch {
	case q.Reverse && since <= first:
		return nil
	case q.Reverse:
		return st.items[:min(since-first, uint64(len(st.items)))]
	case since >= last:
		return nil
	case since < first:
		return st.items
	}
	return st.items[since-first+1:]
}
