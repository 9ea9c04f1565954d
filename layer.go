package myriad

import (
	"net"
)

// A Layer stands between the socket and the handler and changes the bytes: TLS, the PROXY protocol,
// a test's XOR. Conn.Write goes through it, and only Wire reaches the socket. Write and CloseWrite
// run on any goroutine, one at a time, under the conn's lock; Received, Closed and Detach run on
// the loop and may overlap with them. A panic in any of them is the end of the conn alone.
type Layer interface {
	// Received is given bytes from the wire, valid until return, and calls w.Deliver any number of
	// times.
	Received(w Wire, p []byte)
	// Write encodes p, all of it or nothing (ErrFull). It asks w.Room before it encodes, because
	// what it has encoded must be sent.
	Write(w Wire, p []byte) (int, error)
	// CloseWrite queues what ends the layer's stream; the FIN follows it. For Conn.CloseTruncated
	// it is not called, but a method CloseTruncated of the same kind, if there is one: that queues
	// what shows the peer that the stream has not come to its end.
	CloseWrite(w Wire) error
	// Closed says what an end means. It is called with nil at the peer's FIN, and with the error of
	// a broken connection. It returns io.ErrUnexpectedEOF for a stream that lacks its end. An error
	// at the peer's FIN has the effect of Wire.Truncated.
	Closed(err error) error
	// Detach gives the layer's view of a connection that leaves the engine, and the plaintext not
	// yet delivered.
	Detach(raw net.Conn, unread []byte) (net.Conn, []byte)
}

// A BufferedLayer is a Layer that may take plaintext before it encodes it, because a handshake has
// to end first or because there is much of it. At the peer's FIN it may not know yet what the FIN
// means. Both of its methods are looked up when the layer is set.
type BufferedLayer interface {
	Layer
	// Encode encodes a slice of what Write has taken and announced by Wire.Owe, and reports whether
	// it could go on at once. It is called while less than half of the conn's limit is encoded and
	// not sent, and again when the conn is settled (Wire.Sync does that). On the loop, under the
	// conn's lock.
	Encode(w Wire) (more bool)
	// Ended is the peer's FIN, in place of Closed(nil). The layer answers it with w.End,
	// w.Truncated or w.Fail, now or later. On the loop.
	Ended(w Wire)
}

// A Lifter is what a net.Conn that encodes (a *tls.Conn) has inside (its NetConn method) if the
// engine can adopt it without a goroutine. Lift gives the connection below, which outer leaves to
// the engine, and the layer that replaces outer, which first gets an empty Received. Instead of a
// layer it may give a handler that sets one. See Engine.Adopt.
type Lifter interface {
	Lift(outer net.Conn, h Handler) (raw net.Conn, l Layer, opener Handler)
}

// A Wire is a Layer's access to the socket and to the handler.
type Wire struct {
	c      *Conn
	locked bool // called from Write or CloseWrite, which hold the conn's lock
}
