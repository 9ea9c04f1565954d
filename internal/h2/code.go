package h2

import (
	"errors"
	"fmt"
	"reflect"
)

// A Code says why a stream or connection has ended (RFC 9113 section 7).
type Code uint32

const (
	NoError Code = iota
	ProtocolError
	InternalError
	FlowControlError
	SettingsTimeout
	StreamClosed
	FrameSizeError
	RefusedStream
	Cancel
	CompressionError
	ConnectError
	EnhanceYourCalm
	InadequateSecurity
	HTTP11Required
)

var codeNames = [...]string{"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
	"STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR",
	"ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code %#x", uint32(c))
}

// An Error is what a peer has done wrong. Stream is the stream that it ends, 0: the connection.
// Cause is what errors.Is finds in it, or nil.
type Error struct {
	Code   Code
	Stream uint32
	Reason string
	Cause  error
}

func (e *Error) Error() string {
	if e.Stream == 0 {
		return fmt.Sprintf("h2: connection error %v: %s", e.Code, e.Reason)
	}
	return fmt.Sprintf("h2: error %v of stream %d: %s", e.Code, e.Stream, e.Reason)
}

func (e *Error) Unwrap() error { return e.Cause }

// As makes target a struct with the fields StreamID, Code and Cause. So http2.StreamError of
// golang.org/x/net is found in an error as it is in those of net/http.
func (e *Error) As(target any) bool {
	dst := reflect.ValueOf(target).Elem()
	if e.Stream == 0 || dst.Kind() != reflect.Struct {
		return false
	}
	src := reflect.ValueOf(struct {
		StreamID uint32
		Code     Code
		Cause    error
	}{e.Stream, e.Code, errors.New(e.Reason)})
	if src.NumField() != dst.NumField() {
		return false
	}
	for i := range src.NumField() {
		from, to := src.Type().Field(i), dst.Type().Field(i)
		if from.Name != to.Name || !from.Type.ConvertibleTo(to.Type) {
			return false
		}
	}
	for i := range src.NumField() {
		dst.Field(i).Set(src.Field(i).Convert(dst.Field(i).Type()))
	}
	return true
}

func connError(code Code, reason string) error { return &Error{Code: code, Reason: reason} }

func streamError(code Code, stream uint32, reason string) error {
	return &Error{Code: code, Stream: stream, Reason: reason}
}
