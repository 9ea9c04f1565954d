package h1

import (
	"bytes"
	"math"
)

// meaning takes in what a field says about framing, routing and the connection. It is called once
// for each field, in order, and refuses a field as soon as it contradicts an earlier one.
func (s *Scan) meaning(name, value []byte) *Error {
	switch len(name) {
	case len("host"):
		if fold(name, "host") {
			return s.hostField(value)
		}
	case len("expect"):
		if fold(name, "expect") {
			s.expectField(value)
		}
	case len("upgrade"): // and len("trailer")
		if fold(name, "upgrade") {
			s.offer = true
		} else if fold(name, "trailer") {
			s.trailerField(value)
		}
	case len("connection"):
		if fold(name, "connection") {
			s.connectionField(value)
		}
	case len("content-length"):
		if fold(name, "content-length") {
			return s.lengthField(value)
		}
	case len("transfer-encoding"):
		if fold(name, "transfer-encoding") {
			return s.transferEncodingField(value)
		}
	}
	return nil
}

// RFC 9112 section 3.2: 400 for more than one Host field line or an invalid value. The value may be
// empty.
func (s *Scan) hostField(value []byte) *Error {
	if s.host > 0 {
		return errHostMany
	}
	if !validHost(value) {
		return errHost
	}
	s.host = s.read
	return nil
}

// RFC 9110 section 8.6: Content-Length = 1*DIGIT. A list of equal values could be taken for one
// value, net/http takes only repeated field lines so, and they must be equal to the byte.
func (s *Scan) lengthField(value []byte) *Error {
	if len(value) == 0 {
		return errLength
	}
	n := uint64(0)
	for _, c := range value {
		if !isDigit(c) || n > math.MaxInt64/10 {
			return errLength
		}
		n = n*10 + uint64(c-'0') // at most MaxInt64 + 2
	}
	switch {
	case n > math.MaxInt64:
		return errLength
	case s.chunked:
		return errLengthAndTE
	case s.lengthDigits > 0 && (s.lengthDigits != len(value) || s.length != int64(n)):
		return errLengths
	}
	s.length, s.lengthDigits = int64(n), len(value)
	return nil
}

// Nothing but "chunked" alone is taken. RFC 9112 section 6.1: "A server that receives a request
// message with a transfer coding it does not understand SHOULD respond with 501"; the rest makes
// the length of the body unknowable: 400.
func (s *Scan) transferEncodingField(value []byte) *Error {
	if s.minor == 0 {
		return errTEOld
	}
	if s.lengthDigits > 0 {
		return errLengthAndTE
	}
	if fold(value, "chunked") && !s.chunked {
		s.chunked = true
		return nil
	}
	for len(value) > 0 {
		var coding []byte
		if coding, value = element(value); len(coding) > 0 && !fold(coding, "chunked") {
			return errTEUnknown
		}
	}
	return errTE
}

func (s *Scan) connectionField(value []byte) {
	for len(value) > 0 {
		var option []byte
		option, value = element(value)
		switch {
		case fold(option, "keep-alive"):
			s.keepAlive = true
		case fold(option, "upgrade"):
			s.upgrade = true
		case hasWord(option, "close"):
			s.closes = true
		}
	}
}

// hasWord reports whether word stands in p between spaces and tabs. Members of a list are separated
// by commas alone, but it is never wrong to end a connection whose client may have asked for that.
func hasWord(p []byte, word string) bool {
	for w := range bytes.FieldsFuncSeq(p, func(r rune) bool { return r == ' ' || r == '\t' }) {
		if fold(w, word) {
			return true
		}
	}
	return false
}

// expectField reads the first Expect field, and of its members 100-continue before all others, as
// net/http does. RFC 9110 section 10.1.1 leaves unknown expectations to the server.
func (s *Scan) expectField(value []byte) {
	if s.expect100 || s.expectNot {
		return
	}
	for len(value) > 0 {
		var expectation []byte
		if expectation, value = element(value); fold(expectation, "100-continue") {
			s.expect100, s.expectNot = true, false
			return
		} else if len(expectation) > 0 {
			s.expectNot = true
		}
	}
}

// net/http refuses a chunked message that announces one of these three; other names that must not
// be in a trailer section are dropped when they come.
func (s *Scan) trailerField(value []byte) {
	for len(value) > 0 {
		var name []byte
		name, value = element(value)
		s.badTrailer = s.badTrailer || fold(name, "content-length") || fold(name, "transfer-encoding") ||
			fold(name, "trailer")
	}
}

func (s *Scan) framing() Framing {
	f := Framing{Major: 1, Minor: int(s.minor), ContentLength: -1, Chunked: s.chunked}
	if s.lengthDigits > 0 {
		f.ContentLength = s.length
	}
	// RFC 9112 section 9.3: 1.1 persists unless told otherwise, 1.0 only if asked for.
	f.KeepAlive = !s.closes && (s.minor > 0 || s.keepAlive)
	// RFC 9110 section 7.8: "A server MUST ignore an Upgrade header field that is received in an
	// HTTP/1.0 request."
	f.Upgrade = s.upgrade && s.offer && s.minor > 0
	return f
}
