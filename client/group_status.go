package client

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

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
	Running []Running // those under way, the oldest first
	Waiting int       // held: their host has no room
	Paused  int       // held: until their next attempt
	Stopped bool
}

// Running is one request under way.
type Running struct {
	URL     string
	Phase   Phase
	Attempt int
	For     time.Duration // since it was taken from the iterator
}

// Status looks at the run. Any goroutine.
func (r *Run) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Summary: r.summarize(), Waiting: r.held, Paused: r.paused, Stopped: r.stopped}
	now := r.t.sys.Now()
	for j := range r.running {
		one := Running{URL: fmt.Sprint(j.request.URL), Attempt: j.attempts, For: now.Sub(j.began)}
		if j.call != nil {
			one.Phase = j.call.Phase()
		}
		s.Running = append(s.Running, one)
	}
	slices.SortFunc(s.Running, func(a, b Running) int { return cmp.Compare(b.For, a.For) })
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
	s := r.summary
	s.Statuses, s.Failures = maps.Clone(s.Statuses), maps.Clone(s.Failures)
	end := r.ended
	if end.IsZero() {
		end = r.t.sys.Now()
	}
	s.Took = end.Sub(r.began)
	return s
}
