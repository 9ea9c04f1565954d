package uring

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/posix"
	"github.com/myriad-go/myriad/internal/table"
)

const (
	ringEntries     = 256  // operations that are begun with one call
	ringCompletions = 4096 // completions for which the queue has room; the kernel keeps more elsewhere
	entriesPerSlot  = 8    // what apply needs at most

	bufferCount = 512
	bufferSize  = 4 << 10

	completionsPerPoll = 256 // after so many, a Poll asks the kernel for no more
	enterings          = 64  // how often a Poll asks at most
	fewestPerEntering  = 16  // operations that the kernel completes in a call at least, if there are so many
	acceptsPerPoll     = 64  // connections accepted from one listener in one Poll

	// mostPieces is how many buffers of input a connection may have waiting before it receives no
	// more.
	mostPieces = 16
	// keptWorks is how many works without a connection a driver keeps.
	keptWorks = 512
)

// Driver serves one loop by one ring. See driver.Driver for the contract.
type Driver struct {
	loop       uint8
	alive      time.Duration // Options.KeepAlive
	readBuffer int
	ring       *ring
	buffers    *buffers
	uncapped   bool // the kernel cannot bound how much one receive operation takes
	enabled    bool // by the first call that enters the kernel, on its thread
	failure    error
	wakeFD     int
	wakeArmed  bool
	inFlight   int // operations that the kernel has, or will have

	slots     table.Table[slot]
	used      uint32 // of the slots from the first on, which is never given out
	free      []uint32
	touched   []driver.ID // what is wanted of the kernel may have changed; it is told before the next wait
	again     []driver.ID // those that are to be looked at once more before the wait after that
	ready     []driver.ID // there is something to emit at the next Poll
	turn      []driver.ID // the list before it, being served from next on
	next      int
	accepted  int         // peers that turn[next] has been given
	listeners []driver.ID // all
	polls     uint32
	polled    int         // events emitted in this Poll
	full      bool        // the kernel may have more
	looks     []driver.ID // of Look, for the next Poll
	lent      int         // the number of the buffer that Received lends; -1: none
	scratch   []byte
	works     []*work    // without a connection
	messages  []*message // without an operation
	many      []int      // of SendMany
	unsent    int        // calls of Send since the kernel was entered

	waking   sync.RWMutex // Wake may be called while Shutdown runs, and must not write to a number used anew
	shutDown bool
}

// newDriver opens a driver whose ring is not enabled.
func newDriver(loop uint8, o driver.Options) (*Driver, error) {
	return newSized(loop, o, sizes{ringEntries, ringCompletions, bufferCount, false})
}

// sizes are of a ring. Tests have small ones, and some that ask for no more than Linux 6.1 has.
type sizes struct {
	entries, completions, buffers int
	old                           bool
}

func newSized(loop uint8, o driver.Options, z sizes) (*Driver, error) {
	r, err := newRing(uint32(z.entries), uint32(z.completions), z.old)
	if err != nil {
		return nil, err
	}
	b, err := newBuffers(r, z.buffers, min(bufferSize, o.ReadBuffer))
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("uring: eventfd: %w", err), r.close(), b.close())
	}
	return &Driver{loop: loop, alive: o.KeepAlive, readBuffer: o.ReadBuffer, ring: r, buffers: b, wakeFD: wake,
		uncapped: z.old, used: 1, lent: -1}, nil
}

// Capabilities implements driver.Driver. A ring belongs to one thread.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{ThreadBound: true, Control: d.Control, Look: d.Look, Full: d.Full, SendMany: d.SendMany}
}

// Look has the next Poll take all completions that there are, offer the kernel once more what the
// connection has queued, and read from it if no buffer was left for it.
func (d *Driver) Look(id driver.ID) { d.looks = append(d.looks, id) }

// Full reports whether the last Poll may have left something for the next one.
func (d *Driver) Full() bool { return d.full }

// Control calls f with the descriptor of a connection.
func (d *Driver) Control(id driver.ID, f func(fd uintptr)) error {
	s := d.conn(id)
	if s == nil {
		return driver.ErrStale
	}
	f(uintptr(s.fd))
	return nil
}

// Wake ends the Poll that is waiting, or the next one. The eventfd is never read: each write
// completes the poll operation on it once more.
func (d *Driver) Wake() {
	d.waking.RLock()
	defer d.waking.RUnlock()
	if !d.shutDown {
		one := [8]byte{1}
		_, _ = unix.Write(d.wakeFD, one[:])
	}
}

// Poll implements driver.Driver.
func (d *Driver) Poll(wait time.Duration, ev driver.Events) (int, error) {
	d.polled = 0
	d.takeBack()
	d.polls++
	if d.next == len(d.turn) {
		if err := d.await(wait); err != nil {
			return 0, err
		}
		d.turn, d.ready, d.next = d.ready, d.turn[:0], 0
	}
	for d.next < len(d.turn) {
		id := d.turn[d.next]
		if s := d.find(id); s != nil {
			s.clear(listed)
		}
		for d.emit(id, ev) {
		}
		d.next++
		d.accepted = 0
	}
	return d.polled, nil
}

// emit tells the owner one thing of a connection or listener. It reports whether to call it again:
// an event may not return, and then the next Poll does that.
func (d *Driver) emit(id driver.ID, ev driver.Events) bool {
	s := d.find(id)
	switch {
	case s == nil:
	case s.kind == kindConn:
		return d.tell(id, s, ev)
	case s.kind == kindListener:
		return d.accept(id, s, ev)
	case s.kind == kindDialing && s.has(due):
		return d.finishDial(id, s, ev)
	case s.kind == kindClosing && s.has(due):
		d.tellLast(id, s, ev)
	}
	return false
}

// await tells the kernel what is wanted, and takes what has completed. It waits unless there is
// something to emit.
func (d *Driver) await(wait time.Duration) error {
	d.retrySends()
	if err := d.applyAll(); err != nil {
		return err
	}
	taken, most := 0, enterings
	if len(d.looks) > 0 {
		most += d.inFlight / fewestPerEntering
	}
	switch {
	case wait != 0 && len(d.ready) == 0 && len(d.looks) == 0 && !d.ring.completed():
		if errno := d.ring.wait(wait); refused(errno) {
			return d.fail(errno)
		}
	case d.ring.pending() > 0 || d.ring.hasMore():
		if errno := d.ring.collect(); refused(errno) {
			return d.fail(errno)
		}
	}
	taken = d.harvest()
	for range most { // the kernel completes some twenty operations in a call
		if !d.ring.hasMore() || taken >= completionsPerPoll && len(d.looks) == 0 {
			break
		}
		if err := d.applyAll(); err != nil {
			return err
		}
		if errno := d.ring.collect(); refused(errno) {
			return d.fail(errno)
		}
		taken += d.harvest()
	}
	d.readStarved()
	d.looks = d.looks[:0]
	if d.full = d.ring.hasMore() || taken >= completionsPerPoll; d.full {
		d.acceptInTurn()
	}
	return nil
}

// retrySends is the first half of Look.
func (d *Driver) retrySends() {
	for _, id := range d.looks {
		if s := d.conn(id); s != nil && s.work.hasOutput() {
			s.clear(noRoom)
			d.touch(id, s)
		}
	}
}

// readStarved is the second half of Look: a connection that has no receive operation, because the
// buffers have run out, is read by a call.
func (d *Driver) readStarved() {
	for _, id := range d.looks {
		s := d.conn(id)
		if s == nil || !s.receiving() || s.runs(opReceive) {
			continue
		}
		w := d.workOf(s)
		if w.hasInput() || w.inputEnd || w.inputErr != nil {
			continue
		}
		switch n, err := unix.Read(int(s.fd), d.spareBuffer()); {
		case n > 0:
			w.kept = append(w.kept, d.spareBuffer()[:n]...)
		case err == nil:
			w.inputEnd = true
		case err != unix.EAGAIN && err != unix.EINTR:
			w.inputErr = err
		}
		d.list(id, s)
	}
}

// refused reports whether a call has failed for a reason that does not pass.
func refused(errno unix.Errno) bool {
	switch errno {
	case 0, unix.EINTR, unix.ETIME, unix.EAGAIN, unix.EBUSY: // a signal, the end of the wait, memory that is short
		return false
	}
	return true
}

// fail notes that the ring cannot be used any more.
func (d *Driver) fail(errno unix.Errno) error {
	if d.failure == nil {
		d.failure = fmt.Errorf("uring: io_uring_enter: %w", errno)
	}
	return d.failure
}

// submit has the kernel begin what is pending.
func (d *Driver) submit() error {
	if d.failure != nil {
		return d.failure
	}
	if err := d.enable(); err != nil {
		return err
	}
	for tries := 0; d.ring.pending() > 0; tries++ {
		errno := d.ring.submit()
		if refused(errno) || tries > enterings {
			return d.fail(errno)
		}
		d.harvest()
	}
	return nil
}

// enable makes the ring this thread's, before it is entered for the first time.
func (d *Driver) enable() error {
	if d.enabled {
		return nil
	}
	if d.failure = d.ring.enable(); d.failure != nil {
		return d.failure
	}
	d.enabled = true
	return nil
}

// applyAll writes down for the kernel what has changed of what is wanted from it.
func (d *Driver) applyAll() error {
	if err := d.enable(); err != nil {
		return err
	}
	if !d.wakeArmed {
		if err := d.makeRoom(); err != nil {
			return err
		}
		d.poll(d.wakeFD, unix.POLLIN, pollAddMulti, userData(opWake, 0))
		d.wakeArmed = true
	}
	for i := 0; i < len(d.touched); i++ { // it may grow
		if err := d.makeRoom(); err != nil {
			return err
		}
		d.apply(d.touched[i])
	}
	d.touched, d.again, d.unsent = append(d.touched[:0], d.again...), d.again[:0], 0
	return d.failure
}

// makeRoom has apply find enough entries.
func (d *Driver) makeRoom() error {
	if d.ring.room() >= entriesPerSlot {
		return nil
	}
	return d.submit()
}

// harvest takes all completions from the queue.
func (d *Driver) harvest() (n int) {
	for {
		c, ok := d.ring.take()
		if !ok {
			return n
		}
		n++
		d.complete(c)
	}
}

// An operation is what a completion is of. Operations have these numbers in the bits of slot.ops.
type operation uint8

const (
	opReceive operation = iota // multishot
	opWatch                    // multishot, of a connection that receives nothing: a reset; of a listener: a peer
	opRoom                     // multishot: a full socket has room, or connecting has come to an end
	opSending
	opWake
	opCancel operation = 1 << 7 // of the operation in the other bits
)

// userData is what the kernel gives back with a completion: the operation, and the slot and the
// generation of an id.
func userData(op operation, id driver.ID) uint64 { return uint64(op)<<56 | uint64(id)&(1<<56-1) }

// complete notes what an operation has come to. It emits nothing.
func (d *Driver) complete(c cqe) {
	op, id := operation(c.userData>>56), driver.ID(c.userData&(1<<56-1))|driver.ID(d.loop)<<56
	more := c.flags&cqeMore != 0
	if op&opCancel != 0 {
		if s := d.find(id); s != nil && c.res < 0 { // not found just now
			s.cancels &^= 1 << (op &^ opCancel)
			d.touch(id, s)
		}
		return
	}
	if !more {
		d.inFlight--
	}
	if op == opWake {
		d.wakeArmed = d.wakeArmed && more
		return
	}
	s := d.find(id) // nil: no slot is used anew before its operations have completed
	if s == nil {
		panic(fmt.Sprintf("uring: completion of operation %d for id %x, which is gone", op, uint64(id)))
	}
	if !more {
		s.ops &^= 1 << op
		s.cancels &^= 1 << op
	}
	switch op {
	case opReceive:
		d.received(id, s, c)
	case opWatch:
		d.watched(id, s, c)
	case opRoom:
		d.hasRoom(id, s, c)
	case opSending:
		d.sent(id, s, c)
	}
	switch {
	case s.kind == kindClosing && s.ops == 0:
		d.release(id, s)
	case !more && op != opSending:
		d.touch(id, s)
	}
}

// Shutdown cancels all operations, and then releases the kernel's objects and aborts what still
// lives.
func (d *Driver) Shutdown() error {
	if d.shutDown { // only this method sets it, and its caller owns the driver
		return nil
	}
	err := d.cancelAll()
	for i := range d.used {
		if s := d.slots.Row(i); s != nil && s.kind != kindFree {
			s.ops = 0
			d.dropOutput(s)
			if s.work != nil && s.work.socket != nil {
				s.work.socket.Close()
			}
			if s.kind != kindListener && s.fd >= 0 {
				unix.Close(int(s.fd))
			}
		}
	}
	d.slots, d.used, d.ready, d.turn, d.next, d.touched = table.Table[slot]{}, 0, nil, nil, 0, nil
	d.waking.Lock()
	defer d.waking.Unlock()
	d.shutDown = true
	unix.Close(d.wakeFD)
	if err != nil { // the kernel may still write into the buffers: they are left to it
		return errors.Join(err, d.ring.close())
	}
	return errors.Join(d.ring.close(), d.buffers.close())
}

// cancelAll ends every operation.
func (d *Driver) cancelAll() error {
	if !d.enabled || d.failure != nil {
		return d.failure
	}
	d.wakeArmed = true // if it is not, it need not be any more
	for range enterings {
		if err := d.submit(); err != nil {
			return err
		}
		if d.inFlight == 0 {
			return nil
		}
		e := d.ring.next()
		e.opcode, e.fd, e.opFlags, e.userData = opAsyncCancel, -1, cancelAll|cancelAny, userData(opCancel, 0)
		if errno := d.ring.collect(); refused(errno) {
			return d.fail(errno)
		}
		d.harvest()
		if d.inFlight > 0 {
			if errno := d.ring.wait(shutdownWait); refused(errno) {
				return d.fail(errno)
			}
			d.harvest()
		}
	}
	if d.inFlight == 0 {
		return nil
	}
	return fmt.Errorf("uring: %d operations do not end", d.inFlight)
}

// shutdownWait is for how long Shutdown waits for completions before it cancels once more.
const shutdownWait = 10 * time.Millisecond

// Attach implements driver.Driver.
func (d *Driver) Attach(sock driver.Socket) (driver.ID, error) {
	s, err := posix.Take(sock)
	if err != nil {
		sock.Close()
		return 0, fmt.Errorf("uring: attach: %w", err)
	}
	id, err := d.register(s.FD, kindConn)
	if err != nil {
		unix.Close(s.FD)
		return 0, err
	}
	if c := d.conn(id); len(s.Ahead) > 0 {
		d.workOf(c).kept = s.Ahead
		d.list(id, c)
	}
	if s.Shared {
		d.conn(id).set(shared)
	}
	return id, nil
}

// Dial implements driver.Driver.
func (d *Driver) Dial(addr net.Addr) (driver.ID, error) {
	fd, err := posix.Connect(addr, d.alive)
	if err != nil {
		return 0, fmt.Errorf("uring: dial %v: %w", addr, err)
	}
	id, err := d.register(fd, kindDialing)
	if err != nil {
		unix.Close(fd)
		return 0, err
	}
	return id, nil
}

func (d *Driver) finishDial(id driver.ID, s *slot, ev driver.Events) bool {
	d.polled++
	local, errno := posix.Connected(int(s.fd))
	if errno != 0 {
		unix.Close(int(s.fd))
		d.recycle(id.Slot()) // before the event, which may not return
		ev.DialFailed(id, errno)
		return false
	}
	s.kind = kindConn
	s.clear(due)
	s.set(reading)
	d.touch(id, s)
	ev.Dialed(id, local)
	return true
}

// Pause implements driver.Driver. The receive operation goes on until something comes.
func (d *Driver) Pause(id driver.ID) {
	if s := d.conn(id); s != nil {
		s.clear(reading)
		d.touch(id, s)
	}
}

// Resume implements driver.Driver.
func (d *Driver) Resume(id driver.ID) {
	if s := d.conn(id); s != nil && !s.has(ended) {
		s.set(reading)
		d.touch(id, s)
		if s.work != nil {
			d.list(id, s)
		}
	}
}

// Close implements driver.Driver.
func (d *Driver) Close(id driver.ID) { d.end(id, false) }

// Abort implements driver.Driver.
func (d *Driver) Abort(id driver.ID) { d.end(id, true) }

// end closes a connection or an attempt to connect.
func (d *Driver) end(id driver.ID, reset bool) {
	s := d.find(id)
	switch {
	case s == nil:
		return
	case s.kind == kindClosing && !s.has(detaching) && s.work != nil:
		s.work.err = nil // it has failed by itself, which the owner need not know any more
		return
	case s.kind != kindConn && s.kind != kindDialing:
		return
	}
	if reset {
		posix.Reset(int(s.fd))
	}
	d.close(id, s)
}

// endWith closes a connection that has failed.
func (d *Driver) endWith(id driver.ID, s *slot, err error) {
	d.workOf(s).err = err
	d.close(id, s)
}

// close drops what is queued both ways, and releases the slot when its operations have ended.
func (d *Driver) close(id driver.ID, s *slot) {
	s.kind = kindClosing
	s.clear(due)
	d.dropOutput(s)
	d.dropInput(s)
	if s.ops == 0 {
		d.release(id, s)
		return
	}
	d.touch(id, s)
}

// release gives the descriptor up. No operation uses it any more. The last event follows at the
// next Poll.
func (d *Driver) release(id driver.ID, s *slot) {
	w := s.work
	if w != nil {
		d.dropOutput(s)
	}
	switch {
	case s.fd < 0:
	case s.has(detaching) && w.inputErr != nil:
		w.err = w.inputErr
		unix.Close(int(s.fd))
	case s.has(detaching):
		w.socket = posix.NewSocket(posix.Descriptor{FD: int(s.fd), Ahead: slices.Clip(w.kept), Shared: s.has(shared)})
		w.kept = nil
	default:
		unix.Close(int(s.fd))
	}
	s.fd = -1
	s.set(due)
	d.list(id, s)
}

// tellLast emits the last event of an id.
func (d *Driver) tellLast(id driver.ID, s *slot, ev driver.Events) {
	var err error
	var socket *posix.Socket
	if s.work != nil {
		err, socket = s.work.err, s.work.socket
	}
	d.recycle(id.Slot()) // before the event, which may not return
	d.polled++
	if socket != nil {
		ev.Detached(id, socket)
	} else {
		ev.Closed(id, err)
	}
}

// Detach implements driver.Driver.
func (d *Driver) Detach(id driver.ID) error {
	s := d.conn(id)
	switch {
	case s == nil:
		return driver.ErrStale
	case s.work.hasOutput() || s.work != nil && s.work.told > 0:
		return driver.ErrNotIdle
	}
	s.kind = kindClosing
	s.set(detaching)
	d.keep(s, d.workOf(s))
	if s.ops == 0 {
		d.release(id, s)
	} else {
		d.touch(id, s)
	}
	return nil
}

// A slot is what the driver keeps of one descriptor, in 24 bytes. It has a work only while there is
// something to send, to deliver or to tell.
type slot struct {
	work       *work
	fd         int32 // -1: it was given up, or is a listener's own
	generation uint32
	errno      uint16 // why sending failed, while what the peer had sent is still being received
	flags      flag
	kind       kind
	ops        uint8 // the operations that the kernel has, as bits
	cancels    uint8 // those of them that it was told to cancel
}

type kind uint8

const (
	kindFree kind = iota
	kindListener
	kindDialing
	kindConn
	kindClosing // its last event is still to be emitted
)

type flag uint16

const (
	reading   flag = 1 << iota // the owner wants input, or peers
	ended                      // the peer's FIN has been reported
	finQueued                  // CloseWrite was called
	touched                    // in Driver.touched, or in again
	listed                     // in Driver.ready, or in turn behind next
	shared                     // another process may have a duplicate of the descriptor
	// of a listener: there may be peers. Of others: connecting, or closing, has come to an end
	due
	broken    // of a listener: it has been refused
	noRoom    // the socket's buffer is full
	detaching // a socket is to be made of the descriptor
	capped    // the receive operation was told how many bytes it may take
)

func (s *slot) has(f flag) bool { return s.flags&f != 0 }
func (s *slot) set(f flag)      { s.flags |= f }
func (s *slot) clear(f flag)    { s.flags &^= f }

// runs reports whether the kernel has an operation of the slot.
func (s *slot) runs(op operation) bool { return s.ops&(1<<op) != 0 }

// receiving: the owner wants input, and there may be some.
func (s *slot) receiving() bool { return s.flags&(reading|ended) == reading }

// find finds the slot of an id, or nil if the id is stale.
func (d *Driver) find(id driver.ID) *slot {
	i, generation := id.Split()
	s := d.slots.Row(i)
	if s == nil || s.generation != generation || s.kind == kindFree {
		return nil
	}
	return s
}

// conn is the slot of a connection that is not on its way out.
func (d *Driver) conn(id driver.ID) *slot {
	if s := d.find(id); s != nil && s.kind == kindConn {
		return s
	}
	return nil
}

// register gives fd a slot.
func (d *Driver) register(fd int, k kind) (driver.ID, error) {
	i, err := d.takeSlot()
	if err != nil {
		return 0, err
	}
	s := d.slots.Row(i)
	id := driver.MakeID(d.loop, i, s.generation)
	s.fd, s.kind = int32(fd), k
	if k != kindDialing {
		s.set(reading)
	}
	d.touch(id, s)
	return id, nil
}

func (d *Driver) takeSlot() (uint32, error) {
	if n := len(d.free); n > 0 {
		i := d.free[n-1]
		d.free = d.free[:n-1]
		return i, nil
	}
	if d.used == driver.MaxSlots {
		return 0, driver.ErrFull
	}
	i := d.used
	d.used++
	d.slots.Grow(i).generation = 1
	return i, nil
}

// recycle makes a slot free after its last event: a new generation makes every id of the old one
// stale.
func (d *Driver) recycle(i uint32) {
	s := d.slots.Row(i)
	d.dropWork(s)
	generation := s.generation + 1
	if generation == 0 {
		generation = 1 // the zero ID is never live
	}
	*s = slot{generation: generation}
	d.free = append(d.free, i)
}

// touch notes that what is wanted of the kernel may have changed. It is told once, before the next
// wait.
func (d *Driver) touch(id driver.ID, s *slot) {
	if !s.has(touched) {
		s.set(touched)
		d.touched = append(d.touched, id)
	}
}

// touchAgain has apply called again before the wait after the next one.
func (d *Driver) touchAgain(id driver.ID, s *slot) {
	if !s.has(touched) {
		s.set(touched)
		d.again = append(d.again, id)
	}
}

// list notes that there may be something to emit.
func (d *Driver) list(id driver.ID, s *slot) {
	if !s.has(listed) {
		s.set(listed)
		d.ready = append(d.ready, id)
	}
}

// apply brings what the kernel does for a slot in line with what is wanted.
func (d *Driver) apply(id driver.ID) {
	s := d.find(id)
	if s == nil {
		return
	}
	s.clear(touched)
	switch s.kind {
	case kindClosing:
		d.cancel(id, s, opReceive)
		d.cancel(id, s, opWatch)
		d.cancel(id, s, opRoom)
	case kindDialing:
		if !s.has(due) && !s.runs(opRoom) {
			d.arm(id, s, opRoom, unix.POLLOUT, 0)
		}
	case kindListener:
		if s.has(reading) && !s.has(due|broken) && !s.runs(opWatch) {
			d.arm(id, s, opWatch, unix.POLLIN, 0)
		}
	case kindConn:
		if d.applyOutput(id, s); s.kind == kindConn {
			d.applyInput(id, s)
		}
	}
}

// arm begins a poll operation.
func (d *Driver) arm(id driver.ID, s *slot, op operation, events uint16, how uint32) {
	d.poll(int(s.fd), events, how, userData(op, id))
	s.ops |= 1 << op
}

func (d *Driver) poll(fd int, events uint16, how uint32, data uint64) {
	e := d.ring.next()
	e.opcode, e.fd, e.len, e.opFlags, e.userData = opPollAdd, int32(fd), how, pair(events, 0), data
	d.inFlight++
}

// cancel ends an operation, if it runs: it then completes.
func (d *Driver) cancel(id driver.ID, s *slot, op operation) {
	if !s.runs(op) || s.cancels&(1<<op) != 0 {
		return
	}
	e := d.ring.next()
	e.opcode, e.fd, e.addr, e.userData = opAsyncCancel, -1, userData(op, id), userData(op|opCancel, id)
	s.cancels |= 1 << op
}
