package h1

import "strconv"

// An Error says why a message was refused. After one the connection cannot be trusted to be in
// step: answer with Status (when the message was a request) and close.
type Error struct {
	Status int    // 400, 414, 431, 501 or 505
	Reason string // for people; fixed text, so it never echoes what the peer sent
}

func (e *Error) Error() string { return "h1: " + strconv.Itoa(e.Status) + ": " + e.Reason }

// ErrPreface is the answer of ParseRequest to the first line of an HTTP/2 connection preface (RFC
// 9113 section 3.4) at the very start of its input. A server that speaks HTTP/2 hands all bytes to
// it; another answers 505.
var ErrPreface = &Error{505, "unsupported protocol version: HTTP/2 connection preface"}

// ErrTLS is the answer of ParseRequest to the first bytes of a TLS handshake at the start of its
// input.
var ErrTLS = &Error{400, "client sent a TLS handshake to an HTTP server"}

// ErrEmptyLines refuses more than MaxEmptyLines.
var ErrEmptyLines = &Error{400, "too many empty lines before the request line (RFC 9112 section 2.2)"}

// The reasons that net/http puts into its answers, or gives handlers, keep net/http's words.
var (
	errBareCR  = &Error{400, "CR without LF (RFC 9112 section 2.2)"}
	errBareLF  = &Error{400, "LF without CR (RFC 9112 section 2.2)"}
	errControl = &Error{400, "invalid header value: control character (RFC 9110 section 5.5)"}

	errRequestLine = &Error{400, "malformed request line (RFC 9112 section 3)"}
	errMethod      = &Error{400, "invalid method (RFC 9110 section 9.1)"}
	errMethodLong  = &Error{501, "method too long (RFC 9112 section 3)"}
	errTarget      = &Error{400, "invalid request target (RFC 9112 section 3.2)"}
	errLineLong    = &Error{414, "request line too long (RFC 9112 section 3)"}
	errVersion     = &Error{400, "malformed HTTP version (RFC 9112 section 2.3)"}
	errVersionNew  = &Error{505, "unsupported protocol version"}
	errStatusLine  = &Error{400, "malformed status line (RFC 9112 section 4)"}

	errHeadLong   = &Error{431, "header fields too large (RFC 6585 section 5)"}
	errFieldsMany = &Error{431, "too many header fields (RFC 6585 section 5)"}
	errName       = &Error{400, "invalid header name (RFC 9110 section 5.1)"}
	errNameSpace  = &Error{400, "invalid header name: space before the colon (RFC 9112 section 5.1)"}
	errFold       = &Error{400, "folded header line (RFC 9112 section 5.2)"}

	errHostMissing = &Error{400, "missing required Host header"}
	errHostMany    = &Error{400, "too many Host headers"}
	errHost        = &Error{400, "malformed Host header"}
	errLength      = &Error{400, "invalid Content-Length (RFC 9112 section 6.3)"}
	errLengths     = &Error{400, "Content-Length headers that differ (RFC 9112 section 6.3)"}
	errLengthAndTE = &Error{400, "both Content-Length and Transfer-Encoding (RFC 9112 section 6.3)"}
	errTE          = &Error{400, "invalid Transfer-Encoding (RFC 9112 section 6.1)"}
	errTEUnknown   = &Error{501, "Unsupported transfer encoding"}
	errTEOld       = &Error{400, "Transfer-Encoding in HTTP/1.0 (RFC 9112 section 6.1)"}
	errTrailerKey  = &Error{400, "bad trailer key (RFC 9110 section 6.5.1)"}

	errChunkByte  = &Error{400, "invalid byte in chunk length"}
	errChunkEmpty = &Error{400, "empty hex number for chunk length"}
	errChunkLarge = &Error{400, "http chunk length too large"}
	errChunkLF    = &Error{400, "chunked line ends with bare LF"}
	errChunkCR    = &Error{400, "invalid CR in chunked line"}
	errChunkEnd   = &Error{400, "malformed chunked encoding"}
	errChunkExt   = &Error{400, "invalid chunk extension (RFC 9112 section 7.1.1)"}
	errChunkOver  = &Error{400, "chunked encoding contains too much non-data"}
)

// ErrChunkLine says that the line of a chunk's size is too long.
var ErrChunkLine = &Error{400, "header line too long"}
