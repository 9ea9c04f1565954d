package myriad

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime/debug"

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

// layering is what a conn with a layer has. It is the loop's, except where it says otherwise.
type layering struct {
	layer      Layer
	buffered   BufferedLayer // the layer, if it is one
	unencoded  int64         // guarded by Conn.mu: bytes that the layer has taken and not encoded, part of queued
	layerEnded bool          // guarded by Conn.mu: Layer.CloseWrite was called
	fin        bool          // the peer's FIN has come, and the layer judges by itself what it means
	cut        error         // it came before the end of the layer's stream
}

// WireFor is the access of l, which must be the conn's layer, for what it does outside of its
// methods: a handshake on another goroutine. Any goroutine.
func (c *Conn) WireFor(l Layer) Wire {
	if c.layer() != l {
		panic("myriad: WireFor of what is not the conn's layer")
	}
	return Wire{c, false}
}

// Layer is what SetLayer has set, or nil. Any goroutine, once the handler has been opened.
func (c *Conn) Layer() Layer { return c.layer() }

// SetLayer puts l between the socket and the handler, in Opened: that of the first handler, or of
// one that SetHandler has set on a conn without a layer. What was received before, and not
// delivered, goes through l: the rest that SetHandler was given, too. What other goroutines have
// written to an adopted conn by then is encoded. If l does not take it, or if it contains a file,
// the conn is aborted. On the loop only.
func (c *Conn) SetLayer(l Layer) {
	c.mu.Lock()
	x := c.more()
	x.setLayer(l)
	early, files := c.out, len(x.files)
	c.out = nil
	err := error(nil)
	if early != nil {
		c.queued.Add(-int64(early.Len()))
		p := early.AppendTo(nil)
		err = c.encode(func(w Wire) error { _, err := l.Write(w, p); return err })
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

func (x *extra) setLayer(l Layer) {
	x.layer = l
	x.buffered, _ = l.(BufferedLayer)
}

func (c *Conn) layer() Layer {
	if x := c.extra.Load(); x != nil {
		return x.layer
	}
	return nil
}

// truncation is why the peer's stream has no end of its own; nil: it has one, or has not ended.
func (c *Conn) truncation() error {
	if x := c.extra.Load(); x != nil {
		return x.cut
	}
	return nil
}

// encode calls one of the layer's methods that run under the conn's lock. If it panics the conn is
// aborted, with what encode returns; if it ends its goroutine the lock is released here, because no
// caller will do it.
func (c *Conn) encode(f func(w Wire) error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		err = c.layerFailed(v)
		if v == nil {
			c.mu.Unlock()
		}
	}()
	err = f(Wire{c, true})
	returned = true
	return err
}

// layerFailed aborts the conn, as Abort does. mu is held.
func (c *Conn) layerFailed(v any) error {
	x := c.more()
	err := fmt.Errorf("myriad: panic in %T: %v", x.layer, v)
	c.loop.engine.cfg.Logger.Error("myriad: panic in a layer; its connection is ended",
		"layer", fmt.Sprintf("%T", x.layer), "remote", c.remote.String(), "panic", v, "stack", string(debug.Stack()))
	if c.asked&(wantAbort|gone) == 0 {
		c.asked |= wantAbort
		if x.reason == nil {
			x.reason = err
		}
		c.loop.wakeIf(c.link())
	}
	return err
}

// encode is Conn.encode where no callback notices that the goroutine ends.
func (l *Loop) encode(c *Conn, f func(w Wire) error) error {
	returned := false
	defer func() {
		if !returned {
			l.exit()
			l.revisit(c)
		}
	}()
	err := c.encode(f)
	returned = true
	return err
}

// encodeOwed has the layer encode what it has taken, while not too much is encoded already; a
// bounded number of slices in one turn.
func (l *Loop) encodeOwed(c *Conn, x *extra) {
	if c.is(served) {
		return
	}
	for range slicesPerTurn {
		c.mu.Lock()
		more := false
		if x.unencoded > 0 && c.queued.Load()-x.unencoded <= int64(c.limit)/2 {
			_ = l.encode(c, func(w Wire) error { more = x.buffered.Encode(w); return nil })
		}
		out := c.takeOutput()
		c.mu.Unlock()
		l.send(c, out)
		if !more {
			return
		}
	}
	l.revisitServed(c)
}

// endLayer sends the layer's own end, once, after everything else.
func (l *Loop) endLayer(c *Conn) {
	x := c.extra.Load()
	if x == nil || x.layer == nil {
		return
	}
	c.mu.Lock()
	if !x.layerEnded {
		_ = l.encode(c, c.lastOf(x.layer)) // a layer that cannot end in order has nothing to queue
		x.layerEnded = true
	}
	out := c.takeOutput()
	c.mu.Unlock()
	l.send(c, out)
}

// lastOf is what ends the stream of a layer. mu is held.
func (c *Conn) lastOf(l Layer) func(Wire) error {
	if c.asked&short == 0 {
		return l.CloseWrite
	}
	if closer, ok := l.(interface{ CloseTruncated(w Wire) error }); ok {
		return closer.CloseTruncated
	}
	return func(Wire) error { return nil }
}

func (l *Loop) decode(c *Conn, p []byte) {
	call := call{began: untimed} // the handler's part in it is timed
	defer l.returned(c, &call)
	c.layer().Received(Wire{c, false}, p)
	call.returned = true
}

// layerEnded is the peer's FIN for a layer that judges it by itself.
func (l *Loop) layerEnded(c *Conn, x *extra) {
	call := call{began: untimed}
	defer l.returned(c, &call)
	x.buffered.Ended(Wire{c, false})
	call.returned = true
}

// hasInput reports whether something was received, and not delivered, before a layer was set.
func (l *Loop) hasInput(c *Conn, rest []byte) bool {
	return len(rest) > 0 || c.is(peerEnded) || c.extra.Load().held.Len() > 0
}

// decodeRest gives a layer that Opened has set what was received before: rest, what was held, the
// FIN. It returns false if there is no layer, or nothing for it.
func (l *Loop) decodeRest(c *Conn, rest []byte) bool {
	if c.layer() == nil || !l.hasInput(c, rest) {
		return false
	}
	x, ended := c.extra.Load(), c.is(peerEnded)
	c.status &^= peerEnded
	x.endHeld = false
	rest = x.held.AppendTo(rest)
	x.held.Release()
	l.inform(c, nil)
	l.switchHandlers() // the layer may need the handler that Opened has named
	if len(rest) > 0 && !c.closeAsked() {
		l.decode(c, rest)
		l.switchHandlers()
	}
	if ended && !c.closeAsked() {
		l.wireEnded(c)
	}
	return true
}

// meaning is what the layer makes of an end, or that end itself if it panics.
func (l *Loop) meaning(c *Conn, end error) (err error) {
	call := call{began: untimed}
	defer l.returned(c, &call)
	err = end
	err = c.layer().Closed(end)
	call.returned = true
	return err
}

// mustEncode reports whether the layer has something to encode: until then it must go on receiving,
// closing or not.
func (c *Conn) mustEncode() bool {
	x := c.extra.Load()
	if x == nil || x.buffered == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return x.unencoded > 0
}

// wireEnded is the peer's FIN. The conn is current, or another one is whose callback has led to
// this.
func (l *Loop) wireEnded(c *Conn) {
	x := c.extra.Load()
	switch {
	case x == nil || x.layer == nil || c.is(peerEnded) || c.phase() != open:
	case x.buffered != nil:
		x.fin = true
		l.layerEnded(c, x)
		return
	default:
		x.cut = l.meaning(c, nil)
	}
	if b := c.bridged(); b != nil && c.phase() == open {
		switch err := b.broken(); {
		case errors.Is(err, io.ErrUnexpectedEOF): // of a tls.Conn: a FIN in the middle of a record
			c.ownExtra().cut = err
		case err != nil:
			c.Abort(err)
		}
	}
	l.peerEnded(c)
}

// writeThrough writes through the layer. mu is held.
func (c *Conn) writeThrough(l Layer, p []byte) (n int, err error) {
	err = c.encode(func(w Wire) (err error) { n, err = l.Write(w, p); return err })
	if errors.Is(err, ErrFull) {
		c.oweRoom()
	}
	return n, err
}

// encodeBlocks writes through the layer, which takes bytes: several blocks are joined so that it is
// all or nothing.
func (c *Conn) encodeBlocks(n int, blocks []*buf.Block) error {
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
