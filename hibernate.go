package myriad

import (
	"net"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/table"
)

// This file is for protocols whose connections are silent most of the time: while one of them is,
// its Conn serves another (docs/adr/0016).

const (
	// maxKinds bounds the kinds of hibernating connections that a loop tells apart at a time.
	maxKinds = 64
	// keptConns is how many Conns of a kind a loop keeps for those that wake, rather than leave
	// them to the garbage collector.
	keptConns = 256
)

// A Waker goes on with connections that hibernate. Wake is called on the loop when something comes
// for one: bytes, its peer's FIN, its timer, the end of its engine. c is the connection from then
// on. The handler that Wake returns gets what has come, as if it had always been c's; Opened is not
// called. If c has hibernated with the same Waker before, last was its handler then, and may be
// that again; else last is nil. The methods of Handler are called for a connection whose Wake has
// panicked.
type Waker interface {
	Handler
	Wake(c *Conn, last Handler) Handler
}

// Hibernate gives c back while its connection is silent, which then costs 32 bytes beside its
// places in the loop's tables. Its timer stays set. It reports false, and does nothing, unless the
// conn is at rest. Nothing is queued, held back or requested; it has no layer, and is not paused.
// Neither side has ended or is closing. It was not adopted without a descriptor. The running
// callback is not its own, and the engine does not shut down. w must be comparable, as pointers
// are, and be the same for many connections.
//
// Afterwards c is no longer the connection: its methods behave as after Closed, which is not
// called. alone says that no code but its handler holds c. Then c may become another connection
// with the same Waker and local address. One that Loop.Conns has visited never does. On the loop
// only.
func (c *Conn) Hibernate(w Waker, alone bool) bool { return c.HibernateAs(w, 0, alone) }

// HibernateAs is Hibernate with a tag: what the Waker has to know of this connection besides, such
// as what its protocol waits for. HibernatedAs returns it in Wake. On the loop only.
func (c *Conn) HibernateAs(w Waker, tag uint8, alone bool) bool {
	l := c.loop
	if !l.hibernation.atRest(c) {
		return false
	}
	k, ok := l.hibernation.kindOf(w, c.local)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked&^shown != 0 || c.queued.Load() != 0 || c.extra.Load() != nil || c.limit != l.engine.writeLimit() {
		return false
	}
	*l.hibernation.records.Grow(c.id.Slot()) = hibernatedConn{remote: c.remote, generation: c.id.Generation(), kind: k,
		tag: tag}
	*l.conns.Row(c.id.Slot()) = nil
	l.hibernation.kinds[k].asleep++
	l.stats.hibernating++
	alone = alone && c.asked == 0
	c.asked |= gone
	c.advance(closed)
	if kept := &l.hibernation.kinds[k].spare; alone && len(*kept) < keptConns {
		*kept = append(*kept, c)
	}
	return true
}

// HibernatedAs is the tag with which the connection has hibernated. In Waker.Wake only.
func (c *Conn) HibernatedAs() uint8 { return c.loop.hibernation.records.Row(c.id.Slot()).tag }

// atRest reports whether the loop has nothing to do for c, as far as can be seen without c.mu.
func (b *hibernation) atRest(c *Conn) bool {
	l := b.loop
	if c.id == 0 || c.status != 0 || l.stopping || l.calls.current.Load() == c || l.calls.switching(c) {
		return false
	}
	for i := l.tasks.ran; i < len(l.tasks.list); i++ {
		if l.tasks.list[i].c == c {
			return false
		}
	}
	return true
}

// hibernation is what a loop keeps of the connections that hibernate.
type hibernation struct {
	loop    *Loop
	records table.Table[hibernatedConn] // by slot
	kinds   []kind
}

// A hibernatedConn is what a loop keeps of a connection that hibernates.
type hibernatedConn struct {
	remote     driver.Addr
	generation uint32 // of its id; 0: it is awake
	kind       uint16
	tag        uint8 // outlasts it until the next one
}

// A kind is what many hibernating connections have in common.
type kind struct {
	waker  Waker
	local  net.Addr
	asleep int     // connections
	spare  []*Conn // for those that wake; at most keptConns
}

// kindOf finds the kind of a connection, or makes it in the place of one that no connection has any
// more.
func (b *hibernation) kindOf(w Waker, local net.Addr) (k uint16, ok bool) {
	free := len(b.kinds)
	for i := range b.kinds {
		k := &b.kinds[i]
		if k.waker == w && sameAddr(k.local, local) {
			return uint16(i), true
		}
		if k.asleep == 0 {
			free = i
		}
	}
	switch {
	case free == maxKinds:
		return 0, false
	case free == len(b.kinds):
		b.kinds = append(b.kinds, kind{})
	}
	b.kinds[free] = kind{waker: w, local: local}
	return uint16(free), true
}

func sameAddr(a, b net.Addr) bool {
	return a == b || a != nil && b != nil && a.Network() == b.Network() && a.String() == b.String()
}

// awake is the conn of that slot, woken if it hibernates; nil if there is none. Outside of
// callbacks.
func (b *hibernation) awake(slot uint32) *Conn {
	l := b.loop
	if c := l.conn(slot); c != nil {
		return c
	}
	c := b.wake(slot)
	if c != nil {
		l.calls.current.Store(nil)
		l.calls.switchHandlers() // Wake may have called SetHandler
	}
	return c
}

// wake gives the hibernating connection of that slot a Conn and its handler; nil if there is none.
// The conn is current then.
func (b *hibernation) wake(slot uint32) *Conn {
	l := b.loop
	s := b.records.Row(slot)
	if s == nil || s.generation == 0 {
		return nil
	}
	k := &b.kinds[s.kind]
	c, last := b.connOf(k)
	c.id, c.remote = driver.MakeID(uint8(l.index), slot, s.generation), s.remote
	*l.conns.Row(slot) = c
	*s = hibernatedConn{tag: s.tag}
	k.asleep--
	l.stats.hibernating--
	l.calls.current.Store(c) // which keeps it awake
	l.calls.wake(c, k.waker, last)
	return c
}

// connOf takes a Conn that is kept for a kind, with the handler that it had, or makes one.
func (b *hibernation) connOf(k *kind) (c *Conn, last Handler) {
	l := b.loop
	n := len(k.spare)
	if n == 0 {
		c = newConn(l, k.waker)
		c.local = k.local
		return c, nil
	}
	c, k.spare[n-1] = k.spare[n-1], nil
	k.spare = k.spare[:n-1]
	c.mu.Lock()
	c.asked, c.status = 0, 0
	c.mu.Unlock()
	return c, c.handler
}

func (k *callbacks) wake(c *Conn, w Waker, last Handler) {
	l := k.loop
	c.handler, c.can = w, 0 // if Wake panics
	call := k.begin(c)
	defer k.returned(c, &call)
	h := w.Wake(c, last)
	l.engine.bind(h)
	c.handler, c.can = h, abilitiesOf(h)
	call.returned = true
}

// WakeAll wakes the connections whose Waker is chosen, and lets go of the Conns that were kept for
// these. On the loop only.
func (l *Loop) WakeAll(chosen func(w Waker) bool) {
	before := l.calls.current.Load()
	defer func() { l.calls.current.Store(before) }() // chosen may not return
	for i := range uint32(l.hibernation.records.Len()) {
		if s := l.hibernation.records.Row(i); s.generation != 0 && chosen(l.hibernation.kinds[s.kind].waker) {
			l.settler.revisit(l.hibernation.wake(i)) // for what Wake has asked of it
		}
	}
	for i := range l.hibernation.kinds {
		if k := &l.hibernation.kinds[i]; k.asleep == 0 && k.waker != nil && chosen(k.waker) {
			*k = kind{}
		}
	}
}
