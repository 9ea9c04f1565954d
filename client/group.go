package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"time"

	"github.com/myriad-go/myriad"
)

const (
	defaultAtOnce    = 100
	defaultGroupBody = 1 << 20
)

// ErrStopped is the error of a request that a Run has taken and not sent, because the run was
// stopped. If the run's context has ended, the error also wraps the context's cause.
var ErrStopped = errors.New("client: the run was stopped before the request was sent")

// ErrGroupBody says that a body is larger than Group.MaxBody.
var ErrGroupBody = errors.New("client: the body is too large (Group.MaxBody)")

var (
	errGroupTimeout  = timeoutError("client: the attempt has taken too long (Group.Timeout)")
	errGroupRequests = errors.New("client: a Group has no requests: the iterator is nil")
	errNilRequest    = errors.New("client: the iterator has given a nil request")
	errGroupOnLoop   = fmt.Errorf("client: a Group's outcomes must not be waited for on a loop: %w", myriad.ErrOnLoop)
)

// A Group sends any number of requests, a bounded number of them at a time, and reports each
// outcome as it comes. It holds only the requests that run, wait for their host or wait to be tried
// again. Its zero value works. One Group may serve several runs; its fields must not be changed
// meanwhile.
//
// Requests are sent by Transport.Do: without redirects, and without gzip unless they ask for it.
// A run costs two goroutines; see Run.
type Group struct {
	// Transport sends the requests. Nil: one for each run, which keeps as many idle connections for
	// each host as it may use at once.
	Transport *Transport
	// AtOnce is how many requests are under way at a time. A request whose outcome was not taken
	// from Run.Outcomes yet counts, so a slow caller slows the run down. 0: 100.
	AtOnce int
	// PerHost is how many requests to one host, with its port, are under way at a time. 0: AtOnce.
	PerHost int
	// Hold is how many requests are held that wait for their host or for their next attempt. At the
	// limit the iterator is not asked for more, so one slow host delays the others only then.
	// Requests that are under way already may be held beyond the limit, for their next attempt.
	// 0: AtOnce.
	Hold int
	// Timeout bounds each attempt, from its beginning to the end of the body, Retry.Prepare
	// included. The error is a context.DeadlineExceeded for errors.Is. 0: no bound.
	Timeout time.Duration
	// MaxBody is how many bytes of a body are kept for the Outcome. A larger body ends the attempt
	// with ErrGroupBody. 0: 1 MiB; negative: bodies are read and dropped.
	MaxBody int
	// Retry says which outcomes are tried again. The zero Retry: none.
	Retry Retry
}

// An Outcome is the result of one request: that of its last attempt. If the run is stopped, or the
// request's context ends, while the request pauses, no further attempt comes.
type Outcome struct {
	Request  *http.Request  // as the iterator gave it
	Response *http.Response // nil if there was none; its Body is what was kept, and needs no Close
	Body     []byte         // what has come of it, also if Err is not nil
	// Err is an *Error with the phase of the attempt. It is a plain error if the request cannot be
	// sent as it is, for example without a URL. So is that of a RoundTripper of RegisterProtocol.
	Err      error
	Attempts int           // that have begun; 0 if the request's turn did not come
	Took     time.Duration // from the first attempt on, pauses included
}

// rewind lets the body of the response be read from its beginning.
func (o *Outcome) rewind() {
	if o.Response != nil {
		o.Response.Body = io.NopCloser(bytes.NewReader(o.Body))
	}
}

// Start prepares a run of the requests. It begins when Run.Outcomes is ranged over, and costs
// nothing before: a Run that is never ranged over needs no end. When ctx ends, the run is stopped.
func (g *Group) Start(ctx context.Context, requests iter.Seq[*http.Request]) (*Run, error) {
	if requests == nil {
		return nil, errGroupRequests
	}
	r := &Run{group: *g, t: g.Transport, ctx: ctx, requests: requests}
	r.group.AtOnce = positiveOr(g.AtOnce, defaultAtOnce)
	r.group.PerHost = positiveOr(g.PerHost, r.group.AtOnce)
	r.group.Hold = positiveOr(g.Hold, r.group.AtOnce)
	if g.MaxBody == 0 {
		r.group.MaxBody = defaultGroupBody
	}
	if r.t == nil {
		r.t = &Transport{MaxIdleConns: r.group.AtOnce, MaxIdleConnsPerHost: r.group.PerHost}
		r.own = true
	}
	if err := r.t.init(); err != nil {
		return nil, err
	}
	r.began = r.t.sys.Now()
	r.caller, r.source, r.clock = r.t.sys.NewParker(), r.t.sys.NewParker(), r.t.sys.NewParker()
	r.plan = plan{perHost: r.group.PerHost, hosts: map[string]*groupHost{}}
	r.shared.summary = Summary{Statuses: map[int]int{}, Failures: map[string]int{}}
	return r, nil
}

func positiveOr(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return n
}

// Each runs all requests and calls f with each outcome, on the calling goroutine, in the order in
// which they come. It returns when all have ended, with the error of ctx if that has ended. On a
// loop's own goroutine it fails with myriad.ErrOnLoop; an inline task of the engine hands its loop
// off.
func (g *Group) Each(ctx context.Context, requests iter.Seq[*http.Request], f func(Outcome)) (Summary, error) {
	r, err := g.Start(ctx, requests)
	if err != nil {
		return Summary{}, err
	}
	if !r.t.engine.HandOff() {
		return Summary{}, errGroupOnLoop
	}
	for o := range r.Outcomes() {
		f(o)
	}
	return r.Summary(), ctx.Err()
}

// A Summary counts the outcomes of a run.
type Summary struct {
	Requests  int // taken from the iterator
	Responses int // outcomes with a whole response, whatever its status
	Failed    int // outcomes with an error
	Retries   int // attempts after the first ones
	Bytes     int64
	Statuses  map[int]int    // responses by status
	Failures  map[string]int // errors by phase; "other" without one
	Took      time.Duration
}

// String is one line.
func (s Summary) String() string {
	return fmt.Sprintf("%d requests in %v: %d responses %v, %d failures %v, %d retries, %d bytes", s.Requests,
		s.Took.Round(time.Millisecond), s.Responses, s.Statuses, s.Failed, s.Failures, s.Retries, s.Bytes)
}

func (s *Summary) add(o *Outcome) {
	s.Bytes += int64(len(o.Body))
	if o.Err == nil {
		s.Responses++
		s.Statuses[o.Response.StatusCode]++
		return
	}
	s.Failed++
	phase := "other"
	if e, ok := errors.AsType[*Error](o.Err); ok {
		phase = e.Phase.String()
	}
	s.Failures[phase]++
}

// A Status is what a run is doing.
type Status struct {
	Summary           // so far
	Running []Running // those under way, the oldest attempt first
	Waiting int       // held: their host, or the group, has no room
	Paused  int       // held: until their next attempt
	Ended   int       // their outcomes were not taken from Outcomes yet
	Stopped bool
}

// String is the summary, and how many requests are where.
func (s Status) String() string {
	return fmt.Sprintf("%v; %d under way, %d wait, %d pause, %d have ended", s.Summary, len(s.Running), s.Waiting,
		s.Paused, s.Ended)
}

// Running is one request under way.
type Running struct {
	URL     string // without a password
	Phase   Phase
	Attempt int
	For     time.Duration // since it was taken from the iterator
}

// Status looks at the run. Any goroutine.
func (r *Run) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Summary: r.summarize(), Waiting: r.shared.jobs[waiting], Paused: r.shared.jobs[paused],
		Ended: r.shared.jobs[ended], Stopped: r.shared.cause != nil || r.ctx.Err() != nil}
	now := r.t.sys.Now()
	for j := r.shared.running.first; j != nil; j = j.next {
		one := Running{Phase: j.attempt.phase(), Attempt: j.attempts, For: now.Sub(j.taken)}
		if j.request.URL != nil {
			one.URL = j.request.URL.Redacted()
		}
		s.Running = append(s.Running, one)
	}
	return s
}

// Summary counts the outcomes so far. Any goroutine.
func (r *Run) Summary() Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.summarize()
}

// summarize copies the summary. mu is held.
func (r *Run) summarize() Summary {
	s := r.shared.summary
	s.Statuses, s.Failures = maps.Clone(s.Statuses), maps.Clone(s.Failures)
	end := r.shared.endedAt
	if end.IsZero() {
		end = r.t.sys.Now()
	}
	s.Took = end.Sub(r.began)
	return s
}
