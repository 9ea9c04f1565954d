package websocket

import (
	"math"
	"slices"
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

// A pinger judges by the silence of a peer whether it is alive. It is the loop's.
type pinger struct {
	mark  int64 // see pingState
	state pingState
	pongs uint8 // sent since the output was last seen to be empty
}

// A pingState says what the pinger waits for, and what its mark is.
type pingState uint8

const (
	pingsIdle    pingState = iota // for silence; mark is when something was received last, in milliseconds
	pingsSent                     // for any byte behind a ping; mark is when that was sent
	pingsEnding                   // for callbacks behind the peer's end; mark is how many of them are left
	pingsClosing                  // for the end of the closing handshake; mark is how many bytes are queued
)

// received notes that the peer is alive.
func (ping *pinger) received(now int64) {
	if ping.state <= pingsSent {
		ping.state, ping.mark = pingsIdle, now
	}
}

// due is when the silence is to be judged, in milliseconds; 0: never.
func (ping *pinger) due(s *settings) int64 {
	switch {
	case ping.state == pingsIdle && s.pingInterval > 0:
		return ping.mark + s.pingInterval.Milliseconds()
	case ping.state == pingsSent:
		return ping.mark + s.pongTimeout.Milliseconds()
	}
	return 0
}

// judgeSilence pings a peer that has been silent for long, and gives one up that stayed silent
// after that. Any byte counts as life. A connection that is not being read, because callbacks are
// slow, is not judged.
func (ping *pinger) judgeSilence(c *Conn, now int64) {
	switch {
	case !c.reading():
		ping.received(now)
	case ping.state == pingsSent:
		c.mu.Lock()
		c.end.endWith(c, errNoPong)
		c.mu.Unlock()
		c.nc.Abort(errNoPong)
	default:
		_ = c.Ping(nil) // if the output is full, the peer has all the more to prove
		if ping.mark = now; c.settings().pongTimeout > 0 {
			ping.state = pingsSent
		}
	}
}

// answerPing sends the pong, or remembers the latest ping while too many pongs wait.
func (ping *pinger) answerPing(c *Conn, payload []byte) {
	if c.nc.Queued() == 0 {
		ping.pongs = 0
	}
	if ping.pongs < maxPongs && !ping.waitingPong(c) && c.control(OpPong, payload) == nil {
		ping.pongs++
		return
	}
	if !c.end.writable() {
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

func (ping *pinger) waitingPong(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cold != nil && c.cold.pong != nil
}

// flushPong answers the ping that was remembered, if the output has moved. Otherwise it is tried
// again a little later.
func (ping *pinger) flushPong(c *Conn) {
	if !ping.waitingPong(c) || !c.end.writable() {
		return
	}
	if c.nc.Queued() == 0 {
		ping.pongs = 0
		ping.sendPong(c)
	}
	if c.end.phase() == open { // then the timer is that of the end
		c.arm(c.now())
	}
}

func (ping *pinger) sendPong(c *Conn) {
	c.mu.Lock()
	r := c.cold
	pong := r.pong
	r.pong = nil
	c.dropCold()
	c.mu.Unlock()
	if c.control(OpPong, pong.Bytes()) == nil {
		ping.pongs++
		pong.Release()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.end.writable() {
		pong.Release()
		return
	}
	c.needCold().pong = pong
}

// This file measures how long peers take to answer pings, for Options.OnPong. Without OnPong
// nothing is remembered.

// maxSentPings is how many pings wait for their pongs at most. Above it the oldest is forgotten,
// and its pong is ignored.
const maxSentPings = 16

// sentPings are pings that have no pong yet, the oldest first.
type sentPings []sentPing

type sentPing struct {
	payload string
	at      time.Time // zero: the connection had no clock yet
}

// remember is called under mu.
func (ping *pinger) remember(c *Conn, p []byte) {
	r := c.needCold()
	if r.pings == nil {
		r.pings = new(sentPings)
	}
	if len(*r.pings) == maxSentPings {
		*r.pings = slices.Delete(*r.pings, 0, 1)
	}
	sent := sentPing{payload: string(p)}
	if c.nc != nil {
		sent.at = c.clock()
	}
	*r.pings = append(*r.pings, sent)
}

// answered takes a pong. On the loop.
func (ping *pinger) answered(c *Conn, payload []byte) {
	if c.settings().OnPong == nil {
		return
	}
	c.mu.Lock()
	at := ping.recall(c, payload)
	c.mu.Unlock()
	if at.IsZero() || c.end.muted() {
		return
	}
	rtt := min(max(c.clock().Sub(at).Microseconds(), 0), math.MaxUint32)
	ev := event{kind: ponged, p: payload, micros: uint32(rtt)}
	if !c.settings().inline && len(payload) > 0 {
		ev.block = buf.From(payload)
	}
	c.dispatch(ev)
}

// recall finds the oldest ping with this payload and forgets it and those before it, which a peer
// may leave unanswered then (RFC 6455 §5.5.3). It returns the zero time if there is none. It is
// called under mu.
func (ping *pinger) recall(c *Conn, payload []byte) (at time.Time) {
	if c.cold == nil || c.cold.pings == nil {
		return at
	}
	all := *c.cold.pings
	i := slices.IndexFunc(all, func(sent sentPing) bool { return sent.payload == string(payload) })
	if i < 0 {
		return at
	}
	at = all[i].at
	if *c.cold.pings = slices.Delete(all, 0, i+1); len(*c.cold.pings) == 0 {
		c.cold.pings = nil
		c.dropCold()
	}
	return at
}
