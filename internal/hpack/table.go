package hpack

import "encoding/binary"

// A table is a dynamic table (RFC 7541 section 2.3.2): strings one behind the other, the oldest
// first.
type table struct {
	mem     []byte
	entries []entry // entries[:gone] have been evicted
	gone    int
	size    int // of the entries that are there, as RFC 7541 section 4.1 has it
	max     int
}

type entry struct {
	at          int32 // in mem
	name, value int32 // lengths

	// nameAt and valueAt are where the strings are in the Decoder's arena, if block is the one that
	// it decodes.
	nameAt, valueAt int32
	block           uint32
}

func (e entry) size() int { return int(e.name+e.value) + fieldOverhead }

func (t *table) len() int { return len(t.entries) - t.gone }

// entry is the one with an index; the newest has 0. It is valid until the next add.
func (t *table) entry(i int) *entry { return &t.entries[len(t.entries)-1-i] }

// forget has no entry be in any arena.
func (t *table) forget() {
	for i := range t.entries {
		t.entries[i].block = 0
	}
}

// at is the strings of the entry with an index.
func (t *table) at(i int) (name, value []byte) {
	e := t.entry(i)
	return t.mem[e.at : e.at+e.name], t.mem[e.at+e.name : e.at+e.name+e.value]
}

// add evicts as much as it has to. An entry larger than the table empties it (section 4.4), and is
// not added.
func (t *table) add(name, value []byte) (added bool) {
	n := len(name) + len(value) + fieldOverhead
	t.evict(t.max - n)
	if n > t.max {
		return false
	}
	t.compact()
	e := entry{at: int32(len(t.mem)), name: int32(len(name)), value: int32(len(value))}
	t.mem = append(append(t.mem, name...), value...)
	t.entries = append(t.entries, e)
	t.size += n
	return true
}

// evict drops the oldest entries until no more than size bytes are there.
func (t *table) evict(size int) {
	for t.size > max(size, 0) {
		t.size -= t.entries[t.gone].size()
		t.gone++
	}
	if t.len() == 0 {
		t.mem, t.entries, t.gone = t.mem[:0], t.entries[:0], 0
	}
}

// compact drops what has been evicted when it is at least half, so that each byte moves once on
// average.
func (t *table) compact() {
	if t.gone == 0 || t.gone < len(t.entries)/2 {
		return
	}
	start := t.entries[t.gone].at
	t.mem = append(t.mem[:0], t.mem[start:]...)
	t.entries = append(t.entries[:0], t.entries[t.gone:]...)
	t.gone = 0
	for i := range t.entries {
		t.entries[i].at -= start
	}
}

func (t *table) setMax(n int) {
	t.max = n
	t.evict(n)
}

func (t *table) reset() {
	t.evict(0)
	t.max = TableSize
}

// pack appends all that makes up the table.
func (t *table) pack(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(t.max))
	for i := t.len() - 1; i >= 0; i-- {
		name, value := t.at(i)
		dst = binary.AppendUvarint(dst, uint64(len(name)))
		dst = binary.AppendUvarint(dst, uint64(len(value)))
		dst = append(append(dst, name...), value...)
	}
	return dst
}

// unpack takes what pack has made.
func (t *table) unpack(p []byte) {
	t.reset()
	size, n := binary.Uvarint(p)
	t.max = int(size)
	for p = p[n:]; len(p) > 0; {
		name, n := binary.Uvarint(p)
		value, k := binary.Uvarint(p[n:])
		p = p[n+k:]
		t.add(p[:name], p[name:name+value])
		p = p[name+value:]
	}
}
