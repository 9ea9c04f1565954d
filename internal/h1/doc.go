// Package h1 is the grammar of HTTP/1.x (RFC 9110, RFC 9112) as pure functions on bytes: it parses
// request heads, response heads, chunked bodies and trailers, and appends the same to a slice. It
// knows no connection, no clock and no handler. Any goroutine may call it; no function keeps or
// writes what it is given, apart from the structs named in its signature.
//
// # Reading a head
//
// The common case is one call: [ParseRequest] on all bytes received so far. When it wants more (n
// == 0, err == nil) the caller keeps the bytes and a zero [Scan], appends what arrives later and
// asks [Scan.Request], which looks at every byte once however small the pieces are. When that says
// ready, ParseRequest gives the head. Both run the same code, so a head means the same whole or in
// pieces, and is refused at the same byte.
//
// A body follows: ContentLength bytes, or chunks for a [Chunked] and then a trailer section for
// [ParseTrailer].
//
// # Differences from net/http's server
//
// What both accept means the same to both; a differential fuzzer holds that. The rest is a list of
// decisions.
//
// Refused here, accepted there:
//   - a bare LF as line end (RFC 9112 2.2 permits it, and permits smuggling with it), but for the
//     one head that package net/rpc sends, "CONNECT /path HTTP/1.0" and two LFs; and obs-fold (5.2)
//   - Content-Length together with Transfer-Encoding (6.3, "ought to be handled as an error"),
//     whatever their values
//   - a Transfer-Encoding that is empty, or chunked twice, with 400 (6.3); net/http takes it for an
//     unknown coding: 501
//   - Transfer-Encoding in HTTP/1.0, where net/http ignores it (6.1: the framing is faulty)
//   - a Host that is not of the grammar (9112 3.2, RFC 3986 3.2.2), such as "a:b", "::1" or "[::1";
//     an empty one is legal
//   - an absolute-form without "//" and host, or with user information (RFC 9110 4.2.4)
//   - CONNECT to an authority without a port from 1 to 65535 (RFC 9110 9.3.6), or to nothing
//   - chunk extensions that are not of the grammar (7.1.1), a chunk of 2^63 bytes or more, and a
//     NUL in them
//   - a trailer with whitespace in its name or before its colon, or folded (5.1, 5.2)
//   - whatever is beyond the caller's [Limits], which net/http draws elsewhere
//   - the preface of HTTP/2, which is no request here but [ErrPreface]; [ParsePreface] makes it one
//
// Accepted here, refused there:
//   - up to four empty lines before a request line (2.2); net/http skips them only after a POST,
//     and there any number of CRs and LFs
//   - a target with a bad percent-encoding: the caller parses the target as a URL and refuses it
//     then
//   - whitespace between a chunk's size and ";", which a recipient MUST parse (RFC 9112 7.1.1, RFC
//     9110 5.6.3)
//
// Understood differently:
//   - the members of Connection and Expect are separated by commas only (RFC 9110 5.6.1), but for
//     "close", which counts between spaces, too, and then for the request's Close as well; and all
//     fields of the name count, but of Expect the first. net/http takes spaces for separators when
//     it decides, and looks at the first Connection field for keep-alive in HTTP/1.0
//   - "Connection: keep-alive, close" in HTTP/1.0 closes (9.3)
//   - of several faults the first on the wire is named, so the status may be another
//
// Accepted by both against the letter of the RFC, because clients in use do it:
//   - CONNECT without a Host field (net/http's issue 18215) and CONNECT with a path (package
//     net/rpc)
//   - repeated Content-Length fields with identical digits (RFC 9110 8.6 allows it)
//   - bytes in a target that a URI would escape, such as UTF-8, "|" or "#"
//   - spaces and tabs between a chunk's size and its CRLF
//   - the asterisk-form with another method than OPTIONS (3.2.4); http.ServeMux answers it with 400
//   - HTTP/1.2 to 1.9, handled as 1.1 (RFC 9110 2.5)
//
// Trailer fields that would change framing, routing or authentication (RFC 9110 6.5.1) are dropped,
// and a Trailer field that announces Content-Length, Transfer-Encoding or Trailer for a chunked
// body is refused.
package h1
