package websocket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// An Overflow says what happens to a message when the connection's output is at its limit, because
// the peer reads too slowly. The kernel is offered what is queued before: only bytes that it
// refuses count, unless the loop stays busy for 10 ms. A policy concerns whole messages, never
// parts of one, and never control frames. In a [Group] it is the member's policy that applies.
//
//	policy              Write                                  a member of a Group
//	OverflowBlock       waits for room, up to WriteTimeout     gets it later, in order, or is removed
//	OverflowFail        fails with myriad.ErrFull              is removed at once
//	OverflowDropNewest  drops the message, returns nil         misses the message
//	OverflowDropOldest  drops those that have waited longest   misses those
//	OverflowLatest      replaces the one that waits            gets the newest only
//	OverflowClose       closes with OverflowStatus             is closed with OverflowStatus
//
// A member with OverflowBlock is removed after WriteTimeout. A member that is removed is given to
// Group.OnFull, or closed with 1013.
type Overflow uint8

const (
	// OverflowBlock has Write wait for room, at most for Options.WriteTimeout. Then Write fails
	// with an error that is myriad.ErrFull and os.ErrDeadlineExceeded. Each following Write fails
	// at once, until there is room. In a callback that runs on a loop, the loop goes on without it
	// (Options.Dispatch). Write fails with myriad.ErrOnLoop, and ErrFull too, where it must not
	// wait: in a callback of DispatchInline, in Loop.Do, and on a driver that is bound to a thread.
	OverflowBlock Overflow = iota
	// OverflowFail has Write fail with myriad.ErrFull and take nothing. OnDrained is called when
	// there is room again.
	OverflowFail
	// OverflowDropNewest drops the message. Write returns nil.
	OverflowDropNewest
	// OverflowDropOldest drops those that have waited longest, as many as make room. Half of the
	// limit is theirs; the other half is output on its way to the kernel, of which nothing is
	// dropped.
	OverflowDropOldest
	// OverflowLatest lets one message wait, above half of the limit, and replaces it by a newer
	// one: for peers that need only the current state. A low WriteLimit keeps what they get fresh.
	OverflowLatest
	// OverflowClose closes the connection with Options.OverflowStatus.
	OverflowClose

	overflows // how many there are
)

var overflowNames = [overflows]string{"block", "fail", "drop newest", "drop oldest", "latest", "close"}

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

// errOnLoop is for a caller that must not wait.
var errOnLoop = fmt.Errorf("websocket: Write would wait for room: %w, and %w", myriad.ErrOnLoop, myriad.ErrFull)

// errStalled is for writers to a peer that has not read for as long as a Write waits.
func (s *settings) errStalled() error {
	return fmt.Errorf("websocket: the peer has made no room for %v (Options.WriteTimeout), the message was not "+
		"written: %w, %w",
		s.writeTimeout, myriad.ErrFull, os.ErrDeadlineExceeded)
}

// noRoom says what attempt does with a message for which there is no room. The zero value: what the
// policy says.
type noRoom struct {
	probe  bool          // return errWait, whatever the policy is
	parker driver.Parker // likewise, and unpark it when there may be room
	member *Member       // the policy; if that is OverflowBlock, the member is late
	late   bool          // the member is late, whatever the policy is
}

// A pending queue has the messages that are not yet among the engine's output. It is part of rare
// and guarded by Conn.mu.
type pending struct {
	frames []*buf.Block
	bytes  int
}

// SetOverflow changes the limit and the policy of this connection. limit is in bytes; 0 is
// Options.WriteLimit. Any goroutine.
func (c *Conn) SetOverflow(policy Overflow, limit int) error {
	if policy >= overflows || limit < 0 {
		return fmt.Errorf("websocket: SetOverflow(%v, %d): the policy must be one of those defined and the limit "+
			"not negative", policy, limit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overflow = policy
	if limit != c.settings().writeLimit || c.rare != nil {
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
	limit := c.settings().writeLimit
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
	limit := c.settings().writeLimit
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

// offer queues a message or does with it what is to be done when there is no room. It consumes b.
// It is called under mu.
func (c *Conn) offer(b *buf.Block, copyUpTo int, no noRoom) error {
	queues := c.overflow.queues() && no.parker == nil && !no.late
	n := b.Len()
	if c.waits() && !c.is(closeSent|dropped|closed) { // there may be room by now, but not before those
		if queues {
			c.push(b)
			return nil
		}
		b.Release()
		if no.probe {
			return errWait
		}
		return c.full(n, no)
	}
	if queues && !no.probe {
		b.Retain()
	}
	err := c.sendWhole(b, copyUpTo)
	full := errors.Is(err, myriad.ErrFull)
	switch {
	case full && no.probe:
		return errWait
	case full && queues:
		c.push(b)
		return nil
	case queues && !no.probe:
		b.Release()
	}
	if full {
		return c.full(n, no)
	}
	return err
}

// full is for a message of n bytes that there is no room for. It is called under mu.
func (c *Conn) full(n int, no noRoom) error {
	switch {
	case no.parker != nil:
		r := c.more()
		r.writers = append(r.writers, no.parker)
		return errWait
	case c.overflow == OverflowBlock || no.late || c.is(inParts) && (c.overflow == OverflowClose || no.member != nil):
		if no.member != nil {
			c.becomeLate(no.member)
		}
		return errWait
	}
	c.set(offered)
	switch c.overflow {
	case OverflowDropNewest:
		c.drop(n)
		return nil
	case OverflowClose:
		c.settings().count.closed.Add(1)
		code := c.settings().overflowStatus
		err := fmt.Errorf("websocket: the peer is too slow: %w: %w", myriad.ErrFull,
			&CloseError{Code: code, Reason: tooSlow})
		c.failLocked(code, tooSlow, err)
		return errClosing
	}
	c.settings().count.refused.Add(1)
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
	c.settings().count.dropped.Add(1)
	c.settings().count.droppedBytes.Add(uint64(n))
}

// advance gives the engine what waits, as far as it has room. It is called under mu.
func (c *Conn) advance() {
	for c.waits() {
		q := &c.rare.pending
		if c.sendWhole(q.frames[0].Retain(), copied) != nil {
			return // Drained follows, or the end of a message in parts, or the connection's
		}
		q.shift()
	}
}

// forcePending queues what waits above the limit, because a close frame comes behind it. It is
// called under mu.
func (c *Conn) forcePending() {
	for c.waits() {
		q := &c.rare.pending
		if c.is(inParts) {
			q.shift() // no other message may come inside of one
			continue
		}
		if c.nc != nil {
			_ = c.force(q.frames[0].Bytes()) // the connection ends in any case
		} else {
			c.rare.early = append(c.rare.early, q.frames[0].Bytes()...)
		}
		q.shift()
	}
}

// Drained is the engine's: there is room again. On the loop.
func (h *handler) Drained(*myriad.Conn) { (*Conn)(h).drains() }

func (c *Conn) drains() {
	c.mu.Lock()
	c.advance()
	tell := c.is(owesDrained) && !c.waits()
	if tell {
		c.state.Store(c.state.Load() &^ owesDrained)
	}
	if c.is(offered | stalled) {
		c.state.Store(c.state.Load() &^ (offered | stalled))
	}
	c.wakeWriters()
	late := c.takeLate()
	c.mu.Unlock()
	for _, m := range late {
		m.part.catchUp(m)
	}
	if tell && c.settings().onDrained != nil {
		c.dispatch(event{kind: drained})
	}
}

// wakeWriters lets writers that wait for room try again. It is called under mu.
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

// A writer is a goroutine that waits for room.
type writer struct {
	driver.Parker
	system  driver.System
	until   time.Time    // zero: without end
	expired func() error // ends the wait
}

// writeWaiting waits for room until ctx ends, expired says so, or limit has passed; 0: there is no
// limit.
func (c *Conn) writeWaiting(ctx context.Context, m outgoing, limit time.Duration, expired func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("websocket: the message was not written: %w", err)
	}
	e, err := c.engine()
	if err != nil {
		return err
	}
	w := writer{Parker: e.System().NewParker(), system: e.System(), expired: expired}
	for first := true; ; first = false {
		if err := c.attempt(m, noRoom{parker: w.Parker}); err != errWait {
			return err
		}
		if first {
			if !e.HandOff() {
				c.forgetWriter(w.Parker)
				return errOnLoop
			}
			c.settings().count.waited.Add(1)
			if limit > 0 {
				w.until = w.system.Now().Add(limit)
			}
			defer context.AfterFunc(ctx, w.Unpark)()
		}
		err := c.park(ctx, &w)
		c.forgetWriter(w.Parker)
		if err != nil {
			return err
		}
	}
}

// park waits for w's next try, and returns why there is to be none.
func (c *Conn) park(ctx context.Context, w *writer) error {
	if w.until.IsZero() {
		w.Park()
	} else if left := w.until.Sub(w.system.Now()); left > 0 {
		w.ParkFor(left)
	} else {
		return c.stall()
	}
	err := ctx.Err()
	if err == nil && w.expired != nil {
		err = w.expired()
	}
	if err != nil {
		return fmt.Errorf("websocket: the message was not written: %w", err)
	}
	return nil
}

// stall notes that there has been no room for as long as a Write waits.
func (c *Conn) stall() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(closeSent | dropped | closed) {
		return errClosing
	}
	c.set(stalled | owesDrained)
	c.settings().count.refused.Add(1)
	return c.settings().errStalled()
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

// flushWait is for how long flush waits for a loop, unless a test says otherwise: the loop may be
// held up by a callback that waits for a lock of flush's caller.
const flushWait = 10 * time.Millisecond

// flush has the loop offer the kernel what is queued, so that only what the kernel refuses counts.
// It waits for the loop, never for the peer, and not at all on another loop.
func (c *Conn) flush() {
	nc := c.conn()
	if nc == nil || c.is(offered) && nc.Unflushed() == 0 || nc.Flush() {
		return
	}
	e := nc.Loop().Engine()
	if !e.HandOff() {
		return
	}
	w := e.System().NewParker()
	offer := func() {
		if nc.Flush() {
			w.Unpark()
		} else {
			nc.Loop().Later(w.Unpark) // a stream's output leaves in this turn
		}
	}
	if nc.Loop().Do(offer) == nil {
		w.ParkFor(c.settings().flushWait)
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

// handOff hands the loop off if the calling goroutine has one, so that it can wait. It returns
// false if the goroutine must not wait.
func (c *Conn) handOff() bool {
	e, err := c.engine()
	return err == nil && e.HandOff()
}

// engine is the connection's, or the one that it will come to.
func (c *Conn) engine() (*myriad.Engine, error) {
	if nc := c.conn(); nc != nil {
		return nc.Loop().Engine(), nil
	}
	return c.settings().on()
}
