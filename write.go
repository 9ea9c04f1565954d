package myriad

import (
	"fmt"

	"github.com/myriad-go/myriad/buf"
)

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
		return c.writeThrough(l, p)
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

func releaseAll(blocks []*buf.Block) {
	for _, b := range blocks {
		b.Release()
	}
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
	if err != nil && (c.extra.Load() == nil || c.extra.Load().reason == nil) {
		c.more().reason = err
	}
	_ = c.unlockAndWake(nil)
}
