package resp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/outbox"
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
//	OverflowSample      drops some of those that wait, evenly
type Overflow = outbox.Policy

const (
	// OverflowBlock has Push wait for room, at most for Server.PushTimeout. Then Push fails with an
	// error that is myriad.ErrFull and os.ErrDeadlineExceeded, and so do later ones, at once, until
	// the peer has made room. In a handler that runs on a loop,
	// the loop goes on without it. Push fails with myriad.ErrOnLoop, and ErrFull too, where it must
	// not wait: in a handler of DispatchInline, in Loop.Do, and on a driver that is bound to a
	// thread.
	OverflowBlock = outbox.Block
	// OverflowFail has Push fail with myriad.ErrFull and take nothing.
	OverflowFail = outbox.Fail
	// OverflowDropNewest drops the message. Push returns nil.
	OverflowDropNewest = outbox.DropNewest
	// OverflowDropOldest drops those that have waited longest, as many as make room. Half of the
	// limit is theirs; the other half is output on its way to the kernel, of which nothing is
	// dropped.
	OverflowDropOldest = outbox.DropOldest
	// OverflowLatest lets one message wait, above half of the limit, and replaces it by a newer
	// one.
	OverflowLatest = outbox.Latest
	// OverflowClose resets the connection, as Redis does at its client-output-buffer-limit.
	OverflowClose = outbox.Close
	// OverflowSample lets messages wait in half of the limit, and thins them out evenly.
	OverflowSample = outbox.Sample
)

var (
	errOnLoop = fmt.Errorf("resp: Push would wait for room: %w, and %w", myriad.ErrOnLoop, myriad.ErrFull)
	errSlow   = fmt.Errorf("resp: the peer is too slow: %w", myriad.ErrFull)
)

// limit is the engine's part of the write limit. It is called under mu, or before the connection is
// shared.
func (c *Conn) limit() int {
	all := c.read()
	transport, _ := all.overflow.Split(all.limit)
	return transport
}

// SetOverflow changes the limit and the policy of this connection. limit is in bytes; 0 is
// Server.WriteLimit.
func (c *Conn) SetOverflow(policy Overflow, limit int) error {
	if policy >= outbox.Policies || limit < 0 {
		return fmt.Errorf("resp: SetOverflow(%v, %d): the policy must be one of those defined and the limit not "+
			"negative", policy, limit)
	}
	if limit == 0 {
		limit = c.lane.live.rules.limit
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.read(); policy != now.overflow || limit != now.limit {
		all := c.change()
		all.overflow, all.limit = policy, limit
	}
	c.nc.SetWriteLimit(c.limit())
	return nil
}

// Dropped is how many messages Overflow has dropped on this connection.
func (c *Conn) Dropped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read().outbox.Dropped()
}

// Queued is how many bytes of output the kernel has not taken.
func (c *Conn) Queued() int { return c.nc.Queued() }

// Push queues a message that the peer has not asked for, all of it or nothing: mostly one of
// wire.AppendPush. It may be called between any two replies. When the output is at its limit,
// Overflow decides. It fails with net.ErrClosed once the connection closes. The message may be used
// again.
func (c *Conn) Push(message []byte) error { return c.PushBlock(buf.From(message)) }

// PushBlock is Push for a message that goes to many connections: it is queued without a copy. It
// consumes one reference, also on error.
func (c *Conn) PushBlock(b *buf.Block) error {
	defer b.Release()
	return c.push(pushed{b, nil})
}

// TryPush is PushBlock that neither waits nor drops, whatever Overflow says: at the limit it fails
// with myriad.ErrFull.
func (c *Conn) TryPush(b *buf.Block) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer b.Release()
	switch {
	case c.is(stateClosing):
		return errEnded
	case c.read().outbox.Waits(): // it would overtake them
		return myriad.ErrFull
	}
	return c.send(b)
}

// A pushed is a message that waits.
type pushed struct {
	*buf.Block
	to *membership // nil: it is for no subscription
}

// push queues a message. The caller keeps its reference. If the message is for a subscription that
// has ended, it is dropped.
func (c *Conn) push(m pushed) error {
	err := c.offerFlushed(m)
	if err == outbox.ErrBlocked {
		err = (&blockedPushes{all: []blockedPush{{c, m}}}).wait()
	}
	return err
}

// offerFlushed is offer that lets the kernel take what it has room for first.
func (c *Conn) offerFlushed(m pushed) error {
	err := c.offer(m, nil, true)
	if err == outbox.ErrBlocked {
		if c.get().room == roomOpen || c.nc.Buffered() > 0 {
			outbox.Flush(c.nc, outbox.FlushWait)
		}
		err = c.offer(m, nil, false)
	}
	return err
}

// pushCopied is up to which size a message is copied into output that is there already.
const pushCopied = 2 << 10

// send gives a message to the engine. The caller keeps its reference. It is called under mu.
func (c *Conn) send(b *buf.Block) error {
	if b.Len() <= pushCopied && c.nc.Queued() > 0 {
		_, err := c.nc.Write(b.Bytes())
		return err
	}
	return c.nc.WriteBlocks(b.Retain())
}

// offer queues a message, or does with it what the policy says. The caller keeps its reference. For
// want of room it returns ErrBlocked if it is asked to probe, whatever the policy is, and if the
// sender has to wait; w is unparked when there may be room.
func (c *Conn) offer(m pushed, w driver.Parker, probe bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.is(stateClosing):
		return errEnded
	case m.to != nil && m.to.ended:
		return nil
	}
	all := c.read()
	if !all.outbox.Waits() {
		if err := c.send(m.Block); !errors.Is(err, myriad.ErrFull) {
			if all.room != roomOpen {
				c.cold.room = roomOpen
			}
			return err
		}
		if probe {
			return outbox.ErrBlocked
		}
	}
	o := c.outbox()
	c.cold.room = max(all.room, roomRefused)
	policy := all.overflow
	_, room := policy.Split(all.limit)
	m.Retain()
	switch o.Put(m, outbox.Rules{Policy: policy, Room: room}) {
	case outbox.Refused:
		return myriad.ErrFull
	case outbox.Closes:
		c.set(stateClosing, true)
		c.nc.Abort(errSlow)
		return errEnded
	case outbox.Blocked:
		if all.room == roomStalled {
			o.Refuse(nil)
			return c.errStalled()
		}
		if w != nil {
			o.Await(w)
		}
		return outbox.ErrBlocked
	}
	return nil
}

// outbox is what keeps messages for a slow peer. It is called under mu.
func (c *Conn) outbox() *outbox.Outbox[pushed] {
	all := c.change()
	if all.outbox == nil {
		all.outbox = new(outbox.Outbox[pushed])
	}
	return all.outbox
}

// A blockedPush is a message whose sender waits for room.
type blockedPush struct {
	c *Conn
	m pushed
}

// blockedPushes are what one call waits for: all of them at the same time.
type blockedPushes struct {
	all []blockedPush
	err error // of the last one that has ended
}

// wait returns when all are queued, or have failed, and at the latest after the longest
// Server.PushTimeout that one of them has.
func (b *blockedPushes) wait() error {
	live := b.all[0].c.lane.live
	limit := live.rules.pushTimeout
	for _, p := range b.all {
		if d := p.c.lane.live.rules.pushTimeout; d == 0 || limit > 0 && d > limit {
			limit = d
		}
	}
	err := outbox.Wait(context.Background(), live.engine, limit, b)
	switch err {
	case myriad.ErrOnLoop:
		return errOnLoop
	case outbox.ErrStalled:
		for _, p := range b.all {
			err = p.c.stall()
		}
	}
	return err
}

// Try implements outbox.Sender.
func (b *blockedPushes) Try(w driver.Parker) error {
	b.all = slices.DeleteFunc(b.all, func(p blockedPush) bool {
		err := p.c.offer(p.m, w, false)
		if err == outbox.ErrBlocked {
			return false
		}
		b.err = err
		return true
	})
	if len(b.all) > 0 {
		return outbox.ErrBlocked
	}
	return b.err
}

// Forget implements outbox.Sender.
func (b *blockedPushes) Forget(w driver.Parker) {
	for _, p := range b.all {
		p.c.mu.Lock()
		p.c.read().outbox.Forget(w)
		p.c.mu.Unlock()
	}
}

// Blocks implements outbox.Sender.
func (*blockedPushes) Blocks() {}

// Expired implements outbox.Sender.
func (*blockedPushes) Expired() error { return nil }

// stall notes that a Push has waited in vain.
func (c *Conn) stall() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(stateClosing) {
		return errEnded
	}
	c.outbox().Refuse(nil)
	c.cold.room = roomStalled
	return c.errStalled()
}

func (c *Conn) errStalled() error {
	return fmt.Errorf("resp: the peer has made no room for %v (Server.PushTimeout), the message was not pushed: "+
		"%w, %w", c.lane.live.rules.pushTimeout, myriad.ErrFull, os.ErrDeadlineExceeded)
}

// drainedPushes goes on with what waits for room. On the loop.
func (c *Conn) drainedPushes() {
	c.mu.Lock()
	o := c.read().outbox
	if c.cold != nil {
		c.cold.room = roomOpen
	}
	for o.Waits() {
		first := o.First()
		if ended := first.to != nil && first.to.ended; !ended && c.send(first.Block) != nil {
			break
		}
		o.Sent()
	}
	o.Wake()
	relieved := o.Relieved()
	c.mu.Unlock()
	if f := c.lane.live.s.OnDrained; relieved && f != nil {
		f(c)
	}
}

// endPushes is for the end of the connection. It is called under mu.
func (c *Conn) endPushes() { c.read().outbox.End() }
