package myriad

// A Handler is what a conn currently speaks. Calls run on the conn's loop, one at a time, never
// from inside a Conn method, and must not block. Opened, Received*, Closed exactly once; after
// Close or Abort only Closed follows. If a handler panics, or ends the goroutine (runtime.Goexit),
// its conn is aborted unless it was closed, and that is logged. All other conns of the loop go on.
type Handler interface {
	Opened(c *Conn)
	// Received hands over what has arrived. p is valid until return; cap(p) == len(p).
	Received(c *Conn, p []byte)
	// Closed is the last call. err is nil if both sides ended in order or the conn was closed by
	// Close; else it is Abort's argument, or what broke the connection. If the peer's stream was
	// truncated, err is that of Truncated, also after Close.
	Closed(c *Conn, err error)
}

// The optional interfaces of a Handler are looked up once per SetHandler.

// An Ender is called at the peer's FIN or close_notify; writing still works. Without it the conn is
// closed: what has been written is sent, and later writes fail. So a handler that answers from
// other goroutines, or from inline tasks, needs the method, and closes the conn behind its answers.
type Ender interface{ Ended(c *Conn) }

// A TruncatedEnder is called, in place of Ended, when the peer's FIN came without the end of the
// layer's stream: with TLS, without a close_notify. err says so: io.ErrUnexpectedEOF for TLS. Bytes
// at the end of the stream may be missing. So only a protocol whose messages show their own end may
// answer the complete ones; writing still works. Without the method the conn ends as by
// Wire.Fail(err): what is queued is sent, and Closed is called with err.
type TruncatedEnder interface{ Truncated(c *Conn, err error) }

// A Drainer is called once after each ErrFull, when the queue is below its low mark (half the
// limit) again.
type Drainer interface{ Drained(c *Conn) }

// A Timed handler is called when the conn's one timer fires. Without it the conn is aborted with
// os.ErrDeadlineExceeded.
type Timed interface{ Expired(c *Conn) }

// A Notified handler is called after Conn.Notify, which any goroutine may call: once for any number
// of calls before it.
type Notified interface{ Notified(c *Conn) }

// A Stopper is called when the engine shuts down. The handler ends its protocol and closes the
// conn, now or when its work is done. Without it the conn is closed. What is not closed when
// Shutdown's context ends is aborted.
type Stopper interface{ Stopping(c *Conn) }

// abilities are the optional interfaces a handler has, as bits in the conn.
type abilities uint8

const (
	canEnd abilities = 1 << iota
	canDrain
	canExpire
	canNotify
	canStop
	canTruncate
)

func abilitiesOf(h Handler) (a abilities) {
	if _, ok := h.(Ender); ok {
		a |= canEnd
	}
	if _, ok := h.(Drainer); ok {
		a |= canDrain
	}
	if _, ok := h.(Timed); ok {
		a |= canExpire
	}
	if _, ok := h.(Notified); ok {
		a |= canNotify
	}
	if _, ok := h.(Stopper); ok {
		a |= canStop
	}
	if _, ok := h.(TruncatedEnder); ok {
		a |= canTruncate
	}
	return a
}
