package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

const (
	// calmSlack is how much virtual time may pass between an instant and what is due at it, because
	// each step of the world takes up to 20 µs. With 100 requests at once it is crowdSlack. Where
	// bytes have delays, it is delaySlack: time may jump to a delivery while goroutines could run.
	calmSlack  = time.Millisecond
	crowdSlack = 10 * time.Millisecond
	delaySlack = 50 * time.Millisecond
	// liveEnd is how long a run may take after the faults have stopped.
	liveEnd = 10 * time.Minute
)

// A Group under every combination of its options, among servers that hang, reset, refuse, and
// answer late or by half, until these faults stop. Each request has one outcome, in time. No
// request waits while there is room for it. A run that is stopped ends at once. Nothing is left.
func TestGroupLiveness(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // see simContext.end
	seen := map[string]int{}
	for seed := range soak.Size(t, uint64(200), 10_000) {
		x := newGroupWorld(t, seed)
		if x.live(seen); t.Failed() {
			t.Fatalf("seed %d: %s", seed, x.options())
		}
	}
	t.Log(seen)
	for _, what := range []string{"ok", "ok again", "status", "queued", "dialing", "sent", "head", "body", "stopped",
		"too large", "context", "unprepared"} {
		if seen[what] == 0 {
			t.Errorf("no request has ended in %q: %v", what, seen)
		}
	}
}

// A groupWorld is one run of a Group, its servers, and the goroutines that use and watch it.
type groupWorld struct {
	t    *testing.T
	seed uint64
	w    *sim.World
	r    *rand.Rand // draws options and faults
	e    *myriad.Engine
	tr   *Transport
	g    *Group
	run  *Run
	ctx  *simContext // of the run

	hosts  []*simHost
	faulty bool // the servers have their faults still
	calm   bool // the network has neither faults nor delays
	slack  time.Duration

	total     int           // how many requests the iterator has
	iterating string        // how the iterator behaves
	consuming time.Duration // for each outcome
	breakAt   int           // outcomes; -1: never
	prepares  string        // what Prepare does; "": there is none

	requests  []*groupRequest // taken
	taken     time.Time       // the last one
	delivered int
	asked     time.Time // since when the iterator waits in yield; zero: it does not
	stopped   time.Time // Stop was called, the context or the loop was ended
	over      time.Time // the loop has ended
	watched   bool      // the watch has ended
	summary   Summary
}

// A groupRequest is one that was taken from the iterator.
type groupRequest struct {
	id   int
	req  *http.Request
	ctx  *simContext // nil: none
	host *simHost
	body []*simBody // those that were opened
	bad  bool       // its body is slow, or GetBody fails

	taken    time.Time
	attempt  int       // the last one that has begun
	since    time.Time // when it did
	idle     time.Time // since when it has not run although there was room; zero: it runs, or there was none
	waited   bool      // there was no room for it at some time
	late     bool      // its first attempt began when there were no faults
	outcomes int

	after    time.Time     // the server wants no attempt before
	asked    time.Duration // how long it has asked for, with the latest response
	askedAll time.Duration
}

func newGroupWorld(t *testing.T, seed uint64) *groupWorld {
	r := rand.New(rand.NewPCG(seed, 3))
	x := &groupWorld{t: t, seed: seed, r: r, faulty: true, slack: delaySlack}
	timeout := []time.Duration{0, 20, 100, 300}[r.IntN(4)] * time.Millisecond
	o := sim.Lossless()
	switch r.IntN(4) {
	case 0, 1:
		o, x.calm, x.slack = sim.Calm(), true, calmSlack
	case 2:
		o.MaxDelay = 5 * time.Millisecond
	default:
		o = sim.Options{}
	}
	x.w = sim.New(seed, o)
	var err error
	x.e, err = myriad.Start(myriad.Config{Loops: 1 + r.IntN(2), System: x.w, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	x.tr = &Transport{Engine: x.e, MaxIdleConnsPerHost: r.IntN(6), DisableKeepAlives: r.IntN(8) == 0}
	x.g = &Group{Transport: x.tr, AtOnce: r.IntN(9), PerHost: r.IntN(5), Hold: r.IntN(20),
		Timeout: timeout,
		MaxBody: []int{0, 0, -1, 100, 2000}[r.IntN(5)],
		Retry: Retry{Attempts: r.IntN(5), Base: time.Duration(r.IntN(50)) * time.Millisecond,
			Max: time.Duration(r.IntN(3)*40) * time.Millisecond, Random: seededRandom{r},
			MaxRetryAfter: []time.Duration{-1, 200 * time.Millisecond, 3 * time.Second}[r.IntN(3)]}}
	if x.g.AtOnce == 0 {
		x.slack = max(x.slack, crowdSlack)
	}
	switch r.IntN(4) {
	case 0:
		x.g.Retry.If = func(o Outcome) bool { return o.Err != nil || o.Response.StatusCode != http.StatusOK }
	case 1:
		x.g.Retry.If = func(o Outcome) bool { return r.IntN(3) == 0 }
	}
	x.total = []int{r.IntN(3), 1 + r.IntN(30), 1 + r.IntN(60), 1000}[r.IntN(4)]
	x.iterating, x.breakAt = []string{"at once", "at once", "slow", "feeds", "hangs"}[r.IntN(5)], -1
	if x.prepares = []string{"", "", "quick", "slow", "fails", "hangs"}[r.IntN(6)]; x.prepares != "" {
		x.g.Retry.Prepare = x.prepare
	}
	if r.IntN(5) == 0 {
		x.consuming = time.Duration(r.IntN(30)) * time.Millisecond
	}
	if r.IntN(6) == 0 {
		x.breakAt = r.IntN(20)
	}
	return x
}

// options describes the world for the report of a failure.
func (x *groupWorld) options() string {
	g := *x.g
	return fmt.Sprintf("AtOnce %d PerHost %d Hold %d Timeout %v MaxBody %d Retry{%d %v %v %v If %v Prepare %q}, "+
		"%d requests, iterator %q, consumer %v, break at %d, hosts %v", g.AtOnce, g.PerHost, g.Hold, g.Timeout,
		g.MaxBody, g.Retry.Attempts, g.Retry.Base, g.Retry.Max, g.Retry.MaxRetryAfter, g.Retry.If != nil, x.prepares,
		x.total, x.iterating, x.consuming, x.breakAt, x.hosts)
}

func (x *groupWorld) errorf(format string, args ...any) {
	x.t.Helper()
	x.t.Errorf("seed %d, %v: %s", x.seed, x.w.Now().Sub(sim.Epoch), fmt.Sprintf(format, args...))
}

// live is the whole of a world.
func (x *groupWorld) live(seen map[string]int) {
	for i := range 1 + x.r.IntN(4) {
		x.hosts = append(x.hosts, newSimHost(x, i))
	}
	x.w.AfterFunc(time.Duration(x.r.IntN(2000))*time.Millisecond, x.stopFaults)
	var err error
	x.ctx = newSimContext(x.w)
	if x.run, err = x.g.Start(x.ctx, x.iterator()); err != nil {
		x.t.Fatal(err)
	}
	if stop := time.Duration(x.r.IntN(3000)) * time.Millisecond; x.total == 1000 || x.r.IntN(5) == 0 {
		x.w.AfterFunc(stop, x.stop)
	}
	x.w.Go(func() { x.consume(seen) })
	x.w.Go(x.watch)
	if !x.w.RunUntil(func() bool { return x.watched }) {
		x.errorf("the world is quiet, the run is not over: %+v", x.run.Status())
	}
	if x.over.IsZero() || x.t.Failed() {
		x.w.Kill()
		return
	}
	x.w.RunFor(4 * time.Second) // for iterators and Prepare that hang
	x.check()
	x.tr.CloseIdleConnections()
	for _, h := range x.hosts {
		h.close()
	}
	if err := x.e.Shutdown(context.Background()); err != nil {
		x.errorf("Shutdown: %v", err)
	}
	x.w.Run()
	x.w.Check(x.t)
	for _, q := range x.requests {
		if q.ctx != nil {
			q.ctx.forget()
		}
		for i, b := range q.body {
			if !b.closed {
				x.errorf("request %d: body %d of %d is open", q.id, i, len(q.body))
			}
		}
	}
	if n := inFlight(x.tr); n != 0 {
		x.errorf("%d calls are counted as under way", n)
	}
}

// stop ends the run in one of three ways.
func (x *groupWorld) stop() {
	if !x.over.IsZero() {
		return
	}
	if x.stopped.IsZero() {
		x.stopped = x.w.Now()
	}
	switch x.r.IntN(3) {
	case 0:
		x.ctx.end(context.Canceled)
	case 1:
		x.ctx.end(context.DeadlineExceeded)
	default:
		x.run.Stop()
	}
}

// iterator draws the requests.
func (x *groupWorld) iterator() iter.Seq[*http.Request] {
	return func(yield func(*http.Request) bool) {
		p := x.w.NewParker()
		for i := range x.total {
			switch {
			case x.iterating == "slow":
				sleep(p, x.w, time.Duration(x.r.IntN(40))*time.Millisecond)
			case x.iterating == "hangs" && x.r.IntN(5) == 0:
				sleep(p, x.w, time.Duration(x.r.IntN(2000))*time.Millisecond)
			case x.iterating == "feeds": // on the outcomes
				for x.delivered < i-1 && x.stopped.IsZero() {
					sleep(p, x.w, time.Millisecond)
				}
			}
			q := x.newRequest(i)
			x.requests, x.taken = append(x.requests, q), q.taken
			x.asked = x.w.Now()
			more := yield(q.req)
			if x.asked = (time.Time{}); !more {
				return
			}
		}
	}
}

// prepare is the Group's Retry.Prepare.
func (x *groupWorld) prepare(attempt int, r *http.Request) error {
	id, _ := strconv.Atoi(r.URL.Path[1:])
	q := x.requests[id]
	x.begins(q)
	if attempt != q.attempt || r == q.req || r.Header.Get("X-Attempt") != "" {
		x.errorf("request %d: attempt %d is prepared as %d: %v", id, q.attempt, attempt, r.Header)
	}
	r.Header.Set("X-Attempt", strconv.Itoa(attempt))
	switch {
	case x.prepares == "slow":
		sleep(x.w.NewParker(), x.w, time.Duration(x.r.IntN(30))*time.Millisecond)
	case x.prepares == "fails" && x.r.IntN(4) == 0:
		return errSimPrepare
	case x.prepares == "hangs" && x.r.IntN(4) == 0:
		sleep(x.w.NewParker(), x.w, time.Second)
	}
	return nil
}

// begins notes the beginning of an attempt.
func (x *groupWorld) begins(q *groupRequest) {
	now := x.w.Now()
	if q.attempt++; q.attempt == 1 {
		q.late = !x.faulty
	}
	if x.calm && now.Before(q.after) {
		x.errorf("attempt %d of request %d comes %v before the server wants it", q.attempt, q.id, q.after.Sub(now))
	}
	q.since, q.idle, q.asked, q.after = now, time.Time{}, 0, time.Time{}
}

var (
	errSimBody    = errors.New("the body cannot be had again")
	errSimPrepare = errors.New("the request cannot be signed")
)

func sleep(p driver.Parker, w *sim.World, d time.Duration) {
	for until := w.Now().Add(d); ; {
		left := until.Sub(w.Now())
		if left <= 0 {
			return
		}
		p.ParkFor(left)
	}
}

func (x *groupWorld) newRequest(id int) *groupRequest {
	r := x.r
	q := &groupRequest{id: id, host: x.hosts[r.IntN(len(x.hosts))], taken: x.w.Now()}
	method := []string{"GET", "GET", "HEAD", "POST", "PUT"}[r.IntN(5)]
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GetConn: func(string) {
		if x.g.Retry.Prepare == nil {
			x.begins(q)
		}
	}})
	switch r.IntN(8) {
	case 0:
		q.ctx = newSimContext(x.w)
		q.ctx.endIn(time.Duration(r.IntN(500))*time.Millisecond, context.Canceled)
	case 1:
		q.ctx = newSimContext(x.w)
		q.ctx.endIn(time.Duration(r.IntN(500))*time.Millisecond, context.DeadlineExceeded)
	case 2:
		q.ctx = newSimContext(x.w)
		if r.IntN(8) == 0 {
			q.ctx.end(context.Canceled)
		}
	}
	if q.ctx != nil {
		q.ctx.Context, ctx = ctx, q.ctx
	}
	q.req = (&http.Request{Method: method, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		URL: &url.URL{Scheme: "http", Host: q.host.addr, Path: "/" + strconv.Itoa(id)}}).WithContext(ctx)
	if r.IntN(3) == 0 {
		q.req.Header.Set("Idempotency-Key", strconv.Itoa(id))
	}
	if method == "POST" || method == "PUT" {
		q.addBody(x)
	}
	return q
}

func (q *groupRequest) addBody(x *groupWorld) {
	r := x.r
	text := strings.Repeat("x", r.IntN(3000))
	kind := r.IntN(6)
	q.bad = kind == 1 || kind == 5
	open := func() *simBody {
		b := &simBody{w: x.w, p: x.w.NewParker(), left: text}
		if kind == 1 {
			b.slow = 5 * time.Millisecond
		}
		q.body = append(q.body, b)
		return b
	}
	switch kind {
	case 0:
		q.req.Body = io.NopCloser(strings.NewReader(text))
		q.req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	case 1, 2, 3:
		q.req.Body = open()
		q.req.GetBody = func() (io.ReadCloser, error) { return open(), nil }
	case 4:
		q.req.Body = open()
	case 5:
		q.req.Body = open()
		q.req.GetBody = func() (io.ReadCloser, error) { return nil, errSimBody }
	}
	if text != "" && r.IntN(2) == 0 {
		q.req.ContentLength = int64(len(text))
	}
}

// consume is the goroutine that ranges over the outcomes.
func (x *groupWorld) consume(seen map[string]int) {
	p := x.w.NewParker()
	for o := range x.run.Outcomes() {
		x.delivered++
		x.outcome(o, seen)
		if x.delivered == x.breakAt {
			x.stopped = x.w.Now()
			break
		}
		sleep(p, x.w, x.consuming)
	}
	x.summary, x.over = x.run.Summary(), x.w.Now()
}

// outcome checks one.
func (x *groupWorld) outcome(o Outcome, seen map[string]int) {
	id, _ := strconv.Atoi(o.Request.URL.Path[1:])
	q := x.requests[id]
	now := x.w.Now()
	if q.outcomes++; q.outcomes > 1 || o.Request != q.req {
		x.errorf("request %d has outcome %d: %+v", id, q.outcomes, o)
	}
	if o.Attempts > max(1, x.g.Retry.Attempts) || o.Attempts == 0 && !errors.Is(o.Err, ErrStopped) && q.ctx == nil {
		x.errorf("request %d: %d attempts: %v", id, o.Attempts, o.Err)
	}
	if q.ctx != nil && x.consuming == 0 {
		if ended := q.ctx.endedAt(); !ended.IsZero() && now.Sub(ended) > x.slack && q.taken.Before(ended) {
			x.errorf("request %d: its context has ended %v before its outcome", id, now.Sub(ended))
		}
	}
	if longest := x.longest(x.g.Retry.Attempts) + q.askedAll + 3*x.slack; x.consuming == 0 && !q.waited &&
		x.g.Timeout > 0 && now.Sub(q.taken) > longest {
		x.errorf("request %d has taken %v, at most %v is right: %v", id, now.Sub(q.taken), longest, o.Err)
	}
	if x.calm && q.late && q.ctx == nil && x.stopped.IsZero() && x.g.Retry.If == nil && !q.bad && x.breakAt < 0 &&
		!errors.Is(o.Err, ErrGroupBody) && !errors.Is(o.Err, errSimPrepare) && x.prepares != "hangs" &&
		x.prepares != "slow" && (o.Err != nil || o.Response.StatusCode != http.StatusOK) {
		x.errorf("request %d has failed when all servers were good: %v", id, o.Err)
	}
	e, named := errors.AsType[*Error](o.Err)
	switch {
	case o.Err == nil:
		if o.Response.StatusCode != http.StatusOK {
			seen["status"]++
		} else if seen["ok"]++; o.Attempts > 1 {
			seen["ok again"]++
		}
		got, _ := io.ReadAll(o.Response.Body)
		if !bytes.Equal(got, o.Body) {
			x.errorf("request %d: the response's body is not the outcome's", id)
		}
		if path := o.Request.URL.Path; x.g.MaxBody >= 0 && o.Request.Method != "HEAD" && o.Response.StatusCode == 200 &&
			!strings.HasPrefix(string(got)+" ", path+" ") {
			x.errorf("%s has got %.20q", path, got)
		}
	case errors.Is(o.Err, ErrStopped):
		if seen["stopped"]++; x.stopped.IsZero() {
			x.errorf("request %d is stopped, the run is not", id)
		}
	case errors.Is(o.Err, ErrGroupBody):
		if seen["too large"]++; len(o.Body) != x.g.MaxBody && (x.g.MaxBody != 0 || len(o.Body) != defaultGroupBody) {
			x.errorf("request %d: %d bytes of a body that is too large", id, len(o.Body))
		}
	case errors.Is(o.Err, context.Canceled), errors.Is(o.Err, context.DeadlineExceeded):
		if seen["context"]++; x.g.Timeout == 0 && q.ctx == nil && x.stopped.IsZero() {
			x.errorf("request %d: %v", id, o.Err)
		}
	}
	if o.Err != nil && !named {
		x.errorf("request %d: no phase in %v", id, o.Err)
	}
	if errors.Is(o.Err, errSimPrepare) {
		seen["unprepared"]++
	}
	if errors.Is(o.Err, errSimPrepare) && e.Phase != Queued || errors.Is(o.Err, ErrGroupBody) && e.Phase != Body {
		x.errorf("request %d: %v", id, o.Err)
	}
	if named {
		seen[e.Phase.String()]++
	}
}

// longest is how long a request takes at most whose attempts begin as soon as they may.
func (x *groupWorld) longest(attempts int) time.Duration {
	d := time.Duration(max(attempts, 1)) * x.g.Timeout
	for n := 1; n < attempts; n++ {
		d += x.pause(n) + x.slack
	}
	return d
}

// pause is the longest pause after attempt n.
func (x *groupWorld) pause(n int) time.Duration {
	base, most := x.g.Retry.Base, x.g.Retry.Max
	if base == 0 {
		base = defaultRetryBase
	}
	if most == 0 {
		most = defaultRetryMax
	}
	return min(base<<(n-1), most)
}

// watch looks at the run until it is over.
func (x *groupWorld) watch() {
	defer func() { x.watched = true }()
	p := x.w.NewParker()
	for x.over.IsZero() && !x.t.Failed() {
		sleep(p, x.w, x.slack/2)
		x.look()
	}
}

func (x *groupWorld) look() {
	if !x.over.IsZero() {
		return
	}
	now := x.w.Now()
	s := x.run.Status()
	atOnce := x.g.AtOnce
	if atOnce == 0 {
		atOnce = defaultAtOnce
	}
	perHost := x.g.PerHost
	if perHost == 0 {
		perHost = atOnce
	}
	hold := x.g.Hold
	if hold == 0 {
		hold = atOnce
	}
	room := len(s.Running)+s.Ended < atOnce
	busy := map[*simHost]int{}
	running := map[int]Running{}
	for _, one := range s.Running {
		_, path, _ := strings.Cut(strings.TrimPrefix(one.URL, "http://"), "/")
		id, _ := strconv.Atoi(path)
		running[id] = one
		busy[x.requests[id].host]++
	}
	late := s.Ended // requests whose outcome was not taken look as if they waited
	gaveUp := 0     // of them, those that have not run
	for _, q := range x.requests {
		one, runs := running[q.id]
		if busy[q.host] > perHost {
			x.errorf("%d requests of a host run", busy[q.host])
		}
		if q.outcomes == 0 && q.ctx != nil && !q.ctx.endedAt().IsZero() {
			gaveUp++
		}
		switch {
		case q.outcomes > 0 || !x.stopped.IsZero():
		case runs:
			x.lookAtAttempt(q, one)
		case !room || busy[q.host] >= perHost:
			q.idle, q.waited = time.Time{}, true
		case q.idle.IsZero():
			q.idle = now
		case now.Sub(q.idle) > x.mayIdle(q):
			if late--; late < 0 {
				x.errorf("request %d waits for %v after attempt %d, although there is room: %v", q.id, now.Sub(q.idle),
					q.attempt, s)
			}
		}
	}
	if x.stopped.IsZero() && len(s.Running)+s.Ended > atOnce+gaveUp || s.Waiting+s.Paused > hold+atOnce {
		x.errorf("there is more than there may be: %v", s)
	}
	if !x.asked.IsZero() && (!room || s.Waiting+s.Paused >= hold || !x.stopped.IsZero()) {
		x.asked = now
	} else if !x.asked.IsZero() && now.Sub(x.asked) > x.slack {
		x.errorf("the iterator is not asked for %v, although there is room: %+v", now.Sub(x.asked), s)
	}
	if end := x.stopped; !end.IsZero() && now.Sub(end) > x.slack {
		held := len(s.Running)+s.Waiting+s.Paused > 0 || s.Ended > 0 && x.consuming == 0
		if held && now.Sub(x.taken) > x.slack {
			x.errorf("%v after the end of the run: %+v", now.Sub(end), s)
		}
		grace := x.slack
		if x.iterating != "at once" {
			grace += iteratorGrace
		}
		if x.consuming == 0 && now.Sub(end) > grace {
			x.errorf("the run is not over %v after it was stopped: %+v", now.Sub(end), s)
		}
	}
	if now.Sub(sim.Epoch) > liveEnd {
		x.errorf("the run is not over: %v: %v", s, s.Running)
	}
}

// lookAtAttempt is for a request that runs.
func (x *groupWorld) lookAtAttempt(q *groupRequest, one Running) {
	now := x.w.Now()
	since := now.Sub(q.since)
	if x.g.Timeout > 0 && since > x.g.Timeout+x.slack && one.Attempt == q.attempt {
		x.errorf("attempt %d of request %d (%v) goes on for %v", q.attempt, q.id, one.Phase, since)
	}
	if q.ctx != nil && since > x.slack {
		if end := q.ctx.endedAt(); !end.IsZero() && now.Sub(end) > x.slack {
			x.errorf("request %d runs for %v after the end of its context", q.id, now.Sub(end))
		}
	}
	q.idle = time.Time{}
}

// mayIdle is how long a request may be held although there is room for it.
func (x *groupWorld) mayIdle(q *groupRequest) time.Duration {
	if q.attempt == 0 {
		return x.slack
	}
	return x.pause(q.attempt) + q.asked + x.slack
}

// check looks at what a run has left.
func (x *groupWorld) check() {
	s := x.summary
	dropped := 0 // given by an iterator that was not waited for any more
	for _, q := range x.requests {
		if !x.stopped.IsZero() && q.taken.Sub(x.stopped) > iteratorGrace-x.slack && q.outcomes == 0 {
			dropped++
		}
	}
	if s.Requests != len(x.requests)-dropped && x.delivered != x.breakAt || s.Responses+s.Failed != s.Requests {
		x.errorf("%d requests were taken: %v", len(x.requests), s)
	}
	for _, q := range x.requests[:len(x.requests)-dropped] {
		if q.outcomes != 1 && x.delivered != x.breakAt {
			x.errorf("request %d has %d outcomes", q.id, q.outcomes)
		}
		if q.ctx != nil {
			if n := q.ctx.watched(); n > 0 {
				x.errorf("request %d: %d calls wait for the end of its context", q.id, n)
			}
		}
	}
	if n := x.ctx.watched(); n > 0 {
		x.errorf("%d calls wait for the end of the run's context", n)
	}
	if s := x.run.Status(); len(s.Running)+s.Waiting+s.Paused != 0 {
		x.errorf("after the end: %+v", s)
	}
}

// seededRandom is a source that a world's seed decides.
type seededRandom struct{ r *rand.Rand }

func (s seededRandom) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.r.IntN(256))
	}
	return len(p), nil
}

// A simBody is a request's body of which the world knows whether it was closed.
type simBody struct {
	w      *sim.World
	p      driver.Parker
	left   string
	slow   time.Duration // for each Read
	closed bool
}

func (b *simBody) Read(p []byte) (int, error) {
	if b.slow > 0 {
		sleep(b.p, b.w, b.slow)
	}
	if b.closed {
		return 0, errors.New("closed")
	}
	if b.left == "" {
		return 0, io.EOF
	}
	n := copy(p, b.left[:min(len(b.left), 500)])
	b.left = b.left[n:]
	return n, nil
}

func (b *simBody) Close() error {
	b.closed = true
	return nil
}

// A simContext ends when the world says so.
type simContext struct {
	context.Context // for Value
	w               *sim.World
	done            chan struct{}
	plan            func() bool // stops the end that is planned
	due             time.Time   // its deadline

	mu    sync.Mutex
	err   error
	at    time.Time
	calls map[int]func()
	last  int
}

func newSimContext(w *sim.World) *simContext {
	return &simContext{Context: context.Background(), w: w, done: make(chan struct{}), calls: map[int]func(){}}
}

func (c *simContext) Done() <-chan struct{} { return c.done }

func (c *simContext) Deadline() (time.Time, bool) { return c.due, !c.due.IsZero() }

func (c *simContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *simContext) endedAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// watched is how many calls wait for its end.
func (c *simContext) watched() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// AfterFunc is what package context looks for in a context that it does not know.
func (c *simContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	id := c.last
	c.calls[id] = f
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, there := c.calls[id]
		delete(c.calls, id)
		return there
	}
}

func (c *simContext) endIn(d time.Duration, err error) {
	if err == context.DeadlineExceeded {
		c.due = c.w.Now().Add(d)
	}
	c.plan = c.w.AfterFunc(d, func() { c.end(err) })
}

// forget cancels the planned end.
func (c *simContext) forget() {
	if c.plan != nil {
		c.plan()
	}
}

// end ends the context. Package context runs each call on a goroutine of its own. That goroutine
// runs before this one goes on, because there is one P, so that the seed decides when.
func (c *simContext) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err, c.at = err, c.w.Now()
	close(c.done)
	var calls []func()
	for _, id := range slices.Sorted(maps.Keys(c.calls)) {
		calls = append(calls, c.calls[id])
	}
	clear(c.calls)
	c.mu.Unlock()
	for _, f := range calls {
		f()
		for range 10 {
			runtime.Gosched()
		}
	}
}

// A simHost is a server.
type simHost struct {
	x      *groupWorld
	addr   string
	temper string
	ln     *sim.Listener
	conns  map[*simConn]struct{}
	made   int
}

func (h *simHost) String() string { return h.temper }

func newSimHost(x *groupWorld, i int) *simHost {
	h := &simHost{x: x, addr: fmt.Sprintf("127.0.0.1:%d", 10_000+i), conns: map[*simConn]struct{}{}}
	tempers := []string{"steady", "steady", "silent", "refusing", "busy", "late", "mixed", "mixed", "mixed"}
	h.temper = tempers[x.r.IntN(len(tempers))]
	if h.temper != "refusing" {
		h.listen()
	}
	return h
}

func (h *simHost) listen() {
	ln, err := h.x.w.ListenPeer("tcp", h.addr, func(p *sim.Peer) {
		h.made++
		c := &simConn{h: h, p: p, id: h.made}
		h.conns[c] = struct{}{}
		p.OnReceived = c.received
		p.OnEnded = p.Close
		p.OnClosed = func(error) { delete(h.conns, c); c.closed = true }
	})
	if err != nil {
		h.x.errorf("%v", err)
	}
	h.ln = ln
}

func (h *simHost) close() {
	if h.ln != nil {
		_ = h.ln.Close()
	}
}

// stopFaults makes good servers of all. Those that hang reset their connections, or answer now.
func (x *groupWorld) stopFaults() {
	x.faulty = false
	for _, h := range x.hosts {
		if h.ln == nil {
			h.listen()
		}
		conns := slices.Collect(maps.Keys(h.conns))
		slices.SortFunc(conns, func(a, b *simConn) int { return a.id - b.id })
		for _, c := range conns {
			if c.stuck && x.r.IntN(2) == 0 && c.answer != nil {
				c.stuck = false
				c.answer()
			} else if c.stuck {
				c.p.Reset()
			}
		}
	}
}

// A simConn is a server's side of a connection.
type simConn struct {
	h      *simHost
	id     int
	p      *sim.Peer
	in     []byte
	stuck  bool   // it does nothing until the faults stop
	answer func() // what it would have said
	closed bool
}

func (c *simConn) received(p []byte) {
	c.in = append(c.in, p...)
	for !c.stuck && !c.closed {
		all := bytes.NewReader(c.in)
		in := bufio.NewReader(all)
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if c.h.x.faulty && c.h.temper == "mixed" && c.h.x.r.IntN(20) == 0 { // before the body has come
			c.p.Write([]byte("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
			c.p.Close()
			return
		}
		if _, err = io.ReadAll(req.Body); err != nil {
			return
		}
		c.in = slices.Clone(c.in[len(c.in)-all.Len()-in.Buffered():])
		c.serve(req)
	}
}

// serve answers a request, or does what a faulty server does.
func (c *simConn) serve(req *http.Request) {
	x := c.h.x
	x.look()
	path := req.URL.Path
	body := path + " " + strings.Repeat("y", x.r.IntN(300))
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(body))
	if req.Method == "HEAD" {
		body = ""
	}
	whole := func() { c.p.Write([]byte(head + body)) }
	if !x.faulty || c.h.temper == "steady" {
		whole()
		return
	}
	hang := func() { c.stuck, c.answer = true, whole }
	busy := func() {
		status := []string{"503 Unavailable", "429 Too Many", "500 Error", "404 Not Found", "302 Found"}[x.r.IntN(5)]
		c.p.Write([]byte("HTTP/1.1 " + status + "\r\n" + x.retryAfter(path) + "Content-Length: 0\r\n\r\n"))
	}
	part := head + body[:len(body)/2]
	switch kind := x.r.IntN(12); {
	case c.h.temper == "silent":
		hang()
	case c.h.temper == "busy":
		busy()
	case c.h.temper == "late" || kind == 0:
		c.stuck = true
		x.w.AfterFunc(time.Duration(x.r.IntN(400))*time.Millisecond, func() {
			if c.stuck {
				c.stuck = false
				whole()
				c.received(nil)
			}
		})
	case kind == 1:
		hang()
	case kind == 2:
		busy()
	case kind == 3:
		c.p.Write([]byte(head[:len(head)/2]))
		c.stuck = true
	case kind == 4:
		c.p.Write([]byte(part))
		c.stuck = true
	case kind == 5:
		c.p.Write([]byte(part))
		c.p.Close()
	case kind == 6:
		c.p.Write([]byte(part))
		c.p.Reset()
	case kind == 7:
		c.p.Reset()
	case kind == 8:
		c.p.Close()
	case kind == 9:
		c.p.Write([]byte("what?\r\n\r\n"))
	case kind == 10:
		long := path + " " + strings.Repeat("z", 5000)
		c.p.Write([]byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(long))))
		if req.Method != "HEAD" {
			c.p.Write([]byte(long))
		}
	default:
		whole()
	}
}

// retryAfter draws a Retry-After field, and notes what it asks for.
func (x *groupWorld) retryAfter(path string) (field string) {
	value, asks := "", time.Duration(0)
	now := x.w.Now()
	switch x.r.IntN(10) {
	case 0:
		value, asks = "1", time.Second
	case 1:
		until := now.Add(2 * time.Second).Truncate(time.Second)
		value, asks = until.Format(http.TimeFormat), until.Sub(now)
	case 2:
		value, asks = "99999999999999999999", time.Hour
	case 3:
		value = []string{"0", "soon", "-1", "1.5", "Wed, 21 Oct 1998 07:28:00 GMT"}[x.r.IntN(5)]
	default:
		return ""
	}
	id, _ := strconv.Atoi(path[1:])
	q := x.requests[id]
	q.asked = max(0, min(asks, x.g.Retry.MaxRetryAfter))
	q.askedAll += q.asked
	q.after = now.Add(q.asked)
	return "Retry-After: " + value + "\r\n"
}
