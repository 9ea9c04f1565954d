package websocket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
)

// partBytes is how much of a message a part has, in bytes: with its header it fits a block of 32
// KiB.
const partBytes = 32<<10 - maxHeader

// A messageWriter is the message that NextWriter writes.
type messageWriter struct {
	c     *Conn
	op    Op        // the message's
	begun bool      // the connection's data frames are this message's
	sent  bool      // a part of it
	part  []byte    // not sent yet, if the message is not compressed
	d     *deflater // if it is; its out has not been sent yet
	err   error     // why nothing more can be written
}

var errWriterClosed = fmt.Errorf("websocket: the message has been closed: %w", io.ErrClosedPipe)

// Write adds to the message. With an error, bytes that were taken may have been sent.
func (w *messageWriter) Write(p []byte) (n int, err error) {
	for w.err == nil && n < len(p) {
		if len(w.pending()) >= partBytes {
			w.advance()
			continue
		}
		n += w.take(p[n:])
	}
	if n == len(p) {
		return n, nil
	}
	return n, w.err
}

// pending is what may be sent.
func (w *messageWriter) pending() []byte {
	if w.d != nil {
		return w.d.out
	}
	return w.part
}

// take adds some of p, which is not empty.
func (w *messageWriter) take(p []byte) int {
	if w.d == nil {
		p = p[:min(len(p), partBytes-len(w.part))]
		w.part = append(w.part, p...)
		return len(p)
	}
	p = p[:min(len(p), partBytes)]
	w.deflate(p)
	return len(p)
}

func (w *messageWriter) deflate(p []byte) {
	_, _ = w.d.w.Write(p) // our Write does not fail
	if c := w.c; c.reader.rules.terms.outTakeover {
		c.mu.Lock()
		c.contexts().sent(p, c.reader.rules)
		c.mu.Unlock()
	}
}

// advance sends a part, or has the message begin: then compression may make a part of more.
func (w *messageWriter) advance() {
	if !w.begun {
		w.begin()
		return
	}
	w.send(w.pending()[:partBytes], false)
}

// begin makes the connection's data frames this message's when there is no other one.
func (w *messageWriter) begin() {
	c := w.c
	err := c.write(outgoing{step: func() error {
		switch {
		case !c.end.writable():
			return errClosing
		case c.blocked():
			return myriad.ErrFull
		}
		c.needCold().parts = partsOpen
		return nil
	}})
	if err != nil {
		w.err = err
		return
	}
	w.begun = true
	if !c.reader.rules.packs(len(w.part)) {
		return
	}
	terms := c.reader.rules.terms
	w.d = getDeflater(c.settings().packing.level, terms.outBits)
	w.d.out = w.d.out[:0]
	var window []byte
	if terms.outTakeover {
		c.mu.Lock()
		window = c.contexts().out
		c.mu.Unlock()
	}
	w.d.w.ResetDict(w.d, window)
	w.deflate(w.part)
	w.part = nil
}

// send sends p, which is the beginning of what is pending.
func (w *messageWriter) send(p []byte, last bool) {
	c := w.c
	h := frameHeader{fin: last, rsv1: w.d != nil && !w.sent, op: w.op}
	if w.sent {
		h.op = opContinuation
	}
	b, err := c.settings().encode(h, p)
	if err == nil {
		err = c.write(outgoing{step: func() error { return w.sendPart(b, last) }})
		b.Release()
	}
	if err != nil {
		w.fail(err)
		return
	}
	w.sent = true
	if w.d != nil {
		w.d.out = slices.Delete(w.d.out, 0, len(p))
	} else {
		w.part = w.part[:0]
	}
}

// sendPart is called under Conn.mu.
func (w *messageWriter) sendPart(b *buf.Block, last bool) error {
	c := w.c
	err := c.send(b.Retain(), copied)
	if err != nil || !last {
		return err
	}
	c.needCold().parts = partsOver
	c.slow().Wake()
	if c.nc != nil {
		c.nc.Notify() // the loop sends what has waited, as when there is room again
	} else {
		c.advance()
	}
	return nil
}

// fail ends the connection, because the message cannot be completed, unless it is ending already.
func (w *messageWriter) fail(err error) {
	w.end(err)
	if errors.Is(err, net.ErrClosed) {
		return
	}
	code, reason := StatusInternalError, "a message was cut"
	if errors.Is(err, myriad.ErrFull) && !errors.Is(err, myriad.ErrOnLoop) {
		code, reason = w.c.settings().overflowStatus, tooSlow
	}
	w.c.end.fail(w.c, code, reason, fmt.Errorf("%w: %w", err, &CloseError{Code: code, Reason: reason}))
}

func (w *messageWriter) end(err error) {
	w.err, w.part = err, nil
	if w.d != nil {
		w.d.put()
		w.d = nil
	}
}

// Close ends the message.
func (w *messageWriter) Close() error {
	switch {
	case w.err != nil:
		return w.err
	case !w.begun:
		p := w.part
		w.end(errWriterClosed)
		return w.c.write(outgoing{op: w.op, p: p})
	case w.d != nil:
		_ = w.d.w.Flush()
		w.d.out = bytes.TrimSuffix(w.d.out, []byte(flushTail))
	}
	for w.err == nil && len(w.pending()) > partBytes {
		w.send(w.pending()[:partBytes], false)
	}
	if w.err == nil {
		w.send(w.pending(), true)
	}
	if w.err != nil {
		return w.err
	}
	w.end(errWriterClosed)
	return nil
}
