package load

import (
	"os"
	"sync"
	"time"
)

// A link is one connection that makes requests, or a stream at a time of one that has several.
type link interface {
	// send sends one request, or Plan.Pipeline of them at once. due is when it was due. The link
	// calls lane.replied when it has all replies. It is called with the lane locked, must not wait,
	// and must not call the lane.
	send(due time.Time) error
	// abort closes the connection at once. The link calls lane.lost later, not from inside abort.
	abort(err error)
	// state is the lane's own memory of the link.
	state() *linkState
}

// A oneWay is a link whose requests have no reply: it is free again when it has sent one.
type oneWay interface{ unanswered() }

// A linkState is what a lane knows of a link.
type linkState struct {
	due  time.Time // of the request under way; zero if there is none
	sent time.Time
	live bool
	busy bool // its request is answered, and it cannot send yet
	// owed is when the request was due that the link makes again before any other one, not before
	// after. Zero: there is none.
	owed, after time.Time
}

// A lane makes requests on the connections of one loop. Its methods may be called from any
// goroutine: the loop's callbacks, which another goroutine may run when one of them takes long, and
// the pacer's.
type lane struct {
	plan    *part
	message []byte // of WebSockets

	mu     sync.Mutex // guards what follows
	sample *Sample    // since the last collection
	links  map[link]struct{}
	free   queue // links without a request under way

	running bool
	from    time.Time // the warm-up is over
	end     time.Time // of the part that counts; zero: not known yet
	// Of the open loop: request k is due at origin + k × interval. 0: the closed loop.
	origin   time.Time
	interval time.Duration
	nextDue  int64
	again    []time.Time // when requests were due that a server has not accepted
	// owed says when requests were due, in ns since 1970, that are to be made again. The link that
	// has made one makes it again, or the link of its next connection does.
	owed  map[int64]struct{}
	later []link // links that have one of them to make, in the order in which they may
}

func newLane(p *part, message []byte) *lane {
	return &lane{plan: p, message: message, sample: newSample(), links: map[link]struct{}{}, owed: map[int64]struct{}{}}
}

// opened takes the links of one connection in, which stands.
func (l *lane) opened(links ...link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range links {
		s := k.state()
		s.live = true
		l.links[k] = struct{}{}
		if s.owed.IsZero() {
			l.free.put(k)
		} else {
			l.later = append(l.later, k)
		}
	}
	l.sample.Opened++
	l.next(time.Now())
}

// start begins to send. What counts begins at from. Each of n lanes has its share of the requests
// of the open loop: the lanes take turns.
func (l *lane) start(at, from time.Time, rate float64, i, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running, l.from = true, from
	if rate > 0 {
		l.interval = time.Duration(float64(time.Second) * float64(n) / rate)
		l.origin = at.Add(l.interval * time.Duration(i) / time.Duration(n))
	}
	l.next(time.Now())
}

// counts reports whether a request counts. In the open loop that depends on when it was due, and in
// the closed loop, where each reply makes the next request, on when its reply came.
func (l *lane) counts(due, now time.Time) bool {
	at := due
	if l.interval == 0 {
		at = now
	}
	return l.isWithin(at)
}

// failureCounts reports whether a request counts that has failed. In the closed loop it does if it
// was under way during some of the time that counts. Its connection made no other one meanwhile.
func (l *lane) failureCounts(due, now time.Time) bool {
	if l.interval > 0 {
		return l.isWithin(due)
	}
	return !l.from.IsZero() && !now.Before(l.from) && (l.end.IsZero() || due.Before(l.end))
}

// isWithin reports whether a moment belongs to the part of the run that counts.
func (l *lane) isWithin(at time.Time) bool {
	return !l.from.IsZero() && !at.Before(l.from) && (l.end.IsZero() || at.Before(l.end))
}

// stop sends nothing more that is due from now on, and returns what time it is. Replies that are
// under way still count. All lanes are held meanwhile: none sends, and counts, what is due later.
func stop(lanes []*lane) (end time.Time) {
	for _, l := range lanes {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	end = time.Now()
	for _, l := range lanes {
		l.stopAt(end)
	}
	return end
}

// stopAt sends nothing more that was due at end or later. The lane is locked.
func (l *lane) stopAt(end time.Time) {
	l.end = end
	if l.interval > 0 {
		l.next(time.Now()) // what is due and was late
	}
	l.running = false
	if l.interval == 0 {
		return
	}
	l.skip(end, end)
}

// skip counts requests as failed that were due before a moment and have found no free connection
// until now. The lane is locked.
func (l *lane) skip(before, now time.Time) {
	unsent := int64((before.Sub(l.origin)-1)/l.interval) + 1 - l.nextDue
	step := max(1, unsent/10_000) // so many of them count with the age of the first
	for unsent > 0 {
		n, due := min(step, unsent), l.dueAt(l.nextDue)
		if due.Before(l.from) { // up to the first that counts
			n = min(n, int64((l.from.Sub(due)-1)/l.interval)+1)
		}
		if l.isWithin(due) {
			l.sample.Latency.Record(now.Sub(due), n)
			l.sample.fail(neverSent, n)
		}
		l.nextDue += n
		unsent -= n
	}
}

// next sends what is to be sent now. Requests that have found no free connection for Plan.Timeout
// have failed. The lane is locked.
func (l *lane) next(now time.Time) {
	if patient := now.Add(-l.plan.Timeout); l.running && l.interval > 0 && l.dueAt(l.nextDue).Before(patient) {
		l.skip(patient, now)
	}
	for len(l.later) > 0 && !l.later[0].state().after.After(now) {
		k := l.later[0]
		l.later = l.later[1:]
		if s := k.state(); s.live { // else the link of its next connection makes the request
			due := s.owed
			s.owed = time.Time{}
			delete(l.owed, due.UnixNano())
			l.send(k, due, now)
		}
	}
	for (l.running || len(l.again) > 0) && l.hasFree() {
		due := now
		if len(l.again) > 0 {
			due, l.again = l.again[0], l.again[1:]
		} else if l.interval > 0 {
			if due = l.dueAt(l.nextDue); due.After(now) || !l.end.IsZero() && !due.Before(l.end) {
				return
			}
			l.nextDue++
		}
		now = l.send(l.free.take(), due, now)
	}
}

// send has a link send the request that was due then, and returns what time it is. The lane is
// locked.
func (l *lane) send(k link, due, now time.Time) time.Time {
	s := k.state()
	s.due, s.sent = due, now
	err := k.send(due)
	if err != nil {
		k.abort(err)
	}
	now = time.Now()
	if _, is := k.(oneWay); is && err == nil {
		if l.counts(due, now) {
			l.sample.Requests++
		}
		s.due = time.Time{}
		l.free.put(k)
	}
	return now
}

// hasFree reports whether a link waits for something to send. It forgets links that have gone.
func (l *lane) hasFree() bool {
	for l.free.n > 0 && !l.free.front().state().live {
		l.free.take()
	}
	return l.free.n > 0
}

// dueAt is when request k of the open loop is due.
func (l *lane) dueAt(k int64) time.Time { return l.origin.Add(time.Duration(k) * l.interval) }

// tick is called by the pacer whenever requests may be due. A request that is due while a link is
// free is late by our own fault: the pacer, the loop or the processor is too slow.
func (l *lane) tick(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running && l.hasFree() {
		if due := l.dueAt(l.nextDue); !due.After(now) && l.isWithin(due) {
			l.sample.Late.Record(now.Sub(due), 1)
		}
	}
	l.next(now)
}

// replied is called by a link that has all replies to what it has sent: n of them, of which failed
// were refusals, for the given reason. If last is true, the connection takes no further request.
// A request that was counted by answered is not counted again.
func (l *lane) replied(k link, n, failed int64, reason string, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, s := time.Now(), k.state()
	if s.due.IsZero() && !s.busy {
		return
	}
	l.count(s, now, n, failed, reason)
	s.due, s.busy = time.Time{}, false
	if last {
		s.live = false
		delete(l.links, k)
	} else {
		l.free.put(k)
	}
	l.next(now)
}

// answered counts replies of a link that sends nothing more before it calls replied.
func (l *lane) answered(k link, n, failed int64, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := k.state()
	if s.due.IsZero() {
		return
	}
	l.count(s, time.Now(), n, failed, reason)
	s.due, s.busy = time.Time{}, true
}

// count counts replies. The lane is locked.
func (l *lane) count(s *linkState, now time.Time, n, failed int64, reason string) {
	if s.due.IsZero() {
		return
	}
	if l.interval > 0 && failed == 0 && l.isWithin(now) {
		l.sample.Service.Record(now.Sub(s.sent), n)
	}
	if !l.counts(s.due, now) {
		return
	}
	l.sample.Requests += n
	l.sample.Latency.Record(now.Sub(s.due), n)
	if failed > 0 {
		l.sample.fail(reason, failed)
	}
}

// expired reports whether the request of a link has taken longer than the plan allows.
func (l *lane) expired(k link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := k.state()
	return !s.due.IsZero() && time.Since(s.sent) > l.plan.Timeout
}

// retire forgets those links that have no request under way: their connection takes no further one.
func (l *lane) retire(links ...link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range links {
		if s := k.state(); s.live && s.due.IsZero() {
			s.live = false
			delete(l.links, k)
		}
	}
}

// retry forgets a link, and has another one make its request, which the server has not accepted.
func (l *lane) retry(k link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := k.state()
	if !s.live || s.due.IsZero() {
		return
	}
	l.again = append(l.again, s.due)
	s.live, s.due = false, time.Time{}
	delete(l.links, k)
	l.next(time.Now())
}

// retryPause is how long a link waits before it makes a request again that was refused.
const retryPause = 10 * time.Millisecond

// owe has a link make its request again, which does not count until it is accepted. If the link's
// connection ends, that of the next one makes it, whose linkState has it as owed.
func (l *lane) owe(k link, ends bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := k.state()
	if !s.live || s.due.IsZero() {
		return
	}
	l.owed[s.due.UnixNano()] = struct{}{}
	s.owed, s.due = s.due, time.Time{}
	if !ends {
		s.after = time.Now().Add(retryPause)
		l.later = append(l.later, k)
	}
}

// fired notes how late a timer of this side was.
func (l *lane) fired(due, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isWithin(due) {
		l.sample.Timers.Record(now.Sub(due), 1)
	}
}

// received counts bytes.
func (l *lane) received(n int) { l.receivedAt(n, time.Now()) }

func (l *lane) receivedAt(n int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isWithin(now) {
		l.sample.Bytes += int64(n)
	}
}

// dropped counts a subscriber's connection that ended without our doing.
func (l *lane) dropped(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sample.Lost++
	l.sample.fail(reasonOf(err), 1)
}

// failed counts an error that ends no request.
func (l *lane) failed(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sample.fail(reason, 1)
}

// isIdle reports whether a link waits for something to send.
func (l *lane) isIdle(k link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := k.state()
	return s.live && !s.busy && s.due.IsZero()
}

// isUnderWay reports whether a link waits for a reply.
func (l *lane) isUnderWay(k link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !k.state().due.IsZero()
}

// lost is called when the connection of links has ended. A request that was under way has failed.
// Its latency is the time until then.
func (l *lane) lost(err error, links ...link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	live := int64(0)
	for _, k := range links {
		if k.state().live {
			live = 1
			l.drop(k, err)
		}
	}
	l.sample.Lost += live
}

// drop forgets a link. The lane is locked.
func (l *lane) drop(k link, err error) {
	s := k.state()
	s.live = false
	delete(l.links, k)
	if s.due.IsZero() {
		return
	}
	if now := time.Now(); l.failureCounts(s.due, now) {
		l.sample.fail(reasonOf(err), 1)
		l.sample.Latency.Record(now.Sub(s.due), 1)
	}
	s.due = time.Time{}
}

// expire aborts links whose reply has not come within the plan's timeout.
func (l *lane) expire(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.links {
		if s := k.state(); !s.due.IsZero() && now.Sub(s.sent) > l.plan.Timeout {
			k.abort(os.ErrDeadlineExceeded)
		}
	}
}

// underWay is how many requests have no reply yet.
func (l *lane) underWay() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = len(l.again) + len(l.owed)
	for k := range l.links {
		if !k.state().due.IsZero() {
			n++
		}
	}
	return n
}

// overdue counts, at the end, requests that have no reply: with their age as their latency, so that
// a server that stops cannot hide them.
func (l *lane) overdue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.links {
		if s := k.state(); !s.due.IsZero() && l.failureCounts(s.due, time.Now()) {
			l.sample.Latency.Record(time.Since(s.due), 1)
			l.sample.fail("unanswered at the end", 1)
			s.due = time.Time{}
		}
	}
	for _, due := range l.again {
		if l.isWithin(due) {
			l.sample.Latency.Record(time.Since(due), 1)
			l.sample.fail(neverSent, 1)
		}
	}
	for due := range l.owed {
		if due := time.Unix(0, due); l.isWithin(due) {
			l.sample.Latency.Record(time.Since(due), 1)
			l.sample.fail(notAccepted, 1)
		}
	}
	l.again = nil
	clear(l.owed)
}

// open is how many connections there are: those of HTTP/2 have several links each.
func (l *lane) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	each := max(1, l.plan.Streams)
	return (len(l.links) + each - 1) / each
}

// collect hands over what has been counted since the last call.
func (l *lane) collect() *Sample {
	fresh := newSample()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sample
	l.sample = fresh
	return s
}

// A queue is a first-in, first-out queue of links.
type queue struct {
	ring     []link
	first, n int
}

func (q *queue) put(k link) {
	if q.n == len(q.ring) {
		grown := make([]link, max(16, 2*q.n))
		for i := range q.n {
			grown[i] = q.ring[(q.first+i)%len(q.ring)]
		}
		q.ring, q.first = grown, 0
	}
	q.ring[(q.first+q.n)%len(q.ring)] = k
	q.n++
}

func (q *queue) front() link { return q.ring[q.first] }

func (q *queue) take() link {
	k := q.ring[q.first]
	q.ring[q.first] = nil
	q.first = (q.first + 1) % len(q.ring)
	q.n--
	return k
}
