// Package strict decodes JSON of other parties. A member that the reader does not know is an error
// that names it, because a party that is answered "ok" relies on everything that it has said.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"unicode/utf8"
)

// An UnknownError says which member the reader does not know. Path is where it is, as in
// subs.news.override.
type UnknownError struct{ Path string }

func (e *UnknownError) Error() string { return e.Path + " is not served" }

// Unmarshal is json.Unmarshal, and returns an *UnknownError for the first member that no field of
// to has. A member that is null counts as left out. Names are compared as encoding/json does,
// without regard to case. Like json.Unmarshal it may have set parts of to when it fails.
func Unmarshal(text []byte, to any) error {
	if err := json.Unmarshal(text, to); err != nil {
		return err
	}
	return check("", text, reflect.TypeOf(to))
}

// UnmarshalSome is Unmarshal for a reader that refuses the unknown member later, or not at all. It
// returns the member's path, and no error for it.
func UnmarshalSome(text []byte, to any) (unknown string, err error) {
	err = Unmarshal(text, to)
	if member := new(UnknownError); errors.As(err, &member) {
		return member.Path, nil
	}
	return "", err
}

// Compact returns a value on one line, or nil if it is empty, null, not JSON or not UTF-8.
func Compact(text []byte) []byte {
	if len(text) == 0 || string(text) == "null" || !utf8.Valid(text) {
		return nil
	}
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return nil
	}
	return b.Bytes()
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// check compares the value in text, which is valid and fits t, with t.
func check(path string, text []byte, t reflect.Type) error {
	if t.Kind() == reflect.Pointer && !t.Implements(unmarshaler) {
		return check(path, text, t.Elem())
	}
	if t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler) {
		return nil // the type reads its members itself
	}
	switch t.Kind() {
	case reflect.Struct:
		known := fieldsOf(t)
		return eachMember(text, func(name string, value []byte) error {
			field, ok := known[strings.ToLower(name)]
			if !ok {
				return &UnknownError{path + name}
			}
			return check(path+name+".", value, field)
		})
	case reflect.Map:
		return eachMember(text, func(name string, value []byte) error {
			return check(path+name+".", value, t.Elem())
		})
	case reflect.Slice, reflect.Array:
		return eachElement(text, func(value []byte) error { return check(path, value, t.Elem()) })
	}
	return nil
}

// fieldsOf returns the types of the members that encoding/json reads into t, by their names in
// lower case.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	known := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "", !f.IsExported(), f.Tag.Get("json") == "-":
			continue // the fields of an embedded struct are visible themselves
		case name == "":
			name = f.Name
		}
		known[strings.ToLower(name)] = f.Type
	}
	return known
}

// eachMember calls f for every member of an object that is not null, also for one that comes twice.
// It does nothing for another value than an object.
func eachMember(text []byte, f func(name string, value []byte) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		if string(value) == "null" {
			continue
		}
		if err := f(name.(string), value); err != nil {
			return err
		}
	}
	return nil
}

// eachElement calls f for every element of an array. It does nothing for another value.
func eachElement(text []byte, f func(value []byte) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if first, err := d.Token(); err != nil || first != json.Delim('[') {
		return err
	}
	for d.More() {
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		if err := f(value); err != nil {
			return err
		}
	}
	return nil
}
