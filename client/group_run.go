package client

import (
	"container/heap"
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// iteratorGrace is how long a stopped run waits for its iterator to return.
const iteratorGrace = time.Second

// A Run is one Group at work. Three goroutines share it, so that none holds up another:
//
//   - The caller ranges over Outcomes, and may take its time for each.
//   - The source calls the iterator, which may block, when there is room for a request.
//   - The clock acts when something is due, or has been reported while the caller is busy.
//
// Each of them takes turns: a turn decides what starts, what is tried again and what has had its
// time. The loops of the Transport only report the ends of attempts, and wake one of the three.
type Run struct {
	group    Group // with its defaults
	t        *Transport
	own      bool // t is the run's
	ctx      context.Context
	began    time.Time
	requests iter.Seq[*http.Request]
	caller   driver.Parker
	source   driver.Parker
	clock    driver.Parker

	planning sync.Mutex // held during a turn
	plan     plan       // guarded by planning

	mu     sync.Mutex // locked within planning, if both are
	shared shared     // guarded by mu
}

// shared is what is read and written outside of turns, too. Run.mu guards it.
type shared struct {
	reports reports
	jobs    [done + 1]int // how many are in each state
	running jobList       // in the order in which their attempts began
	ended   jobList       // for the caller

	wanted  int       // how many requests the source may take from the iterator
	idle    bool      // the source waits until it may take one
	waits   bool      // the caller waits for an outcome
	sleeps  time.Time // until when the clock sleeps; zero: until it is woken
	drained bool      // the iterator has returned
	cause   error     // why the run was stopped; nil: it was not
	stopAt  time.Time // when
	ranged  bool      // Outcomes was called
	over    bool      // there are no more turns: all that have an outcome are in ended
	failure *failure  // of the user's code

	summary Summary
	endedAt time.Time
}

// reports are what has happened since the last turn.
type reports struct {
	taken    []*http.Request // from the iterator
	attempts []*attempt      // that have ended
	canceled []*job          // whose request's context has ended
}

func (n *reports) empty() bool { return len(n.taken)+len(n.attempts)+len(n.canceled) == 0 }

// cleared is n without what it has, for use again.
func (n *reports) cleared() reports {
	clear(n.taken)
	clear(n.attempts)
	clear(n.canceled)
	return reports{n.taken[:0], n.attempts[:0], n.canceled[:0]}
}

// A failure is a panic in the user's code, or a runtime.Goexit, on a goroutine of the run. Outcomes
// passes it on to the caller.
type failure struct {
	value any // nil: Goexit
}

// jobState is where a request is.
//
//	taken → waiting → running → ended → done
//	           ↑         ↓
//	           └───── paused
//
// A stopped run, or the end of the request's context, leads from each of them to ended.
type jobState uint8

const (
	taken   jobState = iota // from the iterator, for a moment
	waiting                 // for a place of its host, or of the group
	running                 // an attempt is under way
	paused                  // until its next attempt
	ended                   // its outcome waits for the caller
	done                    // the caller has taken the outcome
)

// A job is one request of a run.
type job struct {
	run     *Run
	request *http.Request
	addr    string // of the server, with its port; its host is counted by it
	taken   time.Time
	unwatch func() bool // ends the watch of the request's context; nil: it cannot end

	// Guarded by Run.planning.
	host    *groupHost
	began   time.Time // the first attempt
	due     time.Time // of the next attempt, while paused
	index   int       // in plan.pauses
	outcome Outcome   // of the last attempt; the caller's once the job has ended

	// Guarded by Run.mu, and written in turns, except that the caller takes the outcome.
	state      jobState
	attempts   int
	attempt    *attempt // while running
	next, prev *job     // in the list of its state
}

// Outcomes gives the outcome of each request as it comes. It is ranged over once, by one goroutine:
// a second range gives nothing. A loop over it that breaks off stops the run. On an engine's loop,
// which must not wait, it panics.
//
// The iterator is called on a goroutine of its own. So it may block, for example until an outcome
// has led to another request. After the run was stopped, what the iterator gives still has an
// outcome, and Outcomes returns when the iterator has returned. If that takes more than a second,
// Outcomes returns without it: its next yield returns false, and that request is dropped.
//
// A panic of the iterator, of Retry.If or of Retry.Prepare ends the run, and continues here.
func (r *Run) Outcomes() iter.Seq[Outcome] {
	return func(yield func(Outcome) bool) {
		if !r.t.engine.HandOff() {
			panic(errGroupOnLoop)
		}
		r.mu.Lock()
		again := r.shared.ranged
		r.shared.ranged = true
		r.mu.Unlock()
		if again {
			return
		}
		unwatch := context.AfterFunc(r.ctx, func() { r.stop(context.Cause(r.ctx)) })
		r.t.sys.Go(r.keepTime)
		r.t.sys.Go(r.feed)
		defer r.end(unwatch)
		for o, more := r.take(); more; o, more = r.take() {
			if !yield(o) {
				return
			}
		}
		switch f := r.failed(); {
		case f == nil:
		case f.value == nil:
			runtime.Goexit()
		default:
			panic(f.value)
		}
	}
}

// take waits for the next outcome. It reports false at the end of the run.
func (r *Run) take() (o Outcome, more bool) {
	for {
		r.mu.Lock()
		j := r.shared.ended.first
		if j != nil {
			r.shared.leave(j)
		}
		news, over := !r.shared.reports.empty(), r.shared.over
		r.shared.waits = j == nil && !news && !over
		waits := r.shared.waits
		r.mu.Unlock()
		switch {
		case j != nil:
			r.turn(false) // there is room for another one
			return j.outcome, true
		case over:
			return Outcome{}, false
		case waits:
			r.caller.Park()
		default:
			r.turn(false)
		}
	}
}

// leave is the end of a job: its outcome is the caller's.
func (s *shared) leave(j *job) {
	s.ended.remove(j)
	s.move(j, done)
	s.summary.add(&j.outcome)
}

func (s *shared) move(j *job, to jobState) {
	s.jobs[j.state]--
	s.jobs[to]++
	j.state = to
}

// end is the end of Outcomes. What is still under way is cancelled, and its outcome only counted.
func (r *Run) end(unwatch func() bool) {
	r.Stop()
	for more := true; more; {
		_, more = r.take()
	}
	unwatch()
	if r.own {
		r.t.CloseIdleConnections()
	}
	r.mu.Lock()
	r.shared.endedAt = r.t.sys.Now()
	r.mu.Unlock()
}

// Stop ends the run: no further request is sent, and those under way are cancelled. Their outcomes
// still come. Any goroutine.
func (r *Run) Stop() { r.stop(context.Canceled) }

func (r *Run) stop(cause error) {
	r.mu.Lock()
	first := r.shared.cause == nil
	if first {
		r.shared.cause, r.shared.stopAt = cause, r.t.sys.Now()
	}
	r.mu.Unlock()
	if first {
		r.source.Unpark()
		r.clock.Unpark()
	}
}

// fail stops the run because the user's code has panicked with v, or has called runtime.Goexit, and
// then v is nil.
func (r *Run) fail(v any) {
	r.mu.Lock()
	if r.shared.failure == nil {
		r.shared.failure = &failure{v}
	}
	r.mu.Unlock()
	r.Stop()
}

func (r *Run) failed() *failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shared.failure
}

// feed takes requests from the iterator as there is room for them.
func (r *Run) feed() {
	returned := false
	defer func() {
		if !returned {
			r.fail(recover()) // of the iterator
		}
		r.mu.Lock()
		r.shared.drained = true
		r.mu.Unlock()
		r.clock.Unpark()
	}()
	if r.awaitRoom() {
		for req := range r.requests {
			if !r.pass(req) {
				break
			}
		}
	}
	returned = true
}

// pass begins a request, or holds it, and waits until there is room for another one. It reports
// false if there will be none.
func (r *Run) pass(req *http.Request) bool {
	r.mu.Lock()
	over := r.shared.over
	if !over {
		r.shared.reports.taken = append(r.shared.reports.taken, req)
		r.shared.wanted--
	}
	r.mu.Unlock()
	if over {
		if req != nil {
			closeBody(req)
		}
		return false
	}
	r.turn(false)
	return r.awaitRoom()
}

func (r *Run) awaitRoom() bool {
	for {
		r.mu.Lock()
		wanted, stopped := r.shared.wanted > 0, r.shared.cause != nil
		r.shared.idle = !wanted && !stopped
		r.mu.Unlock()
		if stopped || wanted {
			return !stopped
		}
		r.source.Park()
	}
}

// keepTime is the clock's goroutine.
func (r *Run) keepTime() {
	for {
		due, over := r.turn(true)
		if over {
			return
		}
		if due.IsZero() {
			r.clock.Park()
		} else if d := due.Sub(r.t.sys.Now()); d > 0 {
			r.clock.ParkFor(d)
		}
	}
}

// turn does what there is to do: this is the one place that decides what starts, and when. It
// returns the next instant at which something is due, zero if there is none, and whether the run is
// over. The clock sleeps until then.
func (r *Run) turn(clock bool) (due time.Time, over bool) {
	r.planning.Lock()
	defer r.planning.Unlock()
	returned := false
	defer func() {
		if !returned {
			over = true
			r.abandon(recover())
		}
	}()
	for more := !r.isOver(); more; {
		cause := r.takeReports()
		now := r.t.sys.Now()
		r.endAttempts(now, cause)
		for j := r.plan.resume(now); j != nil; j = r.plan.resume(now) {
			r.hold(j, waiting)
		}
		for r.hasRoom() {
			j := r.plan.next()
			if j == nil {
				break
			}
			r.begin(j)
		}
		due, more, over = r.look(clock)
	}
	returned = true
	return due, over || r.isOver()
}

func (r *Run) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shared.over
}

// takeReports settles what was reported. It returns why the run was stopped.
func (r *Run) takeReports() (cause error) {
	if r.ctx.Err() != nil { // of which package context tells a moment later
		r.stop(context.Cause(r.ctx))
	}
	r.mu.Lock()
	n := r.shared.reports
	r.shared.reports, r.plan.spare = r.plan.spare, reports{}
	cause = r.shared.cause
	r.mu.Unlock()
	defer func() { r.plan.spare = n.cleared() }()
	for _, req := range n.taken {
		r.add(req)
	}
	for _, a := range n.attempts {
		r.attemptEnded(a, cause)
	}
	for _, j := range n.canceled {
		switch why := context.Cause(j.request.Context()); r.stateOf(j) {
		case running:
			j.attempt.end(why)
		case waiting, paused:
			r.plan.drop(j)
			r.giveUp(j, why)
		}
	}
	if cause == nil {
		return nil
	}
	unsent := ErrStopped
	if cause != context.Canceled {
		unsent = fmt.Errorf("%w: %w", ErrStopped, cause)
	}
	for _, j := range r.plan.dropAll() {
		r.giveUp(j, unsent)
	}
	return cause
}

// endAttempts ends all attempts of a stopped run, and else those that have had their time.
func (r *Run) endAttempts(now time.Time, cause error) {
	r.mu.Lock()
	var late []*attempt
	for j := r.shared.running.first; j != nil; j = j.next {
		if until := j.attempt.until; cause == nil && (until.IsZero() || until.After(now)) {
			break // those that follow have begun later
		}
		late = append(late, j.attempt)
	}
	r.mu.Unlock()
	if cause == nil {
		cause = errGroupTimeout
	}
	for _, a := range late {
		a.end(cause)
	}
}

func (r *Run) hasRoom() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shared.jobs[running]+r.shared.jobs[ended] < r.group.AtOnce
}

// look is the end of a turn. It asks the source for as many requests as there is room for, and
// wakes the clock if that would sleep too long. more: something was reported meanwhile.
func (r *Run) look(clock bool) (due time.Time, more, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.shared
	held := s.jobs[waiting] + s.jobs[paused]
	left := held + s.jobs[running]
	switch {
	case !s.reports.empty():
		return due, true, false
	case s.cause != nil:
		if s.wanted, due = 0, s.stopAt.Add(iteratorGrace); !s.drained && r.t.sys.Now().Before(due) {
			left++
		}
	case !s.drained:
		left++
		room := r.group.AtOnce - s.jobs[running] - s.jobs[ended]
		if s.wanted = min(room, r.group.Hold-held); s.wanted > 0 && s.idle {
			s.idle = false
			r.source.Unpark()
		}
	}
	if left == 0 {
		s.over = true
		r.caller.Unpark()
		r.clock.Unpark()
		return due, false, true
	}
	if j := s.running.first; j != nil {
		due = earlier(due, j.attempt.until)
	}
	if len(r.plan.pauses) > 0 {
		due = earlier(due, r.plan.pauses[0].due)
	}
	if clock {
		s.sleeps = due
	} else if earlier(s.sleeps, due) != s.sleeps {
		s.sleeps = due
		r.clock.Unpark()
	}
	return due, false, false
}

// earlier is the earlier one of two instants. The zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// add makes a job of a request.
func (r *Run) add(req *http.Request) {
	j := &job{run: r, request: req, taken: r.t.sys.Now()}
	r.mu.Lock()
	r.shared.summary.Requests++
	r.shared.jobs[taken]++
	r.mu.Unlock()
	if req == nil {
		j.outcome.Err = errNilRequest
		r.finish(j)
		return
	}
	if req.URL != nil {
		j.addr = strings.ToLower(canonicalAddr(req.URL))
	}
	if ctx := req.Context(); ctx.Done() != nil {
		j.unwatch = context.AfterFunc(ctx, j.canceled)
	}
	r.hold(j, waiting)
}

// canceled is called when the context of the request has ended. Any goroutine.
func (j *job) canceled() {
	r := j.run
	r.mu.Lock()
	r.shared.reports.canceled = append(r.shared.reports.canceled, j)
	r.mu.Unlock()
	r.wake()
}

// wake has one of the goroutines take a turn: the caller if it waits, for it needs the outcome.
func (r *Run) wake() {
	r.mu.Lock()
	waits := r.shared.waits
	r.shared.waits = false
	r.mu.Unlock()
	if waits {
		r.caller.Unpark()
	} else {
		r.clock.Unpark()
	}
}

func (r *Run) stateOf(j *job) jobState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return j.state
}

// hold has a job wait for its place, or pause.
func (r *Run) hold(j *job, state jobState) {
	r.mu.Lock()
	r.shared.move(j, state)
	r.mu.Unlock()
	if state == paused {
		r.plan.pause(j)
	} else {
		r.plan.wait(j)
	}
}

// giveUp ends a job that was held: with the outcome of its last attempt, or with err if it had
// none.
func (r *Run) giveUp(j *job, err error) {
	if j.attempts == 0 {
		closeBody(j.request)
		j.outcome = Outcome{Request: j.request, Err: &Error{Queued, j.addr, err}}
	}
	r.finish(j)
}

// finish gives the outcome of a job to the caller.
func (r *Run) finish(j *job) {
	if j.unwatch != nil {
		j.unwatch()
	}
	j.outcome.rewind() // Retry.If may have read it
	r.mu.Lock()
	r.shared.move(j, ended)
	r.shared.ended.push(j)
	waits := r.shared.waits
	r.shared.waits = false
	r.mu.Unlock()
	if waits {
		r.caller.Unpark()
	}
}

// begin begins an attempt of a job that has a place.
func (r *Run) begin(j *job) {
	if ctx := j.request.Context(); ctx.Err() != nil {
		r.plan.leave(j.host)
		r.giveUp(j, context.Cause(ctx))
		return
	}
	a := &attempt{job: j}
	now := r.t.sys.Now()
	if r.group.Timeout > 0 {
		a.until = now.Add(r.group.Timeout)
	}
	if j.attempts == 0 {
		j.began = now
	}
	r.mu.Lock()
	if j.attempts++; j.attempts > 1 {
		r.shared.summary.Retries++
	}
	j.attempt = a
	r.shared.move(j, running)
	r.shared.running.push(j)
	r.mu.Unlock()
	a.number = j.attempts
	if a.number > 1 && j.request.GetBody != nil || r.group.Retry.Prepare != nil || r.t.Proxy != nil {
		r.t.sys.Go(a.prepare) // it runs the user's code, which may block
	} else {
		a.send(j.request)
	}
}

// attemptEnded has a job tried again, or ends it.
func (r *Run) attemptEnded(a *attempt, cause error) {
	j := a.job
	r.plan.leave(j.host)
	r.mu.Lock()
	r.shared.running.remove(j)
	j.attempt = nil
	r.mu.Unlock()
	now := r.t.sys.Now()
	j.outcome = Outcome{Request: j.request, Response: a.response, Body: a.body, Err: a.err, Attempts: j.attempts,
		Took: now.Sub(j.began)}
	j.outcome.rewind()
	if cause == nil && !a.final {
		if pause, again := r.group.Retry.next(&j.outcome, now); again {
			j.due = now.Add(pause)
			r.hold(j, paused)
			return
		}
	}
	r.finish(j)
}

// abandon ends a run in which a turn has panicked with v, in Retry.If or Retry.Random. If v is nil,
// it has called runtime.Goexit.
func (r *Run) abandon(v any) {
	r.fail(v)
	r.mu.Lock()
	r.shared.over = true
	unsent := r.shared.reports.taken
	left := r.plan.dropAll()
	for j := r.shared.running.first; j != nil; j = j.next {
		left = append(left, j)
	}
	r.mu.Unlock()
	for _, j := range left {
		if j.unwatch != nil {
			j.unwatch()
		}
		if j.attempt != nil {
			j.attempt.end(context.Canceled)
		} else if j.attempts == 0 {
			unsent = append(unsent, j.request)
		}
	}
	for _, req := range unsent {
		if req != nil {
			closeBody(req)
		}
	}
	r.caller.Unpark()
}

// A plan says which of the requests that are held may start next.
type plan struct {
	perHost int
	hosts   map[string]*groupHost // that have a request waiting or under way
	ready   hostQueue             // those of which one may start, in turn
	pauses  pauses                // the next one that ends is the first
	spare   reports               // empty
}

// A groupHost is what a run has for one host.
type groupHost struct {
	addr    string
	running int
	again   jobList // waiting to be tried again: before the others
	fresh   jobList // waiting for their first attempt
	ready   bool    // it is in plan.ready
	next    *groupHost
}

// wait queues a job for its host.
func (p *plan) wait(j *job) {
	h := p.hosts[j.addr]
	if h == nil {
		h = &groupHost{addr: j.addr}
		p.hosts[j.addr] = h
	}
	j.host = h
	h.queue(j).push(j)
	p.offer(h)
}

func (h *groupHost) queue(j *job) *jobList {
	if j.attempts > 0 {
		return &h.again
	}
	return &h.fresh
}

// offer puts a host among those of which a request may start, if so it is, and forgets a host that
// has nothing.
func (p *plan) offer(h *groupHost) {
	idle := h.again.first == nil && h.fresh.first == nil
	switch {
	case h.ready:
	case !idle && h.running < p.perHost:
		p.ready.push(h)
	case idle && h.running == 0:
		delete(p.hosts, h.addr)
	}
}

// next takes the request that may start next, and a place of its host for it: the hosts take turns.
// It returns nil if none may.
func (p *plan) next() *job {
	for h := p.ready.pop(); h != nil; h = p.ready.pop() {
		j := h.again.first
		if j == nil {
			j = h.fresh.first
		}
		if j != nil { // else those that waited have ended
			h.queue(j).remove(j)
			h.running++
		}
		p.offer(h)
		if j != nil {
			return j
		}
	}
	return nil
}

// leave gives a place of a host back.
func (p *plan) leave(h *groupHost) {
	h.running--
	p.offer(h)
}

// pause holds a job until it is due.
func (p *plan) pause(j *job) { heap.Push(&p.pauses, j) }

// resume takes a job out whose pause is over, if there is one.
func (p *plan) resume(now time.Time) *job {
	if len(p.pauses) == 0 || p.pauses[0].due.After(now) {
		return nil
	}
	return heap.Pop(&p.pauses).(*job)
}

// drop takes a job out that waits or pauses.
func (p *plan) drop(j *job) {
	if j.state == paused {
		heap.Remove(&p.pauses, j.index)
		return
	}
	j.host.queue(j).remove(j)
	p.offer(j.host)
}

// dropAll takes all jobs out: those that pause by their time, the others by host.
func (p *plan) dropAll() (all []*job) {
	for len(p.pauses) > 0 {
		all = append(all, heap.Pop(&p.pauses).(*job))
	}
	for _, addr := range slices.Sorted(maps.Keys(p.hosts)) {
		h := p.hosts[addr]
		for _, l := range []*jobList{&h.again, &h.fresh} {
			for j := l.first; j != nil; j = l.first {
				l.remove(j)
				all = append(all, j)
			}
		}
		p.offer(h)
	}
	return all
}

// A jobList is a queue that a job leaves from anywhere. A job is in one list at a time.
type jobList struct{ first, last *job }

func (l *jobList) push(j *job) {
	if j.prev = l.last; l.last != nil {
		l.last.next = j
	} else {
		l.first = j
	}
	l.last = j
}

func (l *jobList) remove(j *job) {
	if j.prev != nil {
		j.prev.next = j.next
	} else {
		l.first = j.next
	}
	if j.next != nil {
		j.next.prev = j.prev
	} else {
		l.last = j.prev
	}
	j.next, j.prev = nil, nil
}

// A hostQueue is a queue of hosts, each once.
type hostQueue struct{ first, last *groupHost }

func (q *hostQueue) push(h *groupHost) {
	h.ready = true
	if q.first == nil {
		q.first = h
	} else {
		q.last.next = h
	}
	q.last = h
}

func (q *hostQueue) pop() *groupHost {
	h := q.first
	if h != nil {
		q.first, h.next, h.ready = h.next, nil, false
	}
	return h
}

// pauses is a heap of jobs by the time at which they are due. It implements heap.Interface.
type pauses []*job

func (p pauses) Len() int           { return len(p) }
func (p pauses) Less(a, b int) bool { return p[a].due.Before(p[b].due) }
func (p pauses) Swap(a, b int) {
	p[a], p[b] = p[b], p[a]
	p[a].index, p[b].index = a, b
}

func (p *pauses) Push(x any) {
	j := x.(*job)
	j.index = len(*p)
	*p = append(*p, j)
}

func (p *pauses) Pop() any {
	last := len(*p) - 1
	j := (*p)[last]
	(*p)[last] = nil
	*p = (*p)[:last]
	return j
}
