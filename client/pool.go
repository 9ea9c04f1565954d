package client

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file decides which connection serves which call, and when another one is dialled.
//
// A call takes an idle connection, or waits in its host's queue, in order. After each event that
// concerns a host, arrange sees to it that something is under way for every call that waits there:
// a stream of an HTTP/2 connection that has room, or else a dial of the call's own. Two limits hold
// dials back. MaxConnsPerHost is one. The other is for hosts that may speak HTTP/2, where one
// connection may serve all: one dial is under way, and one more each time that hedgeAfter passes.
// So a dial which hangs delays the others only by that.
//
// A dial is for its own call: that gets the connection, or fails with the dial. A dial whose call
// has been served by another connection, or has ended, is a spare. It goes on, and its connection
// is for the call that waits first then. But no call relies on a spare: each has a dial of its own
// as soon as there is a place. A spare gives way to a call that needs its place after spareHold. If
// its own call was given up, it gives way already when it has taken twice as long as that has
// waited.
//
// All state here is guarded by pool.mu. No connection or call is touched while it is held: what is
// to be done is listed as a todo, which the caller runs without it.

const (
	// hedgeAfter is how long calls wait for a dial that may become an HTTP/2 connection for all of
	// them, before another one is begun beside it.
	hedgeAfter = 30 * time.Millisecond
	// spareTimeout bounds a dial whose call needs it no more.
	spareTimeout = 10 * time.Second
	// spareHold bounds how long such a dial keeps a place of MaxConnsPerHost that a call needs.
	spareHold = 2 * time.Second
)

// A pool has the connections and the waiting calls of a transport.
type pool struct {
	t *Transport

	mu     sync.Mutex
	hosts  map[hostKey]*host
	idle   int                // idle HTTP/1 connections of all hosts
	kept   map[*host]struct{} // the hosts with idle connections; only with MaxIdleConns
	queued int                // calls that wait, of all hosts
	clock  clock
}

// A host is what the pool has for one key.
type host struct {
	key   hostKey
	mayH2 bool     // its connections may speak HTTP/2
	spoke protocol // by the latest connection

	calls  callQueue
	delays *delays // calls that are to be sent again later; nil: there are none

	dialling int // dials under way
	spares   spares
	idle     []*conn    // HTTP/1 connections without a call; the one that was used last is taken first
	muxes    []*muxConn // HTTP/2 connections that take calls
	unproven int        // of these, the ones whose server has not sent its SETTINGS

	places
	atOnce  int       // dials that may be under way while HTTP/2 is possible
	raiseAt time.Time // when there may be one more; zero: no call waits for that
	alarm
}

// places are those of MaxConnsPerHost.
type places struct {
	conns    int       // that are taken, by dials and connections
	draining int       // connections that take no place, because they carry no further call
	toDrain  []*pooled // connections that are to be among them when there are fewer
}

// A callQueue has the calls of a host that wait, in order.
type callQueue struct {
	first, last *Call
	undialled   *Call // no call before it waits without a dial
	waiting     int   // how many
	dialled     int   // of these, the ones that have a dial of their own
}

func (q *callQueue) push(x *Call) {
	x.waits, x.prev, x.next = true, q.last, nil
	if q.last != nil {
		q.last.next = x
	} else {
		q.first = x
	}
	q.last = x
	if q.undialled == nil {
		q.undialled = x
	}
	q.waiting++
}

func (q *callQueue) remove(x *Call) {
	if q.undialled == x {
		q.undialled = x.next
	}
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		q.first = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	} else {
		q.last = x.prev
	}
	x.waits, x.next, x.prev = false, nil, nil
	q.waiting--
}

type protocol uint8

const (
	notKnown protocol = iota
	spokeHTTP1
	spokeHTTP2
)

// A place is a connection's part of MaxConnsPerHost.
type place uint8

const (
	noPlace place = iota
	takesPlace
	drainsPlace // the connection carries no further call
)

// pooled is what the pool keeps of a connection of either protocol.
type pooled struct {
	host  *host
	place place // guarded by pool.mu
}

func (p *pool) init(t *Transport) {
	p.t = t
	p.hosts = map[hostKey]*host{}
	p.kept = map[*host]struct{}{}
}

// hostFor is the host of a key.
func (p *pool) hostFor(k hostKey) *host {
	h := p.hosts[k]
	if h == nil {
		h = &host{key: k, mayH2: p.t.mayH2(k), atOnce: 1}
		p.hosts[k] = h
	}
	return h
}

// forget drops a host that has nothing.
func (p *pool) forget(h *host) {
	used := h.conns > 0 || h.calls.waiting > 0 || h.draining > 0 || h.dialling > 0 || h.delays != nil &&
		h.delays.calls > 0
	if !used && p.hosts[h.key] == h {
		delete(p.hosts, h.key)
	}
}

// A todo is what a method of the pool has decided, and its caller is to do without the lock.
type todo struct {
	dials   []*dialing // to be started
	cancels []*dialing // have given way
	wake    *muxConn   // has room for a call that waits
	more    []*muxConn // likewise
	again   []*Call    // begin another attempt
}

func (do *todo) run() {
	for _, d := range do.cancels {
		d.abandon()
	}
	if do.wake != nil {
		do.wake.c.Notify()
	}
	for _, m := range do.more {
		m.c.Notify()
	}
	for _, d := range do.dials {
		d.start()
	}
	for _, x := range do.again {
		x.t.pool.acquire(x, x.host.key)
	}
}

func (do *todo) notify(m *muxConn) {
	if do.wake == nil {
		do.wake = m
	} else {
		do.more = append(do.more, m)
	}
}

// acquire finds a connection for x: an idle one, or the first that is ready for another call. Any
// goroutine.
func (p *pool) acquire(x *Call, key hostKey) {
	p.mu.Lock()
	h := p.hostFor(key)
	x.host = h
	if len(h.idle) > 0 && p.t.isStale(h.idle[len(h.idle)-1].idleSince) {
		for len(h.idle) > 0 { // the others have been idle for longer
			defer p.takeIdle(h, 0).retire()
		}
	}
	if n := len(h.idle); n > 0 {
		pc := p.takeIdle(h, n-1)
		p.mu.Unlock()
		pc.send(x)
		return
	}
	if p.queued >= orDefault(p.t.MaxQueued, defaultQueued) {
		p.forget(h)
		p.mu.Unlock()
		x.fail(ErrQueueFull)
		return
	}
	x.setPhase(Queued)
	p.push(h, x)
	do := p.arrange(h)
	p.mu.Unlock()
	do.run()
	if x.isSettled() { // it was cancelled before it was in the queue
		p.withdraw(x)
	}
}

// arrange sees to it that something is under way for each call that waits for h.
func (p *pool) arrange(h *host) (do todo) {
	left := h.calls.waiting // calls for which no stream is free
	fixed := false          // another connection would be of no use
	for _, m := range h.muxes {
		if m.free > 0 && left > 0 {
			do.notify(m)
			left -= m.free
		}
		fixed = fixed || m.proven && p.t.strict()
	}
	if h.calls.waiting == 0 {
		h.resetAtOnce()
	}
	for h.spares.oldest != nil && h.spoke == spokeHTTP2 && left <= 0 { // what they would make is of no use
		do.cancels = append(do.cancels, p.cancel(h.spares.oldest.dialing))
	}
	raise, short := false, false
	for !fixed && !raise && !short && left > h.calls.dialled {
		switch most := p.t.MaxConnsPerHost; {
		case most > 0 && h.conns >= most:
			if d := p.givesWay(h); d != nil {
				do.cancels = append(do.cancels, d)
			} else {
				short = true
			}
		case h.mayH2 && h.spoke != spokeHTTP1 && h.calls.dialled+h.unproven >= h.atOnce:
			raise = true
		default:
			do.dials = append(do.dials, p.dial(h))
		}
	}
	switch {
	case !raise:
		h.raiseAt = time.Time{}
	case h.raiseAt.IsZero():
		h.raiseAt = p.t.sys.Now().Add(hedgeAfter)
	}
	p.schedule(h, short)
	p.forget(h)
	return do
}

// resetAtOnce has the next call without a stream wait for hedgeAfter once, however many dials and
// connections hang.
func (h *host) resetAtOnce() { h.atOnce = max(1, h.calls.dialled+h.unproven) }

// dial begins the dial of the first call that waits without one.
func (p *pool) dial(h *host) *dialing {
	x := h.calls.undialled
	for x.dial != nil {
		x = x.next
	}
	h.calls.undialled = x.next
	h.dialling++
	h.conns++
	h.calls.dialled++
	d := newDialing(p.t, h, x)
	d.x, x.dial = x, d
	x.setPhase(Dialing)
	return d
}

// take separates d from its call.
func (p *pool) take(d *dialing) {
	if x := d.x; x != nil {
		d.x, x.dial = nil, nil
		d.host.calls.dialled--
	}
}

// The queue of a host.

func (p *pool) push(h *host, x *Call) {
	h.calls.push(x)
	p.queued++
}

func (p *pool) remove(x *Call) {
	x.host.calls.remove(x)
	p.queued--
}

// next takes the first call that waits out of the queue, or returns nil. Its dial becomes a spare.
func (p *pool) next(h *host) *Call {
	x := h.calls.first
	if x == nil {
		return nil
	}
	d := x.dial
	p.remove(x)
	if d != nil {
		p.take(d)
		p.spare(d, spareHold)
	}
	return x
}

// withdraw is for a call that is cancelled while it waits. Its dial goes on as a spare.
func (p *pool) withdraw(x *Call) {
	p.mu.Lock()
	var do todo
	if d := x.delay; d != nil {
		x.host.delays.remove(d)
		do = p.arrange(x.host)
	}
	if x.waits {
		h, d := x.host, x.dial
		p.remove(x)
		if d != nil {
			p.take(d)
			p.spare(d, min(p.t.sys.Now().Sub(d.began), spareHold))
		}
		do = p.arrange(h)
		if d == nil {
			for _, m := range h.muxes { // those are full: are their servers still there?
				m.doubted.Store(true)
				do.notify(m)
			}
		}
	}
	p.mu.Unlock()
	do.run()
}

// Calls that are to be sent again later.

// delays are such calls of a host: by how long they wait, those of one step in order.
type delays struct {
	steps [maxRefusals - 1]struct{ first, last *delay }
	calls int
}

// A delay is one of them.
type delay struct {
	x            *Call
	step         int
	due          time.Time
	older, newer *delay
}

// delay has x wait firstDelay, and twice that for each step. Any goroutine.
func (p *pool) delay(x *Call, step int) {
	x.setPhase(Queued)
	p.mu.Lock()
	h := p.hostFor(x.host.key)
	x.host = h
	if h.delays == nil {
		h.delays = &delays{}
	}
	d := &delay{x: x, step: step, due: p.t.sys.Now().Add(firstDelay << step)}
	x.delay = d
	h.delays.calls++
	list := &h.delays.steps[step]
	if d.older = list.last; d.older != nil {
		d.older.newer = d
	} else {
		list.first = d
	}
	list.last = d
	do := p.arrange(h)
	p.mu.Unlock()
	do.run()
	if x.isSettled() { // it was cancelled before it could be found here
		p.withdraw(x)
	}
}

func (l *delays) remove(d *delay) {
	d.x.delay = nil
	l.calls--
	list := &l.steps[d.step]
	if d.older != nil {
		d.older.newer = d.newer
	} else {
		list.first = d.newer
	}
	if d.newer != nil {
		d.newer.older = d.older
	} else {
		list.last = d.older
	}
}

// first is when the first delay ends; zero: there is none.
func (l *delays) first() (due time.Time) {
	if l == nil {
		return due
	}
	for i := range l.steps {
		if d := l.steps[i].first; d != nil && (due.IsZero() || d.due.Before(due)) {
			due = d.due
		}
	}
	return due
}

// over takes out the calls whose delay has ended.
func (l *delays) over(now time.Time) (calls []*Call) {
	if l == nil {
		return nil
	}
	for i := range l.steps {
		for d := l.steps[i].first; d != nil && !d.due.After(now); d = l.steps[i].first {
			calls = append(calls, d.x)
			l.remove(d)
		}
	}
	return calls
}

// Dials, from newDialing to one of stood, stoodMux and failed.

// A spare is a dial that has no call.
type spare struct {
	dialing      *dialing
	givesWay     time.Time // when a call may take its place
	until        time.Time // when it ends
	older, newer *spare
}

// spares are those of a host.
type spares struct{ oldest, newest *spare }

func (l *spares) add(s *spare) {
	if s.older = l.newest; s.older != nil {
		s.older.newer = s
	} else {
		l.oldest = s
	}
	l.newest = s
}

func (l *spares) remove(s *spare) {
	if s.older != nil {
		s.older.newer = s.newer
	} else {
		l.oldest = s.newer
	}
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		l.newest = s.older
	}
}

// spare keeps a dial that has no call. For hold it gives its place to none.
func (p *pool) spare(d *dialing, hold time.Duration) {
	now := p.t.sys.Now()
	d.spare = &spare{dialing: d, givesWay: now.Add(hold), until: now.Add(spareTimeout)}
	d.host.spares.add(d.spare)
	p.schedule(d.host, false)
}

// givesWay takes the place of a spare that has had its time, for a call that needs it.
func (p *pool) givesWay(h *host) *dialing {
	now := p.t.sys.Now()
	for s := h.spares.oldest; s != nil; s = s.newer {
		if !now.Before(s.givesWay) {
			return p.cancel(s.dialing)
		}
	}
	return nil
}

// cancel ends a spare. The caller abandons it, without the lock.
func (p *pool) cancel(d *dialing) *dialing {
	p.ends(d, dialCancelled)
	d.host.conns--
	return d
}

// ends is the end of a dial. It returns false if it has ended before.
func (p *pool) ends(d *dialing, how dialState) bool {
	if d.state != dialUnderWay {
		return false
	}
	d.state = how
	d.host.dialling--
	p.take(d)
	if d.spare != nil {
		d.host.spares.remove(d.spare)
		d.spare = nil
	}
	return true
}

// stood is for a dial that has made an HTTP/1 connection, which takes over its place. The
// connection is for the dial's own call if that still waits, and else as by offer. It returns false
// if the dial was given up before.
func (p *pool) stood(d *dialing, pc *conn) (ok bool, err error) {
	p.mu.Lock()
	h, x := d.host, d.x
	if !p.ends(d, dialStood) {
		p.mu.Unlock()
		return false, nil
	}
	pc.place = takesPlace
	h.spoke, h.atOnce = spokeHTTP1, 1
	if x == nil {
		return true, p.settle(pc)
	}
	p.remove(x)
	do := p.arrange(h)
	p.mu.Unlock()
	do.run()
	pc.send(x)
	return true, nil
}

// stoodMux is stood for an HTTP/2 connection. x is its first call, if there is one.
func (p *pool) stoodMux(d *dialing, m *muxConn) (x *Call, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := d.host
	x = d.x
	if !p.ends(d, dialStood) {
		return nil, false
	}
	m.place = takesPlace
	m.free = 1
	if x != nil {
		p.remove(x)
		m.free = 0
		m.busy.Add(1)
	}
	h.muxes = append(h.muxes, m)
	h.unproven++
	return x, true
}

// failed is for a dial that has failed, and ends its call with err.
func (p *pool) failed(d *dialing, err error) {
	p.mu.Lock()
	x := d.x
	if !p.ends(d, dialFailed) {
		p.mu.Unlock()
		return
	}
	if x != nil {
		p.remove(x)
	}
	d.host.conns--
	do := p.arrange(d.host)
	p.mu.Unlock()
	if x != nil {
		x.fail(err)
	}
	do.run()
}

// HTTP/1 connections.

// offer gives a connection that is ready for another call to the one that has waited longest, or
// keeps it. It returns the reason if it does neither; then the connection is to be closed.
func (p *pool) offer(pc *conn) error {
	p.mu.Lock()
	return p.settle(pc)
}

// settle is offer with mu held, which it releases.
func (p *pool) settle(pc *conn) error {
	h := pc.host
	pc.inUse = true
	if x := p.next(h); x != nil {
		do := p.arrange(h)
		p.mu.Unlock()
		do.run()
		pc.send(x)
		return nil
	}
	t := p.t
	perHost := orDefault(t.MaxIdleConnsPerHost, defaultIdlePerHost)
	if t.DisableKeepAlives || perHost < 0 || len(h.idle) >= perHost {
		p.mu.Unlock()
		return errKeepIdle
	}
	pc.inUse = false
	if t.IdleConnTimeout > 0 || t.MaxIdleConns > 0 {
		pc.idleSince = t.sys.Now()
	}
	pc.idled = true
	h.idle = append(h.idle, pc)
	p.idle++
	var oldest *conn
	if t.MaxIdleConns > 0 {
		p.kept[h] = struct{}{}
		if p.idle > t.MaxIdleConns {
			oldest = p.takeOldest()
		}
	}
	p.mu.Unlock()
	if oldest != nil {
		oldest.retire()
	}
	return nil
}

func (p *pool) takeIdle(h *host, i int) *conn {
	pc := h.idle[i]
	copy(h.idle[i:], h.idle[i+1:])
	h.idle[len(h.idle)-1] = nil
	h.idle = h.idle[:len(h.idle)-1]
	p.idle--
	pc.inUse = true
	if len(h.idle) == 0 {
		h.idle = nil
		delete(p.kept, h)
	}
	return pc
}

// takeOldest takes the connection that has been idle for longest, of all hosts. There are at most
// MaxIdleConns hosts with one.
func (p *pool) takeOldest() *conn {
	var from *host
	for h := range p.kept {
		if from == nil || h.idle[0].idleSince.Before(from.idle[0].idleSince) {
			from = h
		}
	}
	return p.takeIdle(from, 0)
}

// unkeep takes pc away from the idle ones. It returns false if a call has it. With a minimum it is
// taken only if it has been idle for that long; left says how long it has still to wait.
func (p *pool) unkeep(pc *conn, minimum time.Duration) (taken bool, left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pc.inUse {
		return false, 0
	}
	if minimum > 0 {
		if left = minimum - p.t.sys.Now().Sub(pc.idleSince); left > 0 {
			return false, left
		}
	}
	for i, other := range pc.host.idle {
		if other == pc {
			p.takeIdle(pc.host, i)
			return true, 0
		}
	}
	return false, 0
}

// closed is for a connection that is closed, or is about to be: it may still wait for its server's
// FIN, which the engine bounds. Any number of times.
func (p *pool) closed(c *pooled) {
	p.mu.Lock()
	if c.place == noPlace {
		p.mu.Unlock()
		return
	}
	h := c.host
	switch c.place {
	case takesPlace:
		h.conns--
	case drainsPlace:
		h.draining--
	case noPlace:
	}
	c.place = noPlace
	h.toDrain = slices.DeleteFunc(h.toDrain, func(o *pooled) bool { return o == c })
	p.drain(h)
	do := p.arrange(h)
	p.mu.Unlock()
	do.run()
}

// HTTP/2 connections.

// pull takes the next call for m, which has room for so many. On m's loop.
func (p *pool) pull(m *muxConn, free int) (x *Call, do todo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.free = free
	if m.place == noPlace || m.leaving {
		m.free = 0
	}
	if m.free > 0 {
		if x = p.next(m.host); x != nil {
			m.free--
			m.busy.Add(1)
		}
	}
	if x == nil {
		do = p.arrange(m.host)
	}
	return x, do
}

// settings notes that the server has told how many streams it allows at a time. On m's loop.
func (p *pool) settings(m *muxConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := m.host; !m.proven && !m.leaving {
		m.proven = true
		h.unproven--
		h.spoke = spokeHTTP2
		h.resetAtOnce()
	}
}

// leave takes m from its host: it gets no more calls. If it drains, because its server wants that
// or is silent, its place is for another connection. As many may drain as may be open; beyond, they
// keep their places until they have closed. Any goroutine.
func (p *pool) leave(m *muxConn, drains bool) {
	p.mu.Lock()
	h := m.host
	p.unlist(m)
	if drains && p.t.MaxConnsPerHost > 0 && m.place == takesPlace && !slices.Contains(h.toDrain, &m.pooled) {
		h.toDrain = append(h.toDrain, &m.pooled)
		p.drain(h)
	}
	do := p.arrange(h)
	p.mu.Unlock()
	do.run()
}

// suspect has the other connections of m's host find out whether their servers are there. Any
// goroutine.
func (p *pool) suspect(m *muxConn) {
	var do todo
	p.mu.Lock()
	for _, other := range m.host.muxes {
		if !other.suspected.Swap(true) {
			do.notify(other)
		}
	}
	p.mu.Unlock()
	do.run()
}

// hasLeft reports whether m takes no more calls. Any goroutine.
func (p *pool) hasLeft(m *muxConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return m.leaving
}

// drain has connections give their places back that are to drain, as many as may.
func (p *pool) drain(h *host) {
	for len(h.toDrain) > 0 && h.draining < p.t.MaxConnsPerHost {
		h.toDrain[0].place = drainsPlace
		h.toDrain = slices.Delete(h.toDrain, 0, 1)
		h.draining++
		h.conns--
	}
}

func (p *pool) unlist(m *muxConn) {
	if m.leaving {
		return
	}
	m.leaving, m.free = true, 0
	h := m.host
	for i, other := range h.muxes {
		if other == m {
			h.muxes = slices.Delete(h.muxes, i, i+1)
			if !m.proven {
				h.unproven--
			}
			break
		}
	}
}

// closeIdle takes all connections without a call away from the hosts. The caller closes them.
func (p *pool) closeIdle() (conns []*conn, muxes []*muxConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.hosts {
		for len(h.idle) > 0 {
			conns = append(conns, p.takeIdle(h, len(h.idle)-1))
		}
		for i := len(h.muxes) - 1; i >= 0; i-- {
			if m := h.muxes[i]; m.busy.Load() == 0 {
				p.unlist(m)
				muxes = append(muxes, m)
			}
		}
	}
	return conns, muxes
}

// The clock.

// An alarm is when the clock looks at a host.
type alarm struct {
	due   time.Time // zero: it does not
	index int       // in the clock
}

// A clock is a goroutine that looks at hosts when they are due: to raise atOnce, and to end
// spares. It runs only while some host is due.
type clock struct {
	hosts   []*host // a heap by due
	running bool
	parker  driver.Parker
}

// Len is that of heap.Interface, as the methods that follow.
func (k *clock) Len() int           { return len(k.hosts) }
func (k *clock) Less(i, j int) bool { return k.hosts[i].due.Before(k.hosts[j].due) }
func (k *clock) Swap(i, j int) {
	k.hosts[i], k.hosts[j] = k.hosts[j], k.hosts[i]
	k.hosts[i].index, k.hosts[j].index = i, j
}
func (k *clock) Push(h any) { k.hosts = append(k.hosts, h.(*host)) }
func (k *clock) Pop() any {
	last := len(k.hosts) - 1
	h := k.hosts[last]
	k.hosts[last] = nil
	k.hosts = k.hosts[:last]
	return h
}

// schedule sets when the clock looks at h. short: a call needs the place of a spare.
func (p *pool) schedule(h *host, short bool) {
	due := h.raiseAt
	if first := h.delays.first(); due.IsZero() || !first.IsZero() && first.Before(due) {
		due = first
	}
	for s := h.spares.oldest; s != nil; s = s.newer {
		if due.IsZero() || s.until.Before(due) {
			due = s.until
		}
		if short && s.givesWay.Before(due) {
			due = s.givesWay
		}
		if !short { // the first ends first
			break
		}
	}
	if due.Equal(h.due) {
		return
	}
	k := &p.clock
	was := h.due
	h.due = due
	switch {
	case was.IsZero():
		h.index = len(k.hosts)
		heap.Push(k, h)
	case due.IsZero():
		heap.Remove(k, h.index)
	default:
		heap.Fix(k, h.index)
	}
	switch {
	case !k.running && len(k.hosts) > 0:
		k.running = true
		if k.parker == nil {
			k.parker = p.t.sys.NewParker()
		}
		p.t.sys.Go(p.tick)
	case k.running && (len(k.hosts) == 0 || k.hosts[0] == h):
		k.parker.Unpark()
	}
}

// tick is the clock's goroutine.
func (p *pool) tick() {
	k := &p.clock
	p.mu.Lock()
	for len(k.hosts) > 0 {
		h, now := k.hosts[0], p.t.sys.Now()
		if left := h.due.Sub(now); left > 0 {
			p.mu.Unlock()
			k.parker.ParkFor(left)
			p.mu.Lock()
			continue
		}
		do := p.passes(h, now)
		p.mu.Unlock()
		do.run()
		p.mu.Lock()
	}
	k.running = false
	p.mu.Unlock()
}

// passes does what is due at h.
func (p *pool) passes(h *host, now time.Time) (do todo) {
	if !h.raiseAt.IsZero() && !h.raiseAt.After(now) {
		h.atOnce++
		h.raiseAt = time.Time{} // arrange sets it anew if that is not enough
	}
	var ended []*dialing
	for s := h.spares.oldest; s != nil && !s.until.After(now); s = h.spares.oldest {
		ended = append(ended, p.cancel(s.dialing))
	}
	again := h.delays.over(now)
	do = p.arrange(h)
	do.cancels = append(do.cancels, ended...)
	do.again = again
	return do
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}
