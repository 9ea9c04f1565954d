package uring

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/posix"
)

// Peers are accepted by ordinary calls, after a poll operation has told of them. A multishot accept
// operation tells no address, so each peer would need a call for that. It also takes peers in while
// the owner wants none.

// Listen implements driver.Driver.
func (d *Driver) Listen(l driver.Listener) (driver.ID, error) {
	fd, err := posix.Listening(l, d.alive)
	if err != nil {
		return 0, err
	}
	id, err := d.register(fd, kindListener)
	if err == nil {
		d.listeners = append(d.listeners, id)
	}
	return id, err
}

// StopAccept implements driver.Driver. The poll operation goes on; it tells of a peer once.
func (d *Driver) StopAccept(id driver.ID) {
	if s := d.listener(id); s != nil {
		s.clear(reading)
	}
}

// ResumeAccept implements driver.Driver.
func (d *Driver) ResumeAccept(id driver.ID) {
	if s := d.listener(id); s != nil {
		s.set(reading)
		d.touch(id, s)
		if s.has(due) {
			d.list(id, s)
		}
	}
}

// CloseListener implements driver.Driver.
func (d *Driver) CloseListener(id driver.ID) {
	s := d.listener(id)
	if s == nil {
		return
	}
	d.listeners = slices.DeleteFunc(d.listeners, func(other driver.ID) bool { return other == id })
	s.fd = -1 // it stays the listener's
	d.close(id, s)
}

func (d *Driver) listener(id driver.ID) *slot {
	if s := d.find(id); s != nil && s.kind == kindListener {
		return s
	}
	return nil
}

// accept takes one peer of a bounded batch, so that a storm of connects does not starve open
// connections.
func (d *Driver) accept(id driver.ID, s *slot, ev driver.Events) bool {
	for s.has(reading) && s.has(due) && !s.has(broken) {
		if d.accepted == acceptsPerPoll {
			d.list(id, s)
			return false
		}
		d.accepted++
		sock, err := posix.Accept(int(s.fd), d.alive)
		switch err {
		case nil:
			d.polled++
			ev.Accepted(id, sock)
			return true
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EAGAIN:
			s.clear(due)
			d.touch(id, s)
		case unix.EINVAL: // Refuse has ended listening
			s.set(broken)
		default:
			d.StopAccept(id)
			d.polled++
			ev.AcceptFailed(id, err)
			return true
		}
	}
	return false
}

// acceptInTurn has all listeners served in a Poll in which the kernel may not have said all.
func (d *Driver) acceptInTurn() {
	for _, id := range d.listeners {
		if s := d.find(id); s.has(reading) {
			s.set(due)
			d.list(id, s)
		}
	}
}
