package myriad

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/myriad-go/myriad/buf"
)

// This file runs a conn's layer: it decodes what comes, encodes what leaves, and ends its stream.

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

func (l *Loop) callTruncated(c *Conn, err error) {
	switch {
	case c.closeAsked(): // what is queued is still sent
	case c.can&canTruncate == 0:
		Wire{c, false}.Fail(err)
	default:
		call := l.calls(c)
		defer l.returned(c, &call)
		c.handler.(TruncatedEnder).Truncated(c, err)
		call.returned = true
	}
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
