// Package wire is the protocol of Redis, RESP2 and RESP3, as pure functions on bytes. It is for
// programs that have connections of their own; package resp has servers and clients.
//
// ParseCommand and ParseValue read what is complete. If it is not, a CommandScan or a ValueScan
// finds out when it is, without looking at any byte twice. The functions whose names begin with
// Append write. The grammar of commands is what Redis accepts, and its errors are in the words of
// Redis.
package wire

import (
	"cmp"
	"math"
)

// A Protocol is a version of the protocol, 2 or 3.
type Protocol uint8

// The versions. A connection begins with RESP2 and changes by HELLO 3.
const (
	RESP2 Protocol = 2
	RESP3 Protocol = 3
)

// The sizes that Redis has, and that hold where Limits does not lower them.
const (
	// maxLine is the longest line without its end: an inline command, or the header of an array or
	// of a string.
	maxLine = 64 << 10
	// Before a connection has authenticated, where it has to, a command has few and short
	// arguments.
	strangerArgs = 10
	strangerBulk = 16 << 10

	defaultArgs  = 1 << 20
	defaultBulk  = 512 << 20
	defaultBytes = 64 << 20
	defaultDepth = 64
)

// Limits bound what one peer can make this end keep. A limit that is set is checked as soon as a
// length has been read, and memory is never spent on what is only announced. What exceeds a limit
// is a *ProtocolError. The zero value has the defaults.
type Limits struct {
	// Args is the most arguments of a command, and the most values of a reply, those inside of
	// others included. 0: 1,048,576; a command may announce more, as Redis allows it, and is
	// refused when they come.
	Args int
	// Bulk is the longest string, in bytes. 0: 512 MiB, as in Redis (proto-max-bulk-len).
	Bulk int
	// Bytes is the most that one command or reply takes on the wire. A string that would exceed it
	// counts as too long. 0: 64 MiB; a command may announce more, and is refused when so much has
	// come.
	Bytes int
	// Depth is how deep the arrays of a reply may nest. Commands do not nest. 0: 64.
	Depth int
}

// filled returns l with the defaults in place of zeros.
func (l Limits) filled() Limits {
	return Limits{Args: cmp.Or(l.Args, defaultArgs), Bulk: cmp.Or(l.Bulk, defaultBulk),
		Bytes: cmp.Or(l.Bytes, defaultBytes), Depth: cmp.Or(l.Depth, defaultDepth)}
}

// A ProtocolError says what is wrong with the bytes of a peer. A server answers with it and closes
// the connection, because where the next command begins is not known.
type ProtocolError struct {
	// Reason is in the words of Redis, which answers "-ERR Protocol error: " and this.
	Reason string
}

// Error implements error.
func (e *ProtocolError) Error() string { return "resp: protocol error: " + e.Reason }

// ParseInt parses the whole of p as Redis does: digits with an optional minus sign, without leading
// zeros, a plus sign or spaces.
func ParseInt(p []byte) (v int64, ok bool) {
	digits := p
	negative := len(p) > 0 && p[0] == '-'
	if negative {
		digits = p[1:]
	}
	switch {
	case len(digits) == 0 || len(digits) > 19:
		return 0, false
	case digits[0] == '0':
		return 0, len(digits) == 1 && !negative
	}
	var u uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	switch {
	case negative && u <= 1<<63:
		return -int64(u), true // -(1<<63) overflows to itself
	case negative || u > math.MaxInt64:
		return 0, false
	}
	return int64(u), true
}
