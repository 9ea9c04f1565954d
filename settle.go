package myriad

import (
	"cmp"
	"slices"

	"github.com/myriad-go/myriad/buf"
)

// This file brings conns to rest: what others have asked of them, and what they have received,
// reaches their handlers, and their output reaches the driver. All of it but link runs on the loop.

// revisit has c settled again in the next turn.
func (l *Loop) revisit(c *Conn) { l.work.revisits.add(c) }

// revisitServed is for a conn that has had its share: until it is revisited it encodes nothing,
// whatever room comes.
func (l *Loop) revisitServed(c *Conn) {
	c.status |= served
	l.revisit(c)
}

// link puts c on the list of dirty conns, unless it is there or its own callback is running. It
// reports whether the loop may have to be woken. c.mu is held.
func (c *Conn) link() bool {
	l := c.loop
	if c.asked&linked != 0 || l.current.Load() == c {
		return false
	}
	c.asked |= linked
	for {
		c.next = l.dirty.Load()
		if l.dirty.CompareAndSwap(c.next, c) {
			return true
		}
	}
}

// A dirtyConn is one that was given work, with its slot, because many of them are sorted by slot.
type dirtyConn struct {
	slot uint32
	conn *Conn
}

// deliver hands decoded bytes to the handler, or keeps them while it does not want any. The conn is
// current.
func (l *Loop) deliver(c *Conn, p []byte) {
	switch x := c.extra.Load(); {
	case c.phase() != open:
	case c.is(paused) || x != nil && (x.held.Len() > 0 || c.detaching()):
		c.ownExtra().held.Append(p)
	case c.closeAsked(): // by another conn's handler in this batch, or by the one before under a layer
	default:
		l.callReceived(c, p)
		l.switchHandlers()
	}
}

// peerEnded notes the peer's FIN, or the layer's end, and calls the handler once it has had all
// bytes.
func (l *Loop) peerEnded(c *Conn) {
	if c.is(peerEnded) {
		return
	}
	c.status |= peerEnded
	l.inputEnded(c)
}

// inputEnded calls the handler for the peer's FIN, unless it has yet to get bytes that came before.
func (l *Loop) inputEnded(c *Conn) {
	switch x := c.extra.Load(); {
	case c.phase() != open:
	case c.is(paused) || x != nil && (x.held.Len() > 0 || x.endHeld || c.detaching()):
		c.ownExtra().endHeld = true
	default:
		l.callEnded(c)
	}
}

// settle brings a conn to rest: what is queued goes to the driver, and what was asked of it is
// done. A handler that asks for more from within its callbacks is served in the next turn, so that
// no conn can hold the loop.
func (l *Loop) settle(c *Conn) {
	if c.id == 0 || c.phase() == closed || c.is(connecting) {
		return // not attached yet, or past everything
	}
	asked := l.flush(c)
	if asked&(wantNotify|wantRoom) != 0 || c.hasHeld() {
		l.serve(c, asked)
	}
	c.trim()
}

// serve makes the pending calls. The last flush comes after the conn has ceased to be current: what
// another goroutine has queued without linking the conn, because it was current, must not be left
// behind.
func (l *Loop) serve(c *Conn, asked request) {
	l.current.Store(c)
	if c.hasHeld() {
		l.serveHeld(c)
		l.switchHandlers()
	}
	if asked&wantNotify != 0 && c.can&canNotify != 0 && !c.closeAsked() {
		l.callNotified(c)
		l.switchHandlers()
	}
	if asked&wantRoom != 0 && l.hasRoom(c) {
		l.callDrained(c)
	}
	l.switchHandlers()
	l.current.Store(nil)
	again := l.flush(c)
	if again&wantNotify != 0 {
		l.renew(c, wantNotify)
	}
	if again&wantRoom != 0 && c.roomy() {
		l.revisit(c)
	}
}

// renew puts back a request that must wait for the next turn.
func (l *Loop) renew(c *Conn, r request) {
	c.mu.Lock()
	c.asked |= r
	c.mu.Unlock()
	l.revisit(c)
}

// hasRoom takes back the debt of a Drained call if it can be paid now.
func (l *Loop) hasRoom(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.roomyLocked() {
		return false
	}
	c.asked &^= wantRoom | wantEmpty
	return true
}

func (c *Conn) roomy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roomyLocked()
}

// roomyLocked reports whether what was refused has a chance now; of a conn that is being closed
// nothing has. mu is held.
func (c *Conn) roomyLocked() bool {
	if c.asked&(wantClose|wantAbort|gone) != 0 {
		return false
	}
	if c.filesFull() {
		return false
	}
	mark := int64(c.limit) / 2
	if c.asked&wantEmpty != 0 {
		mark = 0
	}
	return c.queued.Load() <= mark
}

// hasHeld reports whether there is something to deliver that was held back.
func (c *Conn) hasHeld() bool {
	x := c.extra.Load()
	return x != nil && (x.held.Len() > 0 || x.endHeld) && !c.detaching() && !c.is(paused) && c.phase() == open
}

// serveHeld delivers what came while the conn was paused, and then lets the driver go on.
func (l *Loop) serveHeld(c *Conn) {
	x := c.extra.Load()
	var pending buf.Chain
	defer pending.Release()
	x.held.Move(&pending)
	for pending.Len() > 0 && x.held.Len() == 0 && !c.detaching() && !c.is(paused) && !c.closeAsked() {
		p := pending.First()
		l.callReceived(c, p[:len(p):len(p)])
		l.switchHandlers()
		pending.Discard(len(p))
	}
	pending.Move(&x.held) // behind what a handler switch has put back
	switch {
	case x.held.Len() > 0 || c.detaching() || c.is(paused):
	case x.endHeld:
		x.endHeld = false
		l.callEnded(c)
	default:
		l.drv.Resume(c.id)
	}
}

// settleRevisits is called once in a turn, so that what it puts on the list anew waits for the
// next.
func (l *Loop) settleRevisits() {
	revisits := &l.work.revisits
	revisits.renew()
	for c, ok := revisits.take(); ok; c, ok = revisits.take() {
		c.status &^= served
		l.settle(c)
	}
}

// drainDirty settles conns that were given work, at most so many. It returns how many outside of
// their own callbacks, most often by other goroutines.
func (l *Loop) drainDirty(most int) (n int) {
	l.takeDirty()
	for ; n < most; n++ {
		d, ok := l.work.dirty.take()
		if !ok {
			break
		}
		c := d.conn
		c.mu.Lock()
		c.next = nil
		c.asked &^= linked
		c.mu.Unlock()
		l.settle(c)
	}
	return n
}

// takeDirty takes up the stack of dirty conns: few in the order in which they came, and many in
// that of their slots. A program may write a message to thousands of conns in the random order of a
// map. It is then sent in the order of the sockets' memory, which takes a tenth less time.
func (l *Loop) takeDirty() {
	if !l.work.dirty.empty() {
		return
	}
	list := l.work.dirty.list[:0]
	if cap(list) > keptDirty {
		list = nil
	}
	for c := l.dirty.Swap(nil); c != nil; c = c.next {
		list = append(list, dirtyConn{c.id.Slot(), c})
	}
	if len(list) < manyDirty {
		slices.Reverse(list)
	} else {
		slices.SortFunc(list, func(a, b dirtyConn) int { return cmp.Compare(a.slot, b.slot) })
	}
	l.work.dirty = batch[dirtyConn]{list: list}
}
