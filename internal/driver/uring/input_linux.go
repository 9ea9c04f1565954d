package uring

import (
	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/posix"
)

// A work is what a connection has to send, to deliver and to tell. Idle connections have none.
type work struct {
	// output, in this order
	out     *buf.Chain
	asked   int      // bytes of out that the operation in flight sends
	message *message // of that operation, if it sends several blocks
	file    *posix.File
	off     int64
	left    int64 // bytes of the file that are still to be sent
	told    int64 // bytes that are sent, and to be reported
	silent  bool  // SendMany counts what is sent, in hushed
	hushed  int64

	// input, in this order
	kept     []byte  // copies
	pieces   []piece // buffers of the ring
	inputEnd bool    // then the peer's FIN
	inputErr error   // or a reset; a unix.Errno
	served   uint32  // the number of the Poll that was the last to deliver something

	// the last event
	err    error
	socket *posix.Socket
}

// A piece is a buffer of the ring with n bytes.
type piece struct {
	id uint16
	n  uint16
}

// workOf is the work of a slot, which it then has.
func (d *Driver) workOf(s *slot) *work {
	if s.work == nil {
		if n := len(d.works); n > 0 {
			s.work, d.works = d.works[n-1], d.works[:n-1]
		} else {
			s.work = new(work)
		}
	}
	return s.work
}

// dropWork ends the work of a slot, with all that is in it.
func (d *Driver) dropWork(s *slot) {
	w := s.work
	if w == nil {
		return
	}
	d.dropOutput(s)
	d.dropInput(s)
	if s.work = nil; len(d.works) < keptWorks && !s.runs(opSending) {
		*w = work{pieces: w.pieces[:0]}
		d.works = append(d.works, w)
	}
}

// rest ends a work that has nothing to do.
func (d *Driver) rest(s *slot) {
	w := s.work
	if w != nil && !w.hasOutput() && !s.runs(opSending) && !w.silent && w.told == 0 && !w.hasInput() && !w.inputEnd &&
		w.inputErr == nil &&
		w.err == nil && w.socket == nil {
		d.dropWork(s)
	}
}

func (w *work) hasInput() bool { return len(w.kept) > 0 || len(w.pieces) > 0 }

// applyInput has a connection receive while its owner wants input and has taken what there was.
// Else it watches for a reset.
func (d *Driver) applyInput(id driver.ID, s *slot) {
	w := s.work
	if w != nil && !s.has(reading) {
		d.keep(s, w)
	}
	waiting := w != nil && (w.hasInput() || w.inputEnd || w.inputErr != nil)
	switch {
	case s.receiving() && !waiting && !s.runs(opReceive):
		if d.buffers.empty() {
			d.touchAgain(id, s)
			return
		}
		d.receive(id, s)
	case waiting && !s.has(reading), w != nil && len(w.pieces) >= mostPieces:
		d.cancel(id, s, opReceive)
	}
	if !s.receiving() && !s.runs(opReceive) && !s.runs(opWatch) {
		d.arm(id, s, opWatch, 0, pollAddMulti) // errors and hang-ups are always reported
	}
}

// receive begins to receive, until as much as a read buffer has come. A kernel that cannot count
// (before Linux 6.17) goes on until the operation is cancelled.
func (d *Driver) receive(id driver.ID, s *slot) {
	e := d.ring.next()
	e.opcode, e.flags, e.ioprio, e.fd = opRecv, sqeBufferSelect, recvMultishot, s.fd
	e.bufGroup, e.userData = theGroup, userData(opReceive, id)
	if s.clear(capped); !d.uncapped {
		e.optlen = uint32(max(d.readBuffer, d.buffers.size))
		s.set(capped)
	}
	s.ops |= 1 << opReceive
	d.inFlight++
}

// received takes up what a receive operation has come to.
func (d *Driver) received(id driver.ID, s *slot, c cqe) {
	if c.flags&cqeBuffer != 0 {
		d.take(id, s, piece{uint16(c.flags >> cqeBufferShift), uint16(max(0, c.res))})
		return
	}
	switch errno := unix.Errno(-c.res); {
	case c.res == 0:
		d.workOf(s).inputEnd = true
		d.list(id, s)
	case c.res > 0: // bytes without a buffer there are none
	case errno == unix.EINVAL && s.has(capped): // others of the same call may have been capped, too
		d.uncapped = true
	case errno == unix.ENOBUFS, errno == unix.ECANCELED, errno == unix.EAGAIN, errno == unix.EINTR:
	default:
		d.workOf(s).inputErr = errno
		d.list(id, s)
	}
}

// take takes up a buffer with bytes. While the owner wants none they are copied, so that silent
// owners leave buffers for others.
func (d *Driver) take(id driver.ID, s *slot, p piece) {
	bytes := d.buffers.take(p.id, int(p.n))
	switch {
	case len(bytes) == 0, s.kind == kindClosing && !s.has(detaching):
		d.buffers.give(p.id)
	case s.kind == kindClosing, !s.has(reading):
		w := d.workOf(s)
		d.keep(s, w)
		w.kept = append(w.kept, bytes...)
		d.buffers.give(p.id)
		d.touch(id, s)
	default:
		w := d.workOf(s)
		w.pieces = append(w.pieces, p)
		d.list(id, s)
		if len(w.pieces) >= mostPieces {
			d.touch(id, s)
		}
	}
}

// keep copies what is in buffers, which the kernel then has back.
func (d *Driver) keep(_ *slot, w *work) {
	for _, p := range w.pieces {
		w.kept = append(w.kept, d.buffers.of(p.id, int(p.n))...)
		d.buffers.give(p.id)
	}
	w.pieces = w.pieces[:0]
}

// dropInput forgets what is to be delivered.
func (d *Driver) dropInput(s *slot) {
	w := s.work
	if w == nil {
		return
	}
	for _, p := range w.pieces {
		d.buffers.give(p.id)
	}
	w.pieces, w.kept, w.inputEnd, w.inputErr = w.pieces[:0], nil, false, nil
}

// watched is for a connection that receives nothing: it may have been reset. A listener may have
// peers.
func (d *Driver) watched(id driver.ID, s *slot, c cqe) {
	switch {
	case c.res < 0:
	case s.kind == kindListener:
		s.set(due)
		d.list(id, s)
	case s.kind == kindConn && !s.receiving() && !s.runs(opReceive):
		errno := posix.SocketError(int(s.fd))
		if errno == 0 {
			errno = unix.Errno(s.errno)
		}
		if errno != 0 {
			d.workOf(s).inputErr = errno
			d.list(id, s)
		}
	}
}

// tell emits one event of a connection: first what was sent, so that room is known, then what came.
func (d *Driver) tell(id driver.ID, s *slot, ev driver.Events) bool {
	w := s.work
	if w == nil {
		return false
	}
	switch {
	case w.told > 0:
		n := w.told
		w.told = 0
		d.polled++
		ev.Sent(id, n)
		return true
	case !s.receiving():
		if w.inputErr != nil { // what came before the reset is lost with it
			d.endWith(id, s, w.inputErr)
			return true
		}
	case w.hasInput() && w.served == d.polls: // the next Poll goes on
		d.list(id, s)
		return false
	case w.hasInput():
		w.served = d.polls
		d.deliver(id, s, ev)
		return true
	case s.errno != 0 && (w.inputEnd || w.inputErr != nil): // sending had failed: this end is that reset
		d.endWith(id, s, unix.Errno(s.errno))
		return true
	case w.inputErr != nil:
		d.endWith(id, s, w.inputErr)
		return true
	case w.inputEnd:
		w.inputEnd = false
		s.set(ended)
		d.touch(id, s)
		d.polled++
		ev.Ended(id)
		return true
	}
	if s.receiving() && !s.runs(opReceive) {
		d.touch(id, s)
	}
	d.rest(s)
	return false
}

// deliver lends the first bytes: a buffer of the ring as it is, or several of them together.
func (d *Driver) deliver(id driver.ID, s *slot, ev driver.Events) {
	w := s.work
	var p []byte
	switch {
	case len(w.kept) > 0:
		n := min(len(w.kept), d.readBuffer)
		p, w.kept = w.kept[:n:n], w.kept[n:]
	case len(w.pieces) == 1:
		d.lent = int(w.pieces[0].id)
		p, w.pieces = d.buffers.of(w.pieces[0].id, int(w.pieces[0].n)), w.pieces[:0]
	default:
		p = d.gather(w)
	}
	d.polled++
	ev.Received(id, p)
	d.takeBack()
}

// gather copies as many buffers together as one read buffer has room for.
func (d *Driver) gather(w *work) []byte {
	room, filled, taken := d.spareBuffer(), 0, 0
	for _, p := range w.pieces {
		if filled+int(p.n) > len(room) {
			break
		}
		filled += copy(room[filled:], d.buffers.of(p.id, int(p.n)))
		d.buffers.give(p.id)
		taken++
	}
	w.pieces = w.pieces[:copy(w.pieces, w.pieces[taken:])]
	return room[:filled:filled]
}

// spareBuffer is memory of the length of a read buffer.
func (d *Driver) spareBuffer() []byte {
	if d.scratch == nil {
		d.scratch = make([]byte, d.readBuffer)
	}
	return d.scratch
}

// takeBack ends the loan of a buffer, also if the event has not returned.
func (d *Driver) takeBack() {
	if d.lent >= 0 {
		d.buffers.give(uint16(d.lent))
		d.lent = -1
	}
}
