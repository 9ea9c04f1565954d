package uring

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/posix"
)

const (
	// mostSent is how many bytes one operation sends at most.
	mostSent = 1 << 30
	// sendsPerSubmit is after how many calls of Send the kernel is entered at the latest. More of
	// them at once cost no less.
	sendsPerSubmit = 32
)

func (w *work) hasOutput() bool { return w != nil && (w.out != nil || w.file != nil) }

// Send implements driver.Driver. All of it is queued: it leaves with what others send, when the
// kernel is entered next.
func (d *Driver) Send(id driver.ID, c *buf.Chain) (queued int64) {
	queued = d.queue(id, c)
	if d.unsent++; d.unsent >= sendsPerSubmit && d.applyAll() == nil {
		_ = d.submit() // the next Poll reports what is wrong
	}
	return queued
}

// queue puts the chain behind what is queued. It returns its length, or 0 if it is dropped.
func (d *Driver) queue(id driver.ID, c *buf.Chain) (queued int64) {
	s := d.conn(id)
	if s == nil || s.errno != 0 || c.Len() == 0 {
		c.Release()
		return 0
	}
	queued = int64(c.Len())
	w := d.workOf(s)
	if w.out == nil {
		w.out = buf.GetChain()
		c.Move(w.out)
	} else {
		c.Pack(w.out)
	}
	d.touch(id, s)
	return queued
}

// SendMany is Send for each of the batch, in one call: see driver.Capabilities.
func (d *Driver) SendMany(batch []driver.Outgoing) {
	d.many = d.many[:0]
	for i := range batch {
		o := &batch[i]
		s := d.conn(o.ID)
		now := s != nil && !s.has(noRoom) && !s.runs(opSending) && !(s.work.hasOutput() && s.work.file != nil) &&
			d.makeRoom() == nil
		o.Queued = d.queue(o.ID, o.Chain)
		if now && o.Queued > 0 {
			s.work.silent = true
			d.applyOutput(o.ID, s)
			d.many = append(d.many, i)
		}
	}
	_ = d.submit() // the next Poll reports what is wrong

	// until nothing more goes: what has room may have failed because memory is short
	for before, sent := int64(-1), d.sendOn(batch); sent != before && d.ring.pending() > 0; {
		_ = d.submit()
		before, sent = sent, d.sendOn(batch)
	}
	for _, i := range d.many {
		o := &batch[i]
		s := d.conn(o.ID)
		if s == nil || s.work == nil || !s.work.silent { // sending has failed
			o.Queued = 0
			continue
		}
		w := s.work
		left := int64(0)
		if w.out != nil {
			left = int64(w.out.Len())
		}
		// What the connection had queued before is sent first, and reported.
		given := o.Queued
		o.Queued = min(left, given)
		w.told += w.hushed - (given - o.Queued)
		w.silent, w.hushed = false, 0
		if w.told > 0 {
			d.list(o.ID, s)
		}
		d.rest(s)
	}
}

// sendOn begins to send what is left of those of SendMany that have room: one operation takes only
// so many blocks. It returns how many bytes have been sent so far.
func (d *Driver) sendOn(batch []driver.Outgoing) (sent int64) {
	for _, i := range d.many {
		s := d.conn(batch[i].ID)
		if s == nil || s.work == nil || !s.work.silent {
			continue
		}
		sent += s.work.hushed
		if s.work.out != nil && !s.has(noRoom) && d.makeRoom() == nil {
			d.applyOutput(batch[i].ID, s)
		}
	}
	return sent
}

// applyOutput goes on sending if there is something to send, and room.
func (d *Driver) applyOutput(id driver.ID, s *slot) {
	w := s.work
	if s.runs(opSending) {
		return
	}
	if !w.hasOutput() {
		d.cancel(id, s, opRoom)
		return
	}
	if !s.has(noRoom) {
		if w.out != nil {
			d.send(id, s, w)
			return
		}
		d.sendFile(id, s, w)
	}
	if s.kind == kindConn && s.has(noRoom) && !s.runs(opRoom) {
		// A poll operation for one completion would end at once where the peer has sent its FIN.
		d.arm(id, s, opRoom, unix.POLLOUT, pollAddMulti)
	}
}

// send begins to send what is queued. The operation does not wait for room, and so it ends in the
// call that begins it.
func (d *Driver) send(id driver.ID, s *slot, w *work) {
	e := d.ring.next()
	e.fd, e.opFlags, e.userData = s.fd, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, userData(opSending, id)
	if p := w.out.First(); len(p) == w.out.Len() {
		w.asked = min(len(p), mostSent)
		e.opcode, e.addr, e.len = opSend, address(p), uint32(w.asked)
	} else {
		w.message = d.takeMessage()
		w.message.vectors = w.out.Vectors(w.message.vectors, vectorsPerSend)
		w.asked = w.message.fill()
		e.opcode, e.addr, e.len = opSendmsg, w.message.addr(), 1
	}
	s.ops |= 1 << opSending
	d.inFlight++
}

func (d *Driver) takeMessage() *message {
	if n := len(d.messages); n > 0 {
		m := d.messages[n-1]
		d.messages = d.messages[:n-1]
		return m
	}
	return new(message)
}

// sent takes up what a send operation has come to.
func (d *Driver) sent(id driver.ID, s *slot, c cqe) {
	w := s.work
	if w.message != nil {
		w.message.clear()
		if len(d.messages) < ringEntries {
			d.messages = append(d.messages, w.message)
		}
		w.message = nil
	}
	if s.kind != kindConn {
		d.dropOutput(s)
		return
	}
	switch errno := unix.Errno(-c.res); {
	case c.res >= 0:
		d.hasSent(id, s, w, int(c.res))
	case errno == unix.EAGAIN:
		s.set(noRoom)
		w.pack()
	case errno == unix.EINTR, errno == unix.ECANCELED, errno == unix.ENOMEM, errno == unix.ENOBUFS: // once more
	default:
		d.sendFailed(id, s, errno)
		return
	}
	if w.hasOutput() || s.runs(opRoom) {
		d.touch(id, s)
	}
}

func (d *Driver) hasSent(id driver.ID, s *slot, w *work, n int) {
	w.out.Discard(n)
	if n < w.asked {
		s.set(noRoom)
	}
	if w.silent {
		w.hushed += int64(n)
	} else {
		w.told += int64(n)
		d.list(id, s)
	}
	if w.out.Len() > 0 {
		if n < w.asked {
			w.pack()
		}
		return
	}
	w.out.Put()
	w.out = nil
	d.drained(s, w)
}

// pack has bytes that wait take little more memory than their number.
func (w *work) pack() {
	packed := buf.GetChain()
	w.out.Pack(packed)
	w.out.Put()
	w.out = packed
}

// drained follows the last byte that was queued.
func (d *Driver) drained(s *slot, w *work) {
	if w.file == nil {
		s.clear(noRoom)
		if s.has(finQueued) {
			_ = unix.Shutdown(int(s.fd), unix.SHUT_WR)
		}
	}
}

// hasRoom is for a socket that was full, or an attempt to connect.
func (d *Driver) hasRoom(id driver.ID, s *slot, c cqe) {
	switch {
	case c.res < 0:
	case s.kind == kindDialing:
		s.set(due)
		d.list(id, s)
	case s.kind == kindConn && c.res&(unix.POLLOUT|unix.POLLERR|unix.POLLHUP) != 0:
		s.clear(noRoom)
		d.touch(id, s)
	}
}

// sendFile makes one call: a connection gets one piece of a file in a Poll.
func (d *Driver) sendFile(id driver.ID, s *slot, w *work) {
	n, err := w.file.SendTo(int(s.fd), w.off, w.left)
	w.off += int64(n)
	w.left -= int64(n)
	if n > 0 {
		w.told += int64(n)
		d.list(id, s)
	}
	if err != nil {
		if errno, ok := err.(unix.Errno); ok {
			d.sendFailed(id, s, errno)
		} else {
			d.dropOutput(s)
			d.endWith(id, s, err)
		}
		return
	}
	switch {
	case w.left == 0:
		w.file.Close()
		w.file = nil
		d.drained(s, w)
	case n == 0:
		s.set(noRoom)
	default:
		d.touchAgain(id, s)
	}
}

// sendFailed notes that the peer has gone. What it had sent before is still delivered, and
// receiving finds the end. If the connection is not read, or the error is ours, it ends the
// connection.
func (d *Driver) sendFailed(id driver.ID, s *slot, errno unix.Errno) {
	d.dropOutput(s)
	if s.receiving() && (errno == unix.EPIPE || errno == unix.ECONNRESET) {
		s.errno = uint16(errno)
		d.workOf(s).told = 0
		d.list(id, s)
		d.touch(id, s)
		return
	}
	d.endWith(id, s, errno)
}

// dropOutput drops what is queued, unless the kernel may be reading it.
func (d *Driver) dropOutput(s *slot) {
	w := s.work
	if w == nil || s.runs(opSending) {
		return
	}
	w.silent, w.hushed = false, 0
	if w.out != nil {
		w.out.Put()
		w.out = nil
	}
	if w.file != nil {
		w.file.Close()
		w.file = nil
	}
	w.told = 0
}

// SendFile implements driver.Driver. The kernel copies the file to the socket by sendfile(2).
func (d *Driver) SendFile(id driver.ID, f driver.File, off, n int64) (int64, error) {
	file, ok := f.(*posix.File)
	if !ok {
		f.Close()
		return 0, fmt.Errorf("uring: sendfile from %T: %w", f, driver.ErrUnsupported)
	}
	s := d.conn(id)
	switch {
	case s == nil || s.errno != 0 || n == 0:
		f.Close()
		return 0, nil
	case s.work.hasOutput() && s.work.file != nil:
		f.Close()
		return 0, fmt.Errorf("uring: sendfile: %w", driver.ErrNotIdle)
	}
	w := d.workOf(s)
	w.file, w.off, w.left = file, off, n
	d.touch(id, s)
	return n, nil
}

// CloseWrite implements driver.Driver.
func (d *Driver) CloseWrite(id driver.ID) {
	s := d.conn(id)
	if s == nil || s.has(finQueued) {
		return
	}
	s.set(finQueued)
	if !s.work.hasOutput() {
		_ = unix.Shutdown(int(s.fd), unix.SHUT_WR) // a socket already reset reports it as an event
	}
}
