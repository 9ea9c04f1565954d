package websocket

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
)

const (
	// copied is up to which size a frame is copied into output that is there already, where it
	// shares memory with its neighbours. Larger ones are queued as they are.
	copied = 2 << 10

	// earlyLimit is how many bytes may be written before the connection has arrived at its loop,
	// when Options.WriteLimit is 0.
	earlyLimit = 256 << 10

	// spare is what a close frame may take above the write limit.
	spare = 256
)

// errClosing is net.ErrClosed in the words of this package.
var errClosing = fmt.Errorf("websocket: the connection is closing or closed: %w", net.ErrClosed)

// Write queues a message, all of it or nothing. op is OpText or OpBinary; that text is UTF-8 is the
// caller's duty. When the output is at its limit, Options.Overflow decides. By default Write waits
// until the peer has made room; after Options.WriteTimeout it fails with myriad.ErrFull. It fails
// with myriad.ErrTooLarge above the engine's Config.MaxWrite, with net.ErrClosed once closing has
// begun, and with myriad.ErrOnLoop where it would have to wait and must not. Any goroutine.
func (c *Conn) Write(op Op, p []byte) error {
	if err := checkMessage(op, p); err != nil {
		return err
	}
	return c.write(outgoing{op: op, p: p})
}

// WriteContext is Write that waits for room, until ctx ends, whatever Options.Overflow and
// WriteTimeout say. Any goroutine, as Write.
func (c *Conn) WriteContext(ctx context.Context, op Op, p []byte) error {
	if err := checkMessage(op, p); err != nil {
		return err
	}
	return c.writeWaiting(ctx, outgoing{op: op, p: p}, 0, nil)
}

func checkMessage(op Op, p []byte) error {
	switch {
	case op != OpText && op != OpBinary:
		return fmt.Errorf("websocket: a message of opcode %d (%v): use OpText or OpBinary", byte(op), op)
	case len(p) > buf.MaxBlock-maxHeader:
		return fmt.Errorf("websocket: a message of %d bytes: %w", len(p), myriad.ErrTooLarge)
	}
	return nil
}

// outgoing is a message on its way out.
type outgoing struct {
	op       Op
	p        []byte
	prepared *Prepared // of p, or nil

	// in its place: a step of a message in parts, which is run under Conn.mu and fails with ErrFull
	// to be run again
	step func() error
}

func (c *Conn) write(m outgoing) error {
	err := c.attempt(m, noRoom{probe: true})
	if err != errWait {
		return err
	}
	if !c.blocks() {
		c.flush()
		if err = c.attempt(m, noRoom{}); err != errWait {
			return err
		}
	}
	if c.is(stalled) {
		c.settings().count.Refused.Add(1)
		return c.settings().errStalled()
	}
	err = c.writeWaiting(context.Background(), m, c.settings().writeTimeout, nil)
	if errors.Is(err, myriad.ErrOnLoop) { // it has not been offered to the kernel yet
		if nc := c.conn(); nc != nil && nc.Flush() {
			if again := c.attempt(m, noRoom{probe: true}); again != errWait {
				return again
			}
		}
	}
	return err
}

func (c *Conn) blocks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overflow == OverflowBlock
}

// attempt queues a message. If there is no room, no decides.
func (c *Conn) attempt(m outgoing, no noRoom) error {
	if m.step != nil {
		return c.attemptStep(m.step, no)
	}
	if c.reader.rules.terms.outTakeover && c.packs(len(m.p)) {
		return c.attemptInContext(m, no)
	}
	b, copyUpTo, err := c.frame(m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offer(b, copyUpTo, no)
}

// frame encodes a message that refers to no other one.
func (c *Conn) frame(m outgoing) (b *buf.Block, copyUpTo int, err error) {
	byReference := m.prepared != nil && c.settings().random == nil // a mask has to be each frame's own
	packs := c.packs(len(m.p))
	switch {
	case packs && byReference && len(m.p) <= 1<<c.reader.rules.terms.outBits:
		b = m.prepared.pack(c.settings().packing.level)
	case packs:
		if b, err = c.pack(m.op, m.p, nil); b != nil || err != nil {
			return b, copied, err
		}
	}
	switch {
	case b != nil:
		return b.Retain(), 0, nil
	case byReference:
		return m.prepared.frame.Retain(), 0, nil
	}
	b, err = c.settings().encode(m.op, false, m.p)
	return b, copied, err
}

// attemptInContext is attempt for a connection whose messages refer to earlier ones. The peer's
// window has the compressed messages in the order of the queue, so all of this happens under mu. A
// message that has to wait, and may still be dropped, is sent uncompressed.
func (c *Conn) attemptInContext(m outgoing, no noRoom) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.is(closeSent|dropped|closed) && !c.slow().Waits() {
		b, err := c.packInContext(m.op, m.p)
		if err != nil {
			return err
		}
		if b != nil {
			if err = c.sendWhole(b, copied); err == nil {
				c.slideOut(m.p)
			}
			if !errors.Is(err, myriad.ErrFull) {
				return err
			}
		}
	}
	b, err := c.settings().encode(m.op, false, m.p)
	if err != nil {
		return err
	}
	return c.offer(b, copied, no)
}

// control queues a control frame, past messages that wait.
func (c *Conn) control(op Op, p []byte) error {
	b, err := c.settings().encode(op, false, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(b, copied)
}

// encode makes a frame, which the caller releases.
func (s *settings) encode(op Op, packed bool, p []byte) (*buf.Block, error) {
	return s.encodeFrame(frameHeader{fin: true, rsv1: packed, op: op}, p)
}

func (s *settings) encodeFrame(h frameHeader, p []byte) (*buf.Block, error) {
	if h.masked = s.random != nil; h.masked {
		key, err := s.maskKey()
		if err != nil {
			return nil, err
		}
		h.key = key
	}
	return frameOf(h, p), nil
}

func frameOf(h frameHeader, p []byte) *buf.Block {
	b := buf.Get(headerSize(int64(len(p)), h.masked) + len(p))
	b.Commit(len(appendFrame(b.Extend()[:0], h, p)))
	return b
}

// send consumes b; up to copyUpTo bytes are copied if there is output to join. It is called under
// mu.
func (c *Conn) send(b *buf.Block, copyUpTo int) error {
	switch {
	case c.is(closeSent | dropped | closed):
		b.Release()
		return errClosing
	case c.nc == nil:
		return c.sendEarly(b)
	case b.Len() > copyUpTo || c.nc.Queued() == 0:
		return writeBlock(c.nc, b)
	}
	_, err := c.nc.Write(b.Bytes())
	b.Release()
	return err
}

// writeBlock consumes b. A call through the interface allocates its arguments.
func writeBlock(p pipe, b *buf.Block) error {
	if nc, plain := p.(*myriad.Conn); plain {
		return nc.WriteBlocks(b)
	}
	return p.WriteBlocks(b)
}

// sendEarly keeps a frame until the connection has arrived at its loop.
func (c *Conn) sendEarly(b *buf.Block) error {
	defer b.Release()
	limit, _ := c.limits()
	if limit == 0 {
		limit = earlyLimit
	}
	r := c.needCold()
	if len(r.early) > 0 && len(r.early)+b.Len() > limit {
		return myriad.ErrFull
	}
	r.early = append(r.early, b.Bytes()...)
	return nil
}

// force queues p above the limit: a close frame must not be lost because its peer is slow. It is
// called under mu.
func (c *Conn) force(p []byte) error {
	_, err := c.nc.Write(p)
	if !errors.Is(err, myriad.ErrFull) {
		return err
	}
	c.nc.SetWriteLimit(c.nc.Queued() + len(p) + spare)
	_, err = c.nc.Write(p)
	limit, _ := c.limits()
	c.nc.SetWriteLimit(limit)
	return err
}
