package resp

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// An Overflow says what happens to a message that is pushed when the connection's output is at its
// limit, because the peer reads too slowly. The policies are those of package websocket. Replies
// are not concerned: while they exceed the limit, commands wait.
//
//	policy              Push
//	OverflowBlock       waits for room, up to Server.PushTimeout
//	OverflowFail        fails with myriad.ErrFull
//	OverflowDropNewest  drops the message, returns nil
//	OverflowDropOldest  drops those that have waited longest
//	OverflowLatest      replaces the one that waits
//	OverflowClose       resets the connection
type Overflow uint8

const (
	// OverflowBlock has Push wait for room, at most for Server.PushTimeout. Then Push fails with an
	// error that is myriad.ErrFull and os.ErrDeadlineExceeded. In a handler that runs on a loop,
	// the loop goes on without it. Push fails with myriad.ErrOnLoop, and ErrFull too, where it must
	// not wait: in a handler of DispatchInline, in Loop.Do, and on a driver that is bound to a
	// thread.
	OverflowBlock Overflow = iota
	// OverflowFail has Push fail with myriad.ErrFull and take nothing.
	OverflowFail
	// OverflowDropNewest drops the message. Push returns nil.
	OverflowDropNewest
	// OverflowDropOldest drops those that have waited longest, as many as make room. Half of the
	// limit is theirs; the other half is output on its way to the kernel, of which nothing is
	// dropped.
	OverflowDropOldest
	// OverflowLatest lets one message wait, above half of the limit, and replaces it by a newer
	// one.
	OverflowLatest
	// OverflowClose resets the connection, as Redis does at its client-output-buffer-limit.
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

var (
	// errWait asks the caller of offer to wait for room. It is never returned to users.
	errWait   = errors.New("resp: the output is full for now")
	errOnLoop = fmt.Errorf("resp: Push would wait for room: %w, and %w", myriad.ErrOnLoop, myriad.ErrFull)
	errSlow   = fmt.Errorf("resp: the peer is too slow: %w", myriad.ErrFull)
)

// pushes are what is pushed to a connection whose output is full. It is guarded by Conn.mu.
type pushes struct {
	frames  []pushed // they wait, and may be dropped
	bytes   int
	writers []driver.Parker // goroutines that wait for room
	dropped uint64
}

// pushed is a message that waits.
type pushed struct {
	b  *buf.Block
	to *membership // nil: it is for no subscription
}

// overflow is the connection's policy.
func (c *Conn) overflow() Overflow { return Overflow(c.state.Load() & overflowBits / stateOverflow) }

// limit is the engine's part of the write limit. It is called under mu, or before the connection is
// shared.
func (c *Conn) limit() int {
	whole := c.whole()
	if c.overflow().queues() {
		return max(1, whole/2)
	}
	return whole
}

func (c *Conn) whole() int {
	if c.more != nil && c.more.limit > 0 {
		return c.more.limit
	}
	return c.lane.live.limit
}

// SetOverflow changes the limit and the policy of this connection. limit is in bytes; 0 is
// Server.WriteLimit.
func (c *Conn) SetOverflow(policy Overflow, limit int) error {
	if policy >= overflows || limit < 0 {
		return fmt.Errorf("resp: SetOverflow(%v, %d): the policy must be one of those defined and the limit not "+
			"negative", policy, limit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Store(c.state.Load()&^overflowBits | uint64(policy)*stateOverflow)
	if limit != c.whole() {
		c.rare().limit = limit
	}
	c.nc.SetWriteLimit(c.limit())
	return nil
}

// Dropped is how many messages Overflow has dropped on this connection.
func (c *Conn) Dropped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more == nil {
		return 0
	}
	return c.more.pushes.dropped
}

// Queued is how many bytes of output the kernel has not taken.
func (c *Conn) Queued() int { return c.nc.Queued() }

// Push queues a message that the peer has not asked for, all of it or nothing: mostly one of
// AppendPush. It may be called between any two replies. When the output is at its limit, Overflow
// decides. It fails with net.ErrClosed once the connection closes. The message may be used again.
func (c *Conn) Push(message []byte) error { return c.PushBlock(buf.From(message)) }

// PushBlock is Push for a message that goes to many connections: it is queued without a copy. It
// consumes one reference, also on error.
func (c *Conn) PushBlock(b *buf.Block) error { return c.push(b, nil) }

// push is PushBlock for a message to a subscription. If that has ended, the message is dropped.
func (c *Conn) push(b *buf.Block, to *membership) error {
	m := pushed{b, to}
	err := c.offer(m, nil, true)
	if err == errWait {
		c.flush()
		err = c.offer(m, nil, false)
	}
	if err == errWait {
		err = c.pushWaiting(m)
	}
	b.Release()
	return err
}

// TryPush is PushBlock that neither waits nor drops, whatever Overflow says: at the limit it fails
// with myriad.ErrFull.
func (c *Conn) TryPush(b *buf.Block) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer b.Release()
	if c.is(stateClosing) {
		return errEnded
	}
	return c.send(b)
}

// pushCopied is up to which size a message is copied into output that is there already.
const pushCopied = 2 << 10

// offer queues a message, or does with it what the policy says. The caller keeps its reference.
// parker is unparked when there may be room; nil: the caller does not wait yet. With probe it
// returns errWait for want of room, whatever the policy is.
func (c *Conn) offer(m pushed, parker driver.Parker, probe bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.is(stateClosing):
		return errEnded
	case m.to != nil && m.to.ended:
		return nil
	}
	policy := c.overflow()
	if policy.queues() && c.more != nil && len(c.more.pushes.frames) > 0 {
		c.wait(m, policy)
		return nil
	}
	err := c.send(m.b)
	if !errors.Is(err, myriad.ErrFull) {
		return err
	}
	switch {
	case probe:
		return errWait
	case policy.queues():
		c.wait(m, policy)
		return nil
	}
	switch policy {
	case OverflowDropNewest:
		c.drop()
		err = nil
	case OverflowClose:
		c.set(stateClosing)
		c.nc.Abort(errSlow)
		err = errEnded
	case OverflowBlock:
		if err = errWait; parker != nil {
			p := &c.rare().pushes
			p.writers = append(p.writers, parker)
		}
	default:
		c.set(stateDrained)
	}
	return err
}

// send gives a message to the engine. The caller keeps its reference. It is called under mu.
func (c *Conn) send(b *buf.Block) error {
	if b.Len() <= pushCopied && c.nc.Queued() > 0 {
		_, err := c.nc.Write(b.Bytes())
		return err
	}
	return c.nc.WriteBlocks(b.Retain())
}

// wait keeps a message, and drops others for it. It is called under mu.
func (c *Conn) wait(m pushed, policy Overflow) {
	p := &c.rare().pushes
	p.frames = append(p.frames, pushed{m.b.Retain(), m.to})
	p.bytes += m.b.Len()
	for len(p.frames) > 1 && (policy == OverflowLatest || p.bytes > c.whole()-c.limit()) {
		p.shift()
		c.drop()
	}
}

// shift releases the message that has waited longest.
func (p *pushes) shift() {
	p.bytes -= p.frames[0].b.Len()
	p.frames[0].b.Release()
	p.frames[0] = pushed{}
	if p.frames = p.frames[1:]; len(p.frames) == 0 {
		p.frames = nil
	}
}

// drop counts. It is called under mu.
func (c *Conn) drop() {
	c.rare().pushes.dropped++
	c.set(stateDrained)
}

// drainedPushes goes on with what waits for room. On the loop.
func (c *Conn) drainedPushes() {
	c.mu.Lock()
	if c.more != nil {
		p := &c.more.pushes
		for len(p.frames) > 0 {
			first := p.frames[0]
			if ended := first.to != nil && first.to.ended; !ended && c.send(first.b) != nil {
				break
			}
			p.shift()
		}
		p.wake()
	}
	tell := c.is(stateDrained) && (c.more == nil || len(c.more.pushes.frames) == 0)
	if tell {
		c.unset(stateDrained)
	}
	c.mu.Unlock()
	if f := c.lane.live.s.OnDrained; tell && f != nil {
		f(c)
	}
}

// endPushes is for the end of the connection. It is called under mu.
func (c *Conn) endPushes() {
	if c.more == nil {
		return
	}
	p := &c.more.pushes
	for len(p.frames) > 0 {
		p.shift()
	}
	p.wake()
}

func (p *pushes) wake() {
	for _, w := range p.writers {
		w.Unpark()
	}
	p.writers = nil
}

// pushWaiting waits for room.
func (c *Conn) pushWaiting(m pushed) error {
	e := c.nc.Loop().Engine()
	if !e.HandOff() {
		return errOnLoop
	}
	limit, system := c.lane.live.timeout, e.System()
	parker := system.NewParker()
	until := system.Now().Add(limit)
	for {
		if err := c.offer(m, parker, false); err != errWait {
			return err
		}
		left := until.Sub(system.Now())
		switch {
		case limit == 0:
			parker.Park()
		case left > 0:
			parker.ParkFor(left)
		}
		c.forgetWriter(parker)
		if limit > 0 && left <= 0 {
			return c.stalledFor(limit)
		}
	}
}

// flushWait is for how long flush waits for a loop: it may be held up by a handler that waits for a
// lock of flush's caller.
const flushWait = 10 * time.Millisecond

// flush has the loop offer the kernel what is queued, so that only what the kernel refuses counts.
// It waits for the loop, never for the peer, and not at all on another loop.
func (c *Conn) flush() {
	if c.nc.Unflushed() == 0 || c.nc.Flush() {
		return
	}
	e := c.nc.Loop().Engine()
	if !e.HandOff() {
		return
	}
	w := e.System().NewParker()
	if c.nc.Loop().Do(func() { c.nc.Flush(); w.Unpark() }) == nil {
		w.ParkFor(flushWait)
	}
}

func (c *Conn) stalledFor(limit time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(stateClosing) {
		return errEnded
	}
	c.set(stateDrained)
	return fmt.Errorf("resp: the peer has made no room for %v (Server.PushTimeout), the message was not pushed: "+
		"%w, %w", limit, myriad.ErrFull, os.ErrDeadlineExceeded)
}

func (c *Conn) forgetWriter(w driver.Parker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.rare().pushes
	for i, other := range p.writers {
		if other == w {
			p.writers = append(p.writers[:i], p.writers[i+1:]...)
			return
		}
	}
}
