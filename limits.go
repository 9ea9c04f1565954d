package myriad

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/wheel"
)

// This file is what bounds an engine's connections: how many (Config.MaxConns), how fast they come
// (Config.AcceptRate), and the descriptor that is kept for a lack of them. What a listener does at
// a bound is in incoming.go. docs/adr/0008 says why.

// Limits says how close an engine is to its limits, and how often it has been at them since its
// start. The counters only grow.
type Limits struct {
	MaxConns int // Config.MaxConns as it took effect; math.MaxInt: none
	Open     int // connections that count against it now: accepted, adopted and dialled ones, attempts to dial included

	AtMaxConns   uint64 // times a listener had to wait because MaxConns connections were open
	AtAcceptRate uint64 // times a listener had to wait for Config.AcceptRate
	AtLateness   uint64 // times a listener had to wait because the loops were late, each with another newcomer
	Left         uint64 // peers closed unserved, because they had ended their side while they waited for late loops
	NoFiles      uint64 // times accepting failed for want of descriptors (EMFILE, ENFILE)
	Shed         uint64 // peers closed unserved, because descriptors had been lacking for long
	TooMany      uint64 // calls of Dial and Adopt, and attempts within Dial, that ended with ErrTooMany
}

// limitHits counts what Limits reports.
type limitHits struct {
	conns, rate, late, left, files, shed, tooMany atomic.Uint64
}

// A claim is a listener's place in a queue for room, or for a loop that has time. The listener
// holds an accepted peer, which waits for that.
type claim struct {
	granted func() bool // called when it has been reserved; false: the listener's loop has ended
	loop    *Loop       // the listener's
	since   int64       // loop time since which it waits
	to      *Loop       // that gets the connection, when a door has granted it
}

// claims are queued, first come, first served.
type claims struct {
	waiting atomic.Int32 // len(queue), for a look without the lock
	mu      sync.Mutex
	queue   []*claim
}

func (q *claims) join(c *claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, c)
	q.waiting.Store(int32(len(q.queue)))
}

// next takes out the claim that has waited longest, if reserve has something for it. Nil: nothing
// waits, or there is nothing for it.
func (q *claims) next(reserve func(c *claim) bool) *claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 || !reserve(q.queue[0]) {
		return nil
	}
	c := q.queue[0]
	q.remove(0)
	return c
}

// leave takes a claim out of the queue, and reports whether it was there.
func (q *claims) leave(c *claim) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.queue {
		if other == c {
			q.remove(i)
			return true
		}
	}
	return false
}

// remove needs mu.
func (q *claims) remove(i int) {
	q.queue = append(q.queue[:i], q.queue[i+1:]...)
	q.waiting.Store(int32(len(q.queue)))
}

// oldest returns how many wait, and since when the first of them does, by the loops' time.
func (q *claims) oldest() (waiting int, since int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) > 0 {
		since = q.queue[0].since
	}
	return len(q.queue), since
}

// A quota counts the connections that MaxConns bounds. Listeners without room queue for it, first
// come, first served, each with one accepted peer. So none of them can keep the others out.
type quota struct {
	most int64
	open atomic.Int64 // never above most
	claims
}

// reserve counts one more connection, if there is room. Any goroutine.
func (q *quota) reserve() bool {
	for {
		n := q.open.Load()
		if n >= q.most {
			return false
		}
		if q.open.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release is for a connection that has gone: its room is the first waiting listener's. Any
// goroutine.
func (q *quota) release() {
	q.open.Add(-1)
	if q.waiting.Load() > 0 {
		q.serve()
	}
}

// queueUp queues a listener's claim.
func (q *quota) queueUp(c *claim) {
	q.join(c)
	q.serve() // room that was given before the queue could be seen
}

// serve gives room to waiting listeners, as far as there is any.
func (q *quota) serve() {
	for {
		c := q.next(func(*claim) bool { return q.reserve() })
		if c == nil {
			return
		}
		if !c.granted() {
			q.open.Add(-1) // its loop has ended
		}
	}
}

// paceBurst is how much of AcceptRate may come at once after a quiet time: as many as are due in
// it.
const paceBurst = 50 * time.Millisecond

// A pace holds AcceptRate: it knows when the next connection is due. Each is given a time of its
// own, an interval after the one before, so that listeners take turns.
type pace struct {
	interval int64 // between two connections, in nanoseconds; 0: no limit
	next     atomic.Int64
}

// delay says for how many milliseconds of the loop's clock one more connection must wait, 0 if
// not at all. It must come then.
func (p *pace) delay(now int64) int64 {
	if p.interval == 0 {
		return 0
	}
	now *= int64(time.Millisecond)
	for {
		next := p.next.Load()
		due := max(next, now-int64(paceBurst))
		if p.next.CompareAndSwap(next, due+p.interval) {
			return wheel.Millis(time.Duration(max(0, due-now)))
		}
	}
}

// noticePeriod is how often one kind of overload is logged at most.
const noticePeriod = 10 * time.Second

// A notice is logged once a period at most, with how often there was reason to.
type notice struct {
	hits atomic.Uint64
	next atomic.Int64 // loop time before which nothing is logged
}

// due counts one reason more, and says how many there are to log, if any.
func (n *notice) due(now int64) uint64 {
	n.hits.Add(1)
	next := n.next.Load()
	if now < next || !n.next.CompareAndSwap(next, now+noticePeriod.Milliseconds()) {
		return 0
	}
	return n.hits.Swap(0)
}

// A spare is one descriptor, held so that there is one to give up when there are none. One listener
// at a time has it.
type spare struct {
	mu   sync.Mutex
	open func() (io.Closer, error) // nil: there is none in this system, or no more
	held io.Closer
	lent bool
}

// keep sees to it that there is one, if that can be had. Any goroutine, like all of its methods.
func (s *spare) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refill()
}

func (s *spare) refill() {
	if s.held == nil && !s.lent && s.open != nil {
		if f, err := s.open(); err == nil {
			s.held = f
		}
	}
}

// free makes one descriptor free, for the caller to accept with until back.
func (s *spare) free() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refill(); s.held == nil {
		return false
	}
	_ = s.held.Close()
	s.held, s.lent = nil, true
	return true
}

// away reports whether a listener has it.
func (s *spare) away() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lent
}

func (s *spare) back() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent = false
	s.refill()
}

func (s *spare) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = nil
	if s.held != nil {
		_ = s.held.Close()
		s.held = nil
	}
}

// An anteroom is where goroutines wait until a loop has made room in its intake, or has ended.
type anteroom struct {
	n    atomic.Int32 // len(list), for a look without the lock
	mu   sync.Mutex
	list []driver.Parker
}

func (r *anteroom) enter(p driver.Parker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, p)
	r.n.Store(int32(len(r.list)))
}

// call wakes all that wait: each looks itself whether there is room. Any goroutine.
func (r *anteroom) call() {
	if r.n.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.list {
		p.Unpark()
	}
	r.list = nil
	r.n.Store(0)
}
