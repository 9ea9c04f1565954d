package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// AppendText appends a text with its length before it.
func AppendText[T ~string | ~[]byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// AppendNumber appends a number that is not negative.
func AppendNumber(dst []byte, n uint64) []byte { return binary.AppendUvarint(dst, n) }

// AppendInt appends a number that may be negative, such as a time.
func AppendInt(dst []byte, n int64) []byte { return binary.AppendVarint(dst, n) }

// AppendBool appends 0 or 1.
func AppendBool(dst []byte, is bool) []byte {
	if is {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendTexts appends texts with their number before them.
func AppendTexts(dst []byte, list []string) []byte {
	dst = AppendNumber(dst, uint64(len(list)))
	for _, s := range list {
		dst = AppendText(dst, s)
	}
	return dst
}

// Fields takes fields off the front of a record, in the order in which they were appended. Each
// field has one encoding only. After a mistake all further fields are zero, and Done returns it.
type Fields struct {
	rest []byte
	err  error
}

// NewFields returns the fields of a record, which it does not change.
func NewFields(record []byte) *Fields { return &Fields{rest: record} }

// Fail notes that a field has a value that it cannot have. It keeps the first mistake.
func (f *Fields) Fail(why string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s", ErrMalformed, why)
	}
	f.rest = nil
}

// Failed reports whether there was a mistake.
func (f *Fields) Failed() bool { return f.err != nil }

var errRest = fmt.Errorf("%w: a record is longer than its fields", ErrMalformed)

// Done returns the first mistake, or an error if the record goes on.
func (f *Fields) Done() error {
	if f.err == nil && len(f.rest) > 0 {
		return errRest
	}
	return f.err
}

// Number returns what AppendNumber has appended.
func (f *Fields) Number() uint64 {
	n, size := binary.Uvarint(f.rest)
	if size <= 0 || size > 1 && f.rest[size-1] == 0 { // the last byte of a longer encoding than needed
		f.Fail("a number is missing, or not in its shortest form")
		return 0
	}
	f.rest = f.rest[size:]
	return n
}

// NumberUpTo returns a Number that may be at most that large.
func (f *Fields) NumberUpTo(most uint64, what string) uint64 {
	n := f.Number()
	if n > most {
		f.Fail(fmt.Sprintf("%s is %d, and may be at most %d", what, n, most))
		return 0
	}
	return n
}

// Int returns what AppendInt has appended.
func (f *Fields) Int() int64 {
	n := f.Number() // zigzag, as encoding/binary
	return int64(n>>1) ^ -int64(n&1)
}

// Bool returns what AppendBool has appended.
func (f *Fields) Bool() bool { return f.NumberUpTo(1, "a truth value") == 1 }

// Bytes returns a view of a text, nil if it is empty.
func (f *Fields) Bytes() []byte {
	n := f.Number()
	if n > uint64(len(f.rest)) {
		f.Fail("a text is longer than its record")
		return nil
	}
	if n == 0 {
		return nil
	}
	p := f.rest[:n:n]
	f.rest = f.rest[n:]
	return p
}

// Text returns a text.
func (f *Fields) Text() string { return string(f.Bytes()) }

// Clone returns a copy of a text, nil if it is empty.
func (f *Fields) Clone() []byte {
	if p := f.Bytes(); p != nil {
		return append([]byte(nil), p...)
	}
	return nil
}

// Count returns the number of items that follow, each of which has at least one byte.
func (f *Fields) Count() int {
	n := f.Number()
	if n > uint64(len(f.rest)) {
		f.Fail("a list is longer than its record")
		return 0
	}
	return int(n)
}

// Texts returns what AppendTexts has appended, nil if there is none.
func (f *Fields) Texts() (list []string) {
	for n := f.Count(); n > 0 && !f.Failed(); n-- {
		list = append(list, f.Text())
	}
	return list
}

// Rest returns a view of all that follows, and takes it.
func (f *Fields) Rest() []byte {
	rest := f.rest
	f.rest = nil
	return rest
}

// Fixed fills p with as many bytes.
func (f *Fields) Fixed(p []byte) {
	if len(f.rest) < len(p) {
		f.Fail("a field is cut off")
		return
	}
	copy(p, f.rest)
	f.rest = f.rest[len(p):]
}

// IsMalformed reports whether err is about a state that no version writes, or that this one does
// not understand.
func IsMalformed(err error) bool { return errors.Is(err, ErrMalformed) || errors.Is(err, ErrUnknown) }
