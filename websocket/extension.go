package websocket

// This file is the negotiation of permessage-deflate: RFC 7692 §7.1 over the grammar of RFC 6455
// §9.1.

import "github.com/myriad-go/myriad/internal/h1"

const (
	deflateName = "permessage-deflate"

	minWindowBits = 8
	maxWindowBits = 15

	// anyBits stands for a client_max_window_bits without a value: "the client supports the
	// parameter", in an offer only.
	anyBits = 1
)

// deflateParams are the parameters of one permessage-deflate, in an offer or in its acceptance.
// Bits are 0 where the parameter is not there.
type deflateParams struct {
	serverNoTakeover bool
	clientNoTakeover bool
	serverBits       uint8
	clientBits       uint8
}

// deflateTerms are what two sides have agreed on, as this side sees it. The zero value is no
// compression.
type deflateTerms struct {
	agreed      bool
	inTakeover  bool // the peer's messages refer to earlier ones
	outTakeover bool // ours may
	inBits      uint8
	outBits     uint8 // of our window; a reference reaches no further, also within a message
}

// deflatePolicy is what this side wants. The zero value is no compression.
type deflatePolicy struct {
	on        bool
	readBits  uint8 // of the window kept of the peer's messages; 0: none is kept
	writeBits uint8 // of ours
}

// accept answers the first acceptable offer in a line of Sec-WebSocket-Extensions, and declines the
// others: extensions other than permessage-deflate, and parameters that are unknown, repeated or
// have an invalid value. "A server MUST decline an extension negotiation offer" with any of these.
// It reports false for a line that is not of the field's grammar: the recipient "MUST immediately
// _Fail the WebSocket Connection_", RFC 6455 §9.1.
//
// https://www.rfc-editor.org/rfc/rfc7692#section-7.1
func accept[T text](line T, want deflatePolicy) (terms deflateTerms, wellFormed bool) {
	for at := 0; at < len(line); {
		e, next := nextExtension(line, at)
		if next < 0 {
			return deflateTerms{}, false
		}
		at = next
		if e.isDeflate && !e.invalid && !terms.agreed {
			terms = want.answer(e.params)
		}
	}
	return terms, true
}

// answer is the server's. "client_max_window_bits" may be answered only where it was offered.
// Another client might keep a larger window than this side wants, so it is asked to keep none.
func (want deflatePolicy) answer(offer deflateParams) deflateTerms {
	t := deflateTerms{agreed: true, inBits: maxWindowBits, outBits: maxWindowBits}
	if offer.serverBits != 0 {
		t.outBits = offer.serverBits
	}
	if want.writeBits != 0 && !offer.serverNoTakeover {
		t.outTakeover = true
		t.outBits = min(t.outBits, want.writeBits)
	}
	if want.readBits == 0 || offer.clientNoTakeover || offer.clientBits == 0 && want.readBits < maxWindowBits {
		return t
	}
	t.inTakeover = true
	if offer.clientBits != 0 {
		t.inBits = want.readBits
		if offer.clientBits != anyBits {
			t.inBits = min(t.inBits, offer.clientBits)
		}
	}
	return t
}

// offer is the client's.
func (want deflatePolicy) offer() deflateParams {
	p := deflateParams{clientBits: anyBits, serverNoTakeover: want.readBits == 0, clientNoTakeover: want.writeBits == 0}
	if want.readBits != 0 && want.readBits < maxWindowBits {
		p.serverBits = want.readBits
	}
	if want.writeBits != 0 && want.writeBits < maxWindowBits {
		p.clientBits = want.writeBits
	}
	return p
}

// confirm checks a server's acceptance against our offer, RFC 7692 §7.1.1 and §7.1.2. A client
// "MUST _Fail the WebSocket Connection_ if the peer server accepted an extension negotiation offer
// for this extension with an extension negotiation response" that the offer does not allow. A
// larger client_max_window_bits than was offered is harmless, because ours stays within what we
// offered, and servers send it.
func (want deflatePolicy) confirm(answer deflateParams) (t deflateTerms, ok bool) {
	offer := want.offer()
	switch {
	case offer.serverNoTakeover && !answer.serverNoTakeover,
		offer.serverBits != 0 && (answer.serverBits == 0 || answer.serverBits > offer.serverBits),
		answer.clientBits == anyBits:
		return t, false
	}
	t = deflateTerms{agreed: true, inTakeover: !answer.serverNoTakeover, inBits: maxWindowBits, outBits: maxWindowBits,
		outTakeover: want.writeBits != 0 && !answer.clientNoTakeover}
	if answer.serverBits != 0 {
		t.inBits = answer.serverBits
	}
	if answer.clientBits != 0 {
		t.outBits = answer.clientBits
	}
	if t.outTakeover {
		t.outBits = min(t.outBits, want.writeBits)
	}
	return t, true
}

// params is how a server says what it has accepted.
func (t deflateTerms) params() deflateParams {
	p := deflateParams{serverNoTakeover: !t.outTakeover, clientNoTakeover: !t.inTakeover}
	if t.outBits < maxWindowBits {
		p.serverBits = t.outBits
	}
	if t.inBits < maxWindowBits {
		p.clientBits = t.inBits
	}
	return p
}

// append encodes the extension with its parameters.
func (p deflateParams) append(dst []byte) []byte {
	dst = append(dst, deflateName...)
	if p.serverNoTakeover {
		dst = append(dst, "; server_no_context_takeover"...)
	}
	if p.clientNoTakeover {
		dst = append(dst, "; client_no_context_takeover"...)
	}
	if p.serverBits != 0 {
		dst = appendBits(append(dst, "; server_max_window_bits="...), p.serverBits)
	}
	switch p.clientBits {
	case 0:
	case anyBits:
		dst = append(dst, "; client_max_window_bits"...)
	default:
		dst = appendBits(append(dst, "; client_max_window_bits="...), p.clientBits)
	}
	return dst
}

func appendBits(dst []byte, bits uint8) []byte {
	if bits >= 10 {
		dst = append(dst, '1')
	}
	return append(dst, '0'+bits%10)
}

// extension is one element of the list.
type extension struct {
	isDeflate bool
	invalid   bool // if permessage-deflate: a parameter is wrong
	params    deflateParams
}

// nextExtension reads the element that begins at from, and returns where the next one does, or -1
// if the grammar is broken. An empty element is one of no extension (RFC 9110 §5.6.1.2).
func nextExtension[T text](line T, from int) (e extension, next int) {
	at := skipBlanks(line, from)
	end := skipToken(line, at)
	e.isDeflate = equalFoldTrimmed(line, at, end, deflateName)
	if end == at && at < len(line) && line[at] != ',' {
		return e, -1
	}
	for at = skipBlanks(line, end); at < len(line) && line[at] == ';'; at = skipBlanks(line, at) {
		if at = readParam(&e, line, skipBlanks(line, at+1)); at < 0 {
			return e, -1
		}
	}
	switch {
	case at == len(line):
		return e, at
	case line[at] == ',':
		return e, at + 1
	}
	return e, -1
}

// readParam reads `name`, `name=value` or `name="value"` at from and returns where it ends, or -1.
func readParam[T text](e *extension, line T, from int) int {
	end := skipToken(line, from)
	if end == from {
		return -1
	}
	at := skipBlanks(line, end)
	if at == len(line) || line[at] != '=' {
		e.set(paramOf(line, from, end), false, 0)
		return end
	}
	start := skipBlanks(line, at+1)
	stop := skipToken(line, start)
	next := stop
	if start < len(line) && line[start] == '"' {
		start++
		stop = skipToken(line, start) // "the value after quoted-string unescaping MUST conform to the 'token' ABNF"
		if stop == len(line) || line[stop] != '"' {
			return -1
		}
		next = stop + 1
	}
	if stop == start {
		return -1
	}
	e.set(paramOf(line, from, end), true, bitsOf(line, start, stop))
	return next
}

// A param is one that RFC 7692 defines.
type param uint8

const (
	unknownParam param = iota
	serverNoTakeover
	clientNoTakeover
	serverMaxBits
	clientMaxBits
)

func paramOf[T text](line T, from, to int) param {
	switch {
	case equalFoldTrimmed(line, from, to, "server_no_context_takeover"):
		return serverNoTakeover
	case equalFoldTrimmed(line, from, to, "client_no_context_takeover"):
		return clientNoTakeover
	case equalFoldTrimmed(line, from, to, "server_max_window_bits"):
		return serverMaxBits
	case equalFoldTrimmed(line, from, to, "client_max_window_bits"):
		return clientMaxBits
	}
	return unknownParam
}

// set notes a parameter. bits are 0 if the value is not one from 8 to 15.
func (e *extension) set(name param, hasValue bool, bits uint8) {
	p, wrong := &e.params, false
	switch name {
	case serverNoTakeover:
		wrong = hasValue || p.serverNoTakeover
		p.serverNoTakeover = true
	case clientNoTakeover:
		wrong = hasValue || p.clientNoTakeover
		p.clientNoTakeover = true
	case serverMaxBits:
		wrong = bits == 0 || p.serverBits != 0
		p.serverBits = bits
	case clientMaxBits:
		if !hasValue {
			bits = anyBits
		}
		wrong = bits == 0 || p.clientBits != 0
		p.clientBits = bits
	default:
		wrong = true
	}
	e.invalid = e.invalid || wrong
}

// bitsOf reads "a decimal integer value without leading zeroes between 8 to 15, inclusive", or
// returns 0.
func bitsOf[T text](s T, from, to int) uint8 {
	switch {
	case to-from == 1 && (s[from] == '8' || s[from] == '9'):
		return s[from] - '0'
	case to-from == 2 && s[from] == '1' && '0' <= s[from+1] && s[from+1] <= '5':
		return 10 + s[from+1] - '0'
	}
	return 0
}

func skipBlanks[T text](s T, at int) int {
	for at < len(s) && isBlank(s[at]) {
		at++
	}
	return at
}

func skipToken[T text](s T, at int) int {
	for at < len(s) && h1.IsTokenByte(s[at]) {
		at++
	}
	return at
}
