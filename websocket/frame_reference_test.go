package websocket

import "fmt"

// reference is the second opinion on reader: it has all of the input at once, walks it by index in
// the order of RFC 6455 §5, and shares no code with what it judges. It returns the lines of
// transcript.
func reference(in []byte, rules readRules) []string {
	ref := referenceReader{in: in, rules: rules}
	for ref.frame() {
	}
	return ref.lines
}

type referenceReader struct {
	in    []byte
	rules readRules
	lines []string

	open       byte // opcode of the message, 0: none
	compressed bool
	message    []byte
}

func (ref *referenceReader) fail(code int) bool {
	ref.lines = append(ref.lines, fmt.Sprintf("fail %d", code))
	return false
}

// frame takes one frame and reports whether there may be another.
func (ref *referenceReader) frame() bool {
	in := ref.in
	if len(in) < 1 {
		return false
	}
	fin, rsv1, rsv23, op := in[0]>>7 == 1, in[0]>>6&1 == 1, in[0]>>4&3, in[0]&15
	switch {
	case rsv23 != 0, op >= 3 && op <= 7, op >= 11,
		op >= 8 && !fin,
		rsv1 && !(ref.rules.compression && (op == 1 || op == 2)):
		return ref.fail(1002)
	}
	if len(in) < 2 {
		return false
	}
	masked, length, at := in[1]>>7 == 1, uint64(in[1]&127), 2
	if masked != ref.rules.fromClient || op >= 8 && length > 125 {
		return ref.fail(1002)
	}
	if length >= 126 {
		more, least := 2, uint64(126)
		if length == 127 {
			more, least = 8, 65536
		}
		if len(in) < at+more {
			return false
		}
		length = 0
		for range more {
			length = length*256 + uint64(in[at])
			at++
		}
		if length < least || length > 1<<63-1 {
			return ref.fail(1002)
		}
	}
	var key [4]byte
	if masked {
		if len(in) < at+4 {
			return false
		}
		key = [4]byte(in[at:])
		at += 4
	}
	present := min(length, uint64(len(in)-at))
	payload := maskNaive(in[at:at+int(present)], key)
	ref.in = in[at+int(present):]
	if op >= 8 {
		return present == length && ref.control(op, payload)
	}
	return ref.data(op, fin, rsv1, length, payload)
}

func (ref *referenceReader) control(op byte, payload []byte) bool {
	if op == 8 && len(payload) > 0 {
		if len(payload) == 1 {
			return ref.fail(1002)
		}
		code := int(payload[0])*256 + int(payload[1])
		if code < 1000 || code > 4999 || code > 1014 && code < 3000 || code >= 1004 && code <= 1006 {
			return ref.fail(1002)
		}
		if bad, unfinished := firstBadByte(payload[2:]); unfinished || bad < len(payload)-2 {
			return ref.fail(1007)
		}
	}
	ref.lines = append(ref.lines, describe(Op(op), false, payload))
	return op != 8
}

func (ref *referenceReader) data(op byte, fin, rsv1 bool, length uint64, payload []byte) bool {
	if (op == 0) != (ref.open != 0) {
		return ref.fail(1002)
	}
	if op != 0 {
		ref.open, ref.compressed, ref.message = op, rsv1, nil
	}
	if length+uint64(len(ref.message)) > uint64(ref.rules.limitOf(ref.compressed)) {
		return ref.fail(1009)
	}
	ref.message = append(ref.message, payload...)
	ended := fin && uint64(len(payload)) == length
	if ref.open == 1 && !ref.compressed {
		if bad, unfinished := firstBadByte(ref.message); bad < len(ref.message) || ended && unfinished {
			return ref.fail(1007)
		}
	}
	if uint64(len(payload)) < length {
		return false
	}
	if ended {
		ref.lines = append(ref.lines, describe(Op(ref.open), ref.compressed, ref.message))
		ref.open = 0
	}
	return true
}
