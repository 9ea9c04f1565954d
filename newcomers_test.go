package myriad

import (
	"math"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// newLate is an engine with one loop, which is so late that it has no time for newcomers.
func newLate() (*quota, *stub) {
	q, s := newStub(10)
	l := s.loop
	l.engine.sys = standing{}
	l.newcomers.limit(time.Millisecond)
	l.newcomers.each.Store(int64(time.Second)) // so that one comes in each mostTrickle at most
	l.newcomers.account.Store(math.MinInt64 / 2)
	return q, s
}

// waiting is a listener that has a peer in hand.
func (s *stub) waiting(slot uint32) *Listener {
	ln := &Listener{engine: s.loop.engine, loop: s.loop, id: driver.MakeID(0, slot, 1), handler: idling{}}
	s.loop.listeners[slot] = ln
	ln.accepted(peerSocket{})
	return ln
}

// A peerSocket is a peer's, without an address.
type peerSocket struct{ nilSocket }

func (peerSocket) Local() (a driver.Addr)  { return a }
func (peerSocket) Remote() (a driver.Addr) { return a }

func (s *stub) ResumeAccept(driver.ID)  {}
func (s *stub) CloseListener(driver.ID) { s.closedListeners++ }

// run lets the loop's time pass.
func (s *stub) run(d time.Duration) {
	l := s.loop
	for end := l.now + d.Milliseconds(); l.now < end; l.now += 8 {
		l.wheel.Advance(l.now, l.expired)
		l.readMail()
	}
}

// Whatever a loop's account says, newcomers come in, one after the other, and take turns.
func TestTheDoorIsNeverLocked(t *testing.T) {
	q, s := newLate()
	first, second := s.waiting(1), s.waiting(2)
	if s.attached != 0 || first.hand == nil || second.hand == nil || s.loop.engine.Stats().Newcomers.Waiting != 2 {
		t.Fatalf("%d have come in, want none; %+v", s.attached, s.loop.engine.Stats().Newcomers)
	}
	s.run(mostTrickle + 50*time.Millisecond)
	if s.attached != 1 || first.hand != nil || second.hand == nil {
		t.Errorf("after %v %d have come in, want the first", mostTrickle, s.attached)
	}
	s.run(mostTrickle)
	if s.attached != 2 || second.hand != nil || s.loop.engine.admission.door.waiting.Load() != 0 {
		t.Errorf("after twice %v %d have come in, want both", mostTrickle, s.attached)
	}
	if q.open.Load() != 0 { // the stub takes no connection
		t.Errorf("%d are counted as open", q.open.Load())
	}
}

// A listener that closes while its peer waits for a loop gives back what it has reserved, also if
// it has just been let in.
func TestCloseWhileALoopIsLate(t *testing.T) {
	for _, granted := range []bool{false, true} {
		q, s := newLate()
		n := &s.loop.newcomers
		ln := s.waiting(1)
		if granted {
			n.account.Store(1)
			s.loop.engine.admission.door.serve(0)
			n.account.Store(0) // as the newcomer has left it
		}
		before := n.account.Load()
		ln.stop()
		s.loop.readMail()
		if q.open.Load() != 0 || s.loop.engine.admission.door.waiting.Load() != 0 || s.attached != 0 {
			t.Errorf("granted %v: %d are open, %d wait, %d have come in, want none", granted, q.open.Load(),
				s.loop.engine.admission.door.waiting.Load(), s.attached)
		}
		if back := n.account.Load() - before; granted != (back > 0) {
			t.Errorf("granted %v: the account has got back %d", granted, back)
		}
	}
}

// A newcomer goes to a loop that keeps up, if there is one, unless the listener's own loop has no
// time to accept.
func TestNewcomersGoWhereTimeIs(t *testing.T) {
	_, s := newLate()
	late := s.loop
	other := assemble(&Loop{engine: late.engine})
	late.engine.loops = []*Loop{late, other}
	d := &late.engine.admission.door
	for range 4 {
		if to := d.reserve(other); to != other {
			t.Fatal("a newcomer does not go to the loop that keeps up")
		}
	}
	if to := d.reserve(late); to != nil {
		t.Error("a loop without time for newcomers accepts them for others")
	}
	late.newcomers.account.Store(1)
	taken := map[*Loop]int{}
	for range 5 {
		taken[d.reserve(other)]++
	}
	if taken[late] != 1 || taken[other] != 4 {
		t.Errorf("the loop with time for one newcomer has %d, and the other %d of 5", taken[late], taken[other])
	}
}

// The first callbacks of a connection that has come while its loop was late are booked for
// newcomers, and no others. Its age stays right.
func TestConnsGrowUp(t *testing.T) {
	_, s := newLate()
	l := s.loop
	l.now = 7 * ageUnit
	c := newConn(l, idling{})
	l.enter(c, driver.MakeID(0, 3, 1), open)
	l.newcomers.attached(c)
	l.now += 25*ageUnit + 3
	for i := range newCallbacks + 3 {
		if new := c.is(newcomer); new != (i <= newCallbacks) {
			t.Errorf("after %d callbacks it is new: %v", i, new)
		}
		if got, want := c.Age(), (25*ageUnit+3)*time.Millisecond; got != want {
			t.Errorf("after %d callbacks it is %v old, want %v", i, got, want)
		}
		l.served(c)
	}
	if !c.Hibernate(sleepyhead{}, true) {
		t.Error("it does not hibernate")
	}
}

// What is done for a newcomer that is frozen meanwhile is not booked for another connection.
func TestFrozenNewcomers(t *testing.T) {
	_, s := newLate()
	l := s.loop
	first, second := newConn(l, idling{}), newConn(l, idling{})
	for slot, c := range []*Conn{first, second} {
		l.enter(c, driver.MakeID(0, uint32(slot), 1), open)
		l.newcomers.attached(c)
	}
	before := *l.born.Row(0)
	l.remove(second)
	second.advance(frozen)
	second.id = 0
	l.served(second)
	if got := *l.born.Row(0); got != before {
		t.Errorf("the first connection has %d callbacks left as a newcomer, want %d", got&newBits, before&newBits)
	}
}

// A connection may be older than its engine, because it came from another process. The callbacks
// that a newcomer has left do not change its age.
func TestAges(t *testing.T) {
	const year = int64(365 * 24 * time.Hour / time.Millisecond)
	for _, now := range []int64{0, 99, 100, 12_345, year} {
		for _, age := range []int64{0, 1, 99, 100, 5_000, now, now + 54_321, year} {
			row := bornAgo(age, now) | newCallbacks
			if got := ageOf(row, now); got < age-ageUnit || got > age+ageUnit {
				t.Errorf("at %d ms, an age of %d ms reads %d", now, age, got)
			}
		}
	}
}

// A listener that another process goes on with lets the peer in that it has in hand, whatever that
// waits for, and closes then.
func TestPeerInHandOfAMovedListener(t *testing.T) {
	for name, c := range map[string]struct {
		before func(q *quota, s *stub)
		now    int // peers that come in at once
		later  func(q *quota, s *stub)
	}{
		"a loop": {now: 1},
		"a loop, and another peer is behind it": {before: func(_ *quota, s *stub) {
			s.loop.can.TakeAccepted = s.oneMore
		}, now: 2},
		"a loop that has just been found": {before: func(_ *quota, s *stub) {
			s.loop.newcomers.account.Store(1)
			s.loop.engine.admission.door.serve(0)
		}, now: 1},
		"its turn": {before: func(_ *quota, s *stub) {
			s.loop.engine.admission.pace = pace{interval: int64(time.Hour)}
			s.loop.engine.admission.pace.next.Store(int64(time.Hour))
			s.loop.newcomers.account.Store(1)
			s.loop.engine.admission.door.serve(0)
			s.loop.readMail()
		}, now: 1},
		"room": {before: func(q *quota, s *stub) {
			s.loop.listeners[1].dropHand()
			q.open.Store(q.most)
			s.loop.listeners[1].accepted(peerSocket{})
		}, later: func(q *quota, _ *stub) { q.release() }},
	} {
		q, s := newLate()
		ln := s.waiting(1)
		ln.inner = nilListener{}
		if c.before != nil {
			c.before(q, s)
		}
		if ln.hand == nil {
			t.Fatalf("%s: no peer waits", name)
		}
		ln.closed.Store(true)
		ln.leave() // as Moved has it called
		s.loop.readMail()
		if s.attached != c.now || (s.closedListeners == 1) != (c.now > 0) {
			t.Errorf("%s: %d have come in, want %d; closed %d", name, s.attached, c.now, s.closedListeners)
		}
		if c.later != nil {
			c.later(q, s)
			s.loop.readMail()
		}
		waiting := s.loop.engine.admission.door.waiting.Load()
		if s.attached != max(1, c.now) || s.closedListeners != 1 || ln.hand != nil || waiting != 0 {
			t.Errorf("%s: in the end %d have come in, and the listener is closed %d times", name, s.attached,
				s.closedListeners)
		}
		if err := ln.Moved(); err != ErrClosed {
			t.Errorf("%s: a second time: %v", name, err)
		}
	}
}

// oneMore is a peer that the driver has accepted, once.
func (s *stub) oneMore(driver.ID) driver.Socket {
	s.loop.can.TakeAccepted = nil
	return peerSocket{}
}

type nilListener struct{ driver.Listener }

func (nilListener) Refuse() {}
