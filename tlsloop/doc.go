// Package tlsloop runs TLS on event loops with the standard library's crypto/tls, unforked. A
// connection has no goroutine. The program has every fix and feature of the toolchain that builds
// it.
//
//	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"echo"}}
//	h := tlsloop.Handler(config, func(s tls.ConnectionState) myriad.Handler { return echo{} })
//	ln, err := engine.Listen("tcp", "127.0.0.1:7001", h)
//
//	conn, err := tlsloop.Dial(ctx, engine, "tcp", "example.org:443", &tls.Config{}, client{})
//
// For HTTPS call web.Server.ServeTLS instead. [NewListener] gives TLS to net/http, or to another
// server that is given a listener.
//
// # How it works
//
// A tls.Conn stands on a net.Conn, and that one is ours (pipe.go). During the handshake its Read
// has to wait, so the handshake is a coroutine that yields there (handshake.go). A few goroutines
// of the engine step all handshakes (steppers.go): a slow peer delays no other peer, and ten
// thousand handshakes at once leave the loops their time. Nothing begins before the first record is
// complete. Afterwards the tls.Conn is driven by the loop: Read takes the bytes that have just come
// and says "would block" when there are no more.
//
// With [Options.LeanTLS] a server's connection of TLS 1.3 leaves its tls.Conn behind the handshake.
// It has its secrets from a key log of its own (secrets.go), and goes on with records of package
// internal/record (records.go). A trial decides once whether that works with the toolchain
// (trial.go).
//
// # What it rests on
//
// The package relies on properties of crypto/tls that are not documented. properties_test.go pins
// each of them, so that a test fails with a toolchain that changes one:
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
//   - It tells a key log the secrets of a connection before it writes the first record with them.
//     Without this one LeanTLS does nothing.
//   - Its buffers are fields of known names and types, which are lent while bytes come and dropped
//     when they are empty (buffers.go). Without this one everything works and takes more memory.
//
// # Limits
//
// In one engine 4,096 handshakes are under way at a time; more wait with their first record, in
// order, until their timeout. At most 256 goroutines run callbacks of a Config. They also run whole
// steps of a handshake whose Config may block inside crypto/tls: VerifyConnection,
// VerifyPeerCertificate, keys that are not in memory. A handshake holds at most 32 KiB that it has
// not read, and one read buffer. A peer that makes the tls.Conn answer by itself (KeyUpdate) more
// than 16 KiB without reading any of it fails with [ErrFlood]. Failed handshakes are reported once
// in ten seconds, with their number and the last reason.
package tlsloop
