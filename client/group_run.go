package client

import (
	"bytes"
	"io"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Run is one Group at work.
type Run struct {
	group   Group
	t       *Transport
	own     bool // t is the run's
	parker  driver.Parker
	began   time.Time
	unwatch func() bool

	// The goroutine's that ranges over Outcomes.
	next    func() (*http.Request, bool)
	close   func()
	drained bool           // the iterator has no more
	hosts   map[string]int // how many run, by host
	waiting []*job         // for their host, in order
	pauses  []*job         // for their next attempt
	timed   []timed        // attempts in the order in which their time is over

	mu       sync.Mutex
	running  map[*job]struct{} // guarded by mu
	finished []*job            // guarded by mu: at most Group.AtOnce, and what a stopped run has held
	held     int               // guarded by mu: len(waiting)
	paused   int               // guarded by mu: len(pauses)
	stopped  bool              // guarded by mu
	summary  Summary           // guarded by mu
	ended    time.Time         // guarded by mu
}

// A job is one request of a run.
type job struct {
	run      *Run
	request  *http.Request
	host     string
	began    time.Time
	attempts int       // written under Run.mu
	call     *Call     // guarded by Run.mu
	due      time.Time // of the next attempt
	outcome  Outcome   // of the last one
	body     []byte
	over     bool // the attempt has ended
}

// timed is an attempt that ends at a point in time.
type timed struct {
	call  *Call
	until time.Time
}

var errGroupTimeout = timeoutError("client: the attempt has taken too long (Group.Timeout)")

// Outcomes gives the outcome of each request as it comes. A loop that breaks off stops the run. It
// must be ranged over once, by one goroutine, and not on a loop of an engine.
func (r *Run) Outcomes() iter.Seq[Outcome] {
	return func(yield func(Outcome) bool) {
		defer r.end()
		for {
			j := r.take()
			if j == nil {
				return
			}
			if !r.again(j) && !yield(j.outcome) {
				return
			}
		}
	}
}

// take starts what there is room for, and waits for the next attempt that has ended. It returns nil
// at the end of the run.
func (r *Run) take() *job {
	for {
		r.fill()
		r.mu.Lock()
		if len(r.finished) > 0 {
			j := r.finished[0]
			r.finished = slices.Delete(r.finished, 0, 1)
			r.mu.Unlock()
			if r.hosts[j.host]--; r.hosts[j.host] <= 0 {
				delete(r.hosts, j.host)
			}
			return j
		}
		busy := len(r.running) > 0
		r.mu.Unlock()
		if !busy && len(r.pauses) == 0 && len(r.waiting) == 0 && (r.drained || r.isStopped()) {
			return nil
		}
		r.wait()
	}
}

// fill starts what there is room for.
func (r *Run) fill() {
	for r.underWay() < r.group.AtOnce {
		if r.isStopped() {
			r.dropHeld()
			return
		}
		j := r.ready()
		if j == nil {
			return
		}
		r.start(j)
	}
}

func (r *Run) isStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}

// underWay counts what runs, or has ended and was not taken.
func (r *Run) underWay() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running) + len(r.finished)
}

// ready is the next request whose host has room: first those whose pause is over, then those that
// wait for their host, then new ones.
func (r *Run) ready() *job {
	if j := r.pick(&r.pauses, func(j *job) bool { return !j.due.After(r.t.sys.Now()) }); j != nil {
		return j
	}
	if j := r.pick(&r.waiting, func(*job) bool { return true }); j != nil {
		return j
	}
	for !r.drained && len(r.waiting)+len(r.pauses) < r.group.Hold {
		req, ok := r.next()
		if !ok {
			r.drained = true
			return nil
		}
		j := &job{run: r, request: req, began: r.t.sys.Now()}
		if req.URL != nil {
			j.host = req.URL.Host
		}
		r.mu.Lock()
		r.summary.Requests++
		r.mu.Unlock()
		if r.hosts[j.host] < r.group.PerHost {
			return j
		}
		r.waiting = append(r.waiting, j)
		r.noteHeld()
	}
	return nil
}

// pick takes the first of a list that may run.
func (r *Run) pick(list *[]*job, may func(*job) bool) *job {
	for i, j := range *list {
		if r.hosts[j.host] < r.group.PerHost && may(j) {
			*list = slices.Delete(*list, i, i+1)
			r.noteHeld()
			return j
		}
	}
	return nil
}

func (r *Run) noteHeld() {
	r.mu.Lock()
	r.held, r.paused = len(r.waiting), len(r.pauses)
	r.mu.Unlock()
}

// start sends a request.
func (r *Run) start(j *job) {
	j.over, j.body, j.outcome = false, nil, Outcome{}
	r.hosts[j.host]++
	r.mu.Lock()
	j.attempts++
	j.call = nil
	r.running[j] = struct{}{}
	r.mu.Unlock()
	req := j.request
	if j.attempts > 1 && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			j.finish(nil, err)
			return
		}
		again := *req
		again.Body = body
		req = &again
	}
	call := r.t.Do(req, j.answered)
	r.mu.Lock()
	j.call = call
	if r.group.Timeout > 0 {
		if len(r.timed) >= 2*r.group.AtOnce {
			r.timed = slices.DeleteFunc(r.timed, func(e timed) bool { return e.call.Phase() == Done })
		}
		r.timed = append(r.timed, timed{call, r.t.sys.Now().Add(r.group.Timeout)})
	}
	stopped := r.stopped
	r.mu.Unlock()
	if stopped { // meanwhile
		call.Cancel()
	}
}

// answered is called with the response's head, mostly on a loop.
func (j *job) answered(response *http.Response, err error) {
	if err != nil {
		j.finish(nil, err)
		return
	}
	err = OnBody(response, func(p []byte, err error) {
		most := j.run.group.MaxBody
		switch {
		case j.over:
		case err == io.EOF:
			_ = response.Body.Close()
			j.finish(response, nil)
		case err != nil:
			_ = response.Body.Close()
			j.finish(response, err)
		case most >= 0 && len(j.body)+len(p) > most:
			j.body = append(j.body, p[:most-len(j.body)]...)
			j.over = true
			_ = response.Body.Close()
			j.finish(response, ErrGroupBody)
		case most >= 0:
			j.body = append(j.body, p...)
		}
	})
	if err != nil { // an upgrade, which has no place here
		_ = response.Body.Close()
		j.finish(response, err)
	}
}

// finish ends an attempt.
func (j *job) finish(response *http.Response, err error) {
	j.over = true
	r := j.run
	if response != nil {
		response.Body = io.NopCloser(bytes.NewReader(j.body))
	}
	j.outcome = Outcome{Request: j.request, Response: response, Body: j.body, Err: err, Attempts: j.attempts,
		Took: r.t.sys.Now().Sub(j.began)}
	r.mu.Lock()
	delete(r.running, j)
	r.finished = append(r.finished, j)
	r.mu.Unlock()
	r.parker.Unpark()
}

// expire ends attempts that have had their time, and returns when the next one has.
func (r *Run) expire() (next time.Time) {
	for len(r.timed) > 0 {
		e := r.timed[0]
		switch {
		case e.call.Phase() == Done:
		case e.until.After(r.t.sys.Now()):
			return e.until
		default:
			e.call.cancel(errGroupTimeout)
		}
		r.timed[0] = timed{}
		r.timed = r.timed[1:]
	}
	return time.Time{}
}

// wait parks until an attempt ends or has had its time, a pause is over, or the run is stopped.
func (r *Run) wait() {
	due := r.expire()
	for _, j := range r.pauses {
		if due.IsZero() || j.due.Before(due) {
			due = j.due
		}
	}
	if due.IsZero() || len(r.timed) == 0 && r.underWay() >= r.group.AtOnce {
		r.parker.Park()
		return
	}
	if d := due.Sub(r.t.sys.Now()); d > 0 {
		r.parker.ParkFor(d)
	} else { // its host has no room
		r.parker.Park()
	}
}

// again has an outcome tried once more. It returns false if the outcome is final.
func (r *Run) again(j *job) bool {
	if d, again := r.group.Retry.next(j); again && !r.isStopped() {
		j.due = r.t.sys.Now().Add(d)
		r.pauses = append(r.pauses, j)
		r.noteHeld()
		r.mu.Lock()
		r.summary.Retries++
		r.mu.Unlock()
		return true
	}
	r.mu.Lock()
	r.summary.add(&j.outcome)
	r.mu.Unlock()
	return false
}

// dropHeld gives the requests that a stopped run holds their outcome: the last one, or ErrStopped.
func (r *Run) dropHeld() {
	held := append(r.waiting, r.pauses...)
	r.waiting, r.pauses, r.drained = nil, nil, true
	r.noteHeld()
	for _, j := range held {
		r.hosts[j.host]++
		err := j.outcome.Err
		if j.attempts == 0 {
			closeBody(j.request)
			err = ErrStopped
		}
		j.finish(j.outcome.Response, err)
	}
}

// Stop ends the run: no further request is sent, and those under way are cancelled. Their outcomes
// still come. Any goroutine.
func (r *Run) Stop() {
	r.mu.Lock()
	r.stopped = true
	calls := make([]*Call, 0, len(r.running))
	for j := range r.running {
		if j.call != nil {
			calls = append(calls, j.call)
		}
	}
	r.mu.Unlock()
	for _, x := range calls {
		x.Cancel()
	}
	r.parker.Unpark()
}

// end is the end of Outcomes. What is still under way is cancelled, and its outcome only counted.
func (r *Run) end() {
	r.Stop()
	r.dropHeld()
	for {
		r.mu.Lock()
		busy := len(r.running) > 0
		for _, j := range r.finished {
			r.summary.add(&j.outcome)
		}
		r.finished = nil
		r.mu.Unlock()
		if !busy {
			break
		}
		r.parker.Park()
	}
	r.unwatch()
	r.close()
	if r.own {
		r.t.CloseIdleConnections()
	}
	r.mu.Lock()
	r.ended = r.t.sys.Now()
	r.mu.Unlock()
}
