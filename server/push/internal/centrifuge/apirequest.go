package centrifuge

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
)

// This file turns requests of Centrifugo's gRPC API into those of its HTTP API, so that one table
// of methods serves both. A field of type bytes holds JSON, except for data, which holds anything:
// it becomes b64data.

// An APIFieldError says that a field of a request has a value that its method does not accept.
type APIFieldError string

func (e APIFieldError) Error() string { return "centrifuge: " + string(e) }

// maxAPIDepth bounds how deeply the messages of a request may be nested. A command of a batch with
// a filter has the most levels.
const maxAPIDepth = 32

var errAPIDepth = errors.New("centrifuge: the messages of a request are nested too deeply")

// APIRequest returns a request in Protobuf as the JSON object of the HTTP API. The method's name is
// that of the gRPC API, such as "PresenceStats". APIRequest skips fields that APIDefinitions does
// not have, and all fields of a method that it does not have. The error is an APIFieldError, or
// says why p is malformed.
func APIRequest(method string, p []byte) ([]byte, error) {
	return apiMessageOf(method, "Request").appendJSON(nil, p, maxAPIDepth)
}

// A givenField is a field of a message, and what the message has for it.
type givenField struct {
	*apiField
	value []byte // see collect; nil: the field counts as missing
}

// appendJSON appends the message in p as an object. It takes memory for the fields that p has, not
// for all fields of the message.
func (m *apiMessage) appendJSON(dst, p []byte, depth int) ([]byte, error) {
	if depth == 0 {
		return dst, errAPIDepth
	}
	var given []givenField
	err := parseMessage(p, func(f field) (err error) {
		known := m.field(f.number)
		if known == nil {
			return nil
		}
		i := slices.IndexFunc(given, func(g givenField) bool { return g.apiField == known })
		if i < 0 {
			i, given = len(given), append(given, givenField{known, nil})
		}
		given[i].value, err = known.collect(given[i].value, f, depth)
		return err
	})
	if err == nil {
		err = chooseData(given)
	}
	if err != nil {
		return dst, err
	}
	slices.SortFunc(given, func(a, b givenField) int { return a.number - b.number })
	open := byte('{')
	for _, g := range given {
		if g.value == nil {
			continue
		}
		name := g.name
		if g.isData() {
			name = "b64data"
		}
		dst = append(AppendString(append(dst, open), name), ':')
		if dst, err = g.appendCollected(dst, g.value, depth); err != nil {
			return dst, err
		}
		open = ','
	}
	if open == '{' {
		dst = append(dst, open)
	}
	return append(dst, '}'), nil
}

// chooseData removes an empty b64data beside data. It returns an error if both are given.
func chooseData(given []givenField) error {
	data := slices.IndexFunc(given, func(g givenField) bool { return g.isData() && g.value != nil })
	b64 := slices.IndexFunc(given, func(g givenField) bool { return g.name == "b64data" })
	switch {
	case data < 0 || b64 < 0:
		return nil
	case len(given[b64].value) > len(`""`):
		return APIFieldError("data and b64data are both given: use one")
	}
	given[b64].value = nil
	return nil
}

// isData reports whether the field may hold any bytes. Other fields of type bytes hold JSON.
func (f *apiField) isData() bool { return f.scalar == "bytes" && f.name == "data" }

// collect adds v, another occurrence of the field, to what earlier ones have left in before. The
// result depends on the field:
//
//   - a message: its bytes in Protobuf, those of all occurrences together, which merges them
//   - a list or a map: the elements or members in JSON, with a comma behind each
//   - else: the last value, in JSON
func (f *apiField) collect(before []byte, v field, depth int) ([]byte, error) {
	switch {
	case f.mapped:
		return f.appendEntry(before, v)
	case f.message == nil && !f.list:
		return f.appendScalar(nil, v)
	case f.message == nil:
		dst, err := f.appendScalar(before, v)
		return append(dst, ','), err
	case v.wire != wireBytes:
		return nil, errWireType
	case f.list:
		dst, err := f.message.appendJSON(before, v.body, depth-1)
		return append(dst, ','), err
	case before == nil:
		before = []byte{}
	}
	return append(before, v.body...), nil
}

// appendEntry appends an entry of a map from strings to strings.
func (f *apiField) appendEntry(dst []byte, v field) ([]byte, error) {
	var key, value string
	err := v.message(func(v field) (err error) {
		switch v.number {
		case 1:
			key, err = v.text()
		case 2:
			value, err = v.text()
		}
		return err
	})
	return append(AppendString(append(AppendString(dst, key), ':'), value), ','), err
}

func (f *apiField) appendScalar(dst []byte, v field) ([]byte, error) {
	switch f.scalar {
	case "string":
		text, err := v.text()
		return AppendString(dst, text), err
	case "bytes":
		return f.appendBytes(dst, v)
	case "bool":
		is, err := v.bool()
		return strconv.AppendBool(dst, is), err
	case "int32":
		n, err := v.int32()
		return strconv.AppendInt(dst, int64(n), 10), err
	case "int64":
		n, err := v.uint()
		return strconv.AppendInt(dst, int64(n), 10), err
	case "uint32":
		n, err := v.uint32()
		return appendUint(dst, uint64(n)), err
	}
	n, err := v.uint()
	return appendUint(dst, n), err
}

// appendBytes appends data in base64, and JSON as it is. A field without bytes is missing, as in
// Protobuf.
func (f *apiField) appendBytes(dst []byte, v field) ([]byte, error) {
	switch {
	case v.wire != wireBytes:
		return nil, errWireType
	case len(v.body) == 0:
		return nil, nil
	case f.isData():
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v.body), '"'), nil
	case !json.Valid(v.body):
		return nil, APIFieldError(f.name + " is not JSON")
	}
	return append(dst, v.body...), nil
}

// appendCollected appends the value of a field from what collect has returned.
func (f *apiField) appendCollected(dst, collected []byte, depth int) ([]byte, error) {
	switch {
	case f.mapped:
		return append(append(append(dst, '{'), collected[:len(collected)-1]...), '}'), nil
	case f.list:
		return append(append(append(dst, '['), collected[:len(collected)-1]...), ']'), nil
	case f.message != nil:
		return f.message.appendJSON(dst, collected, depth-1)
	}
	return append(dst, collected...), nil
}
