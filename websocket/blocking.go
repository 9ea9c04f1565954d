package websocket

import (
	"context"
	"errors"
	"fmt"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// This file implements Options.Pull: a goroutine waits for messages, instead of a callback for
// each.

// An inbox is what a connection with Options.Pull has received and Read has not returned yet. It is
// part of cold, guarded by Conn.mu, and stays when the connection has ended.
type inbox struct {
	queue
	readers []driver.Parker
	busy    bool  // Read has returned a message: its caller may still answer
	err     error // what Read returns when nothing is left

	readDue, writeDue int64 // NetConn's deadlines, as Conn.now counts; 0: none
}

// errNotPulled is for a Read that could never return.
var errNotPulled = errors.New("websocket: Read: the Options have no Pull, so messages go to OnMessage")

// Read waits for the next message of a connection with Options.Pull. What it returns is the
// caller's. When all messages have been read, it fails with the error that OnClose gets. The end of
// ctx leaves the connection as it is. The peer's close frame is answered when what came before it
// has been read, or when Read was not called for Options.CloseTimeout. A FIN without a close frame
// ends the connection in the same way. Several goroutines may read; each message goes to
// one. Not on a loop, where it fails with myriad.ErrOnLoop if it would have to wait.
func (c *Conn) Read(ctx context.Context) (Op, []byte, error) {
	op, b, err := c.pullBlock(ctx, nil)
	if err != nil {
		return 0, nil, err
	}
	if b == nil {
		return op, []byte{}, nil
	}
	defer b.Release()
	return op, append([]byte(nil), b.Bytes()...), nil
}

// pullBlock is Read without a copy: the caller releases the block, which is nil for an empty
// message. expired is asked whenever there is something new, and ends the wait.
func (c *Conn) pullBlock(ctx context.Context, expired func(*inbox) error) (Op, *buf.Block, error) {
	if !c.settings().pull {
		return 0, nil, errNotPulled
	}
	var w driver.Parker
	for {
		ev, ok, err := c.pull(w, expired)
		if err == nil && !ok {
			err = ctx.Err()
		}
		switch {
		case err != nil:
			c.forgetReader(w)
			return 0, nil, err
		case ok && ev.kind == leaving:
			c.leave(ev.err)
		case ok:
			c.forgetReader(w)
			return c.taken(ev)
		case w == nil:
			if w, err = c.newParker(); err != nil {
				return 0, nil, err
			}
			if !c.handOff() {
				return 0, nil, fmt.Errorf("websocket: Read would wait for a message: %w", myriad.ErrOnLoop)
			}
			defer context.AfterFunc(ctx, w.Unpark)()
		default:
			w.Park()
		}
	}
}

// pull takes the first event. If there is none, w is woken when there is something new.
func (c *Conn) pull(w driver.Parker, expired func(*inbox) error) (ev event, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.cold.inbox
	in.busy = false
	if expired != nil {
		if err = expired(in); err != nil {
			return event{}, false, err
		}
	}
	if in.empty() {
		if in.err == nil && w != nil {
			in.readers = append(in.readers, w)
		}
		return event{}, false, in.err
	}
	ev = in.shift()
	if in.paused && !in.asked && in.belowHalf() {
		in.asked = true
		c.nc.Notify()
	}
	in.busy = ev.kind == received
	return ev, true, nil
}

// taken is a message for its reader.
func (c *Conn) taken(ev event) (Op, *buf.Block, error) {
	if !ev.packed {
		return ev.op, ev.block, nil
	}
	var p []byte
	if ev.block != nil {
		defer ev.block.Release()
		p = ev.block.Bytes()
	}
	b, err := c.unpack(ev.op, p)
	if err != nil {
		c.spoiled(err)
		return 0, nil, err
	}
	return ev.op, b, nil
}

// forgetReader takes w off the list, and wakes another reader in its place: the wake that ended its
// wait may have been for a message.
func (c *Conn) forgetReader(w driver.Parker) {
	if w == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.cold.inbox
	for i, other := range in.readers {
		if other == w {
			in.readers = append(in.readers[:i], in.readers[i+1:]...)
			break
		}
	}
	if !in.empty() || in.err != nil {
		in.wake()
	}
}

// wake lets all readers look again. Conn.mu is held.
func (in *inbox) wake() {
	for _, w := range in.readers {
		w.Unpark()
	}
	in.readers = in.readers[:0]
}

// shift takes the first event. Conn.mu is held.
func (b *queue) shift() event {
	ev := b.events[b.head]
	b.events[b.head] = event{}
	b.head++
	if ev.block != nil {
		b.bytes -= ev.block.Len()
	}
	if b.empty() {
		b.events, b.head = b.events[:0], 0
	}
	return ev
}

// keep lets a message wait for Read, and reports whether enough wait now. On the loop.
func (c *Conn) keep(ev event) (full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.cold.inbox
	if c.is(muted) { // since it was looked at: what waited has been dropped
		if ev.block != nil {
			ev.block.Release()
		}
		return false
	}
	in.push(ev)
	in.wake()
	full = in.full()
	in.paused = in.paused || full
	return full
}

// endInbox notes why the peer sends no more, and reports whether there is something to be read
// before that is answered. It is called under mu.
func (c *Conn) endInbox(err error) (unread bool) {
	if !c.settings().pull {
		return false
	}
	in := c.cold.inbox
	if unread = !in.empty() || in.busy; unread {
		in.push(event{kind: leaving, err: err})
	}
	if in.err == nil {
		in.err = err
	}
	in.wake()
	return unread
}

// emptyInbox drops what has not been read. It is called under mu.
func (c *Conn) emptyInbox() {
	if !c.settings().pull || c.cold == nil {
		return
	}
	in := c.cold.inbox
	for !in.empty() {
		if ev := in.shift(); ev.block != nil {
			ev.block.Release()
		}
	}
	if in.err == nil {
		in.err = errClosing
	}
	in.wake()
}

// strip leaves of cold what outlives the connection, which ends with err, and ends the context.
// Messages that wait for callbacks are still inflated, with the windows, until forget. It is called
// under mu.
func (c *Conn) strip(err error) {
	r := c.needCold()
	kept := cold{end: err, life: r.life, slow: r.slow}
	if c.settings().pull || c.backlog != nil {
		kept.windows = r.windows
	}
	if c.settings().pull {
		if r.inbox.err == nil {
			r.inbox.err = err
		}
		r.inbox.wake()
		kept.inbox = r.inbox
	}
	*r = kept
	r.life.End(err) // under mu: a context that is asked for meanwhile is this one, or has ended
}

// wakeLate wakes those whose deadline has passed. On the loop.
func (c *Conn) wakeLate() {
	if !c.settings().pull {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in, now := c.cold.inbox, c.now()
	if in.readDue > 0 && now >= in.readDue {
		in.wake()
	}
	if in.writeDue > 0 && now >= in.writeDue {
		c.slow().Wake()
	}
}

// rearm sets the timer again if deadlines have changed. On the loop.
func (c *Conn) rearm() {
	if (c.settings().pull || c.lateDue() > 0) && !c.is(closeSent|concluded) {
		c.wakeLate()
		c.arm(c.now())
	}
}

// nextDeadline is the earliest of the deadlines that have not passed, or 0. On the loop.
func (c *Conn) nextDeadline(now int64) (due int64) {
	if due = c.lateDue(); due > 0 {
		due = max(due, now+1)
	}
	if !c.settings().pull {
		return due
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range [...]int64{c.cold.inbox.readDue, c.cold.inbox.writeDue} {
		if d > now && (due == 0 || d < due) {
			due = d
		}
	}
	return due
}
