package myriad

import (
	"errors"
	"fmt"
	"io"

	"github.com/myriad-go/myriad/buf"
)

// This file is the way out: from a conn's queue to the driver. All of it runs on the loop.

// flush gives the driver what is queued and carries out what was asked. It returns the requests that it found.
func (l *Loop) flush(c *Conn) request {
	c.mu.Lock()
	asked := c.asked
	if asked&gone != 0 || c.is(ending) {
		c.mu.Unlock()
		return 0
	}
	c.asked &^= wantNotify | wantDeadline
	due := c.due
	if asked&(wantFIN|wantClose) != 0 && asked&wantAbort == 0 {
		c.endLayer()
	}
	if asked&wantAbort != 0 {
		c.mu.Unlock()
		l.abort(c)
		return 0
	}
	out := c.takeOutput()
	c.mu.Unlock()
	if asked&wantDeadline != 0 {
		l.setDeadline(c, due)
	}
	l.send(c, out)
	if x := c.extra.Load(); x != nil {
		l.sendFiles(c, x)
	}
	l.advance(c, asked)
	return asked
}

// takeOutput takes what may be sent now: everything, or what goes before the first file. mu is held.
func (c *Conn) takeOutput() *buf.Chain {
	out := c.out
	x := c.extra.Load()
	switch {
	case x == nil || out == nil:
	case x.sending:
		return nil // a driver takes nothing behind a file
	case len(x.files) > 0 && x.files[0].before < int64(out.Len()):
		front := buf.GetChain()
		out.Cut(int(x.files[0].before), front)
		x.files[0].before = 0
		return front
	}
	c.out = nil
	return out
}

// endLayer queues the layer's own end, once. mu is held.
func (c *Conn) endLayer() {
	if x := c.extra.Load(); x != nil && x.layer != nil && !x.layerEnded {
		x.layerEnded = true
		_ = x.layer.CloseWrite(Wire{c, true}) // a layer that cannot end in order has nothing to queue
	}
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
	l.stats.bytesOut.Add(uint64(n - queued))
	c.queued.Add(queued - n)
}

// sendFiles continues with the first file that waits. Without a layer the driver sends it; it takes nothing else until then.
func (l *Loop) sendFiles(c *Conn, x *extra) {
	switch {
	case x.sending || !c.fileIsNext():
	case x.layer != nil:
		l.encodeFile(c, x)
	default:
		l.startFile(c, x)
	}
}

func (c *Conn) fileIsNext() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.extra.Load()
	return len(x.files) > 0 && x.files[0].before == 0
}

func (l *Loop) startFile(c *Conn, x *extra) {
	c.mu.Lock()
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
		return
	}
	l.stats.bytesOut.Add(uint64(run.n - queued))
	x.fileLeft = queued
	x.sending = queued > 0
}

// fileSent books what has gone of the bytes before a file, then of the file.
func (x *extra) fileSent(c *Conn, n int64) {
	ahead := min(n, x.ahead)
	x.ahead -= ahead
	c.queued.Add(-ahead)
	x.fileLeft -= n - ahead
	x.sending = x.fileLeft > 0
}

// encodeFile reads and encodes slices while the queue has room. Nobody else writes meanwhile: Write refuses while a file waits
// before a layer.
func (l *Loop) encodeFile(c *Conn, x *extra) {
	slice := buf.Get(fileSlice)
	defer slice.Release()
	for {
		c.mu.Lock()
		if len(x.files) == 0 || c.queued.Load() > int64(c.limit)/2 {
			c.mu.Unlock()
			return
		}
		run := &x.files[0]
		c.mu.Unlock()
		n, err := run.f.ReadAt(slice.Extend()[:min(run.n, fileSlice)], run.off)
		if n == 0 {
			c.Abort(fmt.Errorf("myriad: WriteFile: %d bytes missing at offset %d: %w", run.n, run.off, errors.Join(err, io.ErrUnexpectedEOF)))
			return
		}
		l.encodeSlice(c, x, slice.Extend()[:n])
	}
}

func (l *Loop) encodeSlice(c *Conn, x *extra, p []byte) {
	c.mu.Lock()
	run := &x.files[0]
	_, err := x.layer.Write(Wire{c, true}, p)
	run.off += int64(len(p))
	run.n -= int64(len(p))
	if run.n == 0 {
		run.f.Close()
		x.files = append(x.files[:0], x.files[1:]...)
	}
	out := c.out
	c.out = nil
	c.mu.Unlock()
	if err != nil {
		c.Abort(err)
	}
	l.send(c, out)
}
