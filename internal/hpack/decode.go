package hpack

// A Decoder decodes the field blocks of one direction of a connection. Reset or Unpack makes it
// ready for use.
type Decoder struct {
	table table
	arena arena
	spans []span
	limit int
}

// A span is where a field's strings are in the arena.
type span struct{ name, value, end int }

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
// beyond are left out, but have their effect on the table; so a small block cannot become large
// here. The strings of all fields are one allocation. After an error the Decoder must not be used.
func (d *Decoder) Decode(dst []Field, block []byte, list int) (fields []Field, size int, err error) {
	d.arena, d.spans = d.arena[:0], d.spans[:0]
	first := len(dst)
	if d.table.max > d.limit && (len(block) == 0 || block[0]&0xe0 != 0x20) {
		return dst, 0, ErrSizeUpdate
	}
	for updates := 0; len(block) > 0; {
		var f Field
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
			f, block, err = d.indexed(block)
		default:
			f, block, err = d.literal(block)
		}
		if err != nil {
			return dst[:first], size, err
		}
		if n := len(d.spans); n > 0 && d.spans[n-1].end < 0 {
			d.spans[n-1].end = len(d.arena)
			s := d.spans[n-1]
			size += fieldOverhead + len(f.Name) + len(f.Value) + s.end - s.name
			if size > list {
				d.spans, d.arena = d.spans[:n-1], d.arena[:mark]
				continue
			}
			dst = append(dst, f)
		}
	}
	d.finish(dst[first:])
	return dst, size, nil
}

// finish gives the fields their strings, which are parts of one.
func (d *Decoder) finish(fields []Field) {
	all := string(d.arena)
	for i, s := range d.spans {
		if s.name < s.value {
			fields[i].Name = all[s.name:s.value]
		}
		if s.value < s.end {
			fields[i].Value = all[s.value:s.end]
		}
	}
}

// begin notes a field whose name and value are appended to the arena, unless they are static.
func (d *Decoder) begin() *span {
	d.spans = append(d.spans, span{len(d.arena), len(d.arena), -1})
	return &d.spans[len(d.spans)-1]
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

// indexed is RFC 7541 section 6.1.
func (d *Decoder) indexed(p []byte) (f Field, rest []byte, err error) {
	i, rest, err := readInteger(p, 7)
	if err != nil {
		return f, nil, err
	}
	if i > 0 && i <= len(staticTable) {
		d.begin()
		return staticTable[i-1], rest, nil
	}
	name, value, err := d.dynamic(i)
	if err != nil {
		return f, nil, err
	}
	s := d.begin()
	d.arena = append(d.arena, name...)
	s.value = len(d.arena)
	d.arena = append(d.arena, value...)
	return f, rest, nil
}

func (d *Decoder) dynamic(i int) (name, value []byte, err error) {
	i -= len(staticTable) + 1
	if i < 0 || i >= d.table.len() {
		return nil, nil, ErrIndex // also index 0
	}
	name, value = d.table.at(i)
	return name, value, nil
}

// literal is RFC 7541 section 6.2: with incremental indexing, without, and never indexed.
func (d *Decoder) literal(p []byte) (f Field, rest []byte, err error) {
	bits, index := uint(4), p[0]&0x40 != 0
	if index {
		bits = 6
	} else {
		f.Sensitive = p[0]&0x10 != 0
	}
	i, rest, err := readInteger(p, bits)
	if err != nil {
		return f, nil, err
	}
	s := d.begin()
	switch {
	case i == 0:
		rest, err = d.arena.readString(rest)
	case i <= len(staticTable):
		f.Name = staticTable[i-1].Name
	default:
		var name []byte
		name, _, err = d.dynamic(i)
		d.arena = append(d.arena, name...)
	}
	if err != nil {
		return f, nil, err
	}
	s.value = len(d.arena)
	if rest, err = d.arena.readString(rest); err != nil {
		return f, nil, err
	}
	if index && f.Name != "" {
		d.table.addNamed(f.Name, d.arena[s.value:])
	} else if index {
		d.table.add(d.arena[s.name:s.value], d.arena[s.value:])
	}
	return f, rest, nil
}

// addNamed is add for a name of the static table.
func (t *table) addNamed(name string, value []byte) {
	var room [maxStaticName]byte
	t.add(append(room[:0], name...), value)
}

// maxStaticName is at least the length of the names in the static table.
const maxStaticName = 32
