package h1

import "math"

// Chunked decodes a chunked body (RFC 9112 section 7.1) from pieces of any size. Its zero value
// stands before the first chunk. Sixteen bytes, because it lives in every exchange.
type Chunked struct {
	left  uint64 // of the chunk's data
	over  uint16 // bytes that were not data, beyond what is fair; see endLine
	line  uint16 // bytes of the current chunk-size line
	state chunkState
}

type chunkState uint8

const (
	inSize      chunkState = iota
	inAfterSize            // after the size: BWS, ";" or the end
	inSizeSpace            // after an extension's name or value: the same
	inName0                // after ";": BWS or a name
	inName
	inNameSpace // after a name: BWS, "=", ";" or the end
	inValue0    // after "=": BWS, a token or a quoted string
	inValue
	inQuoted
	inEscape
	inSizeLF
	inData
	inDataCR
	inDataLF
	isDone
)

const (
	maxChunkLine   = 4096     // a chunk-size line without CRLF is shorter, as in net/http
	maxChunkDigits = 16       // leading zeros included, as net/http
	maxChunkOver   = 16 << 10 // as net/http; ends bodies whose extensions outweigh their data
)

// Decode consumes n bytes of p and returns the data among them, a view of p, possibly empty. It
// stops behind one piece of data, so call it until n reaches len(p) or done. done: the last chunk's
// line has been consumed, what follows is the trailer section for ParseTrailer. err is an *Error
// and comes back on every later call.
func (d *Chunked) Decode(p []byte) (n int, data []byte, done bool, err error) {
	for n < len(p) && d.state != isDone {
		if d.state == inData {
			size := uint64(len(p) - n)
			if size >= d.left {
				size, d.state = d.left, inDataCR
			}
			d.left -= size
			end := n + int(size)
			return end, p[n:end:end], false, nil
		}
		if e := d.step(p[n]); e != nil {
			return n, nil, false, e
		}
		n++
	}
	return n, nil, d.state == isDone, nil
}

// InData reports whether part of a chunk's data is still to come; then Left bytes at least.
func (d *Chunked) InData() bool { return d.state == inData }

// Left returns how many bytes the current chunk still has.
func (d *Chunked) Left() uint64 {
	if d.state != inData {
		return 0
	}
	return d.left
}

// Done reports whether the last chunk's line has been consumed.
func (d *Chunked) Done() bool { return d.state == isDone }

// step takes one byte of what is not data. On an error nothing changes, so the same byte fails
// again.
func (d *Chunked) step(c byte) *Error {
	switch d.state {
	case inDataCR:
		if c != '\r' {
			return errChunkEnd
		}
		d.state = inDataLF
		return nil
	case inDataLF:
		if c != '\n' {
			return errChunkEnd
		}
		d.state = inSize
		return nil
	case inSizeLF:
		if c != '\n' {
			return errChunkCR
		}
		return d.endLine()
	}
	return d.sizeLine(c)
}

// sizeLine takes one byte of chunk-size [ chunk-ext ], up to and with the CR.
func (d *Chunked) sizeLine(c byte) *Error {
	if c == '\n' {
		return errChunkLF
	}
	state := d.state
	if state == inSize {
		digit := hexDigit(c)
		switch {
		case digit < 16:
			return d.sizeDigit(digit)
		case d.line == 0 && (c == '\r' || c == ';'):
			return errChunkEmpty
		case d.line == 0:
			return errChunkByte
		}
		state = inAfterSize
	}
	next, ok := extension(state, c)
	switch {
	case !ok && state == inAfterSize:
		return errChunkByte
	case !ok:
		return errChunkExt
	}
	if c != '\r' {
		if d.line+1 >= maxChunkLine {
			return ErrChunkLine
		}
		d.line++
	}
	d.state = next
	return nil
}

// sizeDigit takes a digit of the chunk's size.
func (d *Chunked) sizeDigit(digit byte) *Error {
	if d.line == maxChunkDigits || d.left > math.MaxInt64>>4 {
		return errChunkLarge
	}
	d.left = d.left<<4 | uint64(digit)
	d.line++
	return nil
}

// extension is the transition table of
//
//	chunk-ext = *( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] ) CR
//
// with BWS before the CR tolerated, as net/http does.
func extension(state chunkState, c byte) (next chunkState, ok bool) {
	switch state {
	case inQuoted: // quoted-string, RFC 9110 section 5.6.4
		switch {
		case c == '"':
			return inSizeSpace, true
		case c == '\\':
			return inEscape, true
		}
		return inQuoted, !isControl(c)
	case inEscape:
		return inQuoted, !isControl(c)
	case inName0:
		return pick(isSpace(c), inName0, inName), isSpace(c) || class[c]&isToken != 0
	case inValue0:
		if c == '"' {
			return inQuoted, true
		}
		return pick(isSpace(c), inValue0, inValue), isSpace(c) || class[c]&isToken != 0
	}
	// The line may end here: after the size, in or after a name, in or after a value.
	switch {
	case c == '\r':
		return inSizeLF, true
	case c == ';':
		return inName0, true
	case c == '=':
		return inValue0, state == inName || state == inNameSpace
	case isSpace(c) && state == inAfterSize:
		return state, true
	case isSpace(c):
		return pick(state == inName || state == inNameSpace, inNameSpace, inSizeSpace), true
	}
	return state, class[c]&isToken != 0 && (state == inName || state == inValue)
}

func pick(cond bool, yes, no chunkState) chunkState {
	if cond {
		return yes
	}
	return no
}

// endLine opens the chunk, or ends the body. Each chunk may have 16 bytes and twice its data in
// overhead; what goes beyond is summed up, less what other chunks did not use, until it passes
// maxChunkOver (net/http counts the same).
func (d *Chunked) endLine() *Error {
	over := int64(d.over) + int64(d.line) + 2 - 16 - 2*int64(min(d.left, maxChunkLine+maxChunkOver))
	if over > maxChunkOver {
		return errChunkOver
	}
	d.over, d.line = uint16(max(over, 0)), 0
	d.state = inData
	if d.left == 0 {
		d.state = isDone
	}
	return nil
}

// hexDigit returns the value of a hexadecimal digit, and 16 or more for any other byte.
func hexDigit(c byte) byte {
	switch {
	case c-'0' < 10:
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 0xff
}
