package wire

import (
	"bytes"
	"fmt"
)

// ParseValue parses the first value of p, a reply or a push, in RESP2 or RESP3. n is how many bytes
// it takes; 0 says that it is incomplete. v has views on p. The errors are *ProtocolError: bytes
// that are no value, a limit, a push inside of another value, or one of the streamed types, which
// no known server sends.
func ParseValue(p []byte, l Limits) (n int, v Value, err error) {
	r := valueReader{p: p, limits: l.filled()}
	switch err := r.read(&v, 0); {
	case err == errShort:
		return 0, Value{}, nil
	case err != nil:
		return 0, Value{}, err
	}
	return r.pos, v, nil
}

// errShort says that a value is incomplete. It is not returned to users.
var errShort = &ProtocolError{"incomplete"}

var (
	errStreamed = &ProtocolError{"streamed strings and aggregates are not supported"}
	errDepth    = &ProtocolError{"a reply nests too deep"}
	errValues   = &ProtocolError{"a reply has too many values"}
	errSize     = &ProtocolError{"a reply is too large"}
	errNumber   = &ProtocolError{"invalid number in a reply"}
	errLineEnd  = &ProtocolError{"a line of a reply does not end with CRLF"}
	errBoolean  = &ProtocolError{"invalid boolean in a reply"}
	errVerbatim = &ProtocolError{"invalid verbatim string in a reply"}
	// errNestedPush is of servers that interrupt a reply. Where the reply ends is then not known:
	// the elements behind would be taken for the replies to other commands.
	errNestedPush = &ProtocolError{"a push message in the middle of a reply"}
)

// A valueReader reads one value.
type valueReader struct {
	p      []byte
	pos    int
	values int // that aggregates have announced
	limits Limits
}

// read reads a value with the attributes in front of it.
func (r *valueReader) read(v *Value, depth int) error {
	var attr *Value
	for {
		*v = Value{}
		if err := r.one(v, depth); err != nil {
			return err
		}
		if v.Kind != Attribute {
			v.Attr = attr
			return nil
		}
		if attr == nil {
			attr = &Value{Kind: Attribute}
		}
		attr.Elems = append(attr.Elems, v.Elems...)
	}
}

func (r *valueReader) one(v *Value, depth int) error {
	h, err := nextHeader(r.p, r.pos, 0, &r.limits)
	if err != nil {
		return err
	}
	line := r.p[r.pos+1 : r.pos+h.line-2]
	r.pos += h.line
	v.Kind = h.kind
	size := int(h.number)
	switch {
	case h.kind == Push && depth > 0:
		return errNestedPush
	case h.shape == scalar:
		v.Int = h.number
		if h.text {
			v.Str = line[:len(line):len(line)]
		}
		return nil
	case h.shape == stringOf:
		if len(r.p)-r.pos < size+2 {
			return errShort
		}
		v.Str = r.p[r.pos:][:size:size]
		err := checkText(r.p, r.pos, size, v.Kind)
		r.pos += size + 2
		return err
	}
	if r.values += size; r.values > r.limits.Args {
		return errValues
	}
	if depth >= r.limits.Depth {
		return errDepth
	}
	// Room is made for what can have come, not for what is announced.
	v.Elems = make([]Value, 0, min(size, (len(r.p)-r.pos)/shortestValue))
	for i := range size {
		v.Elems = append(v.Elems, Value{})
		if err := r.read(&v.Elems[i], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// shortestValue is the length of "_\r\n".
const shortestValue = 3

// A shape is what follows the line that a value begins with.
type shape uint8

const (
	scalar    shape = iota // nothing
	stringOf               // so many bytes
	aggregate              // so many values
)

// A valueHeader is the first line of a value.
type valueHeader struct {
	kind   Kind
	shape  shape
	text   bool  // of a scalar: its line is its text
	line   int   // length with CRLF
	number int64 // of a scalar its number, else how many bytes or values follow
}

// nextHeader reads the line at pos, in whose first from bytes there is no end. If it is incomplete,
// h.line is for how many bytes that is so now.
func nextHeader(p []byte, pos, from int, l *Limits) (h valueHeader, err error) {
	rest := p[pos:]
	end, most := from, min(maxLine, l.Bytes-pos)
	for end < len(rest) && rest[end] != '\r' && end <= most {
		if rest[end] == '\n' {
			return h, errLineEnd
		}
		end++
	}
	switch {
	case end > most:
		return h, errSize
	case end+1 >= len(rest):
		h.line = end
		return h, errShort
	case rest[end+1] != '\n':
		return h, errLineEnd
	case end == 0:
		return h, unknownKind('\r')
	}
	h.kind, h.line = Kind(rest[0]), end+2
	err = h.read(rest[1:end], pos+h.line, l)
	return h, err
}

// read makes sense of a line behind its first byte. pos is where what follows begins.
func (h *valueHeader) read(line []byte, pos int, l *Limits) error {
	ok, perElement := true, int64(1)
	switch h.kind {
	case Simple, Failure:
		h.text = true
		return nil
	case Double:
		h.text = true
		if _, ok = parseFloat(line); !ok {
			return errNumber
		}
		return nil
	case BigNumber:
		h.text = true
		digits := line
		if len(line) > 0 && (line[0] == '-' || line[0] == '+') {
			digits = line[1:]
		}
		if len(digits) == 0 || len(bytes.Trim(digits, "0123456789")) > 0 {
			return errNumber
		}
		return nil
	case Integer:
		if len(line) > 1 && line[0] == '+' && line[1] != '-' { // the protocol allows it, commands do not
			line = line[1:]
		}
		if h.number, ok = ParseInt(line); !ok {
			return errNumber
		}
		return nil
	case Boolean:
		if len(line) != 1 || line[0] != 't' && line[0] != 'f' {
			return errBoolean
		}
		if line[0] == 't' {
			h.number = 1
		}
		return nil
	case Null:
		if len(line) > 0 {
			return errNumber
		}
		return nil
	case Bulk, BulkError, Verbatim:
		h.shape = stringOf
	case Array, Set, Push:
		h.shape = aggregate
	case Map, Attribute:
		h.shape, perElement = aggregate, 2
	case ';', '.':
		return errStreamed
	default:
		return unknownKind(byte(h.kind))
	}
	if string(line) == "?" {
		return errStreamed
	}
	v, ok := ParseInt(line)
	switch {
	case ok && v == -1 && (h.kind == Bulk || h.kind == Array):
		h.kind, h.shape = Null, scalar
		return nil
	case !ok || v < 0:
		return errNumber
	case h.shape == stringOf && (v > int64(l.Bulk) || v > int64(l.Bytes-pos-2)):
		return errSize
	case h.shape == aggregate && v > int64(l.Args)/perElement:
		return errValues
	}
	h.number = v * perElement
	return nil
}

// checkText looks at a string that has come with its end.
func checkText(p []byte, pos, size int, k Kind) error {
	if p[pos+size] != '\r' || p[pos+size+1] != '\n' {
		return errLineEnd
	}
	if k == Verbatim && (size < verbatimFormat || p[pos+verbatimFormat-1] != ':') {
		return errVerbatim
	}
	return nil
}

func unknownKind(c byte) error { return &ProtocolError{fmt.Sprintf("a reply begins with %q", c)} }

// A ValueScan finds the end of a value that comes in parts, without reading what it has read again.
// The zero value begins with a value.
type ValueScan struct {
	pos      int // where the next line begins, or the bytes of a string
	searched int // in so many bytes from pos on a line does not end
	values   int // that aggregates have announced
	// frames are the aggregates that pos is in, the innermost last.
	frames []frame
	inText bool // at pos there are the bytes of a string
	size   int  // so many
	kind   Kind
	begun  bool
}

type frame struct {
	left int  // values still to come
	attr bool // it stands in front of a value
}

// Complete reports whether p, which is all that has come of the value, has its end. An error is
// that of ParseValue.
func (s *ValueScan) Complete(p []byte, l Limits) (bool, error) {
	l = l.filled()
	for !s.begun || len(s.frames) > 0 || s.inText {
		if s.inText {
			if len(p)-s.pos < s.size+2 {
				return false, nil
			}
			if err := checkText(p, s.pos, s.size, s.kind); err != nil {
				return false, err
			}
			s.pos += s.size + 2
			s.inText = false
			s.ended()
			continue
		}
		h, err := nextHeader(p, s.pos, s.searched, &l)
		switch {
		case err == errShort:
			s.searched = h.line
			return false, nil
		case err != nil:
			return false, err
		case h.kind == Push && len(s.frames) > 0:
			return false, errNestedPush
		}
		s.begun, s.searched = true, 0
		s.pos += h.line
		if h.shape == aggregate {
			if s.values += int(h.number); s.values > l.Args {
				return false, errValues
			}
			if len(s.frames) >= l.Depth {
				return false, errDepth
			}
		}
		switch attr := h.kind == Attribute; {
		case h.shape == stringOf:
			s.inText, s.size, s.kind = true, int(h.number), h.kind
			continue
		case h.shape == aggregate && (h.number > 0 || attr):
			s.frames = append(s.frames, frame{int(h.number), attr})
			if h.number > 0 {
				continue
			}
		}
		s.ended()
	}
	return true, nil
}

// ended counts a value that has come completely, and closes the aggregates that end with it. Behind
// an attribute its value is still to come.
func (s *ValueScan) ended() {
	for top := len(s.frames) - 1; top >= 0; top-- {
		f := &s.frames[top]
		if f.left--; f.left > 0 {
			return
		}
		if s.frames = s.frames[:top]; f.attr {
			s.begun = top > 0
			return
		}
	}
}
