package myriad

import (
	"iter"
	"time"
)

// Timers are several timers of one connection, such as a keep-alive, an idle limit and the limit
// for an answer. They use the conn's own timer, so a handler with Timers must not call SetTimer.
// Its method Expired calls Timers.Expired to learn which of them are due. A timer is named by a
// small number, mostly a constant. The zero value has no timer set. On the loop only.
//
// The memory is eight bytes for each number up to the highest that was set. Setting one looks at
// all of them, so that a handful is what they are for.
type Timers struct {
	at []int64 // when each is due, in milliseconds of the loop's clock; 0: it is not set
}

// Set has the timer with this number expire after d, in this turn or the next one if d is negative.
// It replaces the earlier time of that timer; 0 switches it off. As with SetTimer, times are kept
// in milliseconds and are never early by the loop's clock. A conn that closes has no timers left.
func (t *Timers) Set(c *Conn, number uint8, d time.Duration) {
	var at int64
	if d != 0 {
		at = max(1, c.loop.now+ceilMillis(max(d, 0)))
	}
	for len(t.at) <= int(number) {
		t.at = append(t.at, 0)
	}
	t.at[number] = at
	t.arm(c)
}

// Expired gives the number of each timer that is due, the soonest first, to be asked in the
// handler's Expired. A timer is switched off before its number is given, so that the body of the
// loop may set it again. What is due still when the body breaks off expires again in the next turn.
func (t *Timers) Expired(c *Conn) iter.Seq[uint8] {
	return func(yield func(uint8) bool) {
		defer t.arm(c)
		for now := c.loop.now; ; {
			next := t.next()
			if next < 0 || t.at[next] > now {
				return
			}
			t.at[next] = 0
			if !yield(uint8(next)) {
				return
			}
		}
	}
}

// next is the timer that is due first, or -1.
func (t *Timers) next() int {
	first := -1
	for i, at := range t.at {
		if at != 0 && (first < 0 || at < t.at[first]) {
			first = i
		}
	}
	return first
}

// arm sets the conn's own timer to the first of t.
func (t *Timers) arm(c *Conn) {
	if c.phase() != open {
		return // the timer now bounds the close
	}
	if next := t.next(); next >= 0 {
		c.loop.wheel.Set(c.id.Slot(), t.at[next])
		return
	}
	c.loop.wheel.Clear(c.id.Slot())
}
