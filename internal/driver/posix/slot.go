//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

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

// live finds the slot of an id, or nil if the id is stale or on its way out.
func (d *Driver) live(id driver.ID) *slot {
	s := d.slots.Row(id.Slot())
	if s == nil || s.generation != id.Generation() || s.kind == kindFree || s.kind == kindClosing {
		return nil
	}
	return s
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
