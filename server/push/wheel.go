package push

import (
	"sync"
	"time"
)

// A wheel calls session.tick when a session's next deadline has come, all sessions by one timer. It
// is also the list of the sessions that live: every session is in it from its start to its end.
type wheel struct {
	mu       sync.Mutex
	slots    [wheelSlots][]*session
	next     int64 // the slot, counted from the epoch, that sweep looks at next
	size     int
	due      []*session // sweep's, kept between sweeps
	sweeping sync.Mutex
}

const (
	wheelSlots = 256
	wheelSlot  = 250 * time.Millisecond // deadlines are met this much late at most
)

func newWheel(now time.Time) *wheel { return &wheel{next: now.UnixNano() / int64(wheelSlot)} }

// set makes s tick at the time at, in nanoseconds since the epoch, or before. A deadline beyond the
// wheel's reach makes it tick too early, which does nothing but set it again. The caller holds
// s.mu.
func (w *wheel) set(s *session, at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(s)
	slot := at/int64(wheelSlot) + 1 // the slot's end is not before at
	slot = min(max(slot, w.next), w.next+wheelSlots-1)
	s.slot = int16(slot % wheelSlots)
	list := &w.slots[s.slot]
	s.place = int32(len(*list))
	*list = append(*list, s)
	w.size++
}

// remove takes s out of the wheel; it does nothing if s is not in it. The caller holds s.mu.
func (w *wheel) remove(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(s)
}

func (w *wheel) unlink(s *session) {
	if s.slot == notInWheel {
		return
	}
	list := w.slots[s.slot]
	last := list[len(list)-1]
	list[s.place] = last
	last.place = s.place
	list[len(list)-1] = nil
	w.slots[s.slot] = shrunk(list[:len(list)-1])
	s.slot = notInWheel
	w.size--
}

// sweep ticks every session whose slot has passed by now. A session that ticks sets itself again,
// or has ended.
func (w *wheel) sweep(now time.Time) {
	w.sweeping.Lock()
	defer w.sweeping.Unlock()
	for _, s := range w.take(now) {
		s.tick(now)
	}
	clear(w.due)
}

// take empties the slots that have passed and returns who was in them.
func (w *wheel) take(now time.Time) []*session {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = shrunk(w.due)[:0]
	end := now.UnixNano() / int64(wheelSlot)
	w.next = max(w.next, end-wheelSlots) // after a pause of the whole process one turn finds everybody
	for ; w.next <= end; w.next++ {
		slot := &w.slots[w.next%wheelSlots]
		for _, s := range *slot {
			s.slot = notInWheel
		}
		w.due = append(w.due, *slot...)
		w.size -= len(*slot)
		clear(*slot)
		*slot = (*slot)[:0]
	}
	return w.due
}

// all returns the sessions that live now.
func (w *wheel) all() []*session {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]*session, 0, w.size)
	for _, slot := range w.slots {
		list = append(list, slot...)
	}
	return list
}

// shrunk returns list with room for its length, if it has grown far beyond: what a crowd needed is
// not kept when it has gone.
func shrunk[T any](list []T) []T {
	const keep = 64
	if cap(list) <= keep || len(list) > cap(list)/4 {
		return list
	}
	return append(make([]T, 0, cap(list)/2), list...)
}
