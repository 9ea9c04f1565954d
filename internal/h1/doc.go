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
// What both accept means the same to both; a differential fuzzer shows it. docs/net-http.md lists
// what only one of them accepts ("On the wire"), with the section of the RFC and a test for each. A
// bare LF ends no line here, except in the one head that package net/rpc sends: "CONNECT /path
// HTTP/1.0" and two LFs.
//
// The preface of HTTP/2 is no request but [ErrPreface]; [ParsePreface] makes it one. A target with
// a bad percent-encoding is accepted: the caller parses the target as a URL, and refuses it then.
package h1
