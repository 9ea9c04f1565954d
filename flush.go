package myriad

import (
	"errors"
	"fmt"
	"io"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// This file is the way out: from a conn's queue to the driver. All of it runs on the loop.

// flush gives the driver what is queued and carries out what was asked. It returns the requests
// that it found.
func (l *Loop) flush(c *Conn) request {
	c.mu.Lock()
	asked := c.asked
	if asked&gone != 0 || c.is(ending) {
		c.mu.Unlock()
		return 0
	}
	c.asked &^= wantNotify | wantDeadline
	due := c.due
	if asked&wantAbort != 0 {
		c.mu.Unlock()
		l.abort(c)
		return 0
	}
	out := c.takeOutput()
	x := c.extra.Load()
	mustEncode, files := x != nil && x.unencoded > 0, x != nil && len(x.files) > 0
	c.mu.Unlock()
	if asked&wantDeadline != 0 {
		l.setDeadline(c, due)
	}
	l.send(c, out)
	if mustEncode {
		l.encodeOwed(c, x)
	}
	if files {
		l.sendFiles(c, x)
	}
	l.advance(c, asked)
	return asked
}

// Flush offers the kernel now what is queued, instead of when the callback that runs has ended.
// What Queued counts afterwards is what the kernel has refused, with drivers that ask the kernel at
// once (all but std). It reports false, and does nothing, unless the caller runs on the conn's
// loop. It looks through the stack, which takes microseconds. Any goroutine.
func (c *Conn) Flush() bool {
	l := c.loop
	if l.owner.Load() != driver.Goroutine() || whereabouts() != loopBody {
		return false
	}
	if c.id == 0 || c.is(ending|connecting) {
		return true
	}
	c.mu.Lock()
	if c.asked&(wantAbort|gone) != 0 {
		c.mu.Unlock()
		return true
	}
	out := c.takeOutput()
	x := c.extra.Load()
	mustEncode := x != nil && x.unencoded > 0
	c.mu.Unlock()
	l.send(c, out)
	if mustEncode {
		l.encodeOwed(c, x)
	}
	return true
}

// Unflushed is how many of the bytes that Queued counts have not been offered to the kernel yet.
// Any goroutine.
func (c *Conn) Unflushed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	if c.out != nil {
		n = c.out.Len()
	}
	if x := c.extra.Load(); x != nil {
		n += int(x.unencoded)
	}
	return n
}

// takeOutput takes what may be sent now: everything, or what goes before the first file. mu is
// held.
func (c *Conn) takeOutput() *buf.Chain {
	out, x := c.out, c.extra.Load()
	if out == nil || x != nil && x.sending {
		return nil // a driver takes nothing behind a file
	}
	if x != nil && x.layer == nil && len(x.files) > 0 {
		n := int(x.files[0].before)
		x.files[0].before = 0
		if n < out.Len() {
			return cutFront(out, n)
		}
	}
	c.out = nil
	return out
}

func cutFront(out *buf.Chain, n int) *buf.Chain {
	if n == 0 {
		return nil
	}
	front := buf.GetChain()
	out.Cut(n, front)
	return front
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
	if cutter, ok := l.(interface{ Cut(w Wire) error }); ok {
		return cutter.Cut
	}
	return func(Wire) error { return nil }
}

func (l *Loop) setDeadline(c *Conn, due int64) {
	switch {
	case c.is(closing):
	case due == 0:
		l.wheel.Clear(c.id.Slot())
	default:
		l.wheel.Set(c.id.Slot(), due)
	}
}

func (l *Loop) send(c *Conn, out *buf.Chain) {
	if out == nil {
		return
	}
	n := int64(out.Len())
	queued := l.drv.Send(c.id, out)
	out.Put()
	l.stats.writes.Add(1)
	l.stats.given.Add(uint64(n))
	l.stats.bytesOut.Add(uint64(n - queued))
	c.queued.Add(queued - n)
}

// sendFiles continues with the files that wait. Without a layer the driver sends them; it takes
// nothing else until one is sent.
func (l *Loop) sendFiles(c *Conn, x *extra) {
	if x.layer != nil {
		l.encodeFiles(c, x)
		return
	}
	for !x.sending && l.startFile(c, x) {
		if !x.sending {
			c.mu.Lock()
			out := c.takeOutput()
			c.mu.Unlock()
			l.send(c, out)
		}
	}
}

// startFile gives the driver the next file, if what goes before it has been given.
func (l *Loop) startFile(c *Conn, x *extra) bool {
	c.mu.Lock()
	if len(x.files) == 0 || x.files[0].before > 0 { // those came since takeOutput, and the conn is linked
		c.mu.Unlock()
		return false
	}
	run := x.files[0]
	x.files = append(x.files[:0], x.files[1:]...)
	x.ahead = c.queued.Load()
	if c.out != nil {
		x.ahead -= int64(c.out.Len())
	}
	c.mu.Unlock()
	queued, err := l.drv.SendFile(c.id, run.f, run.off, run.n)
	if err != nil {
		c.Abort(err)
		return false
	}
	l.stats.given.Add(uint64(run.n))
	l.stats.bytesOut.Add(uint64(run.n - queued))
	x.fileLeft = queued
	x.sending = queued > 0
	return true
}

// fileSent books what has gone of the bytes before a file, then of the file.
func (x *extra) fileSent(c *Conn, n int64) {
	ahead := min(n, x.ahead)
	x.ahead -= ahead
	c.queued.Add(-ahead)
	x.fileLeft -= n - ahead
	x.sending = x.fileLeft > 0
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

// encodeFiles reads and encodes slices while the queue has room, a bounded number in one turn. No
// other goroutine writes meanwhile: Write refuses while a file waits before a layer.
func (l *Loop) encodeFiles(c *Conn, x *extra) {
	if c.is(served) {
		return
	}
	var slice *buf.Block
	for range slicesPerTurn {
		c.mu.Lock()
		if len(x.files) == 0 || c.queued.Load() > int64(c.limit)/2 {
			c.mu.Unlock()
			break
		}
		run := x.files[0]
		c.mu.Unlock()
		if slice == nil {
			slice = buf.Get(min(fileSlice, l.engine.cfg.MaxWrite))
			defer slice.Release()
		}
		p := slice.Extend()
		n, err := run.f.ReadAt(p[:min(run.n, int64(len(p)))], run.off)
		if n == 0 {
			c.Abort(fmt.Errorf("myriad: WriteFile: %d bytes missing at offset %d: %w", run.n, run.off,
				errors.Join(err, io.ErrUnexpectedEOF)))
			return
		}
		if !l.encodeSlice(c, x, p[:n]) {
			return
		}
	}
	if slice != nil {
		l.revisitServed(c)
	}
}

// encodeSlice reports whether the layer took the slice. One that found no room is read again when
// there is some.
func (l *Loop) encodeSlice(c *Conn, x *extra, p []byte) bool {
	c.mu.Lock()
	err := l.encode(c, func(w Wire) error { _, err := x.layer.Write(w, p); return err })
	if err == nil {
		run := &x.files[0]
		run.off += int64(len(p))
		run.n -= int64(len(p))
		if run.n == 0 {
			run.f.Close()
			x.files = append(x.files[:0], x.files[1:]...)
		}
	}
	out := c.takeOutput()
	c.mu.Unlock()
	if err != nil && !errors.Is(err, ErrFull) {
		c.Abort(err)
	}
	l.send(c, out)
	return err == nil
}
