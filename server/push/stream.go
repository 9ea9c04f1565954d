package push

import "time"

// A stream is the history of one channel: its last publications and where they stand. It is bounded
// by the Retention of the last publication. Its owner guards it.
type stream struct {
	epoch string
	top   uint64 // offset of the last publication
	items []kept // their offsets end with top and have no gap
	bytes int    // what the items take
	age   time.Duration
}

// kept is a publication and when it came.
type kept struct {
	Publication
	at int64 // nanoseconds since the epoch
}

// keptOverhead is about what an item takes besides its texts: itself, and the slack of the slice.
const keptOverhead = 192

func (k *kept) size() int { return keptOverhead + k.Publication.size() + len(k.Client) + len(k.User) }

// add appends p and returns where it stands.
func (st *stream) add(p Publication, keep Retention, now time.Time) Position {
	st.top++
	st.age = keep.Age
	p.Position = Position{st.top, st.epoch}
	item := kept{p, now.UnixNano()}
	st.items = append(st.items, item)
	st.bytes += item.size()
	for len(st.items) > keep.Size {
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

// expire removes what is older than the channel keeps.
func (st *stream) expire(now time.Time) {
	for oldest := now.Add(-st.age).UnixNano(); len(st.items) > 0 && st.items[0].at <= oldest; {
		st.drop()
	}
}

func (st *stream) clear() { st.items, st.bytes = nil, 0 }

// read answers a query.
func (st *stream) read(q Query, now time.Time) History {
	st.expire(now)
	h := History{Top: Position{st.top, st.epoch}}
	if q.Limit == 0 || q.Since != nil && q.Since.Epoch != "" && q.Since.Epoch != st.epoch {
		return h
	}
	items := st.behind(q)
	n := len(items)
	if q.Limit > 0 {
		n = min(n, q.Limit)
	}
	h.Publications = make([]Publication, n)
	for i := range n {
		at := i
		if q.Reverse {
			at = len(items) - 1 - i
		}
		h.Publications[i] = items[at].Publication
	}
	return h
}

// behind returns the items that q is about, oldest first.
func (st *stream) behind(q Query) []kept {
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
