//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// A backlog is what a connection could not send at once: bytes, then the rest of a file.
type backlog struct {
	chain buf.Chain
	file  *File
	off   int64
	left  int64 // bytes of the file still to be sent
}

func (b *backlog) drop() {
	b.chain.Release()
	if b.file != nil {
		b.file.Close()
	}
}

func (b *backlog) len() int64 { return b.left + int64(b.chain.Len()) }

// Send implements driver.Driver.
func (d *Driver) Send(id driver.ID, c *buf.Chain) (queued int64) {
	s := d.conn(id)
	if s == nil || s.errno != 0 {
		c.Release()
		return 0
	}
	queued = int64(c.Len())
	if s.out == nil {
		if errno := d.write(s, c); errno != 0 {
			c.Release()
			d.sendFailed(id, s, errno)
			return 0
		}
		if queued = int64(c.Len()); queued == 0 {
			return 0
		}
		d.startBacklog(id, s)
	}
	c.Pack(&s.out.chain)
	return queued
}

func (d *Driver) startBacklog(id driver.ID, s *slot) {
	s.out = new(backlog)
	d.touch(id, s)
}

// write hands the chain to the kernel until it is empty or the kernel takes no more.
func (d *Driver) write(s *slot, c *buf.Chain) unix.Errno {
	for c.Len() > 0 {
		n, asked, errno := d.writeOnce(int(s.fd), c)
		if n > 0 {
			c.Discard(n)
		}
		switch {
		case errno == unix.EAGAIN || errno == 0 && n < asked:
			return 0
		case errno != 0 && errno != unix.EINTR:
			return errno
		}
	}
	return 0
}

func (d *Driver) writeOnce(fd int, c *buf.Chain) (n, asked int, errno unix.Errno) {
	if p := c.First(); len(p) == c.Len() {
		n, errno = rawWrite(fd, p)
		return n, len(p), errno
	}
	d.vectors = c.Vectors(d.vectors[:0], vectorsPerWrite)
	for _, p := range d.vectors {
		asked += len(p)
	}
	n, errno = rawWritev(fd, d.vectors, &d.iovecs)
	clear(d.vectors)
	return n, asked, errno
}

// sendFailed notes that the peer has gone. What it had sent before is still delivered, and reading
// finds the end. If the connection is not read, or the error is ours, it ends the connection at the
// next Poll.
func (d *Driver) sendFailed(id driver.ID, s *slot, errno unix.Errno) {
	d.release(s)
	if s.receiving() && (errno == unix.EPIPE || errno == unix.ECONNRESET) {
		s.errno = uint16(errno)
		s.clear(parked)
		d.touch(id, s)
		return
	}
	d.endWith(id, s, errno)
}

func (d *Driver) endWith(id driver.ID, s *slot, err error) {
	d.release(s)
	d.shut(s)
	s.kind = kindClosing
	d.later = append(d.later, deferred{id: id, err: err})
}

// flushBacklog continues to send when the kernel has room again.
func (d *Driver) flushBacklog(id driver.ID, s *slot, ev driver.Events) {
	before := s.out.len()
	if err := d.continueSending(s); err != nil {
		if errno, ok := err.(unix.Errno); ok {
			d.sendFailed(id, s, errno)
		} else {
			d.endWith(id, s, err)
		}
		return
	}
	sent := before - s.out.len()
	if s.out.len() == 0 {
		s.out = nil
		d.touch(id, s)
		if s.has(finQueued) {
			_ = unix.Shutdown(int(s.fd), unix.SHUT_WR)
		}
	}
	if sent > 0 {
		d.polled++
		ev.Sent(id, sent)
	}
}

func (d *Driver) continueSending(s *slot) error {
	b := s.out
	if errno := d.write(s, &b.chain); errno != 0 {
		return errno
	}
	if b.chain.Len() > 0 || b.file == nil {
		return nil
	}
	if err := b.sendFile(int(s.fd)); err != nil || b.left > 0 {
		return err
	}
	b.file.Close()
	b.file = nil
	return nil
}

// sendFile makes one call: a connection gets one piece of a file in a Poll.
func (b *backlog) sendFile(fd int) error {
	n, err := sendFile(fd, b.file.fd, b.off, int(min(b.left, filePerWrite)))
	b.off += int64(n)
	b.left -= int64(n)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("posix: sendfile: the file ended %d bytes before what was promised: %w", b.left,
			io.ErrUnexpectedEOF)
	}
	return nil
}

// SendFile implements driver.Driver.
func (d *Driver) SendFile(id driver.ID, f driver.File, off, n int64) (int64, error) {
	file, ok := f.(*File)
	if !ok {
		f.Close()
		return 0, fmt.Errorf("posix: sendfile from %T: %w", f, driver.ErrUnsupported)
	}
	s := d.conn(id)
	switch {
	case s == nil || s.errno != 0 || n == 0:
		f.Close()
		return 0, nil
	case s.out == nil:
		d.startBacklog(id, s)
	case s.out.left > 0:
		f.Close()
		return 0, fmt.Errorf("posix: sendfile: %w", driver.ErrNotIdle)
	}
	s.out.file, s.out.off, s.out.left = file, off, n
	return n, nil
}
