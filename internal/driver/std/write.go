package std

import (
	"fmt"
	"io"
	"net"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// Send implements driver.Driver. What the socket takes at once needs no goroutine, on systems that
// can tell.
func (d *Driver) Send(id driver.ID, chain *buf.Chain) (queued int64) {
	c := d.conn(id)
	if c == nil {
		chain.Release()
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving != staying || c.sendFail != nil || c.fin {
		chain.Release()
		return 0
	}
	if !c.writing && c.raw != nil && !d.queueOnly {
		if err := sendNow(c.raw, chain); err != nil {
			chain.Release()
			c.sendFailed(err)
			return 0
		}
	}
	if queued = int64(chain.Len()); queued > 0 {
		chain.Pack(&c.out)
		c.queued += queued
		c.startWriter()
	}
	return queued
}

// SendFile implements driver.Driver.
func (d *Driver) SendFile(id driver.ID, f driver.File, off, n int64) (int64, error) {
	file, ok := f.(*File)
	if !ok {
		f.Close()
		return 0, fmt.Errorf("std: sendfile from %T: %w", f, driver.ErrUnsupported)
	}
	c := d.conn(id)
	if c == nil || n == 0 {
		f.Close()
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.leaving != staying || c.sendFail != nil || c.fin:
		f.Close()
		return 0, nil
	case c.file != nil:
		f.Close()
		return 0, fmt.Errorf("std: sendfile: %w", driver.ErrNotIdle)
	}
	c.file, c.off, c.left = file, off, n
	c.queued += n
	c.startWriter()
	return n, nil
}

// CloseWrite implements driver.Driver.
func (d *Driver) CloseWrite(id driver.ID) { d.endOutput(id, false) }

// Cut is Capabilities.Cut: a conn here may be a *tls.Conn.
func (d *Driver) Cut(id driver.ID) { d.endOutput(id, true) }

func (d *Driver) endOutput(id driver.ID, short bool) {
	c := d.conn(id)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving == staying && c.sendFail == nil && !c.fin {
		c.fin, c.short = true, short
		c.startWriter()
	}
}

// startWriter is called with mu held.
func (c *conn) startWriter() {
	if !c.writing {
		c.writing = true
		c.spawn(c.write)
	}
}

// A part is what the writer does next.
type part uint8

const (
	noPart part = iota
	bytesPart
	filePart
	finPart
)

// write is the writer's goroutine: it ends when nothing is queued.
func (c *conn) write() {
	var bytes buf.Chain
	for {
		var n int64
		var err error
		switch c.nextPart(&bytes) {
		case bytesPart:
			n, err = c.writeBytes(&bytes)
		case filePart:
			n, err = c.writeFile()
		case finPart:
			c.endOutput()
		default:
			return
		}
		c.wrote(n, err)
	}
}

func (c *conn) nextPart(bytes *buf.Chain) part {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.leaving != staying && c.leaving != detaching || c.sendFail != nil:
		c.dropOutput()
	case c.out.Len() > 0:
		c.out.Cut(min(c.out.Len(), bytesPerWrite), bytes)
		return bytesPart
	case c.file != nil:
		return filePart
	case c.fin && !c.finSent:
		c.finSent = true
		return finPart
	}
	c.writing = false
	return noPart
}

// dropOutput is called with mu held, while no writer is at it.
func (c *conn) dropOutput() {
	c.out.Release()
	if c.file != nil {
		c.file.Close()
		c.file = nil
	}
}

func (c *conn) writeBytes(bytes *buf.Chain) (int64, error) {
	defer bytes.Release()
	if p := bytes.First(); len(p) == bytes.Len() {
		n, err := c.nc.Write(p)
		return int64(n), err
	}
	total := int64(0)
	for bytes.Len() > 0 {
		list := net.Buffers(bytes.Vectors(nil, vectors))
		n, err := list.WriteTo(c.nc)
		total += n
		if err != nil {
			return total, err
		}
		bytes.Discard(int(n))
	}
	return total, nil
}

// writeFile sends a piece of the file: only the writer changes off and left.
func (c *conn) writeFile() (int64, error) {
	want := min(c.left, filePerWrite)
	n, err := c.file.sendTo(c.nc, c.off, want)
	if err == nil && n < want {
		err = fmt.Errorf("std: sendfile: the file ended %d bytes before what was promised: %w", c.left-n,
			io.ErrUnexpectedEOF)
	}
	c.off += n
	if c.left -= n; c.left == 0 && err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.file.Close()
		c.file = nil
	}
	return n, err
}

// endOutput sends FIN. A conn that cannot end one side alone is closed, and its input with it.
func (c *conn) endOutput() {
	nc := c.nc
	if c.short {
		nc = driver.BreakOff(nc)
	}
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails only where the connection has, which the reader reports
		return
	}
	c.mu.Lock()
	c.cut = true
	c.mu.Unlock()
	nc.Close()
}

func (c *conn) wrote(n int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent += n
	switch {
	case c.leaving != staying: // an error may be the interruption, or why it is breaking
	case err != nil:
		c.sendFailed(err)
	case n > 0:
		c.list()
	}
}

// sendFailed notes that the peer has gone. What it had sent before is still received, and the
// connection ends with that; any other error ends it now. mu is held.
func (c *conn) sendFailed(err error) {
	c.sendFail = err
	if !peerGone(err) {
		c.broken = firstOf(c.broken, err)
	}
	c.list()
	c.turn.Signal()
}
