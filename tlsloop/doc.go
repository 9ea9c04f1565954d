// Package tlsloop is TLS on event loops with the standard library's crypto/tls, unforked: no
// goroutine for a connection, and every fix and feature of the toolchain that builds the program.
//
//	engine.Listen("tcp", addr, tlsloop.Handler(config, func(s tls.ConnectionState) myriad.Handler { … }))
//
// # How it works
//
// A tls.Conn stands on a net.Conn, and that one is ours (pipe.go). During the handshake its Read
// has to wait, so the handshake is a coroutine that gives way there (handshake.go); a few
// goroutines of the engine step all of them (crew.go), so that a peer that is slow holds nobody up
// and ten thousand at once leave the loops their time. Nothing begins before the first record is
// complete. Afterwards the tls.Conn is driven by the loop: Read takes the bytes that have just come
// and says "would block" when there are no more.
//
// # What it rests on
//
// These are properties of crypto/tls that it does not promise. properties_test.go pins each of
// them, so that a toolchain that changes one is noticed before it serves:
//
//   - After the handshake a temporary net.Error of the inner conn is returned as it is and is not
//     remembered; what there is of a record, or of a message in several records, stays in the
//     tls.Conn, and the next Read goes on.
//   - During the handshake such an error is final. Therefore Read waits there, and renegotiation is
//     off.
//   - It asks its inner conn for a header and then for the rest of that record, and needs no more
//     than that.
//   - Any error of the inner conn's Write is final, so Write takes everything.
//   - CloseWrite sets a write deadline that has passed. It must not drop the close_notify that is
//     queued.
//   - Some fatal errors are returned once and not again. The first error other than "would block"
//     ends the connection.
//   - Its buffers are fields of known names and types, which are lent while bytes come and dropped
//     when they are empty (buffers.go). Without this one everything works and takes more memory.
//
// # Limits
//
// In one engine 4,096 handshakes are under way at a time; more wait with their first record, in
// order, until their timeout. At most 256 goroutines run callbacks of a Config, and steps of
// handshakes whose Config may block in a way that cannot be taken elsewhere (VerifyConnection,
// VerifyPeerCertificate, keys that are not in memory). A handshake holds at most 32 KiB that it has
// not read, and one read buffer. A peer that makes the tls.Conn answer by itself (KeyUpdate) more
// than 16 KiB without reading any of it fails with [ErrFlood]. Failed handshakes are reported once
// in ten seconds, with their number and the last reason.
package tlsloop
