package myriad

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// This file brings conns to rest: what others have asked of them, and what they have received,
// reaches their handlers, and their output reaches the driver. All of it but link runs on the loop.

// A settler brings a loop's conns to rest. What a turn has taken up is not on the stack: a handler
// may end the goroutine (runtime.Goexit), and another one goes on from here.
type settler struct {
	loop     *Loop
	dirty    atomic.Pointer[Conn] // a stack of conns that other goroutines have given work
	taken    batch[dirtyConn]     // from it
	took     time.Duration        // the clock then
	batch    sendBatch            // of conns whose output leaves at once
	flushes  bool                 // Conn.Flush runs: the driver is to ask the kernel now
	single   [1]driver.Outgoing   // what that sends
	revisits relay[*Conn]         // to be settled again, in the next turn
}

// A dirtyConn is one that was given work, with its slot, because many of them are sorted by slot.
type dirtyConn struct {
	slot uint32
	conn *Conn
}

// sendNow is Send of a driver that would otherwise send later, together with others.
func (s *settler) sendNow(id driver.ID, out *buf.Chain) (queued int64) {
	s.single[0] = driver.Outgoing{ID: id, Chain: out}
	s.loop.can.SendMany(s.single[:])
	queued, s.single[0] = s.single[0].Queued, driver.Outgoing{}
	return queued
}

// link puts c on the list of dirty conns, unless it is there or its own callback is running. It
// reports whether the loop may have to be woken. c.mu is held. Any goroutine.
func (s *settler) link(c *Conn) bool {
	if c.asked&linked != 0 || s.loop.calls.current.Load() == c {
		return false
	}
	c.asked |= linked
	for {
		c.next = s.dirty.Load()
		if s.dirty.CompareAndSwap(c.next, c) {
			return true
		}
	}
}

// revisit has c settled again in the next turn.
func (s *settler) revisit(c *Conn) {
	s.revisits.add(c)
	s.loop.due |= workRevisits
}

// revisitServed is for a conn that has had its share: until it is revisited it encodes nothing,
// whatever room comes.
func (s *settler) revisitServed(c *Conn) {
	c.status |= served
	s.revisit(c)
}

// sink is the loop as its driver sees it: the events, out of the way of Loop's public methods.
type sink Loop

var _ driver.Events = (*sink)(nil)

func (s *sink) loop() *Loop {
	l := (*Loop)(s)
	if l.slept {
		l.readClock()
	}
	if l.newcomers.unread {
		l.newcomers.fresh()
	}
	return l
}

// conn is the one with that id, woken if it hibernates.
func (s *sink) conn(id driver.ID) (*Conn, *Loop) {
	l, slot := s.loop(), id.Slot()
	if c := *l.conns.Row(slot); c != nil {
		return c, l
	}
	return l.hibernation.awake(slot), l
}

func (s *sink) Received(id driver.ID, p []byte) {
	c, l := s.conn(id)
	l.stats.reads++
	l.stats.bytesIn += uint64(len(p))
	x := c.cold.Load()
	if c.state() >= draining && (x == nil || !x.mustEncode(c)) {
		c.discard(len(p))
		l.served(c)
		return
	}
	l.calls.current.Store(c)
	if x != nil && x.layer != nil {
		l.calls.decode(c, p)
	} else {
		l.settler.deliver(c, p)
	}
	l.calls.done(c)
	l.served(c)
}

func (s *sink) Ended(id driver.ID) {
	c, l := s.conn(id)
	l.calls.current.Store(c)
	l.settler.wireEnded(c)
	l.calls.done(c)
	l.served(c)
}

func (s *sink) Sent(id driver.ID, n int64) {
	c, l := s.conn(id)
	l.stats.bytesOut += uint64(n)
	if x := c.cold.Load(); x != nil && x.sending {
		x.fileSent(c, n)
	} else {
		c.queued.Add(-n)
	}
	l.settler.settle(c)
	l.served(c)
}

func (s *sink) Closed(id driver.ID, err error) {
	l := s.loop()
	if ln, ok := l.listeners[id.Slot()]; ok {
		delete(l.listeners, id.Slot())
		l.wheel.Clear(id.Slot())
		ln.ended()
		return
	}
	// also if the conn hibernates, and its Wake does not return
	defer func() {
		c := l.conn(id.Slot())
		l.closedAndCounted(c, err)
		l.served(c)
	}()
	l.hibernation.awake(id.Slot())
}

func (s *sink) Detached(id driver.ID, sock driver.Socket) {
	c, l := s.conn(id)
	if c.state() == frozen {
		c.cold.Load().frozen.left(sock)
		return
	}
	defer l.engine.admission.quota.release()
	c.driverDetached(sock)
	l.served(c)
}

func (s *sink) Dialed(id driver.ID, local driver.Addr) {
	c, l := s.conn(id)
	c.local = driver.OwnAddr{Addr: local}
	c.attempt().connected()
	l.served(c)
}

func (s *sink) DialFailed(id driver.ID, err error) {
	c, l := s.conn(id)
	l.engine.admission.quota.release()
	l.remove(c)
	c.bury()
	c.attempt().finish(err)
	l.served(c)
}

func (s *sink) Accepted(id driver.ID, sock driver.Socket) {
	l := s.loop()
	l.listeners[id.Slot()].accepted(sock)
}

func (s *sink) AcceptFailed(id driver.ID, err error) {
	l := s.loop()
	l.listeners[id.Slot()].failed(err)
}

// expired is the wheel's callback: the timer of a conn, of an attempt to connect, or of a listener
// that rests.
func (l *Loop) expired(slot uint32) {
	if ln, ok := l.listeners[slot]; ok {
		ln.rested()
		return
	}
	c := l.hibernation.awake(slot)
	if c.state() == dialing {
		c.attempt().expired()
		return
	}
	if c.state() >= draining {
		c.lingerExpired()
		return
	}
	l.calls.current.Store(c)
	l.calls.expired(c)
	l.calls.done(c)
}

// deliver hands decoded bytes to the handler, or keeps them while it does not want any. The conn is
// current.
func (s *settler) deliver(c *Conn, p []byte) {
	switch x := c.cold.Load(); {
	case c.state() >= draining:
	case c.is(paused) || x != nil && (x.held.Len() > 0 || c.state() == detaching):
		c.ownCold().held.Append(p)
	case c.closeAsked(): // by another conn's handler in this batch, or by the one before under a layer
	default:
		s.loop.calls.received(c, p)
		s.loop.calls.switchHandlers()
	}
}

// wireEnded is the peer's FIN. The conn is current, or another one is whose callback has led to
// this.
func (s *settler) wireEnded(c *Conn) {
	x := c.cold.Load()
	switch {
	case x == nil || x.layer == nil || c.is(peerEnded) || c.state() >= draining:
	case x.buffered != nil:
		x.fin = true
		s.loop.calls.layerEnded(c, x)
		return
	default:
		x.cut = s.loop.calls.meaning(c, nil)
	}
	if b := c.bridged(); b != nil && c.state() < draining {
		switch err := b.Broken(); {
		case errors.Is(err, io.ErrUnexpectedEOF): // of a tls.Conn: a FIN in the middle of a record
			c.ownCold().cut = err
		case err != nil:
			c.Abort(err)
		}
	}
	s.peerEnded(c)
}

// peerEnded notes the peer's FIN, or the layer's end, and calls the handler once it has had all
// bytes.
func (s *settler) peerEnded(c *Conn) {
	if c.is(peerEnded) {
		return
	}
	c.status |= peerEnded
	s.inputEnded(c)
}

// inputEnded calls the handler for the peer's FIN, unless it has yet to get bytes that came before.
func (s *settler) inputEnded(c *Conn) {
	switch x := c.cold.Load(); {
	case c.state() >= draining:
	case c.is(paused) || x != nil && (x.held.Len() > 0 || x.endHeld || c.state() == detaching):
		c.ownCold().endHeld = true
	default:
		s.loop.calls.ended(c)
	}
}

// settle brings a conn to rest: what is queued goes to the driver, and what was asked of it is
// done. A handler that asks for more from within its callbacks is served in the next turn, so that
// no conn can hold the loop.
func (s *settler) settle(c *Conn) {
	at := c.state()
	if at < open || at == frozen || at == closed {
		return // not attached yet, or not any more, or past everything
	}
	asked, x := c.flush(at), c.cold.Load()
	held := x != nil && c.hasHeld(x)
	if held || asked&(wantNotify|wantRoom) != 0 {
		s.serve(c, asked, held)
	}
	if x = c.cold.Load(); x != nil {
		c.trim(x)
	}
}

// serve makes the pending calls. The last flush comes after the conn has ceased to be current: what
// another goroutine has queued without linking the conn, because it was current, must not be left
// behind.
func (s *settler) serve(c *Conn, asked request, held bool) {
	l := s.loop
	l.calls.current.Store(c)
	if held {
		s.serveHeld(c)
		l.calls.switchHandlers()
	}
	if asked&wantNotify != 0 && c.can&canNotify != 0 && !c.closeAsked() {
		l.calls.notified(c)
		l.calls.switchHandlers()
	}
	if asked&wantRoom != 0 && c.takeRoom() {
		l.calls.drained(c)
	}
	l.calls.switchHandlers()
	l.calls.current.Store(nil)
	again := c.flush(c.state())
	if again&wantNotify != 0 {
		s.renew(c, wantNotify)
	}
	if again&wantRoom != 0 {
		c.mu.Lock()
		roomy := c.roomy()
		c.mu.Unlock()
		if roomy {
			s.revisit(c)
		}
	}
}

// renew puts back a request that must wait for the next turn.
func (s *settler) renew(c *Conn, r request) {
	c.mu.Lock()
	c.asked |= r
	c.mu.Unlock()
	s.revisit(c)
}

// serveHeld delivers what came while the conn was paused, and then lets the driver go on.
func (s *settler) serveHeld(c *Conn) {
	l := s.loop
	x := c.cold.Load()
	var pending buf.Chain
	defer pending.Release()
	x.held.Move(&pending)
	for pending.Len() > 0 && x.held.Len() == 0 && c.state() != detaching && !c.is(paused) && !c.closeAsked() {
		p := pending.First()
		l.calls.received(c, p[:len(p):len(p)])
		l.calls.switchHandlers()
		pending.Discard(len(p))
	}
	pending.Move(&x.held) // behind what a handler switch has put back
	switch {
	case x.held.Len() > 0 || c.state() == detaching || c.is(paused):
	case x.endHeld:
		x.endHeld = false
		l.calls.ended(c)
	default:
		l.drv.Resume(c.id)
	}
}

// settleRevisits is called once in a turn, so that what it puts on the list anew waits for the
// next.
func (s *settler) settleRevisits() {
	s.loop.newcomers.skip()
	s.loop.due &^= workRevisits
	revisits := &s.revisits
	revisits.renew()
	for c, ok := revisits.take(); ok; c, ok = revisits.take() {
		c.status &^= served
		s.settle(c)
		s.loop.served(c)
	}
}

// drainDirty settles conns that were given work, at most so many. It returns how many.
func (s *settler) drainDirty(most int) (n int) {
	s.loop.newcomers.skip()
	s.loop.due &^= workDirty
	if s.taken.empty() {
		s.takeDirty()
	} else {
		s.loop.due |= workDirty // for those that have come since
	}
	for ; n < most; n++ {
		d, ok := s.taken.take()
		if !ok {
			break
		}
		c := d.conn
		c.mu.Lock()
		c.next = nil
		c.asked &^= linked
		out, bare := s.batch.takeIfBare(c)
		c.mu.Unlock()
		switch {
		case !bare:
			s.batch.send(s.loop) // before c's handler flushes one of them, and overtakes its output
			s.settle(c)
			s.loop.served(c)
		case out != nil:
			s.batch.add(c, out)
		}
	}
	s.batch.send(s.loop)
	if !s.taken.empty() {
		s.loop.due |= workDirty
	}
	return n
}

// takeDirty takes up the stack of dirty conns: few in the order in which they came, and many in
// that of their slots. A program may write a message to thousands of conns in the random order of a
// map. It is then sent in the order of the sockets' memory, which takes a tenth less time.
func (s *settler) takeDirty() {
	list := s.taken.list[:0]
	if cap(list) > keptDirty {
		list = nil
	}
	for c := s.dirty.Swap(nil); c != nil; c = c.next {
		list = append(list, dirtyConn{c.id.Slot(), c})
	}
	if len(list) < manyDirty {
		slices.Reverse(list)
	} else {
		slices.SortFunc(list, func(a, b dirtyConn) int { return cmp.Compare(a.slot, b.slot) })
	}
	s.taken, s.took = batch[dirtyConn]{list: list}, s.loop.clock
}

// A sendBatch is conns for which there is nothing to do but to send what is queued. The driver is
// given them all at once, and may have other processors help.
type sendBatch struct {
	conns []*Conn
	out   []driver.Outgoing
	sizes []int64
}

// takeIfBare takes c's output, which is nil if its own callback has sent it already. It reports
// false, and takes nothing, if there is more to do for c. c.mu is held.
func (b *sendBatch) takeIfBare(c *Conn) (out *buf.Chain, bare bool) {
	if c.loop.can.SendMany == nil || c.asked&^shown != 0 || c.cold.Load() != nil || c.state() != open {
		return nil, false
	}
	if out, c.out = c.out, nil; out != nil {
		c.asked |= offering
	}
	return out, true
}

func (b *sendBatch) add(c *Conn, out *buf.Chain) {
	b.conns = append(b.conns, c)
	b.out = append(b.out, driver.Outgoing{ID: c.id, Chain: out})
	b.sizes = append(b.sizes, int64(out.Len()))
}

// send gives the driver what was added.
func (b *sendBatch) send(l *Loop) {
	if len(b.conns) == 0 {
		return
	}
	l.can.SendMany(b.out)
	for i, c := range b.conns {
		b.out[i].Chain.Put()
		c.sent(b.sizes[i], b.out[i].Queued)
		c.mu.Lock()
		c.asked &^= offering
		c.mu.Unlock()
	}
	clear(b.conns)
	clear(b.out)
	b.conns, b.out, b.sizes = b.conns[:0], b.out[:0], b.sizes[:0]
}
