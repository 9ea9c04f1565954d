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

// add is Conn.HibernateAs.
func (b *hibernation) add(c *Conn, w Waker, tag uint8, alone bool) bool {
	l := b.loop
	if !b.atRest(c) {
		return false
	}
	k, ok := b.kindOf(w, c.local)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked&^shown != 0 || c.queued.Load() != 0 || c.cold.Load() != nil || c.limit != l.engine.writeLimit() {
		return false
	}
	*b.records.Grow(c.id.Slot()) = hibernatedConn{remote: c.remote, generation: c.id.Generation(), kind: k,
		tag: tag}
	*l.conns.Row(c.id.Slot()) = nil
	b.kinds[k].asleep++
	l.stats.hibernating++
	alone = alone && c.asked == 0
	c.asked |= gone
	c.advance(closed)
	if kept := &b.kinds[k].spare; alone && len(*kept) < keptConns {
		*kept = append(*kept, c)
	}
	return true
}

// atRest reports whether the loop has nothing to do for c, as far as can be seen without c.mu.
func (b *hibernation) atRest(c *Conn) bool {
	l := b.loop
	if c.id == 0 || c.status != status(open) || l.stopping || l.calls.current.Load() == c || l.calls.switching(c) {
		return false
	}
	return !l.tasks.has(c)
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

// waker is that of the connection of that slot, if it hibernates; else nil.
func (b *hibernation) waker(slot uint32) Waker {
	if s := b.records.Row(slot); s != nil && s.generation != 0 {
		return b.kinds[s.kind].waker
	}
	return nil
}

// idOf is the id of the connection of that slot, which may hibernate.
func (b *hibernation) idOf(slot uint32) driver.ID {
	if c := b.loop.conn(slot); c != nil {
		return c.id
	}
	return driver.MakeID(uint8(b.loop.index), slot, b.records.Row(slot).generation)
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
	c.advance(open)
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
	c.asked, c.status = 0, status(arriving)
	c.mu.Unlock()
	return c, c.handler
}

// wakeAll is Loop.WakeAll.
func (b *hibernation) wakeAll(chosen func(w Waker) bool) {
	l := b.loop
	before := l.calls.current.Load()
	defer func() { l.calls.current.Store(before) }() // chosen may not return
	for i := range uint32(b.records.Len()) {
		if s := b.records.Row(i); s.generation != 0 && chosen(b.kinds[s.kind].waker) {
			l.settler.revisit(b.wake(i)) // for what Wake has asked of it
		}
	}
	for i := range b.kinds {
		if k := &b.kinds[i]; k.asleep == 0 && k.waker != nil && chosen(k.waker) {
			*k = kind{}
		}
	}
}
