package std

import "github.com/myriad-go/myriad/internal/driver"

// A table finds the member of an id. It is the owner's.
type table struct {
	entries []entry // the first is never used
	free    []uint32
}

type entry struct {
	member     member // nil: free
	generation uint32
}

func newTable() table { return table{entries: make([]entry, 1, 64)} }

// add gives m a slot.
func (t *table) add(loop uint8, m member) (driver.ID, error) {
	var slot uint32
	if n := len(t.free); n > 0 {
		slot = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		if len(t.entries) == driver.MaxSlots {
			return 0, driver.ErrFull
		}
		slot = uint32(len(t.entries))
		t.entries = append(t.entries, entry{generation: 1})
	}
	e := &t.entries[slot]
	e.member = m
	return driver.MakeID(loop, slot, e.generation), nil
}

func (t *table) find(id driver.ID) member {
	slot := id.Slot()
	if int(slot) >= len(t.entries) || t.entries[slot].generation != id.Generation() {
		return nil
	}
	return t.entries[slot].member
}

// remove follows the last event: a new generation makes every id of the old one stale.
func (t *table) remove(id driver.ID) {
	e := &t.entries[id.Slot()]
	e.member = nil
	if e.generation++; e.generation == 0 {
		e.generation = 1 // the zero ID is never live
	}
	t.free = append(t.free, id.Slot())
}
