package myriad

import "net"

// A Layer stands between the socket and the handler and changes the bytes: TLS, the PROXY protocol, a test's XOR.
// Conn.Write goes through it, and only Wire reaches the socket. Write and CloseWrite run on any goroutine, one at a time,
// under the conn's lock; Received, Closed and Detach run on the loop and may overlap with them.
type Layer interface {
	// Received is given bytes from the wire, valid until return, and calls w.Deliver any number of times.
	Received(w Wire, p []byte)
	// Write encodes p, all of it or nothing (ErrFull). It asks w.Room before it encodes, because what it has
	// encoded must be sent.
	Write(w Wire, p []byte) (int, error)
	// CloseWrite queues what ends the layer's stream; the FIN follows it.
	CloseWrite(w Wire) error
	// Closed says what an end means: it is asked with nil at the peer's FIN and with the error of a broken connection.
	// Truncation becomes io.ErrUnexpectedEOF.
	Closed(err error) error
	// Detach gives the layer's view of a connection that leaves the engine, and the plaintext not yet delivered.
	Detach(raw net.Conn, unread []byte) (net.Conn, []byte)
}

// A Wire is a Layer's access to the socket and to the handler.
type Wire struct {
	c      *Conn
	locked bool // called from Write or CloseWrite, which hold the conn's lock
}

// Conn is the conn the layer serves.
func (w Wire) Conn() *Conn { return w.c }

// Room is how many encoded bytes Write may queue without passing the conn's limit. An empty queue has room for
// a whole Config.MaxWrite, and as much again for what encoding adds.
func (w Wire) Room() int {
	queued := w.c.queued.Load()
	if queued == 0 {
		return 2 * w.c.loop.engine.cfg.MaxWrite
	}
	if !w.locked {
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
	}
	return max(0, int(int64(w.c.limit)-queued))
}

// Write queues encoded bytes for the socket. It is never refused for want of room: see Room.
func (w Wire) Write(p []byte) (int, error) {
	if w.locked {
		return w.queue(p)
	}
	w.c.mu.Lock()
	n, err := w.queue(p)
	return n, w.c.unlockAndWake(err)
}

func (w Wire) queue(p []byte) (int, error) {
	if w.c.asked&(wantAbort|gone) != 0 {
		return 0, ErrClosed
	}
	w.c.output().Append(p)
	w.c.queued.Add(int64(len(p)))
	return len(p), nil
}

// Deliver hands decoded bytes to the handler, or keeps a copy while the conn is paused. p need only be valid during the
// call. From Layer.Received only.
func (w Wire) Deliver(p []byte) { w.c.loop.deliver(w.c, p) }

// End says that the peer has ended the layer's stream in order (close_notify). From Layer.Received only.
func (w Wire) End() { w.c.loop.peerEnded(w.c) }

// Fail aborts the conn with err, after what is queued has been tried once. From Layer.Received only.
func (w Wire) Fail(err error) {
	w.c.mu.Lock()
	out := w.c.takeOutput()
	w.c.mu.Unlock()
	w.c.loop.send(w.c, out)
	w.c.Abort(err)
}
