// Package parts writes states down as named parts, for another process to read: pure functions on
// bytes. The engine, its protocols and the push server use it for connections that move.
//
// A state is one byte, the version, and parts. A part is the length of its name (one byte), the
// name, the length of its value (an unsigned varint), and the value. The order of parts is free; a
// name occurs once. A reader takes the parts that it knows, by name, and then calls Err. A part
// that is left is an error, because a state that is read in part is not understood.
package parts

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Limits of a state. A reader refuses what is above them; Encoder never writes it.
const (
	MaxParts = 64       // parts of one state
	MaxName  = 32       // bytes of a part's name
	MaxState = 64 << 20 // bytes of a whole state
)

// An Encoder appends one state to a slice.
type Encoder struct {
	dst   []byte
	parts int
}

// Begin appends the beginning of a state of that version to dst.
func Begin(dst []byte, version byte) Encoder { return Encoder{dst: append(dst, version)} }

// Bytes appends a part, also an empty one. It panics for a name that is empty or too long, and at
// the 65th part, which are mistakes of the program.
func (e *Encoder) Bytes(name string, value []byte) { appendPart(e, name, value) }

// String is Bytes for a string.
func (e *Encoder) String(name, value string) { appendPart(e, name, value) }

// Uint appends a part that is a number. 0 is not written: it is what Decoder.Uint returns for a
// part that is missing.
func (e *Encoder) Uint(name string, value uint64) {
	if value != 0 {
		var b [binary.MaxVarintLen64]byte
		appendPart(e, name, b[:binary.PutUvarint(b[:], value)])
	}
}

// Bool appends a part if value is true.
func (e *Encoder) Bool(name string, value bool) {
	if value {
		e.Uint(name, 1)
	}
}

// End is dst with the state.
func (e *Encoder) End() []byte { return e.dst }

func appendPart[T []byte | string](e *Encoder, name string, value T) {
	if e.parts++; e.parts > MaxParts || name == "" || len(name) > MaxName {
		panic(fmt.Sprintf("parts: part %d is named %q: there are %d parts at most, with names of 1 to %d bytes",
			e.parts,
			name, MaxParts, MaxName))
	}
	e.dst = append(append(e.dst, byte(len(name))), name...)
	e.dst = append(binary.AppendUvarint(e.dst, uint64(len(value))), value...)
}

// Errors of Parse and Decoder.Err.
var (
	ErrVersion = errors.New("another version")
	ErrBroken  = errors.New("not a state")
	ErrUnknown = errors.New("unknown part")
	ErrMissing = errors.New("missing part")
	ErrValue   = errors.New("value out of range")
)

// A Decoder takes the parts of a state. The first error stays.
type Decoder struct {
	parts []part
	err   error
}

type part struct {
	name, value []byte
	taken       bool
}

// Parse takes a state apart; its values are views of p. It fails with ErrVersion, or with
// ErrBroken, and never allocates more than the table of parts.
func Parse(p []byte, version byte) (*Decoder, error) {
	switch {
	case len(p) == 0:
		return nil, fmt.Errorf("parts: %w: it is empty", ErrBroken)
	case len(p) > MaxState:
		return nil, fmt.Errorf("parts: %w: %d bytes, at most %d are allowed", ErrBroken, len(p), MaxState)
	case p[0] != version:
		return nil, fmt.Errorf("parts: %w: %d, this program reads %d", ErrVersion, p[0], version)
	}
	d := &Decoder{}
	for rest := p[1:]; len(rest) > 0; {
		var next part
		at := len(p) - len(rest)
		if rest = next.read(rest); next.name == nil {
			return nil, fmt.Errorf("parts: %w: part %d, at byte %d, is cut off or has no name", ErrBroken,
				len(d.parts)+1, at)
		}
		if len(d.parts) == MaxParts {
			return nil, fmt.Errorf("parts: %w: more than %d parts", ErrBroken, MaxParts)
		}
		if d.find(string(next.name)) != nil {
			return nil, fmt.Errorf("parts: %w: part %q occurs twice", ErrBroken, next.name)
		}
		d.parts = append(d.parts, next)
	}
	return d, nil
}

// read takes the first part of p. Its name stays nil if there is none.
func (t *part) read(p []byte) (rest []byte) {
	n := int(p[0])
	if n == 0 || n > MaxName || len(p) < 1+n {
		return nil
	}
	name, p := p[1:1+n], p[1+n:]
	size, used := binary.Uvarint(p)
	if used <= 0 || size > uint64(len(p)-used) {
		return nil
	}
	p = p[used:]
	t.name, t.value = name, p[:size:size]
	return p[size:]
}

func (d *Decoder) find(name string) *part {
	for i := range d.parts {
		if string(d.parts[i].name) == name {
			return &d.parts[i]
		}
	}
	return nil
}

func (d *Decoder) fail(err error, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("parts: %w: %s", err, fmt.Sprintf(format, args...))
	}
}

// Has reports whether there is a part with that name. It does not take it.
func (d *Decoder) Has(name string) bool { return d.find(name) != nil }

// Bytes takes a part of at most so many bytes; nil if it is missing.
func (d *Decoder) Bytes(name string, most int) []byte {
	t := d.find(name)
	switch {
	case t == nil:
		return nil
	case len(t.value) > most:
		d.fail(ErrValue, "%q has %d bytes, at most %d are allowed", name, len(t.value), most)
	}
	t.taken = true
	return t.value
}

// String is Bytes as a string; "" if it is missing.
func (d *Decoder) String(name string, most int) string { return string(d.Bytes(name, most)) }

// Need is Bytes of a part that must be there.
func (d *Decoder) Need(name string, most int) []byte {
	if !d.Has(name) {
		d.fail(ErrMissing, "%q", name)
	}
	return d.Bytes(name, most)
}

// Uint takes a part that is a number of at most most; 0 if it is missing.
func (d *Decoder) Uint(name string, most uint64) uint64 {
	t := d.find(name)
	if t == nil {
		return 0
	}
	t.taken = true
	v, n := binary.Uvarint(t.value)
	switch {
	case n <= 0 || n != len(t.value):
		d.fail(ErrValue, "%q is no number", name)
		return 0
	case v > most:
		d.fail(ErrValue, "%q is %d, at most %d is allowed", name, v, most)
		return 0
	}
	return v
}

// Bool takes a part that is there if it is true.
func (d *Decoder) Bool(name string) bool { return d.Uint(name, 1) == 1 }

// Err is the first error of the calls so far, or ErrUnknown if a part has not been taken.
func (d *Decoder) Err() error {
	for _, t := range d.parts {
		if d.err == nil && !t.taken {
			d.fail(ErrUnknown, "%q (a newer version has written it?)", t.name)
		}
	}
	return d.err
}
