package drivertest

import (
	"github.com/myriad-go/myriad/internal/driver"
)

// events is the Checker as the driver sees it.
type events struct{ k *Checker }

// find looks up the connection of an event that may come while it lives and has not been ended.
func (e events) find(event string, id driver.ID, listener bool) *Conn {
	c := e.known(event, id)
	switch {
	case c == nil:
		return nil
	case c.listener != listener:
		errorf(e.k.t, "%s for %v: a listener and a connection have events of their own", event, c)
		return nil
	case c.leaving != "":
		errorf(e.k.t, "%s after %s: %v", event, c.leaving, c)
		return nil
	case c.dialing && event != "Dialed" && event != "DialFailed":
		errorf(e.k.t, "%s before Dialed: %v", event, c)
		return nil
	}
	return c
}

// known checks what holds for every event.
func (e events) known(event string, id driver.ID) *Conn {
	e.k.t.Helper()
	e.k.events++
	if !e.k.inPoll {
		errorf(e.k.t, "%s outside Poll", event)
	}
	if e.k.inCall != "" {
		errorf(e.k.t, "%s from inside %s", event, e.k.inCall)
	}
	c := e.k.conns[id]
	switch {
	case c == nil:
		errorf(e.k.t, "%s for id %x, which nobody was given", event, uint64(id))
	case c.Over:
		errorf(e.k.t, "%s after the last event: %v", event, c)
		return nil
	}
	return c
}

// Accepted implements driver.Events.
func (e events) Accepted(id driver.ID, s driver.Socket) {
	if s == nil {
		errorf(e.k.t, "Accepted without a socket")
		return
	}
	l := e.find("Accepted", id, true)
	if l == nil {
		s.Close()
		return
	}
	if l.stopped {
		errorf(e.k.t, "Accepted while accepting is stopped")
	}
	if e.k.OnAccepted != nil {
		e.k.OnAccepted(l, s)
		return
	}
	remote := s.Remote()
	c, err := e.k.AttachTo(s)
	if err != nil {
		e.k.t.Errorf("Attach: %v", err)
		return
	}
	c.Remote = remote
	e.k.Accepted = append(e.k.Accepted, c)
}

// AcceptFailed implements driver.Events.
func (e events) AcceptFailed(id driver.ID, err error) {
	l := e.find("AcceptFailed", id, true)
	if l == nil {
		return
	}
	if err == nil || l.stopped {
		errorf(e.k.t, "AcceptFailed with error %v, stopped %v", err, l.stopped)
	}
	l.stopped = true
	l.Failures++
	if e.k.OnAcceptFailed != nil {
		e.k.OnAcceptFailed(l, err)
		return
	}
	l.ResumeAccept()
}

// Dialed implements driver.Events.
func (e events) Dialed(id driver.ID, local driver.Addr) {
	c := e.find("Dialed", id, false)
	if c == nil {
		return
	}
	if !c.dialing {
		errorf(e.k.t, "Dialed for a connection that was not dialling: %v", c)
	}
	c.dialing, c.Dialed, c.Local = false, true, local
}

// DialFailed implements driver.Events.
func (e events) DialFailed(id driver.ID, err error) {
	c := e.find("DialFailed", id, false)
	if c == nil {
		return
	}
	if !c.dialing || err == nil {
		errorf(e.k.t, "DialFailed with error %v, dialling %v: %v", err, c.dialing, c)
	}
	c.DialErr = err
	e.last(c, err)
}

// Received implements driver.Events.
func (e events) Received(id driver.ID, p []byte) {
	c := e.find("Received", id, false)
	if c == nil {
		return
	}
	c.sincePause += len(p)
	switch {
	case len(p) == 0:
		errorf(e.k.t, "Received without a byte: %v", c)
	case cap(p) != len(p):
		errorf(e.k.t, "Received %d bytes with capacity %d: %v", len(p), cap(p), c)
	case len(p) > e.k.readBuffer:
		errorf(e.k.t, "Received %d bytes at once, the receive buffer is %d", len(p), e.k.readBuffer)
	case c.Ended:
		errorf(e.k.t, "Received after Ended: %v", c)
	case c.lastPoll == e.k.polls:
		errorf(e.k.t, "Received twice in one Poll: %v", c)
	case c.paused && c.sincePause > e.k.readBuffer:
		errorf(e.k.t, "%d bytes received after Pause, the receive buffer is %d: %v", c.sincePause, e.k.readBuffer, c)
	}
	c.lastPoll = e.k.polls
	c.In = append(c.In, p...)
	if c.OnReceived != nil {
		c.OnReceived(p)
	}
}

// Ended implements driver.Events.
func (e events) Ended(id driver.ID) {
	c := e.find("Ended", id, false)
	if c == nil {
		return
	}
	if c.Ended {
		errorf(e.k.t, "Ended twice: %v", c)
	}
	c.Ended = true
	if c.OnEnded != nil {
		c.OnEnded()
	}
}

// Sent implements driver.Events.
func (e events) Sent(id driver.ID, n int64) {
	c := e.find("Sent", id, false)
	if c == nil {
		return
	}
	if c.Sent += n; n <= 0 || c.Sent > c.Queued {
		errorf(e.k.t, "Sent %d, %d in all, of %d queued: %v", n, c.Sent, c.Queued, c)
	}
	if c.OnSent != nil {
		c.OnSent(n)
	}
}

// Closed implements driver.Events.
func (e events) Closed(id driver.ID, err error) {
	c := e.known("Closed", id)
	if c == nil {
		return
	}
	switch c.leaving {
	case "":
		if err == nil {
			errorf(e.k.t, "Closed without an error, and nobody closed %v", c)
		}
		if c.dialing {
			errorf(e.k.t, "Closed instead of DialFailed: %v", c)
		}
	case "Detach":
		if err == nil {
			errorf(e.k.t, "Closed without an error after Detach: %v", c)
		}
	default:
		if err != nil {
			errorf(e.k.t, "Closed with error %v after %s: %v", err, c.leaving, c)
		}
	}
	e.last(c, err)
}

// Detached implements driver.Events.
func (e events) Detached(id driver.ID, s driver.Socket) {
	c := e.known("Detached", id)
	if c == nil || s == nil || c.leaving != "Detach" {
		errorf(e.k.t, "Detached with socket %v of %v", s, c)
		return
	}
	c.Socket = s
	e.last(c, nil)
}

// last ends the record. The id is stale from here on, which is tried out at once.
func (e events) last(c *Conn, err error) {
	c.Over, c.Err = true, err
	if e.k.slots[c.ID.Slot()] == c {
		delete(e.k.slots, c.ID.Slot())
	}
	c.pokeStale()
	if c.OnClosed != nil {
		c.OnClosed(err)
	}
}
