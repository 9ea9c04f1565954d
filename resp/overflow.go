package resp

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
	// error that is myriad.ErrFull and os.ErrDeadlineExceeded. In a handler that runs on a loop,
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
func (c *Conn) PushBlock(b *buf.Block) error { return c.push(pushed{b, nil}) }

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

// A pushed is a message that waits.
type pushed struct {
	*buf.Block
	to *membership // nil: it is for no subscription
}

// push queues a message, and consumes one reference. If it is for a subscription that has ended, it
// is dropped.
func (c *Conn) push(m pushed) error {
	defer m.Release()
	err := c.offer(m, nil, true)
	if err == outbox.ErrBlocked {
		if c.nc.Buffered() > 0 { // what the kernel has room for does not count
			outbox.Flush(c.nc, outbox.FlushWait)
		}
		err = c.offer(m, nil, false)
	}
	if err != outbox.ErrBlocked {
		return err
	}
	limit := c.lane.live.rules.pushTimeout
	switch err = outbox.Wait(context.Background(), c.nc.Loop().Engine(), limit, &blockedPush{c, m}); err {
	case myriad.ErrOnLoop:
		return errOnLoop
	case outbox.ErrStalled:
		return c.stalledFor(limit)
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
			return err
		}
		if probe {
			return outbox.ErrBlocked
		}
	}
	o := c.outbox()
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

// A blockedPush is a message whose Push waits for room.
type blockedPush struct {
	c *Conn
	m pushed
}

// Try implements outbox.Sender.
func (b *blockedPush) Try(w driver.Parker) error { return b.c.offer(b.m, w, false) }

// Forget implements outbox.Sender.
func (b *blockedPush) Forget(w driver.Parker) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.c.read().outbox.Forget(w)
}

// Blocks implements outbox.Sender.
func (*blockedPush) Blocks() {}

// Expired implements outbox.Sender.
func (*blockedPush) Expired() error { return nil }

func (c *Conn) stalledFor(limit time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(stateClosing) {
		return errEnded
	}
	c.outbox().Refuse(nil)
	return fmt.Errorf("resp: the peer has made no room for %v (Server.PushTimeout), the message was not pushed: "+
		"%w, %w", limit, myriad.ErrFull, os.ErrDeadlineExceeded)
}

// drainedPushes goes on with what waits for room. On the loop.
func (c *Conn) drainedPushes() {
	c.mu.Lock()
	o := c.read().outbox
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
