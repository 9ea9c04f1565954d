//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

// Package posix is what the drivers over sockets and readiness have in common: everything but the
// kernel's way to tell which socket is ready, which is a [Poller]. Sockets do not block, and
// reports are level-triggered.
//
// On Linux, reads and writes are raw system calls: they return at once, and the Go scheduler's
// bookkeeping around an ordinary call costs a fifth of a small request (docs/adr/0002).
package posix

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/table"
	"golang.org/x/sys/unix"
)

const (
	eventsPerPoll   = 256     // events taken from the kernel in one Poll
	acceptsPerPoll  = 64      // connections accepted from one listener in one Poll
	vectorsPerWrite = 64      // blocks gathered into one writev
	filePerWrite    = 1 << 20 // bytes of one sendfile call

	// What connections have sent is read in a row, then delivered in a row: so the kernel's code,
	// and then ours, finds in the caches what it left there. readsInARow is for how many of them;
	// they share the read buffer, and once a rowShare of it is full no other is read.
	readsInARow = 64
	rowShare    = 4
)

// Driver serves one loop by a Poller. See driver.Driver for the contract.
type Driver struct {
	loop   uint8
	poller Poller
	alive  time.Duration // Options.KeepAlive
	buffer []byte
	filled int // of buffer, by those that are in row
	// read, but not delivered: empty outside Poll, unless an event has ended its goroutine or a
	// socket came with bytes
	row     []view
	view    int // row[view:] are still to be delivered
	slots   table.Table[slot]
	used    uint32 // of the slots from the first on, which is never given out
	free    []uint32
	changed []driver.ID // whose interest is to be told to the poller before the next wait
	later   []deferred  // what to emit at the next Poll, because nothing is emitted outside it
	emit    []deferred  // the one before it, being emitted from emitted on
	emitted int
	events  [eventsPerPoll]Event
	// events[next:have] are still to be dispatched; none outside Poll, unless an event has ended
	// its goroutine
	next      int
	have      int
	looks     []driver.ID // of Look, for the next Poll
	listeners []driver.ID
	gather    gather
	sharer    sharer
	polled    int  // events emitted in this Poll
	full      bool // the kernel had as many events as there is room for, or more

	waking   sync.RWMutex // Wake may be called while Shutdown runs, and must not write to a number used anew
	shutDown bool
}

// New makes a driver for one loop, which owns the poller.
func New(loop uint8, o driver.Options, p Poller) *Driver {
	return &Driver{loop: loop, poller: p, alive: o.KeepAlive, buffer: make([]byte, o.ReadBuffer), used: 1,
		sharer: sharer{helpers: helpersOf(o)}}
}

// Capabilities implements driver.Driver: any goroutine may take the driver over between two calls.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Control: d.Control, Look: d.Look, Full: d.Full, SendMany: d.SendMany}
}

// Look has the next Poll read from a connection and send to it, whether or not its socket is known
// to be ready. The calls then say what there is, at the price of one that may be in vain.
func (d *Driver) Look(id driver.ID) { d.looks = append(d.looks, id) }

// Full reports whether the last Poll may have left something for the next one.
func (d *Driver) Full() bool { return d.full }

// lookNext makes events of what Look was given, in place of those that the kernel would report.
// With both, a connection might be given two receive buffers in a Poll.
func (d *Driver) lookNext() {
	n := min(len(d.looks), len(d.events))
	d.next, d.have = 0, 0
	for _, id := range d.looks[:n] {
		s := d.live(id)
		if s != nil && (s.kind == kindConn || s.kind == kindDialing && connected(int(s.fd))) {
			d.events[d.have] = Event{id, Readable | Writable}
			d.have++
		}
	}
	d.looks = append(d.looks[:0], d.looks[n:]...)
}

// connected reports whether an attempt to connect has come to an end.
func connected(fd int) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(p[:], 0)
	return n > 0 && err == nil
}

// Control calls f with the descriptor of a connection.
func (d *Driver) Control(id driver.ID, f func(fd uintptr)) error {
	s := d.conn(id)
	if s == nil {
		return driver.ErrStale
	}
	f(uintptr(s.fd))
	return nil
}

// Wake ends the Poll that is waiting, or the next one.
func (d *Driver) Wake() {
	d.waking.RLock()
	defer d.waking.RUnlock()
	if !d.shutDown {
		d.poller.Wake()
	}
}

// Poll implements driver.Driver.
func (d *Driver) Poll(wait time.Duration, ev driver.Events) (int, error) {
	d.polled = 0
	d.emitDeferred(ev)
	waited := false
	switch {
	case d.next < d.have || len(d.row) > 0:
	case len(d.looks) > 0:
		d.lookNext()
	default:
		if err := d.await(wait); err != nil {
			return d.polled, err
		}
		waited = true
	}
	d.deliver(ev)
	for d.next < d.have {
		e := d.events[d.next]
		d.next++ // before the event, which may not return
		d.dispatch(e.ID, e.Ready, ev)
		if d.next == d.have || len(d.row) >= readsInARow || d.filled > len(d.buffer)/rowShare {
			d.deliver(ev)
		}
	}
	if waited && d.full {
		d.acceptInTurn(ev)
	}
	d.emitDeferred(ev)
	return d.polled, nil
}

// deliver emits what has been read. What a connection has sent is lost with it, as it is while it
// waits in the kernel.
func (d *Driver) deliver(ev driver.Events) {
	for d.view < len(d.row) {
		v := d.row[d.view]
		d.row[d.view] = view{}
		d.view++ // before the event, which may not return
		if d.conn(v.id) != nil {
			d.polled++
			ev.Received(v.id, v.p)
		}
	}
	d.row, d.view, d.filled = d.row[:0], 0, 0
}

// await asks the kernel for a batch.
func (d *Driver) await(wait time.Duration) error {
	d.applyInterest()
	if d.polled > 0 || len(d.later) > 0 {
		wait = 0
	}
	n, err := d.poller.Wait(d.events[:], wait)
	if err != nil {
		return fmt.Errorf("posix: wait: %w", err)
	}
	d.next, d.have, d.full = 0, n, n == len(d.events)
	return nil
}

func (d *Driver) dispatch(id driver.ID, ready Ready, ev driver.Events) {
	s := d.live(id)
	if s == nil {
		return // closed by an earlier event of this batch
	}
	switch s.kind {
	case kindListener:
		d.accept(id, s, ready, ev)
	case kindDialing:
		d.finishDial(id, s, ev)
	case kindConn:
		d.serve(id, s, ready, ev)
	}
}

// serve handles one readiness event of a connection: first what can be sent, so that room is known,
// then what came.
func (d *Driver) serve(id driver.ID, s *slot, ready Ready, ev driver.Events) {
	if s.out != nil && ready&(Writable|Broken) != 0 {
		d.flushBacklog(id, s, ev)
		if s = d.live(id); s == nil {
			return
		}
	}
	switch {
	case ready&Readable != 0 && s.receiving():
		d.read(id, s, ev)
	case ready&Broken != 0:
		d.hungUp(id, s, ev)
	}
}

// read takes from the kernel what a connection has sent, and puts it in the row.
func (d *Driver) read(id driver.ID, s *slot, ev driver.Events) {
	n, errno := rawRead(int(s.fd), d.buffer[d.filled:])
	switch {
	case n > 0:
		from := d.filled
		d.filled += n
		d.row = append(d.row, view{id, d.buffer[from:d.filled:d.filled]})
	case errno == 0:
		d.endOfInput(id, s, ev)
	case errno == unix.EAGAIN || errno == unix.EINTR:
	default:
		d.fail(id, s, errno, ev)
	}
}

func (d *Driver) endOfInput(id driver.ID, s *slot, ev driver.Events) {
	if s.errno != 0 { // sending had failed: this end is that reset
		d.fail(id, s, unix.Errno(s.errno), ev)
		return
	}
	s.set(ended)
	d.touch(id, s)
	d.polled++
	ev.Ended(id)
}

// hungUp handles an error or a full hang-up of a connection that is not being read. A reset is
// reported; a peer that has only ended while we are paused would be reported without end, so the
// descriptor leaves the poller until the owner wants input again.
func (d *Driver) hungUp(id driver.ID, s *slot, ev driver.Events) {
	if errno := socketError(int(s.fd)); errno != 0 {
		d.fail(id, s, errno, ev)
		return
	}
	if s.errno != 0 {
		d.fail(id, s, unix.Errno(s.errno), ev)
		return
	}
	s.set(parked)
	d.touch(id, s)
}

// fail ends a connection that the peer or the network has broken.
func (d *Driver) fail(id driver.ID, s *slot, errno unix.Errno, ev driver.Events) {
	d.release(s)
	d.shut(s)
	d.recycle(id.Slot()) // before the event, which may not return
	d.polled++
	ev.Closed(id, errno)
}

// Shutdown releases the kernel's objects and aborts what still lives.
func (d *Driver) Shutdown() error {
	d.sharer.stop()
	for i := range d.used {
		if s := d.slots.Row(i); s != nil && (s.kind == kindConn || s.kind == kindDialing) {
			d.release(s)
			unix.Close(int(s.fd))
		}
	}
	for _, e := range append(d.later, d.emit...) {
		if e.socket != nil {
			e.socket.Close()
		}
	}
	d.slots, d.used, d.later, d.emit = table.Table[slot]{}, 0, nil, nil
	d.waking.Lock()
	defer d.waking.Unlock()
	d.shutDown = true
	return d.poller.Close()
}

// Attach implements driver.Driver.
func (d *Driver) Attach(sock driver.Socket) (driver.ID, error) {
	s, err := Take(sock)
	if err != nil {
		sock.Close()
		return 0, fmt.Errorf("posix: attach: %w", err)
	}
	id, err := d.register(s.FD, kindConn, Read)
	if err != nil {
		unix.Close(s.FD)
		return 0, err
	}
	if s.Shared {
		d.live(id).set(shared)
	}
	if len(s.Ahead) > 0 {
		d.row = append(d.row, view{id, s.Ahead})
	}
	return id, nil
}

// Dial implements driver.Driver.
func (d *Driver) Dial(addr net.Addr) (driver.ID, error) {
	fd, err := startConnect(addr, d.alive)
	if err != nil {
		return 0, fmt.Errorf("posix: dial %v: %w", addr, err)
	}
	id, err := d.register(fd, kindDialing, Write)
	if err != nil {
		unix.Close(fd)
		return 0, err
	}
	return id, nil
}

func (d *Driver) finishDial(id driver.ID, s *slot, ev driver.Events) {
	d.polled++
	local, errno := Connected(int(s.fd))
	if errno != 0 {
		unix.Close(int(s.fd))
		d.recycle(id.Slot()) // before the event, which may not return
		ev.DialFailed(id, errno)
		return
	}
	s.kind = kindConn
	s.set(reading)
	d.touch(id, s)
	ev.Dialed(id, local)
}

// Pause, Resume, CloseWrite, Close, Abort and Detach implement driver.Driver.
func (d *Driver) Pause(id driver.ID) {
	if s := d.conn(id); s != nil {
		s.clear(reading)
		d.touch(id, s)
	}
}

func (d *Driver) Resume(id driver.ID) {
	if s := d.conn(id); s != nil && !s.has(ended) {
		s.set(reading)
		s.clear(parked)
		d.touch(id, s)
	}
}

func (d *Driver) CloseWrite(id driver.ID) {
	s := d.conn(id)
	if s == nil || s.has(finQueued) {
		return
	}
	s.set(finQueued)
	if s.out == nil {
		_ = unix.Shutdown(int(s.fd), unix.SHUT_WR) // a socket already reset reports it as an event
	}
}

// Close implements driver.Driver.
func (d *Driver) Close(id driver.ID) { d.end(id, false) }

// Abort implements driver.Driver.
func (d *Driver) Abort(id driver.ID) { d.end(id, true) }

// end closes a connection or an attempt to connect. The kernel forgets the descriptor at once, so
// nothing is pending; only the event waits for the next Poll.
func (d *Driver) end(id driver.ID, reset bool) {
	s := d.find(id)
	switch {
	case s == nil:
		return
	case s.kind == kindClosing:
		s.set(forgiven)
		return
	case s.kind != kindConn && s.kind != kindDialing:
		return
	}
	d.release(s)
	if reset {
		Reset(int(s.fd))
	}
	d.shut(s)
	s.kind = kindClosing
	d.later = append(d.later, deferred{id: id})
}

// Detach implements driver.Driver.
func (d *Driver) Detach(id driver.ID) error {
	s := d.conn(id)
	switch {
	case s == nil:
		return driver.ErrStale
	case s.out != nil:
		return driver.ErrNotIdle
	}
	if s.has(registered) {
		d.poller.Remove(int(s.fd), s.interest)
	}
	s.kind = kindClosing
	sock := newSocket(int(s.fd))
	sock.ahead, sock.shared = d.takeRead(id), s.has(shared)
	d.later = append(d.later, deferred{id: id, socket: sock})
	return nil
}

// takeRead is a copy of what has been read of a connection and not delivered.
func (d *Driver) takeRead(id driver.ID) (p []byte) {
	for _, v := range d.row[d.view:] {
		if v.id == id {
			p = append(p, v.p...)
		}
	}
	return slices.Clip(p)
}

// A slot is what the driver keeps of one descriptor: 24 bytes, and a backlog only while output is
// queued.
type slot struct {
	out        *backlog
	fd         int32
	generation uint32
	errno      uint16   // why sending failed, while what the peer had sent is still being received
	interest   Interest // what the poller has been told, while registered
	kind       kind
	flags      flag
}

type kind uint8

const (
	kindFree kind = iota
	kindListener
	kindDialing
	kindConn
	kindClosing // its last event is still to be emitted
)

type flag uint8

const (
	reading    flag = 1 << iota // the owner wants input
	ended                       // the peer's FIN has been reported
	finQueued                   // CloseWrite was called
	registered                  // the descriptor is in the poller
	parked                      // out of the poller until Resume: it would be reported without end
	touched                     // in Driver.changed
	shared                      // another process may have a duplicate of the descriptor
	forgiven                    // the owner closed what had failed: it need not know why
)

func (s *slot) has(f flag) bool { return s.flags&f != 0 }
func (s *slot) set(f flag)      { s.flags |= f }
func (s *slot) clear(f flag)    { s.flags &^= f }

// receiving: the owner wants input, and there may be some.
func (s *slot) receiving() bool { return s.flags&(reading|ended) == reading }

// deferred is a last event that waits for the next Poll.
type deferred struct {
	id     driver.ID
	socket *Socket // Detached, else Closed
	err    error
}

// A view is what has been read of a connection, until it is delivered.
type view struct {
	id driver.ID
	p  []byte
}

// find finds the slot of an id, or nil if the id is stale.
func (d *Driver) find(id driver.ID) *slot {
	i, generation := id.Split()
	s := d.slots.Row(i)
	if s == nil || s.generation != generation || s.kind == kindFree {
		return nil
	}
	return s
}

// live is the slot of an id that is not on its way out.
func (d *Driver) live(id driver.ID) *slot {
	if s := d.find(id); s != nil && s.kind != kindClosing {
		return s
	}
	return nil
}

func (d *Driver) conn(id driver.ID) *slot {
	if s := d.live(id); s != nil && s.kind == kindConn {
		return s
	}
	return nil
}

// register gives fd a slot and puts it into the poller.
func (d *Driver) register(fd int, k kind, interest Interest) (driver.ID, error) {
	i, err := d.takeSlot()
	if err != nil {
		return 0, err
	}
	s := d.slots.Row(i)
	id := driver.MakeID(d.loop, i, s.generation)
	if err := d.poller.Add(fd, id, interest); err != nil {
		d.free = append(d.free, i)
		return 0, fmt.Errorf("posix: register: %w", err)
	}
	s.fd, s.kind, s.interest, s.flags = int32(fd), k, interest, registered
	if k == kindConn {
		s.set(reading)
	}
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
	generation := s.generation + 1
	if generation == 0 {
		generation = 1 // the zero ID is never live
	}
	*s = slot{generation: generation}
	d.free = append(d.free, i)
}

// release drops what is queued.
func (d *Driver) release(s *slot) {
	if s.out != nil {
		s.out.drop()
		s.out = nil
	}
}

// shut closes the descriptor, which leaves the poller by that unless it has a duplicate: of that
// one events would come without end.
func (d *Driver) shut(s *slot) {
	if s.has(shared) && s.has(registered) {
		d.poller.Remove(int(s.fd), s.interest)
	}
	unix.Close(int(s.fd))
}

// emitDeferred emits what is deferred, and before that the rest of the last call, if an event did
// not return.
func (d *Driver) emitDeferred(ev driver.Events) {
	if d.emitted == len(d.emit) {
		if len(d.later) == 0 {
			return
		}
		d.later, d.emit, d.emitted = d.emit[:0], d.later, 0
	}
	for d.emitted < len(d.emit) {
		e := d.emit[d.emitted]
		d.emit[d.emitted] = deferred{}
		d.emitted++
		d.polled++
		if d.slots.Row(e.id.Slot()).has(forgiven) {
			e.err = nil
		}
		d.recycle(e.id.Slot())
		if e.socket != nil {
			ev.Detached(e.id, e.socket)
		} else {
			ev.Closed(e.id, e.err)
		}
	}
}

// touch notes that the interest of a connection may have changed. The poller is told once, before
// the next wait, so that a pause and a resume within one batch, or an answer to the peer's FIN by a
// close, cost no system call.
func (d *Driver) touch(id driver.ID, s *slot) {
	if !s.has(touched) {
		s.set(touched)
		d.changed = append(d.changed, id)
	}
}

func (d *Driver) applyInterest() {
	for _, id := range d.changed {
		s := d.live(id)
		if s == nil {
			continue
		}
		s.clear(touched)
		d.tellPoller(id, s, s.wanted())
	}
	d.changed = d.changed[:0]
}

func (s *slot) wanted() (i Interest) {
	switch {
	case s.kind == kindDialing:
		return Write
	case s.receiving():
		i = Read
	case s.kind == kindConn:
		i = Watch
	}
	if s.out != nil {
		i |= Write
	}
	return i
}

func (d *Driver) tellPoller(id driver.ID, s *slot, interest Interest) {
	switch {
	case s.has(parked) && s.has(registered):
		d.poller.Remove(int(s.fd), s.interest)
		s.clear(registered)
	case s.has(parked):
	case !s.has(registered):
		if err := d.poller.Add(int(s.fd), id, interest); err != nil { // nothing of it would ever be heard
			d.endWith(id, s, fmt.Errorf("posix: register again: %w", err))
			return
		}
		s.set(registered)
	case s.interest != interest:
		d.poller.Modify(int(s.fd), id, s.interest, interest)
	}
	s.interest = interest
}

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
	if s.out == nil {
		left, errno := d.gather.write(int(s.fd), c)
		return d.sent(id, s, c, left, errno)
	}
	queued = int64(c.Len())
	c.Pack(&s.out.chain)
	return queued
}

// sent follows a write: c has the bytes that the kernel has not taken, which go on as it has room.
func (d *Driver) sent(id driver.ID, s *slot, c *buf.Chain, left int, errno unix.Errno) (queued int64) {
	switch {
	case errno != 0:
		c.Release()
		d.sendFailed(id, s, errno)
		return 0
	case left > 0:
		d.startBacklog(id, s)
		c.Pack(&s.out.chain)
	}
	return int64(left)
}

func (d *Driver) startBacklog(id driver.ID, s *slot) {
	s.out = new(backlog)
	d.touch(id, s)
}

// A gather is the memory of one goroutine's writes.
type gather struct {
	vectors [][]byte
	iovecs  [vectorsPerWrite]unix.Iovec
}

// write hands the chain to the kernel until it is empty or the kernel takes no more. It returns how
// many bytes are left.
func (g *gather) write(fd int, c *buf.Chain) (left int, errno unix.Errno) {
	left = c.Len()
	for left > 0 {
		var n, asked int
		if p := c.First(); len(p) == left {
			asked = left
			n, errno = rawWrite(fd, p)
		} else {
			g.vectors = c.Vectors(g.vectors[:0], vectorsPerWrite)
			for _, p := range g.vectors {
				asked += len(p)
			}
			n, errno = rawWritev(fd, g.vectors, &g.iovecs)
			clear(g.vectors)
		}
		if n > 0 {
			c.Discard(n)
			left -= n
		}
		switch {
		case errno == unix.EAGAIN || errno == 0 && n < asked:
			return left, 0
		case errno != 0 && errno != unix.EINTR:
			return left, errno
		}
	}
	return 0, 0
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
	if left, errno := d.gather.write(int(s.fd), &b.chain); errno != 0 {
		return errno
	} else if left > 0 || b.file == nil {
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
	n, err := b.file.SendTo(fd, b.off, b.left)
	b.off += int64(n)
	b.left -= int64(n)
	return err
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
