package myriad

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// This file sends files: Conn.WriteFile queues them; all that follows runs on the loop.

// maxFiles is how many files may wait on one conn, besides the one that is being sent. Then
// WriteFile fails with ErrFull. Each file holds a descriptor that MaxConns does not count.
const maxFiles = 1

// fileSlice is how much of a file is read and encoded at a time under a Layer.
const fileSlice = 64 << 10

// slicesPerTurn is how many of those one conn may encode before the others have their turn.
const slicesPerTurn = 4

// A fileRun is a part of a file that waits in the output.
type fileRun struct {
	// bytes of Conn.out that go between it and the file before; under a layer those were encoded
	// before, so 0
	before int64
	f      driver.File
	off, n int64
}

// A fileQueue is a conn's files. It is the loop's, except where it says otherwise.
type fileQueue struct {
	files    []fileRun // guarded by Conn.mu: what WriteFile has queued, in order
	ahead    int64     // bytes that the driver sends before the file it has
	fileLeft int64     // bytes of that file
	sending  bool      // it has one
}

// WriteFile queues n bytes of f from off on, after everything written before; f may be closed at
// once. The kernel sends them from its page cache (sendfile); under a Layer they are read and
// encoded in slices as room comes. The bytes do not count as Queued, but ErrFull is returned while
// another file waits for its turn. A file that turns out shorter aborts the conn, because its peer
// was promised more. Any goroutine; the read from disk may hold the loop up.
func (c *Conn) WriteFile(f *os.File, off, n int64) error {
	if off < 0 || n < 0 {
		return fmt.Errorf("myriad: WriteFile of %s: offset %d and length %d must not be negative", f.Name(), off, n)
	}
	dup, err := c.loop.engine.sys.Duplicate(f)
	if err != nil {
		return fmt.Errorf("myriad: WriteFile: %w", err)
	}
	c.mu.Lock()
	if err = c.writeFile(dup, off, n); err != nil {
		dup.Close()
	}
	return c.unlockAndWake(err)
}

func (c *Conn) writeFile(f driver.File, off, n int64) error {
	if c.asked&(wantFIN|wantClose|wantAbort|gone) != 0 {
		return ErrClosed
	}
	if n == 0 {
		return f.Close()
	}
	x := c.more()
	if len(x.files) >= maxFiles {
		c.asked |= wantRoom
		c.loop.stats.full.Add(1)
		return ErrFull
	}
	before := int64(0)
	if c.out != nil && x.layer == nil {
		before = int64(c.out.Len())
		for _, r := range x.files {
			before -= r.before
		}
	}
	x.files = append(x.files, fileRun{before, f, off, n})
	return nil
}

// filesFull reports whether a call of WriteFile or Write would be refused because files wait. mu is
// held.
func (c *Conn) filesFull() bool {
	x := c.extra.Load()
	return x != nil && len(x.files) >= maxFiles || c.fileBlocks()
}

// fileBlocks reports whether bytes must wait for a file that is still to be encoded: a layer's
// stream has one order.
func (c *Conn) fileBlocks() bool {
	x := c.extra.Load()
	return x != nil && x.layer != nil && len(x.files) > 0
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

// beforeFile takes of out what goes before the next file, if one waits. Conn.mu is held.
func (x *extra) beforeFile(out *buf.Chain) (front *buf.Chain, waits bool) {
	if x.sending {
		return nil, true // a driver takes nothing behind a file
	}
	if x.layer != nil || len(x.files) == 0 {
		return nil, false
	}
	n := int(x.files[0].before)
	x.files[0].before = 0
	if n >= out.Len() {
		return nil, false
	}
	return cutFront(out, n), true
}

func cutFront(out *buf.Chain, n int) *buf.Chain {
	if n == 0 {
		return nil
	}
	front := buf.GetChain()
	out.Cut(n, front)
	return front
}
