package mux

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// This file finds out that a peer is gone although its connection is not: Config.SendPing,
// Config.WriteStall and Conn.Probe. Without them nothing is set and nothing is kept.

var (
	errSilent  = errors.New("mux: the peer has not answered a PING in time")
	errStalled = fmt.Errorf("mux: the peer takes no output: %w", os.ErrDeadlineExceeded)
)

// healthPing is the data of a PING of Config.SendPing, and of Probe.
var healthPing = [8]byte{'m', 'y', 'r', 'i', 'a', 'd', 0, 2}

// heardNow notes that the peer has sent something.
func (c *Conn) heardNow() {
	c.bits = c.bits&^probing | heardMore
	if c.cfg.SendPing > 0 || c.is(probedTwice) {
		c.heard = uint32(c.now())
		c.bits &^= healthPinged
	}
}

// checkSilence sends a PING when the peer has been silent for long, and ends the connection when it
// has remained so.
func (c *Conn) checkSilence() {
	silent := time.Duration(uint32(c.now())-c.heard) * time.Millisecond
	switch left := c.cfg.SendPing - silent; {
	case c.is(healthPinged):
		c.countStall()
		if c.cfg.Client {
			c.c.Abort(errLost)
		} else {
			c.c.Abort(errSilent)
		}
	case left > 0:
		c.Timers.Set(c.c, pingTimer, left)
	default:
		c.bits |= healthPinged
		c.sendPing()
		wait := c.cfg.PingTimeout
		if wait <= 0 {
			wait = pingTimeout
		}
		c.Timers.Set(c.c, pingTimer, wait)
	}
}

// Probe asks the peer for a sign of life: it sends a PING, unless one is out. A client that gives
// up a request of which nothing has come back calls it, and so sends the PING together with
// RST_STREAM. Servers of gRPC end connections that send more than two PINGs while no HEADERS or
// DATA comes from them; so Probe sends two at most and then does nothing. L, after Opened.
func (c *Conn) Probe() {
	if c.c == nil || c.is(failed|inputEnded|probing|probedTwice) {
		return
	}
	defer c.leave(c.enter())
	if c.is(probedOnce) {
		c.bits |= probedTwice
		c.heard = uint32(c.now())
	}
	c.bits |= probedOnce
	c.sendPing()
}

// sendPing sends a PING, whose answer, as anything else that comes, ends Unanswered.
func (c *Conn) sendPing() {
	a := c.wake()
	a.control = h2.AppendPing(a.control, healthPing, false)
	if !c.is(probing) {
		c.bits |= probing
		a.probed = uint32(c.now())
	}
}

// Unanswered is how long a PING of Probe or Config.SendPing has been out while not one byte came
// from the peer, to the millisecond and at least one. 0: nothing is unanswered. L.
func (c *Conn) Unanswered() time.Duration {
	if !c.is(probing) || c.act == nil {
		return 0
	}
	return max(1, time.Duration(uint32(c.now())-c.act.probed)) * time.Millisecond
}

// Silent is how long nothing has come from the peer, if Probe may not ask it any more; else 0. L.
func (c *Conn) Silent() time.Duration {
	if !c.is(probedTwice) || c.is(probing) {
		return 0
	}
	return time.Duration(uint32(c.now())-c.heard) * time.Millisecond
}

// timeWrites begins to watch whether output leaves, when some is queued.
func (c *Conn) timeWrites() {
	if c.cfg.WriteStall > 0 && c.act != nil && !c.is(stallArmed) && c.c.Queued() > 0 {
		c.bits |= stallArmed
		c.act.left = c.gone()
		c.Timers.Set(c.c, stallTimer, c.cfg.WriteStall)
	}
}

// gone is how many bytes of output have left, modulo 2^32.
func (c *Conn) gone() uint32 { return c.act.wrote - uint32(c.c.Queued()) }

// checkStall ends the connection if nothing has left since timeWrites.
func (c *Conn) checkStall() {
	c.bits &^= stallArmed
	if c.act != nil && c.c.Queued() > 0 && int32(c.gone()-c.act.left) <= 0 {
		c.countStall()
		c.c.Abort(errStalled)
	}
}

func (c *Conn) countStall() {
	if n := c.cfg.Counters; n != nil {
		n.Stalled.Add(1)
	}
}

// countError tells Config.CountError of an error.
func (c *Conn) countError(scope string, code h2.Code) {
	if f := c.cfg.CountError; f != nil && code != h2.NoError {
		f(scope + strings.ToLower(code.String()))
	}
}
