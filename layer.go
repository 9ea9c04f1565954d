package myriad

import (
	"errors"
	"fmt"
	"math"
	"net"

	"github.com/myriad-go/myriad/buf"
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
	// yet delivered. For one that ends in the engine it is not called, but a method Gone, if there
	// is one, on the loop. Of the others only Closed may be called behind that.
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
	if x := w.c.cold.Load(); w.c.asked&(wantAbort|gone) != 0 || x == nil || x.layerEnded {
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
		w.c.makeCold().unencoded += int64(n)
		w.c.queued.Add(int64(n))
	}
}

// Deliver hands decoded bytes to the handler, or keeps a copy while the conn is paused. p need only
// be valid during the call. On the loop only: from Received, or from a function given to
// Loop.Later.
func (w Wire) Deliver(p []byte) { w.c.loop.settler.deliver(w.c, p) }

// End says that the peer has ended the layer's stream in order (close_notify). On the loop only.
func (w Wire) End() { w.c.loop.settler.peerEnded(w.c) }

// Truncated says that the peer's FIN came before the end of the layer's stream; err, which is not
// nil, says why. A handler that is a TruncatedEnder is called once it has had all bytes, and may
// write on; for others the conn ends as by Fail. Closed gets err in either case. On the loop only.
func (w Wire) Truncated(err error) {
	if !w.c.is(peerEnded) {
		w.c.ownCold().cut = err
	}
	w.c.loop.settler.peerEnded(w.c)
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
	x := c.makeCold()
	c.queued.Add(-x.unencoded)
	x.unencoded, x.layerEnded = 0, true
	if c.asked&wantClose == 0 {
		c.asked |= wantClose
		x.reason = err
	}
	_ = c.unlockAndWake(nil)
}

// layering is what a conn with a layer has. It is the loop's, except where it says otherwise.
type layering struct {
	layer      Layer
	buffered   BufferedLayer // the layer, if it is one
	unencoded  int64         // guarded by Conn.mu: bytes that the layer has taken and not encoded, part of queued
	layerEnded bool          // guarded by Conn.mu: Layer.CloseWrite was called
	fin        bool          // the peer's FIN has come, and the layer judges by itself what it means
	cut        error         // it came before the end of the layer's stream
}

// encodeFromNowOn is Conn.SetLayer.
func (x *cold) encodeFromNowOn(c *Conn, l Layer) {
	c.mu.Lock()
	x.setLayer(l)
	early, files := c.out, len(x.files)
	c.out = nil
	err := error(nil)
	if early != nil {
		c.queued.Add(-int64(early.Len()))
		p := early.AppendTo(nil)
		err = x.encode(c, func(w Wire) error { _, err := l.Write(w, p); return err })
		early.Put()
	}
	c.mu.Unlock()
	if err == nil && files > 0 {
		err = ErrUnsupported
	}
	if err != nil {
		c.Abort(fmt.Errorf("myriad: SetLayer after a write that it cannot encode: %w", err))
	}
}

func (x *cold) setLayer(l Layer) {
	x.layer = l
	x.buffered, _ = l.(BufferedLayer)
}

// encodeOwed has the layer encode what it has taken, while not too much is encoded already; a
// bounded number of slices in one turn.
func (x *cold) encodeOwed(c *Conn) {
	if c.is(served) {
		return
	}
	for range slicesPerTurn {
		c.mu.Lock()
		more := false
		if x.unencoded > 0 && c.queued.Load()-x.unencoded <= int64(c.limit)/2 {
			_ = x.encodeOnLoop(c, func(w Wire) error { more = x.buffered.Encode(w); return nil })
		}
		out := c.takeOutput()
		c.mu.Unlock()
		c.send(out)
		if !more {
			return
		}
	}
	c.loop.settler.revisitServed(c)
}

// endLayer sends the layer's own end, once, after everything else.
func (x *cold) endLayer(c *Conn) {
	c.mu.Lock()
	if !x.layerEnded {
		_ = x.encodeOnLoop(c, x.lastOf(c)) // a layer that cannot end in order has nothing to queue
		x.layerEnded = true
	}
	out := c.takeOutput()
	c.mu.Unlock()
	c.send(out)
}

// lastOf is what ends the stream of the layer. mu is held.
func (x *cold) lastOf(c *Conn) func(Wire) error {
	if c.asked&short == 0 {
		return x.layer.CloseWrite
	}
	if closer, ok := x.layer.(interface{ CloseTruncated(w Wire) error }); ok {
		return closer.CloseTruncated
	}
	return func(Wire) error { return nil }
}

// decodeRest gives a layer that Opened has set what was received before: rest, what was held, the
// FIN. It returns false if there is no layer, or nothing for it.
func (x *cold) decodeRest(c *Conn, rest []byte) bool {
	l, ended := c.loop, c.is(peerEnded)
	if x.layer == nil || len(rest) == 0 && !ended && x.held.Len() == 0 {
		return false
	}
	c.status &^= peerEnded
	x.endHeld = false
	rest = x.held.AppendTo(rest)
	x.held.Release()
	l.calls.inform(c, nil)
	l.calls.switchHandlers() // the layer may need the handler that Opened has named
	if len(rest) > 0 && !c.closeAsked() {
		l.calls.decode(c, rest)
		l.calls.switchHandlers()
	}
	if ended && !c.closeAsked() {
		l.settler.wireEnded(c)
	}
	return true
}

// write writes through the layer. mu is held.
func (x *cold) write(c *Conn, p []byte) (n int, err error) {
	err = x.encode(c, func(w Wire) (err error) { n, err = x.layer.Write(w, p); return err })
	if errors.Is(err, ErrFull) {
		c.oweRoom()
	}
	return n, err
}

// writeBlocks writes through the layer, which takes bytes: several blocks are joined so that it is
// all or nothing.
func (x *cold) writeBlocks(c *Conn, n int, blocks []*buf.Block) error {
	defer releaseAll(blocks)
	if len(blocks) == 1 {
		_, err := c.write(blocks[0].Bytes())
		return err
	}
	if err := c.admit(n); err != nil { // before they are copied
		return err
	}
	whole := buf.Get(n)
	defer whole.Release()
	for _, b := range blocks {
		whole.Append(b.Bytes())
	}
	_, err := c.write(whole.Bytes())
	return err
}

// mustEncode reports whether the layer has something to encode: until then it must go on receiving,
// closing or not.
func (x *cold) mustEncode(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return x.buffered != nil && x.unencoded > 0
}
