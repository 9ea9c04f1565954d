package myriad

import (
	"errors"
	"fmt"
	"os"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

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
	if l := c.layer(); l != nil {
		n := 0
		err := c.encode(func(w Wire) (err error) { n, err = l.Write(w, p); return err })
		if errors.Is(err, ErrFull) {
			c.oweRoom()
		}
		return n, err
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

// fileBlocks reports whether bytes must wait for a file that is still to be encoded: a layer's
// stream has one order.
func (c *Conn) fileBlocks() bool {
	x := c.extra.Load()
	return x != nil && x.layer != nil && len(x.files) > 0
}

// unlockAndWake ends a critical section that may have given the loop work: bytes, or the debt of a
// Drained call, for which the room may have come while the call was refused.
func (c *Conn) unlockAndWake(err error) error {
	wake := (err == nil || c.asked&wantRoom != 0) && c.link()
	c.mu.Unlock()
	c.loop.wakeIf(wake)
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
	if c.layer() != nil {
		return c.encodeBlocks(n, blocks)
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

func releaseAll(blocks []*buf.Block) {
	for _, b := range blocks {
		b.Release()
	}
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

// Close flushes the queue, ends our side, and closes when the peer has ended its side too.
// Meanwhile it discards what the peer sends, up to Config.LingerBytes. So the peer can read the
// last answer. It returns at once; a peer that holds the close up longer than Config.LingerTimeout
// is aborted. Any goroutine; always nil.
func (c *Conn) Close() error { return c.close(wantClose) }

// Cut is Close for an incomplete stream. TLS, also that of an adopted *tls.Conn, ends without
// close_notify and in the middle of a record, so that the peer cannot take the stream for complete.
// Without a layer it is Close. Any goroutine; never blocks.
func (c *Conn) Cut() { _ = c.close(wantClose | short) }

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
	if err != nil && (c.extra.Load() == nil || c.extra.Load().reason == nil) {
		c.more().reason = err
	}
	_ = c.unlockAndWake(nil)
}
