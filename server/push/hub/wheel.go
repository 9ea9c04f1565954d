package hub

import (
	"sync"
	"time"
)

// A wheel calls Session.tick at a session's next deadline, with one timer for all sessions. It is
// also the list of sessions: each session is in it from start until ended.
type wheel struct {
	mu       sync.Mutex
	slots    [wheelSlots][]*Session
	next     int64 // the next slot for sweep, counted from 1970
	sampled  int   // the next slot for some
	size     int
	due      []*Session // those of the sweep that runs, also while they are in no slot; reused
	sweeping sync.Mutex
	lateness latenessLog // guarded by sweeping
	paused   bool        // likewise: the hub is frozen
}

const (
	wheelSlots = 256
	wheelSlot  = 250 * time.Millisecond // ticks come at most this much after the deadline
)

func newWheel(now time.Time) *wheel { return &wheel{next: now.UnixNano() / int64(wheelSlot)} }

// set schedules s's tick for the time at, in nanoseconds since 1970. If at is beyond the wheel's
// range, the tick comes early and only sets the session again. The caller holds s.mu.
func (w *wheel) set(s *Session, at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(s)
	slot := at/int64(wheelSlot) + 1 // the slot does not end before at
	slot = min(max(slot, w.next), w.next+wheelSlots-1)
	s.slot = int16(slot % wheelSlots)
	list := &w.slots[s.slot]
	s.place = int32(len(*list))
	*list = append(*list, s)
	w.size++
}

// remove removes s, if it is in the wheel. The caller holds s.mu.
func (w *wheel) remove(s *Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(s)
}

func (w *wheel) unlink(s *Session) {
	if s.slot < 0 {
		s.slot = notInWheel
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

// sweep ticks every session whose slot has passed. A session sets itself again in its tick, unless
// it has ended.
func (w *wheel) sweep(now time.Time) {
	w.sweeping.Lock()
	defer w.sweeping.Unlock()
	if w.paused {
		return
	}
	w.lateness.look(now)
	for _, s := range w.take(now) {
		s.tick(now)
	}
	w.mu.Lock()
	clear(w.due)
	w.mu.Unlock()
}

// take empties the slots that have passed and returns their sessions.
func (w *wheel) take(now time.Time) []*Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = shrunk(w.due)[:0]
	end := now.UnixNano() / int64(wheelSlot)
	w.next = max(w.next, end-wheelSlots) // after a pause of the process, one round of the wheel reaches all sessions
	for ; w.next <= end; w.next++ {
		slot := &w.slots[w.next%wheelSlots]
		for _, s := range *slot {
			s.slot = inSweep
		}
		w.due = append(w.due, *slot...)
		w.size -= len(*slot)
		clear(*slot)
		*slot = (*slot)[:0]
	}
	return w.due
}

// all returns all sessions that have not ended.
func (w *wheel) all() []*Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]*Session, 0, w.size)
	for _, slot := range w.slots {
		list = append(list, slot...)
	}
	for _, s := range w.due {
		if s != nil && s.slot == inSweep {
			list = append(list, s)
		}
	}
	return list
}

// some appends sessions to list until it has so many, or all that there are. The next call goes on
// behind them.
func (w *wheel) some(list []*Session, most int) []*Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range wheelSlots {
		slot := w.slots[w.sampled%wheelSlots]
		w.sampled++
		list = append(list, slot[:min(len(slot), most-len(list))]...)
		if len(list) == most {
			break
		}
	}
	return list
}

// A latenessLog knows when the loops that carry a node's connections were late last.
type latenessLog struct {
	of   func() time.Duration // how late the loops are; nil: never
	now  time.Duration        // how late they were when look asked; the sweeps alone change it
	last int64                // when they were late last, in nanoseconds since 1970
}

// lateEnough is from when on a client may not have had its time to answer a ping.
const lateEnough = wheelSlot / 2

// look asks the loops.
func (l *latenessLog) look(now time.Time) {
	if l.of == nil {
		return
	}
	if l.now = l.of(); l.now >= lateEnough {
		l.last = now.UnixNano()
	}
}

// since reports whether the loops were late at that time or after it.
func (l *latenessLog) since(at int64) bool { return l.last != 0 && l.last >= at }

// shrunk returns list, copied to a smaller array if its capacity is far above its length, so that a
// peak's memory is released.
func shrunk[T any](list []T) []T {
	const keep = 64
	if cap(list) <= keep || len(list) > cap(list)/4 {
		return list
	}
	return append(make([]T, 0, cap(list)/2), list...)
}
