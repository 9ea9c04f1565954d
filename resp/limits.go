package resp

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
	return Limits{Args: or(l.Args, defaultArgs), Bulk: or(l.Bulk, defaultBulk), Bytes: or(l.Bytes, defaultBytes),
		Depth: or(l.Depth, defaultDepth)}
}

func or(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
}

// A ProtocolError says what is wrong with the bytes of a peer. A server answers with it and closes
// the connection, because where the next command begins is not known.
type ProtocolError struct {
	// Reason is in the words of Redis, which answers "-ERR Protocol error: " and this.
	Reason string
}

// Error implements error.
func (e *ProtocolError) Error() string { return "resp: protocol error: " + e.Reason }

var (
	errArrayLine     = &ProtocolError{"too big mbulk count string"}
	errArrayLength   = &ProtocolError{"invalid multibulk length"}
	errStrangerArray = &ProtocolError{"unauthenticated multibulk length"}
	errBulkLine      = &ProtocolError{"too big bulk count string"}
	errBulkLength    = &ProtocolError{"invalid bulk length"}
	errStrangerBulk  = &ProtocolError{"unauthenticated bulk length"}
	errInlineLine    = &ProtocolError{"too big inline request"}
	errQuotes        = &ProtocolError{"unbalanced quotes in request"}
)
