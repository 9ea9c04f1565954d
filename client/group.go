package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"
)

const (
	defaultAtOnce    = 100
	defaultGroupBody = 1 << 20
)

// ErrStopped is the error of a request that a Run held and did not send, because it was stopped.
var ErrStopped = errors.New("client: the run was stopped before the request was sent")

// ErrGroupBody says that a body is larger than Group.MaxBody.
var ErrGroupBody = errors.New("client: the body is too large (Group.MaxBody)")

// A Group sends any number of requests, a bounded number of them at a time, and reports each
// outcome as it comes. It holds only the requests that run, wait for their host or wait to be tried
// again. Its zero value works. One Group may serve several runs; its fields must not be changed
// meanwhile.
//
// Requests are sent by Transport.Do: without redirects, and without gzip unless they ask for it.
type Group struct {
	// Transport sends the requests. Nil: one for each run, which keeps as many idle connections for
	// each host as it may use at once.
	Transport *Transport
	// AtOnce is how many requests are under way at a time. 0: 100.
	AtOnce int
	// PerHost is the same for one host (with its port). 0: AtOnce.
	PerHost int
	// Hold is how many requests are held that wait for their host or for their next attempt. At the
	// limit no further request is taken from the iterator, so one slow host delays the others only
	// then. 0: AtOnce.
	Hold int
	// Timeout bounds each attempt, from its beginning to the end of the body. 0: no bound.
	Timeout time.Duration
	// MaxBody is how many bytes of a body are kept for the Outcome. A larger body ends the request
	// with ErrGroupBody. 0: 1 MiB; negative: bodies are read and dropped.
	MaxBody int
	// Retry says which outcomes are tried again. The zero Retry: none.
	Retry Retry
}

// An Outcome is the result of one request.
type Outcome struct {
	Request  *http.Request
	Response *http.Response // nil if there was none; its Body is what was kept, and needs no Close
	Body     []byte         // what has come of it, also if Err is not nil
	Err      error          // of type *Error, if it is the Transport's
	Attempts int
	Took     time.Duration // from the first attempt on, pauses included
}

// Start begins a run of the requests. They are taken from the iterator one by one, by the goroutine
// that ranges over Run.Outcomes, when there is room for them. When ctx ends, the run is stopped.
func (g *Group) Start(ctx context.Context, requests iter.Seq[*http.Request]) (*Run, error) {
	r := &Run{group: *g, t: g.Transport, hosts: map[string]int{}, running: map[*job]struct{}{}}
	if r.group.AtOnce <= 0 {
		r.group.AtOnce = defaultAtOnce
	}
	if r.group.PerHost <= 0 {
		r.group.PerHost = r.group.AtOnce
	}
	if r.group.Hold <= 0 {
		r.group.Hold = r.group.AtOnce
	}
	if r.group.MaxBody == 0 {
		r.group.MaxBody = defaultGroupBody
	}
	if r.t == nil {
		r.t = &Transport{MaxIdleConns: r.group.AtOnce, MaxIdleConnsPerHost: r.group.PerHost}
		r.own = true
	}
	if err := r.t.init(); err != nil {
		return nil, err
	}
	r.parker = r.t.sys.NewParker()
	r.began = r.t.sys.Now()
	r.summary = Summary{Statuses: map[int]int{}, Failures: map[string]int{}}
	r.next, r.close = iter.Pull(requests)
	r.unwatch = context.AfterFunc(ctx, r.Stop)
	return r, nil
}

// Each runs all requests and calls f with each outcome, on the calling goroutine, in the order in
// which they come. It returns when all have ended, with the error of ctx if that has ended.
func (g *Group) Each(ctx context.Context, requests iter.Seq[*http.Request], f func(Outcome)) (Summary, error) {
	r, err := g.Start(ctx, requests)
	if err != nil {
		return Summary{}, err
	}
	for o := range r.Outcomes() {
		f(o)
	}
	return r.Summary(), ctx.Err()
}
