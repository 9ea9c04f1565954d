package websocket

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/myriad-go/myriad/buf"
)

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

// Ping sends a ping with a payload of at most 125 bytes, besides those that Options.PingInterval
// asks for. Options.OnPong receives the answer. It fails with myriad.ErrFull while the peer reads
// too slowly. Any goroutine.
func (c *Conn) Ping(p []byte) error {
	if len(p) > maxControl {
		return fmt.Errorf("websocket: a ping of %d bytes: a control frame holds at most %d", len(p), maxControl)
	}
	b, err := c.settings().encode(OpPing, false, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = c.send(b, copied); err == nil && c.settings().onPong != nil {
		c.remember(p)
	}
	return err
}

// remember is called under mu.
func (c *Conn) remember(p []byte) {
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

// clock is the time now, where Conn.now is that of the loop's cycle.
func (c *Conn) clock() time.Time { return c.nc.Loop().Engine().System().Now() }

// startClocks is for pings from before the connection had a loop. It is called under mu.
func (c *Conn) startClocks() {
	if c.cold == nil || c.cold.pings == nil {
		return
	}
	for i := range *c.cold.pings {
		if sent := &(*c.cold.pings)[i]; sent.at.IsZero() {
			sent.at = c.clock()
		}
	}
}

// answered takes a pong. On the loop.
func (c *Conn) answered(payload []byte) {
	if c.settings().onPong == nil {
		return
	}
	at, ok := c.recall(payload)
	if !ok || c.is(muted) {
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
// may leave unanswered then (RFC 6455 §5.5.3).
func (c *Conn) recall(payload []byte) (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cold == nil || c.cold.pings == nil {
		return at, false
	}
	all := *c.cold.pings
	for i, sent := range all {
		if sent.payload != string(payload) {
			continue
		}
		if *c.cold.pings = slices.Delete(all, 0, i+1); len(*c.cold.pings) == 0 {
			c.cold.pings = nil
			c.dropCold()
		}
		return sent.at, true
	}
	return at, false
}

func (c *Conn) callPong(ev event) {
	p := ev.p
	if ev.block != nil {
		defer ev.block.Release()
		p = ev.block.Bytes()
	}
	if !c.is(muted) {
		c.settings().onPong(c, p, time.Duration(ev.micros)*time.Microsecond)
	}
}
