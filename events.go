package myriad

import (
	"github.com/myriad-go/myriad/internal/driver"
)

// sink is the loop as its driver sees it: the events, out of the way of Loop's public methods.
type sink Loop

var _ driver.Events = (*sink)(nil)

func (s *sink) loop() *Loop {
	l := (*Loop)(s)
	if l.slept {
		l.readClock()
	}
	return l
}

func (s *sink) conn(id driver.ID) *Conn { return s.loop().awake(id.Slot()) }

func (s *sink) Received(id driver.ID, p []byte) {
	c, l := s.conn(id), s.loop()
	l.stats.reads.Add(1)
	l.stats.bytesIn.Add(uint64(len(p)))
	switch {
	case c.phase() != open && !c.mustEncode():
		l.discard(c, len(p))
	case c.layer() != nil:
		l.current.Store(c)
		l.decode(c, p)
		l.leave(c)
	default:
		l.current.Store(c)
		l.deliver(c, p)
		l.leave(c)
	}
}

func (s *sink) Ended(id driver.ID) {
	c, l := s.conn(id), s.loop()
	l.current.Store(c)
	l.wireEnded(c)
	l.leave(c)
}

func (s *sink) Sent(id driver.ID, n int64) {
	c, l := s.conn(id), s.loop()
	l.stats.bytesOut.Add(uint64(n))
	if x := c.extra.Load(); x != nil && x.sending {
		x.fileSent(c, n)
	} else {
		c.queued.Add(-n)
	}
	l.settle(c)
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
	defer func() { l.closedAndCounted(l.conn(id.Slot()), err) }()
	l.awake(id.Slot())
}

func (s *sink) Detached(id driver.ID, sock driver.Socket) {
	l := s.loop()
	defer l.engine.quota.give()
	l.detached(s.conn(id), sock)
}

func (s *sink) Dialed(id driver.ID, local driver.Addr) {
	c := s.conn(id)
	c.local = ownAddr{local}
	s.loop().dialed(c)
}

func (s *sink) DialFailed(id driver.ID, err error) {
	c, l := s.conn(id), s.loop()
	l.engine.quota.give()
	l.remove(c)
	c.bury()
	c.dialing().finish(err)
}

func (s *sink) Accepted(id driver.ID, sock driver.Socket) {
	l := s.loop()
	l.accepted(l.listeners[id.Slot()], sock)
}

func (s *sink) AcceptFailed(id driver.ID, err error) {
	l := s.loop()
	l.acceptFailed(l.listeners[id.Slot()], err)
}

// expired is the wheel's callback: the timer of a conn, of an attempt to connect, or of a listener
// that rests.
func (l *Loop) expired(slot uint32) {
	if ln, ok := l.listeners[slot]; ok {
		l.rested(ln)
		return
	}
	c := l.awake(slot)
	if c.is(connecting) {
		l.attemptDue(c)
		return
	}
	if c.phase() != open {
		l.lingerExpired(c)
		return
	}
	l.current.Store(c)
	l.callExpired(c)
	l.leave(c)
}
