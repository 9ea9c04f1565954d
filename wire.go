package myriad

import "math"

// This file is what a layer can do: its access to the socket and to the handler.

// Conn is the conn the layer serves. Any goroutine.
func (w Wire) Conn() *Conn { return w.c }

// Room is how many encoded bytes Write may queue without passing the conn's limit. An empty queue
// has room for a whole Config.MaxWrite, and as much again for what encoding adds. Any goroutine;
// inside the layer's methods and Sync by the Wire that they are given.
func (w Wire) Room() int {
	queued := w.c.queued.Load()
	if queued == 0 {
		return int(min(2*int64(w.c.loop.engine.cfg.MaxWrite), math.MaxInt))
	}
	if !w.locked {
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
	}
	return max(0, int(int64(w.c.limit)-queued))
}

// Write queues encoded bytes for the socket. It is never refused for want of room: see Room. It
// fails with ErrClosed behind the layer's end, that is after CloseWrite or Fail. It may be called
// where Room may be.
func (w Wire) Write(p []byte) (int, error) {
	if w.locked {
		return w.queue(p)
	}
	w.c.mu.Lock()
	n, err := w.queue(p)
	return n, w.c.unlockAndWake(err)
}

func (w Wire) queue(p []byte) (int, error) {
	if x := w.c.extra.Load(); w.c.asked&(wantAbort|gone) != 0 || x == nil || x.layerEnded {
		return 0, ErrClosed
	}
	w.c.output().Append(p)
	w.c.queued.Add(int64(len(p)))
	return len(p), nil
}

// Sync calls f under the conn's lock, so that it cannot overlap with the layer's Write, and then
// has the conn settled. f may write, and must not call any method of the conn. Any goroutine, but
// not from Write, CloseWrite or Encode.
func (w Wire) Sync(f func(w Wire)) {
	w.c.mu.Lock()
	defer func() { _ = w.c.unlockAndWake(nil) }() // also if f panics
	f(Wire{w.c, true})
}

// Owe counts n more bytes (fewer, if n is negative) as queued: bytes that the layer has taken and
// not encoded. The conn's limit holds for them, and its end waits for them. From Write, Encode, and
// Sync only.
func (w Wire) Owe(n int) {
	if w.c.asked&gone == 0 {
		w.c.more().unencoded += int64(n)
		w.c.queued.Add(int64(n))
	}
}

// Deliver hands decoded bytes to the handler, or keeps a copy while the conn is paused. p need only
// be valid during the call. On the loop only: from Received, or from a function given to
// Loop.Later.
func (w Wire) Deliver(p []byte) { w.c.loop.deliver(w.c, p) }

// End says that the peer has ended the layer's stream in order (close_notify). On the loop only.
func (w Wire) End() { w.c.loop.peerEnded(w.c) }

// Truncated says that the peer's FIN came before the end of the layer's stream; err, which is not
// nil, says why. A handler that is a TruncatedEnder is called once it has had all bytes, and may
// write on; for others the conn ends as by Fail. Closed gets err in either case. On the loop only.
func (w Wire) Truncated(err error) {
	if !w.c.is(peerEnded) {
		w.c.ownExtra().cut = err
	}
	w.c.loop.peerEnded(w.c)
}

// Fail ends the conn with err. What is queued is sent, without the layer's own end after it. The
// connection is closed as by Conn.Close, so that the peer can read the layer's last message. What
// the layer has not encoded is dropped. The handler's Closed gets err. On the loop only.
func (w Wire) Fail(err error) {
	c := w.c
	c.mu.Lock()
	if c.asked&(wantAbort|gone) != 0 {
		c.mu.Unlock()
		return
	}
	x := c.more()
	c.queued.Add(-x.unencoded)
	x.unencoded, x.layerEnded = 0, true
	if c.asked&wantClose == 0 {
		c.asked |= wantClose
		x.reason = err
	}
	_ = c.unlockAndWake(nil)
}
