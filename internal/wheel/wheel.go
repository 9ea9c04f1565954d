// Package wheel keeps one timer for each of a loop's connections: sixteen bytes in a table, no heap
// object, no goroutine.
//
// It is a hierarchy of rings. Level 0 has a bucket for each of the next 64 ticks, level 1 for each
// of the next 64 times 64 ticks, and so on: a timer is linked on the lowest level that tells its
// tick from the current one, and when time reaches its bucket there, it is linked anew further down
// (a cascade). Which bucket is due next is a search for one bit.
//
// A connection moves its deadline with every message, nearly always to later. Then only the due
// time is stored and the timer stays where it is linked; it is linked by the new time when its
// bucket's turn comes. So a busy connection costs a store for each message, and an idle one a
// relink or two in a minute.
package wheel

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/myriad-go/myriad/internal/table"
)

const (
	// Tick is the resolution in milliseconds. A timer never fires early, and late by less than a
	// tick if Advance is called when Next says.
	Tick = 1 << tickShift

	// MaxSlot is the highest slot; Set panics above it. The table grows to the highest slot ever
	// set (16 bytes each, 256 at a time) and does not shrink.
	MaxSlot = 1<<26 - 1

	tickShift = 3
	levels    = 8
	fanout    = 64
	digit     = 6                     // bits of a tick that one level tells apart
	maxTick   = 1<<(levels*digit) - 1 // 71,000 years: time never gets there, so later is never
)

// A Wheel belongs to one goroutine. Time is in milliseconds since any start the owner chose; it is
// given in, never read.
type Wheel struct {
	base  int64  // the time of tick 0
	cur   uint64 // the tick up to which buckets have been taken; every linked bucket is at cur or later
	armed int
	slots table.Table[slot]
	level [levels]ring

	due    list // taken out of their buckets by Advance, waiting for fire
	firing bool
}

type ring struct {
	used uint64 // a bit for each bucket that is not empty
	head [fanout]list
}

// Millis is d in the wheel's milliseconds, rounded up.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// New returns an empty wheel whose time starts at now.
func New(now int64) *Wheel { return &Wheel{base: now} }

// Len is the number of armed timers.
func (w *Wheel) Len() int { return w.armed }

// Set arms the slot's timer to fire at the given time, or moves it there. A time in the past fires
// at the next Advance.
func (w *Wheel) Set(id uint32, at int64) {
	if id > MaxSlot {
		panic(fmt.Sprintf("wheel: Set of slot %d: slots are dense and at most %d", id, MaxSlot))
	}
	s := w.slots.Grow(id)
	tick := w.tickAfter(at)
	switch place := s.place(); {
	case place == unlinked:
		w.armed++
	case place != placeDue && tick >= w.start(place):
		s.set(tick, place)
		return
	default:
		w.unlink(id)
	}
	s.set(tick, unlinked)
	w.link(id)
}

// At is when the slot's timer is due, rounded as Set does; false if it is not armed.
func (w *Wheel) At(id uint32) (at int64, armed bool) {
	s := w.slots.Row(id)
	if s == nil || s.place() == unlinked {
		return 0, false
	}
	return w.timeOf(s.tick()), true
}

// Clear disarms the slot's timer, if it is armed: it does not fire, and the slot can be given to
// another connection at once.
func (w *Wheel) Clear(id uint32) {
	if s := w.slots.Row(id); s == nil || s.place() == unlinked {
		return
	}
	w.unlink(id)
	w.armed--
}

// Expire disarms the slot's timer if it is due at now, and reports whether it was.
func (w *Wheel) Expire(id uint32, now int64) bool {
	s := w.slots.Row(id)
	if s == nil || s.place() == unlinked || s.tick() > w.tickAt(now) {
		return false
	}
	w.Clear(id)
	return true
}

// Next is when Advance should be called: at most a tick after the earliest timer is due. It can be
// earlier than any timer, when one was moved or a cascade is due; it says false when no timer is
// armed.
func (w *Wheel) Next() (at int64, ok bool) {
	if !w.due.empty() {
		return w.timeOf(w.cur), true
	}
	tick, _, ok := w.nextBucket()
	return w.timeOf(tick), ok
}

// Due reports whether Advance has something to do at now, and since when. If not, it moves time to
// now, so that Advance need not be called.
func (w *Wheel) Due(now int64) (since int64, due bool) {
	if !w.due.empty() {
		return w.timeOf(w.cur), true
	}
	tick, _, ok := w.nextBucket()
	if until := w.tickAt(now); !ok || tick > until {
		w.cur = max(w.cur, until)
		return 0, false
	}
	return w.timeOf(tick), true
}

// Advance moves time to now and calls fire for each timer that is due, earliest tick first. A timer
// is disarmed before its call. fire may Set and Clear any slot: a timer cleared or moved before its
// turn does not fire, and one set to the past fires at the next Advance, never in this one, so that
// Advance ends. Time does not go back: an earlier now counts as the latest one seen. Advance panics
// if fire calls it.
func (w *Wheel) Advance(now int64, fire func(id uint32)) { w.AdvanceUpTo(now, math.MaxInt, fire) }

// AdvanceUpTo is Advance that calls fire for most timers at most. It reports whether others are due
// still, which a later call comes to first.
func (w *Wheel) AdvanceUpTo(now int64, most int, fire func(id uint32)) (more bool) {
	if w.firing {
		panic("wheel: Advance called by fire: return first")
	}
	w.take(w.tickAt(now))
	w.firing = true
	defer func() { w.firing = false }()
	for ; most > 0 && !w.due.empty(); most-- {
		id := w.due.first()
		w.unlink(id)
		w.armed--
		fire(id)
	}
	return !w.due.empty()
}

// take empties all buckets up to the tick into the list of due timers; those that were moved or
// come from a higher level are linked anew instead.
func (w *Wheel) take(until uint64) {
	for {
		tick, place, ok := w.nextBucket()
		if !ok || tick > until {
			break
		}
		w.cur = max(w.cur, tick)
		w.empty(place)
	}
	w.cur = max(w.cur, until)
}

// empty relinks all timers of a bucket that is due, by due time. What is due at this tick or before
// goes to due.
func (w *Wheel) empty(place uint16) {
	bucket := w.list(place)
	for !bucket.empty() {
		id := bucket.first()
		w.unlink(id)
		if w.slots.Row(id).tick() <= w.cur {
			w.linkTo(id, placeDue)
		} else {
			w.link(id)
		}
	}
}

// nextBucket finds the bucket that is due next. The lowest level in use has it: a timer is on a
// higher level because its tick differs from cur in a higher digit.
func (w *Wheel) nextBucket() (tick uint64, place uint16, ok bool) {
	for l := range w.level {
		if used := w.level[l].used; used != 0 {
			place = placeOf(l, bits.TrailingZeros64(used))
			return w.start(place), place, true
		}
	}
	return w.cur, unlinked, false
}

// link puts a timer where its tick belongs, seen from cur.
func (w *Wheel) link(id uint32) {
	tick := max(w.slots.Row(id).tick(), w.cur)
	level := 0
	if diff := tick ^ w.cur; diff != 0 {
		level = (bits.Len64(diff) - 1) / digit
	}
	w.linkTo(id, placeOf(level, int(tick>>(level*digit)%fanout)))
}

// start is the first tick of a bucket. All buckets in use share with cur the digits above their
// level.
func (w *Wheel) start(place uint16) uint64 {
	level, index := split(place)
	low := level * digit
	return w.cur>>(low+digit)<<(low+digit) | uint64(index)<<low
}

// tickAfter rounds up: a timer must not fire before its time.
func (w *Wheel) tickAfter(at int64) uint64 {
	if at <= w.base {
		return 0
	}
	since := uint64(at) - uint64(w.base) // exact even where the signed difference overflows
	return min(since>>tickShift+min(since%Tick, 1), maxTick)
}

func (w *Wheel) tickAt(now int64) uint64 {
	if now <= w.base {
		return 0
	}
	return min((uint64(now)-uint64(w.base))>>tickShift, maxTick-1)
}

func (w *Wheel) timeOf(tick uint64) int64 { return w.base + int64(tick<<tickShift) }

// A slot is a timer: its neighbours in the bucket it is linked to, and when it is due. Moving a
// timer later changes the due tick alone, so the bucket may be an earlier one.
type slot struct {
	next, prev uint32
	word       uint64 // due tick << 16 | place
}

// A place says which list a slot is linked to: a bucket as level*64+index+1, or one of these.
const (
	unlinked = 0
	placeDue = levels*fanout + 1
)

func (s *slot) place() uint16                 { return uint16(s.word) }
func (s *slot) tick() uint64                  { return s.word >> 16 }
func (s *slot) set(tick uint64, place uint16) { s.word = tick<<16 | uint64(place) }

func placeOf(level, index int) uint16 { return uint16(level*fanout + index + 1) }

func split(place uint16) (level, index int) { return int(place-1) / fanout, int(place-1) % fanout }

// A list is a circle of slots, so that one number finds both ends. It holds the first slot plus
// one: zero is empty.
type list uint32

func (l list) empty() bool   { return l == 0 }
func (l list) first() uint32 { return uint32(l - 1) }

func (w *Wheel) list(place uint16) *list {
	if place == placeDue {
		return &w.due
	}
	level, index := split(place)
	return &w.level[level].head[index]
}

// linkTo adds an unlinked slot at the end of a list.
func (w *Wheel) linkTo(id uint32, place uint16) {
	s, l := w.slots.Row(id), w.list(place)
	s.set(s.tick(), place)
	if l.empty() {
		s.next, s.prev = id, id
		*l = list(id + 1)
		w.mark(place, true)
		return
	}
	first := w.slots.Row(l.first())
	s.next, s.prev = l.first(), first.prev
	w.slots.Row(first.prev).next, first.prev = id, id
}

// unlink takes a slot out of the list it is in. Its due tick stays.
func (w *Wheel) unlink(id uint32) {
	s := w.slots.Row(id)
	place := s.place()
	s.set(s.tick(), unlinked)
	l := w.list(place)
	if s.next == id {
		*l = 0
		w.mark(place, false)
		return
	}
	w.slots.Row(s.prev).next, w.slots.Row(s.next).prev = s.next, s.prev
	if l.first() == id {
		*l = list(s.next + 1)
	}
}

func (w *Wheel) mark(place uint16, used bool) {
	if place == placeDue {
		return
	}
	level, index := split(place)
	if used {
		w.level[level].used |= 1 << index
	} else {
		w.level[level].used &^= 1 << index
	}
}
