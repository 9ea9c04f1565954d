//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// Listen implements driver.Driver.
func (d *Driver) Listen(l driver.Listener) (driver.ID, error) {
	fd, err := Listening(l, d.alive)
	if err != nil {
		return 0, err
	}
	id, err := d.register(fd, kindListener, Read)
	if err == nil {
		d.live(id).set(reading)
		d.listeners = append(d.listeners, id)
	}
	return id, err
}

// accept takes a bounded batch, so that a storm of connects does not starve open connections. A
// listener that is broken while accepting is stopped has been refused.
func (d *Driver) accept(id driver.ID, s *slot, ready Ready, ev driver.Events) {
	if !s.has(reading) && ready&Broken == 0 {
		return
	}
	for range acceptsPerPoll {
		sock, err := Accept(int(s.fd), d.alive)
		switch err {
		case nil:
			d.polled++
			ev.Accepted(id, sock)
		case unix.EINTR, unix.ECONNABORTED:
			continue
		case unix.EAGAIN:
			return
		case unix.EINVAL: // Refuse has ended listening; until CloseListener it would be reported without end
			s.set(parked)
			d.touch(id, s)
			return
		default:
			d.StopAccept(id)
			d.polled++
			ev.AcceptFailed(id, err)
			return
		}
		if s = d.live(id); s == nil || !s.has(reading) {
			return
		}
	}
}

// acceptInTurn serves the listeners of which the kernel has said nothing, because it had more to
// say than there is room for.
func (d *Driver) acceptInTurn(ev driver.Events) {
	for i := 0; i < len(d.listeners); i++ { // the owner may close some
		id := d.listeners[i]
		if s := d.listener(id); s != nil && !s.has(parked) {
			d.accept(id, s, Readable, ev)
		}
	}
}

// StopAccept, ResumeAccept and CloseListener implement driver.Driver.
func (d *Driver) StopAccept(id driver.ID) {
	if s := d.listener(id); s != nil {
		s.clear(reading)
		d.touch(id, s)
	}
}

// ResumeAccept implements driver.Driver.
func (d *Driver) ResumeAccept(id driver.ID) {
	if s := d.listener(id); s != nil {
		s.set(reading)
		d.touch(id, s)
	}
}

// CloseListener implements driver.Driver.
func (d *Driver) CloseListener(id driver.ID) {
	s := d.listener(id)
	if s == nil {
		return
	}
	if s.has(registered) {
		d.poller.Remove(int(s.fd), s.interest)
	}
	s.kind = kindClosing
	d.listeners = slices.DeleteFunc(d.listeners, func(other driver.ID) bool { return other == id })
	d.later = append(d.later, deferred{id: id})
}

func (d *Driver) listener(id driver.ID) *slot {
	if s := d.live(id); s != nil && s.kind == kindListener {
		return s
	}
	return nil
}
