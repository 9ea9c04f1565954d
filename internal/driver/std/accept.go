package std

import (
	"errors"
	"net"
	"sync"

	"github.com/myriad-go/myriad/internal/driver"
)

// An acceptor is a driver's part in a listener: a goroutine that accepts one connection ahead of
// its owner.
type acceptor struct {
	d  *Driver
	id driver.ID
	l  *Listener

	mu      sync.Mutex
	turn    sync.Cond
	stopped bool     // by StopAccept or a failure
	closing bool     // by CloseListener
	refused bool     // the listener is closed: there is nothing to do but wait for CloseListener
	done    bool     // the goroutine has ended
	within  bool     // the goroutine is in accept, or has its result and has not kept it yet
	listed  bool     // in the mailbox
	ahead   net.Conn // accepted and not reported
	err     error    // a failure that was not reported
}

// Listen implements driver.Driver.
func (d *Driver) Listen(l driver.Listener) (driver.ID, error) {
	own, ok := l.(*Listener)
	if !ok {
		return 0, driver.ErrUnsupported
	}
	a := &acceptor{d: d, l: own}
	a.turn.L = &a.mu
	id, err := d.members.add(d.loop, a)
	if err != nil {
		return 0, err
	}
	a.id = id
	d.start(a.run)
	return id, nil
}

// run is the goroutine.
func (a *acceptor) run() {
	for a.next() {
		nc, err := a.l.accept(a.wants)
		if tc, ok := nc.(*net.TCPConn); ok {
			_ = tc.SetKeepAliveConfig(a.d.alive) // where it fails the system's own times serve
		}
		a.accepted(nc, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ahead != nil {
		a.ahead.Close()
		a.ahead = nil
	}
	a.done = true
	a.list()
}

// next waits until the owner wants another connection. False: none any more.
func (a *acceptor) next() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.closing && (a.stopped || a.refused || a.ahead != nil) {
		a.turn.Wait()
	}
	a.within = !a.closing
	return a.within
}

func (a *acceptor) wants() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.closing && !a.stopped
}

func (a *acceptor) accepted(nc net.Conn, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.within = false
	a.turn.Broadcast() // takeAccepted may wait for it
	switch {
	case err == nil:
		a.ahead = nc
		a.list()
	case err == errInterrupted:
	case errors.Is(err, net.ErrClosed):
		a.refused = true
	case !a.stopped:
		a.err, a.stopped = err, true
		a.list()
	}
}

// list puts the acceptor into the mailbox. mu is held.
func (a *acceptor) list() {
	if !a.listed {
		a.listed = true
		a.d.mail.put(a)
	}
}

// report emits what has been accepted, or that nothing could be.
func (a *acceptor) report(ev driver.Events) {
	a.mu.Lock()
	a.listed = false
	done, nc, err := a.done, a.ahead, a.err
	if a.closing || err == nil && a.stopped {
		nc = nil
	}
	if nc != nil {
		a.ahead = nil
		a.turn.Signal()
	}
	a.err = nil
	a.mu.Unlock()
	switch {
	case done:
		a.d.polled++
		a.d.members.remove(a.id) // before the event, which may not return
		ev.Closed(a.id, nil)
	case nc != nil:
		a.d.polled++
		ev.Accepted(a.id, &Socket{nc: nc})
	case err != nil:
		a.d.polled++
		ev.AcceptFailed(a.id, err)
	}
}

// interrupted implements member: report emits one event.
func (a *acceptor) interrupted() {}

// StopAccept implements driver.Driver.
func (d *Driver) StopAccept(id driver.ID) {
	a := d.acceptor(id)
	if a == nil {
		return
	}
	a.mu.Lock()
	a.stopped, a.err = true, nil
	a.mu.Unlock()
	a.l.interrupt()
}

// ResumeAccept implements driver.Driver.
func (d *Driver) ResumeAccept(id driver.ID) {
	a := d.acceptor(id)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped, a.err = false, nil
	if a.ahead != nil {
		a.list()
	}
	a.turn.Signal()
}

// takeAccepted is Capabilities.TakeAccepted. StopAccept has interrupted the goroutine. If that has
// accepted a peer at that moment, takeAccepted waits the microseconds until it is here.
func (d *Driver) takeAccepted(id driver.ID) driver.Socket {
	a := d.acceptor(id)
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.stopped && a.within {
		a.turn.Wait()
	}
	nc := a.ahead
	if nc == nil {
		return nil
	}
	a.ahead = nil
	return &Socket{nc: nc}
}

// CloseListener implements driver.Driver.
func (d *Driver) CloseListener(id driver.ID) {
	if a := d.acceptor(id); a != nil {
		a.close()
	}
}

func (a *acceptor) close() {
	a.mu.Lock()
	a.closing, a.err = true, nil
	a.mu.Unlock()
	a.turn.Signal()
	a.l.interrupt()
}

// acceptor finds a listener that is open.
func (d *Driver) acceptor(id driver.ID) *acceptor {
	a, ok := d.members.find(id).(*acceptor)
	if !ok {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing {
		return nil
	}
	return a
}
