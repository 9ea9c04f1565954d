// Package myriad is a non-blocking network engine. A few event loops hold very many connections at
// a few hundred bytes each. Its connections look like net.Conn, but call a Handler instead of
// waiting. This is an echo server for any number of connections:
//
//	type echo struct{}
//
//	func (echo) Opened(c *myriad.Conn)             {}
//	func (echo) Received(c *myriad.Conn, p []byte) { c.Write(p) }
//	func (echo) Closed(c *myriad.Conn, err error)  {}
//
//	engine, err := myriad.Start(myriad.Config{})
//	ln, err := engine.Listen("tcp", "127.0.0.1:7000", echo{})
//
// An application rarely needs this package: package web serves net/http handlers, and package
// websocket serves WebSockets. docs/guides/protocol.md shows how to write a protocol of your own.
//
// An [Engine] runs loops. A [Conn] belongs to one [Loop] for life and carries only bytes. Its
// [Handler] implements the protocol, and may be exchanged at any time ([Conn.SetHandler]): for an
// upgrade, after a negotiation, or when the first bytes have shown the protocol.
//
// A handler's methods run on the conn's loop, one at a time, and must not block: they hold up every
// other conn of that loop. Work that may block belongs on other goroutines (package workers), which
// write to the conn directly: Write, Close and Abort may be called from any goroutine and never
// block. Work that is quick most of the time may run on the loop instead, as an [InlineTask].
//
// Everything is bounded. Write takes all bytes or, when the conn's queue is at its limit, none
// (ErrFull). Loop.Do refuses when the loop's mailbox is full (ErrBusy). At Config.MaxConns the
// engine stops accepting, and goes on by itself. A Close that the peer does not let finish ends
// after Config.LingerTimeout.
//
// Engine.Stats says what the loops do without stopping them; package debug shows it on a page.
//
// # For authors of protocols
//
// The rest is for packages such as web, websocket and tlsloop; an application does not meet it. A
// [Layer] stands between socket and handler and changes the bytes, as TLS does ([Wire],
// [BufferedLayer], [Lifter]). [Conn.RunInline] runs user code on the loop, and [Engine.HandOff]
// continues the loop elsewhere if that code has to wait. [Conn.Hibernate] releases the Conn of an
// idle connection. [Conn.Detach] takes a connection out of the engine.
package myriad
