package hpack

import (
	"encoding/binary"
	"errors"

	"golang.org/x/net/http2/hpack"
)

// These are the ways in which a field block can be wrong. Each ends the connection with
// COMPRESSION_ERROR (RFC 9113 section 4.3).
var (
	ErrTruncated  = errors.New("hpack: the field block ends in the middle of a field")
	ErrInteger    = errors.New("hpack: an integer is too large")
	ErrIndex      = errors.New("hpack: an index is in no table")
	ErrHuffman    = errors.New("hpack: a string is not a valid Huffman code")
	ErrSizeUpdate = errors.New("hpack: a size update is too large, or in the wrong place")
)

// ErrNames refuses a block whose list is too large, and whose names come from the table and go into
// it again: each takes few bytes and is copied.
var ErrNames = errors.New("hpack: a field block copies too many names inside of the table")

// A Decoder decodes the field blocks of one direction of a connection. Reset or Unpack makes it
// ready for use.
type Decoder struct {
	table  table
	arena  arena
	spans  []span
	limit  int
	block  uint32 // number of the block
	over   bool   // the list of this block is too large
	copied int    // bytes of names that this block has copied inside of the table
}

// A span is where a field's strings are in the arena. An entry of the table has its strings there
// once, however often a block refers to it.
type span struct{ name, nameEnd, value, valueEnd int }

// Reset empties the dynamic table, for another connection, and sets the Limit to TableSize.
func (d *Decoder) Reset() {
	d.table.reset()
	d.limit = TableSize
}

// Limit changes how large a table the encoder may use. If it uses a larger one, its next block must
// begin with a size update (RFC 7541 section 4.2).
func (d *Decoder) Limit(n int) { d.limit = n }

// Pack appends the dynamic table to dst in a form of its own: little more than its strings.
func (d *Decoder) Pack(dst []byte) []byte { return d.table.pack(dst) }

// Unpack takes the place of Reset with what Pack has returned.
func (d *Decoder) Unpack(p []byte) {
	d.table.unpack(p)
	d.limit = max(TableSize, d.table.max)
}

// Empty reports whether the dynamic table is as after Reset.
func (d *Decoder) Empty() bool { return d.table.len() == 0 && d.table.max == TableSize }

// Shrink lets go of the memory for strings if it is larger than size.
func (d *Decoder) Shrink(size int) {
	if cap(d.arena) > size {
		d.arena = nil
	}
	if cap(d.spans) > size/32 {
		d.spans = nil
	}
}

// Decode appends the fields of a whole field block to dst. size is what they count for
// SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113 section 6.5.2). If it is above list, the fields that go
// beyond are left out, but have their effect on the table. The strings of all fields are one
// allocation of at most ten times the block and once the table. So a small block neither becomes
// large nor takes long. After an error the Decoder must not be used.
func (d *Decoder) Decode(dst []Field, block []byte, list int) (fields []Field, size int, err error) {
	d.begin()
	first := len(dst)
	if d.table.max > d.limit && (len(block) == 0 || block[0]&0xe0 != 0x20) {
		return dst, 0, ErrSizeUpdate
	}
	for updates := 0; len(block) > 0; {
		var f Field
		var n int
		mark := len(d.arena)
		switch b := block[0]; {
		case b&0xe0 == 0x20:
			// RFC 7541 section 4.2: at the beginning of the first block after a change; two
			// updates say the smallest size in between and the last one.
			if updates++; size > 0 || updates > 2 {
				return dst, size, ErrSizeUpdate
			}
			block, err = d.sizeUpdate(block)
		case b&0x80 != 0:
			f, n, block, err = d.indexed(block)
		default:
			f, n, block, err = d.literal(block)
		}
		if err == nil && d.copied > 2*list {
			err = ErrNames
		}
		if err != nil {
			return dst[:first], size, err
		}
		switch size += n; {
		case n == 0:
		case size > list:
			d.over, d.arena = true, d.arena[:mark]
		default:
			dst = append(dst, f)
		}
	}
	d.finish(dst[first:])
	return dst, size, nil
}

// begin is the beginning of a block.
func (d *Decoder) begin() {
	d.arena, d.spans, d.over, d.copied = d.arena[:0], d.spans[:0], false, 0
	if d.block++; d.block == 0 {
		d.block = 1
		d.table.forget()
	}
}

// finish gives the fields their strings, which are parts of one.
func (d *Decoder) finish(fields []Field) {
	all := string(d.arena)
	for i := range fields {
		s := &d.spans[i]
		if s.name < s.nameEnd {
			fields[i].Name = all[s.name:s.nameEnd]
		}
		if s.value < s.valueEnd {
			fields[i].Value = all[s.value:s.valueEnd]
		}
	}
}

// sizeUpdate is RFC 7541 section 6.3.
func (d *Decoder) sizeUpdate(p []byte) ([]byte, error) {
	n, p, err := readInteger(p, 5)
	if err != nil {
		return nil, err
	}
	if n > d.limit {
		return nil, ErrSizeUpdate
	}
	d.table.setMax(n)
	return p, nil
}

// indexed is RFC 7541 section 6.1. n is what the field counts.
func (d *Decoder) indexed(p []byte) (f Field, n int, rest []byte, err error) {
	i, rest, err := readInteger(p, 7)
	if err != nil {
		return f, 0, nil, err
	}
	if i > 0 && i <= len(staticTable) {
		d.spans = append(d.spans, span{})
		f = staticTable[i-1]
		return f, fieldOverhead + len(f.Name) + len(f.Value), rest, nil
	}
	e, err := d.dynamic(i)
	if err != nil {
		return f, 0, nil, err
	}
	if !d.over {
		d.spans = append(d.spans, d.place(e))
	}
	return f, e.size(), rest, nil
}

// dynamic is the entry with an index that is not in the static table.
func (d *Decoder) dynamic(i int) (*entry, error) {
	i -= len(staticTable) + 1
	if i < 0 || i >= d.table.len() {
		return nil, ErrIndex // also index 0
	}
	return d.table.entry(i), nil
}

// place returns where the strings of an entry are in the arena, to which they are added once in a
// block.
func (d *Decoder) place(e *entry) span {
	if e.block != d.block {
		e.block, e.nameAt = d.block, int32(len(d.arena))
		e.valueAt = e.nameAt + e.name
		d.arena = append(d.arena, d.table.mem[e.at:e.at+e.name+e.value]...)
	}
	return span{int(e.nameAt), int(e.nameAt + e.name), int(e.valueAt), int(e.valueAt + e.value)}
}

// literal is RFC 7541 section 6.2: with incremental indexing, without, and never indexed. n is what
// the field counts.
func (d *Decoder) literal(p []byte) (f Field, n int, rest []byte, err error) {
	bits, index := uint(4), p[0]&0x40 != 0
	if index {
		bits = 6
	} else {
		f.Sensitive = p[0]&0x10 != 0
	}
	i, rest, err := readInteger(p, bits)
	if err != nil {
		return f, 0, nil, err
	}
	var s span
	if i > 0 && i <= len(staticTable) {
		f.Name = staticTable[i-1].Name
	} else if s, rest, err = d.name(i, rest, index); err != nil {
		return f, 0, nil, err
	}
	s.value = len(d.arena)
	if rest, err = d.arena.readString(rest); err != nil {
		return f, 0, nil, err
	}
	s.valueEnd = len(d.arena)
	switch {
	case index && f.Name != "":
		d.table.addNamed(f.Name, d.arena[s.value:])
	case index:
		d.add(s)
	}
	if !d.over {
		d.spans = append(d.spans, s)
	}
	return f, fieldOverhead + len(f.Name) + s.nameEnd - s.name + s.valueEnd - s.value, rest, nil
}

// name finds the name of a literal, by the index of an entry or behind it. index: the literal goes
// to the table.
func (d *Decoder) name(i int, p []byte, index bool) (s span, rest []byte, err error) {
	if i == 0 {
		s.name = len(d.arena)
		rest, err = d.arena.readString(p)
		s.nameEnd = len(d.arena)
		return s, rest, err
	}
	e, err := d.dynamic(i)
	if err != nil {
		return s, nil, err
	}
	if index {
		d.copied += int(e.name)
	}
	if !d.over {
		at := d.place(e)
		return span{name: at.name, nameEnd: at.nameEnd}, p, nil
	}
	s.name = len(d.arena)
	d.arena = append(d.arena, d.table.mem[e.at:e.at+e.name]...)
	s.nameEnd = len(d.arena)
	return s, p, nil
}

// add adds a field to the table, whose strings are in the arena.
func (d *Decoder) add(s span) {
	if d.table.add(d.arena[s.name:s.nameEnd], d.arena[s.value:s.valueEnd]) && !d.over {
		e := d.table.entry(0)
		e.block, e.nameAt, e.valueAt = d.block, int32(s.name), int32(s.value)
	}
}

// maxInteger bounds the integers of a block; none can have a use for more.
const maxInteger = 1 << 28

// readInteger reads an integer with a prefix of n bits (RFC 7541 section 5.1).
func readInteger(p []byte, n uint) (v int, rest []byte, err error) {
	if len(p) == 0 {
		return 0, nil, ErrTruncated
	}
	most := 1<<n - 1
	v = int(p[0]) & most
	p = p[1:]
	if v < most {
		return v, p, nil
	}
	for shift := 0; ; shift += 7 {
		if len(p) == 0 {
			return 0, nil, ErrTruncated
		}
		b := p[0]
		p = p[1:]
		if shift > 28 {
			return 0, nil, ErrInteger // also if it adds nothing but zeros
		}
		if v += int(b&0x7f) << shift; v > maxInteger {
			return 0, nil, ErrInteger
		}
		if b&0x80 == 0 {
			return v, p, nil
		}
	}
}

// An arena collects the strings of one block.
type arena []byte

func (a *arena) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}

// readString appends a string to the arena (RFC 7541 section 5.2).
func (a *arena) readString(p []byte) (rest []byte, err error) {
	if len(p) == 0 {
		return nil, ErrTruncated
	}
	coded := p[0]&0x80 != 0
	n, p, err := readInteger(p, 7)
	switch {
	case err != nil:
		return nil, err
	case n > len(p):
		return nil, ErrTruncated
	case !coded:
		*a = append(*a, p[:n]...)
		return p[n:], nil
	}
	// It refuses EOS, and padding that is no prefix of it or has more than seven bits.
	if _, err := hpack.HuffmanDecode(a, p[:n]); err != nil {
		return nil, ErrHuffman
	}
	return p[n:], nil
}

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

// addNamed is add for a name of the static table.
func (t *table) addNamed(name string, value []byte) {
	var room [maxStaticName]byte
	t.add(append(room[:0], name...), value)
}

// maxStaticName is at least the length of the names in the static table.
const maxStaticName = 32

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
