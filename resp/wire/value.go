package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Kind is the first byte of a value on the wire.
type Kind byte

// The kinds of RESP2 are Simple, Failure, Integer, Bulk and Array; RESP3 has all of them.
const (
	Simple    Kind = '+' // a line of text
	Failure   Kind = '-' // an error
	Integer   Kind = ':'
	Bulk      Kind = '$' // a string of any bytes
	Array     Kind = '*'
	Null      Kind = '_' // also the null string and the null array of RESP2
	Boolean   Kind = '#'
	Double    Kind = ','
	BigNumber Kind = '('
	BulkError Kind = '!' // an error of any bytes
	Verbatim  Kind = '=' // a string with its format
	Map       Kind = '%'
	Set       Kind = '~'
	Attribute Kind = '|' // a map in front of another value
	Push      Kind = '>' // sent without being asked for
)

// A Value is one reply, or an element of one. What ParseValue returns has views on the bytes that
// were parsed; Clone makes a copy.
type Value struct {
	Kind Kind
	// Str is the text of Simple, Failure, Bulk, Double, BigNumber, BulkError and Verbatim. That of
	// Verbatim begins with its format and a colon, as in "txt:".
	Str []byte
	// Int is the number of an Integer; of a Boolean, 1 is true.
	Int int64
	// Elems are the elements of Array, Set and Push, and of a Map and an Attribute the keys, each
	// followed by its value.
	Elems []Value
	// Attr is the attribute that stood in front of the value, nil: none.
	Attr *Value
}

// An Error is an error that the peer answered. Its first word is its code, such as ERR or
// WRONGTYPE.
type Error string

// Error implements error.
func (e Error) Error() string { return string(e) }

// Code is the error's first word.
func (e Error) Code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// Err is the value as an error of type Error, or nil if it is none.
func (v Value) Err() error {
	if v.Kind == Failure || v.Kind == BulkError {
		return Error(v.Str)
	}
	return nil
}

// IsNull reports whether the value is null.
func (v Value) IsNull() bool { return v.Kind == Null }

// Text is the value's text. An Integer and a Boolean are in digits, Verbatim is without its format,
// and whatever has elements, or is null, has none.
func (v Value) Text() string {
	switch v.Kind {
	case Integer, Boolean:
		return strconv.FormatInt(v.Int, 10)
	case Verbatim:
		if len(v.Str) >= verbatimFormat {
			return string(v.Str[verbatimFormat:])
		}
	}
	return string(v.Str)
}

// verbatimFormat is the length of the format of a Verbatim, with its colon.
const verbatimFormat = 4

// Int64 is the value as an integer, also of a string with digits.
func (v Value) Int64() (int64, error) {
	switch v.Kind {
	case Integer, Boolean:
		return v.Int, nil
	case Simple, Bulk, BigNumber:
		if n, ok := ParseInt(v.Str); ok {
			return n, nil
		}
	}
	return 0, v.isNo("integer")
}

// Float64 is the value as a number, also of an integer or a string.
func (v Value) Float64() (float64, error) {
	switch v.Kind {
	case Integer:
		return float64(v.Int), nil
	case Simple, Bulk, Double, BigNumber:
		if f, ok := parseFloat(v.Str); ok {
			return f, nil
		}
	}
	return 0, v.isNo("number")
}

// Bool is the value as a truth: of a Boolean, or of an Integer that is 1 or 0.
func (v Value) Bool() (bool, error) {
	if v.Kind == Boolean || v.Kind == Integer {
		return v.Int != 0, nil
	}
	return false, v.isNo("boolean")
}

// Strings are the texts of the elements.
func (v Value) Strings() []string {
	all := make([]string, len(v.Elems))
	for i := range v.Elems {
		all[i] = v.Elems[i].Text()
	}
	return all
}

// Lookup returns the value behind a key of a Map, an Attribute, or an Array of pairs as RESP2 has
// it. It compares one key after the other.
func (v Value) Lookup(key string) (Value, bool) {
	for i := 0; i+1 < len(v.Elems); i += 2 {
		if string(v.Elems[i].Str) == key {
			return v.Elems[i+1], true
		}
	}
	return Value{}, false
}

func (v Value) isNo(what string) error {
	if err := v.Err(); err != nil {
		return err
	}
	return fmt.Errorf("resp: the reply %.60q is no %s", v.String(), what)
}

// Clone is a copy of the value that shares no memory with it. The texts of all its elements are in
// one piece.
func (v Value) Clone() Value {
	if len(v.Elems) == 0 && v.Attr == nil {
		v.Str = bytes.Clone(v.Str)
		return v
	}
	text := make([]byte, 0, v.textLen())
	return v.cloneInto(&text)
}

func (v *Value) textLen() int {
	n := len(v.Str)
	for i := range v.Elems {
		n += v.Elems[i].textLen()
	}
	if v.Attr != nil {
		n += v.Attr.textLen()
	}
	return n
}

func (v Value) cloneInto(text *[]byte) Value {
	if v.Str != nil {
		from := len(*text)
		*text = append(*text, v.Str...)
		v.Str = (*text)[from:len(*text):len(*text)]
	}
	v.Elems = slices.Clone(v.Elems)
	for i := range v.Elems {
		v.Elems[i] = v.Elems[i].cloneInto(text)
	}
	if v.Attr != nil {
		attr := v.Attr.cloneInto(text)
		v.Attr = &attr
	}
	return v
}

// String is the value for people, in one line.
func (v Value) String() string {
	switch v.Kind {
	case Null:
		return "null"
	case Boolean:
		return strconv.FormatBool(v.Int != 0)
	case Failure, BulkError:
		return "(error) " + string(v.Str)
	case Array, Set, Push, Map, Attribute:
		all := make([]string, len(v.Elems))
		for i := range v.Elems {
			all[i] = v.Elems[i].String()
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return v.Text()
}

// parseFloat parses the text of a Double. Servers before Redis 7.2 write what is not a number as
// their C library does: "nan", which a sequence in parentheses may follow, in small or capital
// letters.
func parseFloat(p []byte) (float64, bool) {
	f, err := strconv.ParseFloat(string(p), 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return f, !bytes.ContainsAny(p, "xX_")
	}
	text := strings.ToLower(strings.TrimPrefix(string(p), "-"))
	return math.NaN(), text == "nan" || strings.HasPrefix(text, "nan(") && strings.HasSuffix(text, ")")
}
