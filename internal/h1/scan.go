package h1

import "bytes"

// A Scan remembers how far an unfinished head or trailer section has been read. So one that arrives
// byte by byte costs no more than one that arrives at once. Its zero value stands at the start. It
// holds no view of the bytes: they may move between calls, but each call is given all of them
// again, from the first on.
//
// Use one Scan for one message, and one of its methods only; drop it when that says ready or fails.
type Scan struct {
	line int // where the first line starts that has not been read completely
	next int // up to here that line has no end and no forbidden byte
	read int // field lines so far

	length       int64 // Content-Length; of use with lengthDigits > 0
	lengthDigits int   // identical repeats have the same number of digits
	host         int   // 1 + index of the Host field

	minor   uint8
	empty   uint8 // empty lines skipped
	started bool  // the first line is behind us
	atStart bool  // and it was the first of the input
	trailer bool  // fields only, without meaning for framing
	bare    bool  // the first line is the whole head: bareHead

	connect, chunked, badTrailer      bool
	closes, keepAlive, upgrade, offer bool
	expect100, expectNot              bool
}

// Request reports whether p, all bytes since the head's start, holds a complete request head;
// ParseRequest then parses it. An error (always an *Error) comes as soon as the bytes cannot become
// a head any more.
func (s *Scan) Request(p []byte, lim Limits) (ready bool, err error) {
	n, e := s.request(p, lim, nil)
	if e != nil {
		return false, e
	}
	return n > 0, nil
}

// firstLine returns the first line that is not empty without its CRLF, or nil if it is not
// complete.
func (s *Scan) firstLine(p []byte, lim Limits) ([]byte, *Error) {
	for {
		limit := min(lim.LineBytes, lim.HeadBytes-s.line-2) + 2 // with CRLF, and without overflow
		bounded := p
		if len(p)-s.line > limit {
			bounded = p[:s.line+limit]
		}
		cr, next, err := lineEnd(bounded, s.next)
		if err == errBareLF {
			cr, next, err = s.bareHead(bounded, next)
		}
		if err != nil {
			return nil, err
		}
		s.next = next
		if cr < 0 {
			return nil, s.lineTooLong(bounded, limit)
		}
		line := p[s.line:cr]
		s.atStart = s.line == 0
		s.line = next
		if len(line) > 0 {
			s.started = true
			return line, nil
		}
		if s.empty++; s.empty > MaxEmptyLines {
			return nil, ErrEmptyLines
		}
	}
}

// bareHead is lineEnd for the one head whose lines may end with a LF alone, of which p[lf] is the
// first: what package net/rpc sends, CONNECT with a path in HTTP/1.0 and no fields. Nothing of HTTP
// follows it that two servers could find in different places.
func (s *Scan) bareHead(p []byte, lf int) (end, next int, err *Error) {
	line := p[s.line:lf]
	switch {
	case !bytes.HasPrefix(line, []byte("CONNECT /")) || !bytes.HasSuffix(line, []byte(" HTTP/1.0")):
		return -1, lf, errBareLF
	case lf+1 == len(p):
		return -1, lf, nil
	case p[lf+1] != '\n':
		return -1, lf, errBareLF
	}
	s.bare = true
	return lf, lf + 2, nil
}

// lineTooLong judges a first line that has not ended yet: "A server that receives a method longer
// than any that it implements SHOULD respond with a 501", a longer target with 414 (RFC 9112
// section 3).
func (s *Scan) lineTooLong(p []byte, limit int) *Error {
	if len(p)-s.line < limit {
		return nil
	}
	if bytes.IndexByte(p[s.line:], ' ') < 0 {
		return errMethodLong
	}
	return errLineLong
}

// fields reads field lines up to the empty line after them; n is the index behind that, 0 if it is
// not there yet. p is cut to lim.HeadBytes. out may be nil.
func (s *Scan) fields(p []byte, lim Limits, out *[]Field) (n int, err *Error) {
	for {
		cr, next, err := lineEnd(p, s.next)
		if err != nil {
			return 0, err
		}
		s.next = next
		if cr < 0 {
			if len(p) == lim.HeadBytes {
				return 0, errHeadLong
			}
			return 0, nil
		}
		line := p[s.line:cr]
		s.line = next
		if len(line) == 0 {
			return next, nil
		}
		if s.read++; s.read > lim.Fields {
			return 0, errFieldsMany
		}
		if err := s.field(line, out); err != nil {
			return 0, err
		}
	}
}

// field-line = field-name ":" OWS field-value OWS (RFC 9112 section 5)
func (s *Scan) field(line []byte, out *[]Field) *Error {
	colon := 0
	for colon < len(line) && class[line[colon]]&isToken != 0 {
		colon++
	}
	if colon == 0 || colon == len(line) || line[colon] != ':' {
		return badName(line, colon)
	}
	name, value := line[:colon:colon], trim(line[colon+1:])
	if s.trailer {
		if forbiddenTrailer(name) {
			return nil
		}
	} else if err := s.meaning(name, value); err != nil {
		return err
	}
	if out != nil {
		*out = append(*out, Field{name, value})
	}
	return nil
}

func badName(line []byte, end int) *Error {
	switch {
	case isSpace(line[0]):
		return errFold
	case end < len(line) && isSpace(line[end]):
		return errNameSpace
	}
	return errName
}
