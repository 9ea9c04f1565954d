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
	"github.com/myriad-go/myriad/internal/outbox"
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
//	OverflowSample      drops every second one that waits      misses those
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

	// OverflowSample lets messages wait as OverflowDropOldest does, but above the limit it drops
	// every second one that waits. So what the peer gets is spread evenly over the time, and ends
	// with the newest: for measurements whose course matters.
	OverflowSample

	overflows = Overflow(outbox.Policies) // how many there are
)

// String is the policy in words.
func (p Overflow) String() string {
	if p < overflows {
		return outbox.Policy(p).String()
	}
	return fmt.Sprintf("Overflow(%d)", uint8(p))
}

// errWait asks the caller of attempt to wait for room. It is never returned to users.
var errWait = outbox.ErrBlocked

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
	if limit != c.settings().writeLimit || c.cold != nil {
		c.needCold().limit = limit
	}
	if c.nc != nil {
		engine, _ := c.limits()
		c.nc.SetWriteLimit(engine)
	}
	return nil
}

// Dropped is how many messages Overflow has dropped on this connection. Any goroutine.
func (c *Conn) Dropped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slow().Dropped()
}

// slow is what waits for room, or nil. It is called under mu.
func (c *Conn) slow() *outbox.Outbox[*buf.Block] {
	if c.cold == nil {
		return nil
	}
	return c.cold.slow
}

// needSlow is called under mu.
func (c *Conn) needSlow() *outbox.Outbox[*buf.Block] {
	r := c.needCold()
	if r.slow == nil {
		r.slow = new(outbox.Outbox[*buf.Block])
	}
	return r.slow
}

// limits are how many bytes the engine may queue, where 0 is the engine's own limit, and how many
// may wait besides. It is called under mu.
func (c *Conn) limits() (engine, room int) {
	limit := c.settings().writeLimit
	if c.cold != nil && c.cold.limit > 0 {
		limit = c.cold.limit
	}
	if p := outbox.Policy(c.overflow); p.Queues() && limit == 0 {
		return p.Split(earlyLimit)
	} else {
		return p.Split(limit)
	}
}

// offer queues a message or does with it what is to be done when there is no room. It consumes b.
// It is called under mu.
func (c *Conn) offer(b *buf.Block, copyUpTo int, no noRoom) error {
	queues := outbox.Policy(c.overflow).Queues() && no.parker == nil && !no.late
	if c.slow().Waits() && !c.is(closeSent|dropped|closed) { // there may be room by now, but not before those
		if no.probe && !queues {
			b.Release()
			return errWait
		}
		return c.full(b, no, queues)
	}
	if no.probe {
		err := c.sendWhole(b, copyUpTo)
		if errors.Is(err, myriad.ErrFull) {
			return errWait
		}
		return err
	}
	err := c.sendWhole(b.Retain(), copyUpTo)
	if errors.Is(err, myriad.ErrFull) {
		return c.full(b, no, queues)
	}
	b.Release()
	return err
}

// full is for a message that there is no room for. It consumes b. It is called under mu.
func (c *Conn) full(b *buf.Block, no noRoom, queues bool) error {
	switch {
	case no.parker != nil:
		b.Release()
		c.needSlow().Await(no.parker)
		return errWait
	case c.overflow == OverflowBlock || no.late || c.is(inParts) && (c.overflow == OverflowClose || no.member != nil &&
		!queues):
		b.Release()
		if no.member != nil {
			c.becomeLate(no.member)
		}
		return errWait
	}
	if !queues {
		c.set(offered)
	}
	_, room := c.limits()
	rules := outbox.Rules{Policy: outbox.Policy(c.overflow), Room: room, Counts: &c.settings().count}
	switch c.needSlow().Put(b, rules) {
	case outbox.Refused:
		return myriad.ErrFull
	case outbox.Closes:
		code := c.settings().overflowStatus
		err := fmt.Errorf("websocket: the peer is too slow: %w: %w", myriad.ErrFull,
			&CloseError{Code: code, Reason: tooSlow})
		c.failLocked(code, tooSlow, err)
		return errClosing
	}
	return nil
}

// tooSlow is the reason that a peer closed by OverflowClose is told.
const tooSlow = "too slow"

// advance gives the engine what waits, as far as it has room. It is called under mu.
func (c *Conn) advance() {
	for o := c.slow(); o.Waits(); o.Sent() {
		if c.sendWhole(o.First().Retain(), copied) != nil {
			return // Drained follows, or the end of a message in parts, or the connection's
		}
	}
}

// forcePending queues what waits above the limit, because a close frame comes behind it. It is
// called under mu.
func (c *Conn) forcePending() {
	for o := c.slow(); o.Waits(); o.Sent() {
		switch {
		case c.is(inParts): // no other message may come inside of one
		case c.nc != nil:
			_ = c.force(o.First().Bytes()) // the connection ends in any case
		default:
			c.cold.early = append(c.cold.early, o.First().Bytes()...)
		}
	}
}

// Drained is the engine's: there is room again. On the loop.
func (h *handler) Drained(*myriad.Conn) { (*Conn)(h).drains() }

func (c *Conn) drains() {
	c.mu.Lock()
	c.advance()
	tell := c.slow().Relieved()
	if c.is(offered | stalled) {
		c.state.Store(c.state.Load() &^ (offered | stalled))
	}
	c.slow().Wake()
	late := c.takeLate()
	c.mu.Unlock()
	for _, m := range late {
		m.shard.catchUp(m)
	}
	if tell && c.settings().onDrained != nil {
		c.dispatch(event{kind: drained})
	}
}

// A waitingWrite is a message that waits for room.
type waitingWrite struct {
	c       *Conn
	m       outgoing
	expired func() error // ends the wait; nil: nothing does
}

func (w *waitingWrite) Try(p driver.Parker) error { return w.c.attempt(w.m, noRoom{parker: p}) }

func (w *waitingWrite) Forget(p driver.Parker) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.c.slow().Forget(p)
}

func (w *waitingWrite) Blocks() { w.c.settings().count.Waited.Add(1) }

func (w *waitingWrite) Expired() error {
	if w.expired == nil {
		return nil
	}
	return notWritten(w.expired())
}

func notWritten(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("websocket: the message was not written: %w", err)
}

// writeWaiting waits for room until ctx ends, expired says so, or limit has passed; 0: there is no
// limit.
func (c *Conn) writeWaiting(ctx context.Context, m outgoing, limit time.Duration, expired func() error) error {
	if err := ctx.Err(); err != nil {
		return notWritten(err)
	}
	e, err := c.engine()
	if err != nil {
		return err
	}
	switch err = outbox.Wait(ctx, e, limit, &waitingWrite{c, m, expired}); {
	case err == nil:
		return nil
	case err == myriad.ErrOnLoop:
		return errOnLoop
	case err == outbox.ErrStalled:
		return c.stall()
	case err == ctx.Err():
		return notWritten(err)
	}
	return err
}

// stall notes that there has been no room for as long as a Write waits.
func (c *Conn) stall() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(closeSent | dropped | closed) {
		return errClosing
	}
	c.set(stalled)
	c.needSlow().Refuse(&c.settings().count)
	return c.settings().errStalled()
}

// flush has the loop offer the kernel what is queued, so that only what the kernel refuses counts.
func (c *Conn) flush() {
	if nc := c.conn(); nc != nil && !(c.is(offered) && nc.Unflushed() == 0) {
		outbox.Flush(nc, c.settings().flushWait)
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
