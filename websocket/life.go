package websocket

import (
	"time"

	"github.com/myriad-go/myriad/buf"
)

// This file is pings and pongs, both ways. All of it runs on the loop.

const (
	// maxPongs is how many pongs may wait in the output. Above it only the latest ping is answered,
	// and at most one in each pongRetry until the output has moved: "the endpoint MAY elect to send
	// a Pong frame for only the most recently processed Ping frame", RFC 6455 §5.5.3.
	maxPongs  = 16
	pongRetry = 100 * time.Millisecond
)

// now is the time of the loop's turn, in milliseconds.
func (c *Conn) now() int64 { return c.nc.Loop().Now().UnixMilli() }

// arm sets the connection's one timer to what comes next.
func (c *Conn) arm(now int64) {
	wait := time.Duration(0)
	if c.due > 0 {
		wait = max(time.Duration(c.due-now)*time.Millisecond, time.Millisecond)
	}
	if due := c.nextDeadline(now); due > 0 && (wait == 0 || wait > time.Duration(due-now)*time.Millisecond) {
		wait = time.Duration(due-now) * time.Millisecond
	}
	if c.waitingPong() && (wait == 0 || wait > pongRetry) {
		wait = pongRetry
	}
	c.nc.SetTimer(wait)
}

// judgeSilence pings a peer that has been silent for long, and gives one up that stayed silent
// after that. Any byte counts as life. A connection that is not being read, because callbacks are
// slow, is not judged.
func (c *Conn) judgeSilence(now int64) {
	s := c.settings()
	switch interval := s.pingInterval.Milliseconds(); {
	case !c.reading():
		c.heard, c.due = now, now+interval
	case c.pings&pinged != 0:
		c.mu.Lock()
		c.endWith(errNoPong)
		c.mu.Unlock()
		c.nc.Abort(errNoPong)
	case now-c.heard < interval:
		c.due = c.heard + interval
	case s.pongTimeout > 0:
		_ = c.Ping(nil) // if the output is full, the peer has all the more to prove
		c.pings |= pinged
		c.due = now + s.pongTimeout.Milliseconds()
	default:
		_ = c.Ping(nil)
		c.due = now + interval
	}
}

// answerPing sends the pong, or remembers the latest ping while too many pongs wait.
func (c *Conn) answerPing(payload []byte) {
	if c.nc.Queued() == 0 {
		c.pongs = 0
	}
	if c.pongs < maxPongs && !c.waitingPong() && c.control(OpPong, payload) == nil {
		c.pongs++
		return
	}
	if c.is(closeSent) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.needCold()
	if r.pong != nil {
		r.pong.Release()
	}
	r.pong = buf.From(payload)
	c.nc.Notify() // comes when what was written has been offered to the kernel
}

func (c *Conn) waitingPong() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cold != nil && c.cold.pong != nil
}

// flushPong answers the ping that was remembered, if the output has moved. Otherwise it is tried
// again a little later.
func (c *Conn) flushPong() {
	if !c.waitingPong() || c.is(closeSent) {
		return
	}
	if c.nc.Queued() == 0 {
		c.pongs = 0
		c.sendPong()
	}
	if !c.is(concluded) { // then the timer is that of the end
		c.arm(c.now())
	}
}

// retryPong sends it whether the output has moved or not, if there is room.
func (c *Conn) retryPong() {
	if c.waitingPong() {
		c.sendPong()
	}
}

func (c *Conn) sendPong() {
	c.mu.Lock()
	r := c.cold
	pong := r.pong
	r.pong = nil
	c.dropCold()
	c.mu.Unlock()
	if c.control(OpPong, pong.Bytes()) == nil {
		c.pongs++
		pong.Release()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(closeSent | closed) {
		pong.Release()
		return
	}
	c.needCold().pong = pong
}
