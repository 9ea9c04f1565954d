package myriad

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// This file is a conn's output: what callers queue, and the way from there to the driver. Write and
// its kind run on any goroutine, under the conn's lock; flush and what it calls run on the loop.

// Write queues a copy of p, all or nothing: ErrFull takes no byte. An empty queue takes any p up to
// Config.MaxWrite, so that a limit never makes a message impossible. It is sent when the callback
// that is running ends or when the loop comes to it; writes made in between leave together. Besides
// it fails with ErrTooLarge above MaxWrite, and with ErrClosed after CloseWrite, Close, Abort or
// the end of the connection. Any goroutine; never blocks.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	n, err := c.write(p)
	return n, c.unlockAndWake(err)
}

func (c *Conn) write(p []byte) (int, error) {
	if err := c.admit(len(p)); err != nil {
		return 0, err
	}
	if x := c.cold.Load(); x != nil && x.layer != nil {
		return x.write(c, p)
	}
	c.output().Append(p)
	c.queued.Add(int64(len(p)))
	return len(p), nil
}

// admit says whether n more bytes may be queued. mu is held.
func (c *Conn) admit(n int) error {
	switch queued := c.queued.Load(); {
	case c.asked&(wantFIN|wantClose|wantAbort|gone) != 0:
		return ErrClosed
	case n > c.loop.engine.cfg.MaxWrite:
		return fmt.Errorf("%w (%d bytes; the limit is %d)", ErrTooLarge, n, c.loop.engine.cfg.MaxWrite)
	case queued > 0 && queued+int64(n) > int64(c.limit) || c.fileBlocks():
		c.oweRoom()
		return ErrFull
	}
	return nil
}

// oweRoom notes that a call was refused. If that was below the low mark already, only an empty
// queue is sure to help: a Drained before that would be answered by the same call, and so on
// without end. mu is held.
func (c *Conn) oweRoom() {
	c.loop.stats.full.Add(1)
	c.asked |= wantRoom
	if c.queued.Load() <= int64(c.limit)/2 {
		c.asked |= wantEmpty
	}
}

// takeRoom takes back the debt of a Drained call if it can be paid now.
func (c *Conn) takeRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	roomy := c.roomy()
	if roomy {
		c.asked &^= wantRoom | wantEmpty
	}
	return roomy
}

// roomy reports whether what was refused has a chance now; of a conn that is being closed
// nothing has. mu is held.
func (c *Conn) roomy() bool {
	if c.asked&(wantClose|wantAbort|gone) != 0 {
		return false
	}
	if c.filesFull() {
		return false
	}
	mark := int64(c.limit) / 2
	if c.asked&wantEmpty != 0 {
		mark = 0
	}
	return c.queued.Load() <= mark
}

// unlockAndWake ends a critical section that may have given the loop work: bytes, or the debt of a
// Drained call, for which the room may have come while the call was refused.
func (c *Conn) unlockAndWake(err error) error {
	wake := (err == nil || c.asked&wantRoom != 0) && c.loop.settler.link(c)
	c.mu.Unlock()
	if wake {
		c.loop.post(workDirty)
	}
	return err
}

func (c *Conn) output() *buf.Chain {
	if c.out == nil {
		c.out = buf.GetChain()
	}
	return c.out
}

// WriteBlocks queues the blocks without copying, all or nothing like Write, and consumes one
// reference to each, also on error. A block that is queued on many conns is encoded once. Any
// goroutine; never blocks.
func (c *Conn) WriteBlocks(blocks ...*buf.Block) error {
	n := 0
	for _, b := range blocks {
		n += b.Len()
	}
	c.mu.Lock()
	return c.unlockAndWake(c.writeBlocks(n, blocks))
}

func (c *Conn) writeBlocks(n int, blocks []*buf.Block) error {
	if x := c.cold.Load(); x != nil && x.layer != nil {
		return x.writeBlocks(c, n, blocks)
	}
	if err := c.admit(n); err != nil {
		releaseAll(blocks)
		return err
	}
	out := c.output()
	for _, b := range blocks {
		out.AppendBlock(b)
	}
	c.queued.Add(int64(n))
	return nil
}

func releaseAll(blocks []*buf.Block) {
	for _, b := range blocks {
		b.Release()
	}
}

// SetWriteLimit changes the high mark of the output queue, in bytes, at most 1 GiB; 0 restores
// Config.WriteLimit. Any goroutine.
func (c *Conn) SetWriteLimit(n int) {
	if n <= 0 {
		n = c.loop.engine.cfg.WriteLimit
	}
	c.mu.Lock()
	c.limit = int32(min(n, maxWriteLimit))
	c.mu.Unlock()
}

// Queued is how many bytes have been accepted and not yet taken by the kernel. Any goroutine.
func (c *Conn) Queued() int { return int(c.queued.Load()) }

// Buffered is how many of the bytes that Queued counts have not been offered to the kernel yet.
// Any goroutine.
func (c *Conn) Buffered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	if c.asked&offering != 0 {
		return c.Queued()
	}
	if c.out != nil {
		n = c.out.Len()
	}
	if x := c.cold.Load(); x != nil {
		n += int(x.unencoded)
	}
	return n
}

// QueuedTotal is how many bytes the conn has yet to give to the kernel, the rest of WriteFile's
// files included. On the loop only.
func (c *Conn) QueuedTotal() int64 { return c.unsent() }

// unsent is how many bytes a closing conn has yet to get rid of, files included.
func (c *Conn) unsent() int64 {
	n := c.queued.Load()
	x := c.cold.Load()
	if x == nil {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return n + x.fileBytes()
}

// Close flushes the queue, ends our side, and closes when the peer has ended its side too.
// Meanwhile it discards what the peer sends, up to Config.LingerBytes. So the peer can read the
// last answer. It returns at once; a peer that holds the close up longer than Config.LingerTimeout
// is aborted. Any goroutine; always nil.
func (c *Conn) Close() error { return c.close(wantClose) }

// CloseTruncated is Close for an incomplete stream. TLS, also that of an adopted *tls.Conn, ends
// without close_notify and in the middle of a record, so that the peer cannot take the stream for
// complete. Without a layer it is Close. Any goroutine; never blocks.
func (c *Conn) CloseTruncated() { _ = c.close(wantClose | short) }

func (c *Conn) close(how request) error {
	c.mu.Lock()
	if c.asked&(wantClose|wantAbort|gone) != 0 {
		c.mu.Unlock()
		return nil
	}
	c.asked |= how
	return c.unlockAndWake(nil)
}

// isShort reports whether Cut has ended the conn.
func (c *Conn) isShort() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked&short != 0
}

// CloseWrite ends our side after what is queued; the peer may go on sending. It fails with
// ErrClosed if our side has ended or is to end already. Any goroutine; never blocks.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	if c.asked&(wantFIN|wantClose|wantAbort|gone) != 0 {
		c.mu.Unlock()
		return ErrClosed
	}
	c.asked |= wantFIN
	return c.unlockAndWake(nil)
}

// Abort drops what is queued and resets the connection; Closed gets err, which may be nil. Any
// goroutine.
func (c *Conn) Abort(err error) {
	c.mu.Lock()
	if c.asked&(wantAbort|gone) != 0 {
		c.mu.Unlock()
		return
	}
	c.asked |= wantAbort
	// of a layer that has failed, why is known
	if err != nil && (c.cold.Load() == nil || c.cold.Load().reason == nil) {
		c.makeCold().reason = err
	}
	_ = c.unlockAndWake(nil)
}

// flush gives the driver what is queued and carries out what was asked of a conn in this state. It
// returns the requests that it found.
func (c *Conn) flush(at state) request {
	c.mu.Lock()
	asked := c.asked
	if asked&gone != 0 || at == closed {
		c.mu.Unlock()
		return 0
	}
	c.asked &^= wantNotify | wantDeadline
	due := c.due
	if asked&wantAbort != 0 {
		c.mu.Unlock()
		c.abortNow()
		return 0
	}
	out := c.takeOutput()
	x := c.cold.Load()
	further := x != nil && x.waits()
	c.mu.Unlock()
	if asked&wantDeadline != 0 {
		c.armDeadline(due)
	}
	c.send(out)
	if further {
		c.sendWaiting(x)
	}
	if asked&(wantFIN|wantClose) != 0 || at == detaching {
		c.pursueEnd(asked)
	}
	return asked
}

// takeOutput takes what may be sent now: everything, or what goes before the first file. mu is
// held.
func (c *Conn) takeOutput() *buf.Chain {
	out, x := c.out, c.cold.Load()
	if out == nil {
		return nil
	}
	if x != nil {
		if front, waits := x.beforeFile(out); waits {
			return front
		}
	}
	c.out = nil
	return out
}

func (c *Conn) armDeadline(due int64) {
	switch {
	case c.state() >= draining:
	case due == 0:
		c.loop.wheel.Clear(c.id.Slot())
	default:
		c.loop.wheel.Set(c.id.Slot(), due)
	}
}

func (c *Conn) send(out *buf.Chain) {
	l := c.loop
	if out == nil {
		return
	}
	n := int64(out.Len())
	var queued int64
	if l.settler.flushes && l.can.SendMany != nil {
		queued = l.settler.sendNow(c.id, out)
	} else {
		queued = l.drv.Send(c.id, out)
	}
	out.Put()
	c.sent(n, queued)
}

// sent follows the driver's taking n bytes, of which it has queued some.
func (c *Conn) sent(n, queued int64) {
	l := c.loop
	l.stats.writes++
	l.stats.given += uint64(n)
	l.stats.bytesOut += uint64(n - queued)
	c.queued.Add(queued - n)
}

// Flush offers the kernel now what is queued, instead of when the callback that runs has ended.
// What Queued counts afterwards is what the kernel has refused, with drivers that ask the kernel at
// once (all but std). It reports false, and does nothing, unless the caller runs on the conn's
// loop. Of a frozen conn it keeps what is queued, and reports true. It looks through the stack,
// which takes microseconds. Any goroutine.
func (c *Conn) Flush() bool {
	l := c.loop
	if !l.owner.Has(driver.Goroutine()) || whereabouts() != loopBody {
		return false
	}
	if s := c.state(); s < open || s == frozen || s == closed {
		return true // no driver has it
	}
	c.mu.Lock()
	if c.asked&(wantAbort|gone) != 0 {
		c.mu.Unlock()
		return true
	}
	out := c.takeOutput()
	x := c.cold.Load()
	mustEncode := x != nil && x.unencoded > 0
	c.mu.Unlock()
	l.settler.flushes = true
	defer func() { l.settler.flushes = false }()
	c.send(out)
	if mustEncode {
		x.encodeOwed(c)
	}
	return true
}

// unsent reports whether a file is still to be sent, or plaintext that the layer has to encode, or
// what was queued behind it is to be dropped anyway.
func (x *cold) unsent(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return x.sending || len(x.files) > 0 || x.unencoded > 0 || c.asked&wantAbort != 0
}

// waits reports whether there is something to send beside the conn's queue. Conn.mu is held.
func (x *cold) waits() bool { return x.unencoded > 0 || len(x.files) > 0 }

// sendWaiting sends what waits, as far as there is room.
func (c *Conn) sendWaiting(x *cold) {
	if x.buffered != nil {
		x.encodeOwed(c)
	}
	x.sendFiles(c)
}

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
	x := c.makeCold()
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
	x := c.cold.Load()
	return x != nil && len(x.files) >= maxFiles || c.fileBlocks()
}

// fileBlocks reports whether bytes must wait for a file that is still to be encoded: a layer's
// stream has one order.
func (c *Conn) fileBlocks() bool {
	x := c.cold.Load()
	return x != nil && x.layer != nil && len(x.files) > 0
}

// sendFiles continues with the files that wait. Without a layer the driver sends them; it takes
// nothing else until one is sent.
func (x *cold) sendFiles(c *Conn) {
	if x.layer != nil {
		x.encodeFiles(c)
		return
	}
	for !x.sending && x.startFile(c) {
		if !x.sending {
			c.mu.Lock()
			out := c.takeOutput()
			c.mu.Unlock()
			c.send(out)
		}
	}
}

// startFile gives the driver the next file, if what goes before it has been given.
func (x *cold) startFile(c *Conn) bool {
	l := c.loop
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
	l.stats.given += uint64(run.n)
	l.stats.bytesOut += uint64(run.n - queued)
	x.fileLeft = queued
	x.sending = queued > 0
	return true
}

// fileSent books what has gone of the bytes before a file, then of the file.
func (x *cold) fileSent(c *Conn, n int64) {
	ahead := min(n, x.ahead)
	x.ahead -= ahead
	c.queued.Add(-ahead)
	x.fileLeft -= n - ahead
	x.sending = x.fileLeft > 0
}

// encodeFiles reads and encodes slices while the queue has room, a bounded number in one turn. No
// other goroutine writes meanwhile: Write refuses while a file waits before a layer.
func (x *cold) encodeFiles(c *Conn) {
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
			slice = buf.Get(min(fileSlice, c.loop.engine.cfg.MaxWrite))
			defer slice.Release()
		}
		p := slice.Extend()
		n, err := run.f.ReadAt(p[:min(run.n, int64(len(p)))], run.off)
		if n == 0 {
			c.Abort(fmt.Errorf("myriad: WriteFile: %d bytes missing at offset %d: %w", run.n, run.off,
				errors.Join(err, io.ErrUnexpectedEOF)))
			return
		}
		if !x.encodeSlice(c, p[:n]) {
			return
		}
	}
	if slice != nil {
		c.loop.settler.revisitServed(c)
	}
}

// encodeSlice reports whether the layer took the slice. One that found no room is read again when
// there is some.
func (x *cold) encodeSlice(c *Conn, p []byte) bool {
	c.mu.Lock()
	err := x.encodeOnLoop(c, func(w Wire) error { _, err := x.layer.Write(w, p); return err })
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
	c.send(out)
	return err == nil
}

// beforeFile takes of out what goes before the next file, if one waits. Conn.mu is held.
func (x *cold) beforeFile(out *buf.Chain) (front *buf.Chain, waits bool) {
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

// fileBytes is how much of files has yet to be sent. Conn.mu is held.
func (x *cold) fileBytes() int64 {
	n := x.fileLeft
	for _, run := range x.files {
		n += run.n
	}
	return n
}

// drop lets go of what has yet to be sent. Conn.mu is held.
func (x *cold) drop() {
	for _, run := range x.files {
		run.f.Close()
	}
	x.files, x.unencoded = nil, 0
}
