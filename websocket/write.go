package websocket

import (
	"errors"
	"fmt"
	"net"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
)

const (
	// copied is up to which size a frame of Write is copied into the output, where it shares memory with its neighbours. Larger
	// ones are queued as they are.
	copied = 2 << 10

	// earlyLimit is how many bytes may be written before the connection has arrived at its loop, when Options.WriteLimit is 0.
	earlyLimit = 256 << 10

	// spare is what a close frame may take above the write limit.
	spare = 256
)

// errClosing is net.ErrClosed in the words of this package.
var errClosing = fmt.Errorf("websocket: the connection is closing or closed: %w", net.ErrClosed)

// Write queues a message, all of it or nothing. op is OpText or OpBinary; that text is UTF-8 is the caller's duty. It
// fails with myriad.ErrFull when the output is at its limit, with myriad.ErrTooLarge above the engine's Config.MaxWrite, and with
// net.ErrClosed once closing has begun.
func (c *Conn) Write(op Op, p []byte) error {
	if err := checkMessage(op, p); err != nil {
		return err
	}
	b, err := c.settings.encode(op, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(b, copied)
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

// Ping sends a ping with a payload of at most 125 bytes, besides those that Options.PingInterval asks for.
func (c *Conn) Ping(p []byte) error {
	if len(p) > maxControl {
		return fmt.Errorf("websocket: a ping of %d bytes: a control frame holds at most %d", len(p), maxControl)
	}
	return c.control(OpPing, p)
}

func (c *Conn) control(op Op, p []byte) error {
	b, err := c.settings.encode(op, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(b, copied)
}

// encode makes a frame, which the caller releases.
func (s *settings) encode(op Op, p []byte) (*buf.Block, error) {
	h := frameHeader{fin: true, op: op, masked: s.random != nil}
	if h.masked {
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

// send consumes b; up to copyUpTo bytes are copied. It is called under mu.
func (c *Conn) send(b *buf.Block, copyUpTo int) error {
	switch {
	case c.is(closeSent | dropped | closed):
		b.Release()
		return errClosing
	case c.nc == nil:
		return c.sendEarly(b)
	case b.Len() > copyUpTo:
		return c.nc.WriteBlocks(b)
	}
	_, err := c.nc.Write(b.Bytes())
	b.Release()
	return err
}

// sendEarly keeps a frame until the connection has arrived at its loop.
func (c *Conn) sendEarly(b *buf.Block) error {
	defer b.Release()
	limit := c.settings.writeLimit
	if limit == 0 {
		limit = earlyLimit
	}
	r := c.more()
	if len(r.early) > 0 && len(r.early)+b.Len() > limit {
		return myriad.ErrFull
	}
	r.early = append(r.early, b.Bytes()...)
	return nil
}

// force queues p above the limit: a close frame must not be lost because its peer is slow. It is called under mu.
func (c *Conn) force(p []byte) error {
	_, err := c.nc.Write(p)
	if !errors.Is(err, myriad.ErrFull) {
		return err
	}
	c.nc.SetWriteLimit(c.nc.Queued() + len(p) + spare)
	_, err = c.nc.Write(p)
	c.nc.SetWriteLimit(c.settings.writeLimit)
	return err
}

// A Prepared message is encoded once and queued on any number of connections by reference.
type Prepared struct {
	op    Op
	frame *buf.Block
}

// Prepare encodes a message. Release gives its memory back.
func Prepare(op Op, p []byte) (*Prepared, error) {
	if err := checkMessage(op, p); err != nil {
		return nil, err
	}
	return &Prepared{op, frameOf(frameHeader{fin: true, op: op}, p)}, nil
}

// WritePrepared is Write for a prepared message. To a server, where each frame needs a mask of its own, it is encoded anew.
func (c *Conn) WritePrepared(m *Prepared) error {
	if c.settings.random != nil {
		frame := m.frame.Bytes()
		n, _, _ := parseHeader(frame, false, false)
		return c.Write(m.op, frame[n:])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(m.frame.Retain(), 0)
}

// Release ends the use of m, once, by whoever prepared it. Where it is queued it stays until it has been sent. Without Release the
// memory is left to the garbage collector.
func (m *Prepared) Release() { m.frame.Release() }
