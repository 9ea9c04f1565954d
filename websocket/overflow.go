package websocket

import (
	"context"
	"errors"
	"fmt"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// An Overflow says what becomes of a message for a connection whose output is at its limit, because its peer reads more slowly than is
// written. It concerns whole messages: never parts of one, and never control frames.
type Overflow uint8

const (
	// OverflowFail has Write fail with myriad.ErrFull and take nothing. OnDrained tells when there is room again.
	OverflowFail Overflow = iota
	// OverflowBlock has Write wait for room. On a loop, where nothing may wait, it fails with myriad.ErrOnLoop, which is ErrFull too.
	OverflowBlock
	// OverflowDropNewest drops the message. Write returns nil.
	OverflowDropNewest
	// OverflowDropOldest drops those that have waited longest, as many as make room. Half of the limit is theirs; the other half is
	// output on its way to the kernel, of which nothing is dropped.
	OverflowDropOldest
	// OverflowLatest lets one message wait, above half of the limit, and replaces it by a newer one: for peers who only care for how
	// things are. A low WriteLimit keeps what they get fresh.
	OverflowLatest
	// OverflowClose closes the connection with Options.OverflowStatus.
	OverflowClose

	overflows // how many there are
)

var overflowNames = [overflows]string{"fail", "block", "drop newest", "drop oldest", "latest", "close"}

// String is the policy in words.
func (p Overflow) String() string {
	if p < overflows {
		return overflowNames[p]
	}
	return fmt.Sprintf("Overflow(%d)", uint8(p))
}

// queues reports whether messages wait in a queue of their own, where they can be dropped.
func (p Overflow) queues() bool { return p == OverflowDropOldest || p == OverflowLatest }

// errWait asks the caller of attempt to wait for room. It is never returned to users.
var errWait = errors.New("websocket: the output is full for now")

// errOnLoop is for a caller that may not wait.
var errOnLoop = fmt.Errorf("websocket: Write would wait for room: %w, and %w", myriad.ErrOnLoop, myriad.ErrFull)

// A pending queue has the messages that are not yet among the engine's output. It is part of rare and guarded by Conn.mu.
type pending struct {
	frames []*buf.Block
	bytes  int
}

// SetOverflow changes the limit and the policy of this connection. limit is in bytes; 0 is Options.WriteLimit. Any goroutine.
func (c *Conn) SetOverflow(policy Overflow, limit int) error {
	if policy >= overflows || limit < 0 {
		return fmt.Errorf("websocket: SetOverflow(%v, %d): the policy must be one of those defined and the limit not negative", policy, limit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overflow = policy
	if limit != c.settings.writeLimit || c.rare != nil {
		c.more().limit = limit
	}
	if c.nc != nil {
		c.nc.SetWriteLimit(c.limit())
	}
	return nil
}

// Dropped is how many messages Overflow has dropped on this connection. Any goroutine.
func (c *Conn) Dropped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rare == nil {
		return 0
	}
	return c.rare.dropped
}

// limit is the engine's part of the write limit; 0: the engine's own. It is called under mu.
func (c *Conn) limit() int {
	limit := c.settings.writeLimit
	if c.rare != nil && c.rare.limit > 0 {
		limit = c.rare.limit
	}
	if c.overflow.queues() {
		return max(1, c.whole(limit)/2)
	}
	return limit
}

// room is how many bytes may wait besides. It is called under mu.
func (c *Conn) room() int {
	limit := c.settings.writeLimit
	if c.rare != nil && c.rare.limit > 0 {
		limit = c.rare.limit
	}
	return c.whole(limit) - c.limit()
}

// whole is the limit of a connection that has to divide it.
func (c *Conn) whole(limit int) int {
	if limit == 0 {
		return earlyLimit
	}
	return limit
}

// waits reports whether messages wait for the engine to have room. It is called under mu.
func (c *Conn) waits() bool { return c.rare != nil && len(c.rare.pending.frames) > 0 }

// offer queues a message or does with it what is to be done when there is no room. It consumes b. It is called under mu.
func (c *Conn) offer(b *buf.Block, copyUpTo int, w driver.Parker) error {
	if c.overflow.queues() && w == nil {
		if c.waits() && !c.is(closeSent|dropped|closed) {
			c.push(b)
			return nil
		}
		b.Retain()
		err := c.send(b, copyUpTo)
		if errors.Is(err, myriad.ErrFull) {
			c.push(b)
			return nil
		}
		b.Release()
		return err
	}
	n := b.Len()
	err := c.send(b, copyUpTo)
	if !errors.Is(err, myriad.ErrFull) {
		return err
	}
	return c.full(n, w)
}

// full is for a message of n bytes that there is no room for. It is called under mu.
func (c *Conn) full(n int, w driver.Parker) error {
	switch {
	case w != nil:
		r := c.more()
		r.writers = append(r.writers, w)
		return errWait
	case c.overflow == OverflowBlock:
		return errWait
	case c.overflow == OverflowDropNewest:
		c.drop(n)
		return nil
	case c.overflow == OverflowClose:
		c.settings.count.closed.Add(1)
		code := c.settings.overflowStatus
		err := fmt.Errorf("websocket: the peer is too slow: %w: %w", myriad.ErrFull, &CloseError{Code: code, Reason: tooSlow})
		c.failLocked(code, tooSlow, err)
		return errClosing
	}
	c.settings.count.refused.Add(1)
	c.set(owesDrained)
	return myriad.ErrFull
}

// tooSlow is the reason that a peer closed by OverflowClose is told.
const tooSlow = "too slow"

// push lets a message wait, and drops others for it. It is called under mu.
func (c *Conn) push(b *buf.Block) {
	q := &c.more().pending
	q.frames = append(q.frames, b)
	q.bytes += b.Len()
	for len(q.frames) > 1 && (c.overflow != OverflowDropOldest || q.bytes > c.room()) {
		c.drop(q.shift())
	}
}

// shift drops the message that has waited longest and returns its size.
func (q *pending) shift() int {
	b := q.frames[0]
	n := b.Len()
	b.Release()
	q.frames[0] = nil
	q.frames = q.frames[1:]
	q.bytes -= n
	if len(q.frames) == 0 {
		q.frames = nil
	}
	return n
}

// drop counts. It is called under mu.
func (c *Conn) drop(n int) {
	c.more().dropped++
	c.set(owesDrained)
	c.settings.count.dropped.Add(1)
	c.settings.count.droppedBytes.Add(uint64(n))
}

// advance gives the engine what waits, as far as it has room. It is called under mu.
func (c *Conn) advance() {
	for c.waits() {
		q := &c.rare.pending
		if c.send(q.frames[0].Retain(), copied) != nil {
			return // Drained follows, or the connection's end
		}
		q.shift()
	}
}

// forcePending queues what waits above the limit, because a close frame comes behind it. It is called under mu.
func (c *Conn) forcePending() {
	for c.waits() {
		q := &c.rare.pending
		if c.nc != nil {
			_ = c.force(q.frames[0].Bytes()) // the connection ends in any case
		} else {
			c.rare.early = append(c.rare.early, q.frames[0].Bytes()...)
		}
		q.shift()
	}
}

// Drained is the engine's: there is room again. On the loop.
func (h *handler) Drained(*myriad.Conn) {
	c := (*Conn)(h)
	c.mu.Lock()
	c.advance()
	tell := c.is(owesDrained) && !c.waits()
	if tell {
		c.state.Store(c.state.Load() &^ owesDrained)
	}
	c.wakeWriters()
	c.mu.Unlock()
	if tell && c.settings.onDrained != nil {
		c.dispatch(event{kind: drained})
	}
}

// wakeWriters lets those who wait for room try again. It is called under mu.
func (c *Conn) wakeWriters() {
	r := c.rare
	if r == nil {
		return
	}
	for _, w := range r.writers {
		w.Unpark()
	}
	r.writers = nil
}

// writeWaiting waits for room, until ctx ends or expired says so.
func (c *Conn) writeWaiting(ctx context.Context, m outgoing, expired func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("websocket: the message was not written: %w", err)
	}
	w, err := c.newParker()
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		err := c.attempt(m, w)
		if err != errWait {
			return err
		}
		if first {
			if !c.handOver() {
				c.forgetWriter(w)
				return errOnLoop
			}
			c.settings.count.waited.Add(1)
			defer context.AfterFunc(ctx, w.Unpark)()
		}
		w.Park()
		c.forgetWriter(w)
		if err = ctx.Err(); err == nil && expired != nil {
			err = expired()
		}
		if err != nil {
			return fmt.Errorf("websocket: the message was not written: %w", err)
		}
	}
}

func (c *Conn) forgetWriter(w driver.Parker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rare
	if r == nil {
		return
	}
	for i, other := range r.writers {
		if other == w {
			r.writers = append(r.writers[:i], r.writers[i+1:]...)
			return
		}
	}
}

// newParker is for a goroutine that is to wait.
func (c *Conn) newParker() (driver.Parker, error) {
	e, err := c.engine()
	if err != nil {
		return nil, err
	}
	return e.System().NewParker(), nil
}

// handOver hands the loop off if the calling goroutine has one, so that it can wait. It reports false if it must not.
func (c *Conn) handOver() bool {
	e, err := c.engine()
	return err == nil && e.HandOff()
}

// engine is the connection's, or the one that it will come to.
func (c *Conn) engine() (*myriad.Engine, error) {
	if nc := c.conn(); nc != nil {
		return nc.Loop().Engine(), nil
	}
	return c.settings.on()
}
