package wheel

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
