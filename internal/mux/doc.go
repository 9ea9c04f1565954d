// Package mux is an HTTP/2 connection (RFC 9113) over a myriad.Conn, at the server's end or the
// client's. It multiplexes streams; what a request or response means is its owner's business.
//
//	type conn struct { mux.Conn; … }          // a myriad.Handler, by the methods of mux.Conn
//	type stream struct { mux.Stream; in flow.Inbox; … }
//
//	func (h *conn) Accept(id uint32) *mux.Stream {  // h is a mux.Owner
//		s := new(stream)
//		s.in.Reset(h.window, true)
//		s.Init(s)                               // s is a mux.StreamOwner
//		return &s.Stream
//	}
//
//	cfg.Take(nil)                             // once, before the first conn
//	c := &conn{…}
//	c.Init(&cfg, c)
//	c.SetHandler(…)                           // or as Listen's and Dial's handler
//
// # Who calls what
//
// L in the comment of a method means that only the conn's loop calls it, H that any goroutine may,
// as the goroutine of a handler does. All methods of Owner and StreamOwner are called on the loop.
// They must not block, and may call any method of Conn and Stream: no output is written from inside
// them, it leaves when the callback of the conn ends.
//
// # The life of a stream
//
// At a server, Owner.Accept makes the stream when its request's fields are there, and
// StreamOwner.Head gets them. At a client, Conn.Open takes the stream and its owner puts the head.
// Data and Trailers follow as they come. H writes with Put, PutBlocks and End. Ended is called
// once, when the stream is closed for whatever reason. Release, by which the owner says that its
// goroutine is done with the stream, may come before or after it. A stream that has ended leaves
// its place among Config.Streams to another one. With streams that have ended and are not released
// there are twice as many at most: resets do not bring a peer any number of handlers
// (CVE-2023-44487).
//
// # Flow control
//
// The owner says how much of a body has been consumed: StreamOwner.Credit is called after Data, and
// after Notify, and mux sends WINDOW_UPDATE for the stream and the connection. What a closed stream
// has not consumed is credited to the connection at once. So a slow handler holds one stream, and
// bodies never stop the reading of the connection.
//
// # Output
//
// Each stream has an Outbox. Flush writes what is ready in this order: control frames; heads,
// trailers and ends without data; then data by urgency, in frames that fill one TLS record. It
// stops when the conn's queue is full and goes on in Drained.
//
// RULES.md lists the rules of HTTP/2 with their tests. ADR 27 is about what a peer may make our end
// do for nothing, and ADR 28 about messages that are malformed to the letter.
package mux
