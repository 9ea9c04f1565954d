package centrifuge

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// This file turns answers of Centrifugo's HTTP API into those of its gRPC API.

// APIResponse returns the body of an answer in Protobuf: {"result": …}, {"error": …}, or the
// replies of a batch. The method's name is that of the gRPC API. The body has data as a string in
// base64. APIResponse skips members that APIDefinitions does not have, and all but the error for a
// method that it does not have.
func APIResponse(method string, body []byte) ([]byte, error) {
	return apiMessageOf(method, "Response").append(nil, body)
}

// APIErrorDetails returns a google.rpc.Status with the code and the text of a gRPC status. It has
// an Error of the API as a detail, and a google.rpc.RetryInfo with the time after which the call
// may succeed, in milliseconds; 0: without that.
func APIErrorDetails(status, code uint32, message string, retryMillis int64) []byte {
	dst := appendText(appendNumber(nil, 1, uint64(status)), 2, message)
	dst = appendDetail(dst, "centrifugal.centrifugo.api.Error", func(dst []byte) []byte {
		return appendText(appendNumber(dst, 1, uint64(code)), 2, message)
	})
	if retryMillis <= 0 {
		return dst
	}
	return appendDetail(dst, "google.rpc.RetryInfo", func(dst []byte) []byte {
		return appendMessage(dst, 1, func(dst []byte) []byte { // a google.protobuf.Duration
			return appendNumber(appendNumber(dst, 1, uint64(retryMillis/1000)), 2, uint64(retryMillis%1000*1_000_000))
		})
	})
}

// appendDetail appends a detail of a google.rpc.Status: a google.protobuf.Any.
func appendDetail(dst []byte, name string, value func(dst []byte) []byte) []byte {
	return appendMessage(dst, 3, func(dst []byte) []byte {
		return appendMessage(appendText(dst, 1, "type.googleapis.com/"+name), 2, value)
	})
}

// append appends the fields of the JSON object in text.
func (m *apiMessage) append(dst, text []byte) ([]byte, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		return dst, err
	}
	for i := range m.fields {
		f := &m.fields[i]
		value, ok := given[f.name]
		if !ok {
			continue
		}
		var err error
		if dst, err = f.append(dst, value); err != nil {
			return dst, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return dst, nil
}

func (f *apiField) append(dst, value []byte) ([]byte, error) {
	switch {
	case f.list:
		var values []json.RawMessage
		err := json.Unmarshal(value, &values)
		for i := 0; i < len(values) && err == nil; i++ {
			dst, err = f.appendOne(dst, f.number, values[i])
		}
		return dst, err
	case f.mapped:
		var values map[string]json.RawMessage
		err := json.Unmarshal(value, &values)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			dst = append(appendKey(dst, f.number, wireBytes), 0)
			mark := len(dst) - 1
			if dst, err = f.appendOne(appendText(dst, 1, key), 2, values[key]); err != nil {
				return dst, err
			}
			dst = withLength(dst, mark)
		}
		return dst, err
	}
	return f.appendOne(dst, f.number, value)
}

// appendOne appends a value that is neither a list nor a map, as the field of that number.
func (f *apiField) appendOne(dst []byte, number int, value []byte) ([]byte, error) {
	switch {
	case f.message != nil:
		dst = append(appendKey(dst, number, wireBytes), 0)
		mark := len(dst) - 1
		dst, err := f.message.append(dst, value)
		return withLength(dst, mark), err
	case f.isData():
		var data []byte
		err := json.Unmarshal(value, &data)
		return appendBytes(dst, number, data), err
	case f.scalar == "bytes":
		return appendBytes(dst, number, value), nil
	case f.scalar == "string":
		var text string
		err := json.Unmarshal(value, &text)
		return appendText(dst, number, text), err
	}
	n, err := strconv.ParseUint(string(value), 10, 64)
	return appendNumber(dst, number, n), err
}
