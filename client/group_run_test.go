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
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A calmWorld is a simulation without faults, for tests that say what happens and when.
type calmWorld struct {
	t     *testing.T
	w     *sim.World
	tr    *Transport
	p     []*sim.Listener
	hosts int
}

func newCalmWorld(t *testing.T) *calmWorld {
	t.Helper()
	procs := runtime.GOMAXPROCS(1) // see simContext.end
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
	x := &calmWorld{t: t, w: sim.New(1, sim.Calm())}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: x.w, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	x.tr = &Transport{Engine: e, MaxIdleConnsPerHost: 10}
	return x
}

// serve makes a server that calls answer with each request.
func (x *calmWorld) serve(answer func(p *sim.Peer, r *http.Request)) (host string) {
	x.hosts++
	host = fmt.Sprintf("127.0.0.1:%d", 10_000+x.hosts)
	ln, err := x.w.ListenPeer("tcp", host, func(p *sim.Peer) {
		var in []byte
		p.OnEnded = p.Close
		p.OnReceived = func(b []byte) {
			in = append(in, b...)
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(in)))
			if err != nil {
				return
			}
			if _, err = io.Copy(io.Discard, r.Body); err == nil {
				in = nil
				answer(p, r)
			}
		}
	})
	if err != nil {
		x.t.Fatal(err)
	}
	x.p = append(x.p, ln)
	return host
}

// run runs f in the world until it returns. Nothing may be left then.
func (x *calmWorld) run(f func()) {
	x.t.Helper()
	returned := false
	x.w.Go(func() {
		f()
		returned = true
	})
	if !x.w.RunUntil(func() bool { return returned || x.since() > time.Hour }) || !returned {
		x.w.Kill()
		x.t.Fatalf("it goes on after %v", x.since())
	}
	x.tr.CloseIdleConnections()
	for _, ln := range x.p {
		_ = ln.Close()
	}
	if err := x.tr.engine.Shutdown(context.Background()); err != nil {
		x.t.Error(err)
	}
	x.w.Run()
	x.w.Check(x.t)
	if n := inFlight(x.tr); n != 0 {
		x.t.Errorf("%d calls are counted as under way", n)
	}
}

func (x *calmWorld) since() time.Duration { return x.w.Now().Sub(sim.Epoch) }

// within fails the test unless d is between least and most, give or take a few steps.
func (x *calmWorld) within(what string, d, least, most time.Duration) {
	x.t.Helper()
	if d < least || d > most+2*time.Millisecond {
		x.t.Errorf("%s after %v, not between %v and %v", what, d, least, most)
	}
}

func say(status, body string, fields ...string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", status,
		strings.Join(append(fields, ""), "\r\n"), len(body), body)
}

func silent(*sim.Peer, *http.Request) {}

func welcome(p *sim.Peer, r *http.Request) { p.Write([]byte(say("200 OK", r.URL.Path))) }

func simRequest(method, url string, body io.Reader) *http.Request {
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		panic(err)
	}
	return r
}

func simGets(urls ...string) iter.Seq[*http.Request] {
	return func(yield func(*http.Request) bool) {
		for _, u := range urls {
			if !yield(simRequest("GET", u, nil)) {
				return
			}
		}
	}
}

// Requests that wait for a host whose places are taken, also those that are due again, do not keep
// the attempts of that host from ending in time.
func TestGroupSilentServer(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(silent)
	g := &Group{Transport: x.tr, PerHost: 1, Timeout: 100 * time.Millisecond,
		Retry: Retry{Attempts: 2, Base: time.Millisecond, Random: zeroes{}}}
	x.run(func() {
		sum, err := g.Each(context.Background(), simGets("http://"+host+"/1", "http://"+host+"/2"), func(o Outcome) {
			if !errors.Is(o.Err, context.DeadlineExceeded) || o.Attempts != 2 {
				t.Errorf("%d attempts: %v", o.Attempts, o.Err)
			}
		})
		if err != nil || sum.Failures["sent"] != 2 || sum.Retries != 2 {
			t.Errorf("%v, %v", sum, err)
		}
		x.within("the end", x.since(), 400*time.Millisecond, 400*time.Millisecond)
	})
}

// A request that is due again at a host with room does not wait for what is due at a full host.
func TestGroupRetriesAreIndependent(t *testing.T) {
	x := newCalmWorld(t)
	slow, asked := x.serve(silent), 0
	quick := x.serve(func(p *sim.Peer, r *http.Request) {
		if asked++; asked == 1 {
			p.Write([]byte(say("503 Later", "")))
			return
		}
		welcome(p, r)
	})
	g := &Group{Transport: x.tr, PerHost: 1, Timeout: 4 * time.Second, Retry: Retry{Attempts: 2,
		Base: 200 * time.Millisecond, Random: &longest{}}}
	x.run(func() {
		requests := simGets("http://"+slow+"/1", "http://"+slow+"/2", "http://"+quick)
		if _, err := g.Each(context.Background(), requests, func(o Outcome) {
			if o.Request.URL.Host == quick {
				x.within("the quick one", x.since(), 200*time.Millisecond, 200*time.Millisecond)
			}
		}); err != nil {
			t.Error(err)
		}
		x.within("the end", x.since(), 16*time.Second, 16*time.Second)
	})
}

// longest is a source that is at its end, which makes each pause as long as it may be.
type longest struct{}

func (*longest) Read([]byte) (int, error) { return 0, io.EOF }

// While a caller works on an outcome, attempts end and begin in time.
func TestGroupSlowCaller(t *testing.T) {
	x := newCalmWorld(t)
	var at []time.Duration
	host := x.serve(func(p *sim.Peer, r *http.Request) {
		if at = append(at, x.since()); r.URL.Path == "/1" {
			welcome(p, r)
		}
	})
	g := &Group{Transport: x.tr, Timeout: 100 * time.Millisecond,
		Retry: Retry{Attempts: 3, Base: 50 * time.Millisecond, Random: &longest{}}}
	x.run(func() {
		r, err := g.Start(context.Background(), simGets("http://"+host+"/1", "http://"+host+"/2"))
		if err != nil {
			t.Fatal(err)
		}
		p := x.w.NewParker()
		for o := range r.Outcomes() {
			if o.Request.URL.Path == "/1" {
				sleep(p, x.w, 10*time.Second)
				continue
			}
			x.within("the other request", o.Took, 450*time.Millisecond, 450*time.Millisecond)
		}
		if len(at) != 4 {
			t.Fatalf("the server was asked at %v", at)
		}
		x.within("the second attempt", at[2], 150*time.Millisecond, 150*time.Millisecond)
		x.within("the third attempt", at[3], 350*time.Millisecond, 350*time.Millisecond)
	})
}

// While the iterator blocks, outcomes come, attempts end in time, and requests are tried again.
func TestGroupIteratorBlocks(t *testing.T) {
	x := newCalmWorld(t)
	asked := map[string]int{}
	host := x.serve(func(p *sim.Peer, r *http.Request) {
		switch asked[r.URL.Path]++; {
		case r.URL.Path == "/1" && asked["/1"] == 1:
			p.Write([]byte(say("503 Later", "")))
		case r.URL.Path != "/2":
			welcome(p, r)
		}
	})
	g := &Group{Transport: x.tr, Timeout: 100 * time.Millisecond, Retry: Retry{Attempts: 2, Base: 10 * time.Millisecond,
		Random: zeroes{}, If: func(o Outcome) bool { return o.Err == nil && o.Response.StatusCode == 503 }}}
	x.run(func() {
		got := map[string]time.Duration{}
		sum, err := g.Each(context.Background(), func(yield func(*http.Request) bool) {
			for _, path := range []string{"/1", "/2"} {
				if !yield(simRequest("GET", "http://"+host+path, nil)) {
					t.Error("the run is over")
				}
			}
			p := x.w.NewParker()
			for len(got) < 2 { // the third request comes of the first two
				sleep(p, x.w, time.Millisecond)
			}
			yield(simRequest("GET", "http://"+host+"/3", nil))
		}, func(o Outcome) { got[o.Request.URL.Path] = x.since() })
		if err != nil || sum.Responses != 2 || sum.Failed != 1 || sum.Retries != 1 {
			t.Errorf("%v, %v", sum, err)
		}
		x.within("the first", got["/1"], 0, 10*time.Millisecond)
		x.within("the second", got["/2"], 100*time.Millisecond, 100*time.Millisecond)
		x.within("the third", got["/3"], 100*time.Millisecond, 110*time.Millisecond)
	})
}

// A stopped run waits for its iterator for a second at most. What the iterator gives meanwhile has
// an outcome. What it gives later is dropped, and closed.
func TestGroupLeavesIteratorBehind(t *testing.T) {
	for _, blocks := range []time.Duration{800 * time.Millisecond, time.Minute} {
		x := newCalmWorld(t)
		host := x.serve(silent)
		ctx := newSimContext(x.w)
		second := &simBody{left: "never sent"}
		more := true
		var outcomes []error
		x.run(func() {
			x.w.AfterFunc(50*time.Millisecond, func() { ctx.end(context.DeadlineExceeded) })
			g := &Group{Transport: x.tr}
			sum, err := g.Each(ctx, func(yield func(*http.Request) bool) {
				yield(simRequest("GET", "http://"+host, nil))
				sleep(x.w.NewParker(), x.w, blocks)
				r := simRequest("POST", "http://"+host, nil)
				r.Body = second
				more = yield(r)
			}, func(o Outcome) {
				if outcomes = append(outcomes, o.Err); len(outcomes) == 1 {
					x.within("the first outcome", x.since(), 50*time.Millisecond, 50*time.Millisecond)
				}
			})
			end := min(blocks, 50*time.Millisecond+iteratorGrace)
			x.within("the end", x.since(), end, end)
			if !errors.Is(err, context.DeadlineExceeded) || sum.Requests != len(outcomes) {
				t.Errorf("%v, %v, %v", outcomes, sum, err)
			}
		})
		if more || !second.closed {
			t.Errorf("the iterator goes on: %v, the body is closed: %v", more, second.closed)
		}
		if first := outcomes[0]; !errors.Is(first, context.DeadlineExceeded) || errors.Is(first, ErrStopped) {
			t.Errorf("under way: %v", first)
		}
		if blocks == time.Minute {
			if len(outcomes) != 1 {
				t.Errorf("%v", outcomes)
			}
			continue
		}
		e, _ := outcomes[1].(*Error)
		if e == nil || e.Phase != Queued || !errors.Is(e, ErrStopped) || !errors.Is(e, context.DeadlineExceeded) {
			t.Errorf("not sent: %v", outcomes[1])
		}
	}
}

// The end of a request's context ends it wherever it is: waiting for its host, in a pause, and in
// Prepare. If it was tried, it has the outcome of its last attempt.
func TestGroupContextsOfHeldRequests(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(silent)
	busy := x.serve(func(p *sim.Peer, r *http.Request) { p.Write([]byte(say("503 Later", "soon"))) })
	var contexts []*simContext
	withContext := func(url string, d time.Duration, err error) *http.Request {
		ctx := newSimContext(x.w)
		contexts = append(contexts, ctx)
		if ctx.endIn(d, err); err == context.DeadlineExceeded {
			ctx.due = time.Time{} // so that the Group does not know
		}
		return simRequest("GET", url, nil).WithContext(ctx)
	}
	g := &Group{Transport: x.tr, PerHost: 1,
		Retry: Retry{Attempts: 2, Base: time.Hour, Max: time.Hour, Random: &longest{}}}
	g.Retry.Prepare = func(_ int, r *http.Request) error {
		if r.URL.Path == "/prepare" {
			sleep(x.w.NewParker(), x.w, time.Minute)
		}
		return nil
	}
	x.run(func() {
		sum, err := g.Each(context.Background(), func(yield func(*http.Request) bool) {
			_ = yield(withContext("http://"+host+"/runs", 300*time.Millisecond, context.Canceled)) &&
				yield(withContext("http://"+host+"/waits", 100*time.Millisecond, context.DeadlineExceeded)) &&
				yield(withContext("http://"+busy+"/pauses", 200*time.Millisecond, context.Canceled)) &&
				yield(withContext("http://127.0.0.1:1/prepare", 250*time.Millisecond, context.Canceled))
		}, func(o Outcome) {
			e, _ := o.Err.(*Error)
			switch o.Request.URL.Path {
			case "/waits":
				x.within("it", x.since(), 100*time.Millisecond, 100*time.Millisecond)
				if e == nil || e.Phase != Queued || e.Err != context.DeadlineExceeded || o.Attempts != 0 ||
					o.Took != 0 {
					t.Errorf("%+v", o)
				}
			case "/pauses":
				x.within("it", x.since(), 200*time.Millisecond, 200*time.Millisecond)
				if o.Err != nil || o.Response.StatusCode != 503 || string(o.Body) != "soon" || o.Attempts != 1 {
					t.Errorf("%+v", o)
				}
			case "/prepare":
				x.within("it", x.since(), 250*time.Millisecond, 250*time.Millisecond)
				if e == nil || e.Phase != Queued || e.Err != context.Canceled || o.Attempts != 1 {
					t.Errorf("%+v", o)
				}
			case "/runs":
				x.within("it", x.since(), 300*time.Millisecond, 300*time.Millisecond)
				if e == nil || e.Phase != Sent || e.Err != context.Canceled {
					t.Errorf("%+v", o)
				}
			}
		})
		if err != nil || sum.Requests != 4 || sum.Took > 301*time.Millisecond {
			t.Errorf("%v, %v", sum, err)
		}
		for i, ctx := range contexts {
			if n := ctx.watched(); n != 0 {
				t.Errorf("%d calls wait for context %d", n, i)
			}
		}
	})
}

// Names of a host in capitals, with and without its port, count as one host.
func TestGroupCountsHostsOnce(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(silent)
	_, port, _ := net.SplitHostPort(host)
	g := &Group{Transport: x.tr, PerHost: 1, Timeout: 10 * time.Millisecond}
	x.run(func() {
		if _, err := g.Each(context.Background(), simGets("http://localhost:"+port, "http://LOCALHOST:"+port),
			func(o Outcome) {
				x.within(o.Request.URL.Host, x.since(), 10*time.Millisecond, 10*time.Millisecond)
			}); err != nil { // the world has no second name, so that this one fails when its turn has come
			t.Error(err)
		}
	})
	for url, want := range map[string]string{"http://A.example": "a.example:80", "http://[::1]": "[::1]:80",
		"https://a.example:443/": "a.example:443", "https://bücher.example": "xn--bcher-kva.example:443"} {
		r := &Run{group: Group{AtOnce: 1, PerHost: 1}, t: x.tr, plan: plan{perHost: 1, hosts: map[string]*groupHost{}}}
		r.add(simRequest("GET", url, nil))
		if r.plan.hosts[want] == nil {
			t.Errorf("%s is counted as %v", url, r.plan.hosts)
		}
	}
}

// A panic in the user's code, wherever it runs, ends the run and comes to the caller.
func TestGroupPassesPanicsOn(t *testing.T) {
	for name, set := range map[string]func(g *Group, fail func()) iter.Seq[*http.Request]{
		"iterator": func(g *Group, fail func()) iter.Seq[*http.Request] {
			return func(yield func(*http.Request) bool) {
				yield(simRequest("GET", "http://127.0.0.1:10001/silent", nil))
				fail()
			}
		},
		"If": func(g *Group, fail func()) iter.Seq[*http.Request] {
			g.Retry.If = func(Outcome) bool { fail(); return true }
			return simGets("http://127.0.0.1:10001/silent", "http://127.0.0.1:10001/", "http://127.0.0.1:10001/")
		},
		"Prepare": func(g *Group, fail func()) iter.Seq[*http.Request] {
			g.Retry.Prepare = func(_ int, r *http.Request) error {
				if r.URL.Path == "/" {
					fail()
				}
				return nil
			}
			return simGets("http://127.0.0.1:10001/silent", "http://127.0.0.1:10001/", "http://127.0.0.1:10001/silent")
		},
	} {
		for how, fail := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": runtime.Goexit} {
			t.Run(name+"/"+how, func(t *testing.T) {
				x := newCalmWorld(t)
				x.serve(func(p *sim.Peer, r *http.Request) {
					if r.URL.Path == "/" {
						welcome(p, r)
					}
				})
				g := &Group{Transport: x.tr, PerHost: 2, Retry: Retry{Attempts: 2}}
				requests := set(g, fail)
				x.run(func() {
					ended := make(chan any, 1)
					p := x.w.NewParker()
					x.w.Go(func() {
						defer p.Unpark()
						said := any("nothing")
						defer func() { ended <- said }()
						defer func() {
							if v := recover(); v != nil {
								said = v
							}
						}()
						defer func() { said = "it was ended" }()
						g.Each(context.Background(), requests, func(Outcome) {})
						said = "it has returned"
						runtime.Goexit()
					})
					for len(ended) == 0 {
						p.Park()
					}
					want := any("oh")
					if how == "Goexit" {
						want = "it was ended"
					}
					if said := <-ended; said != want {
						t.Errorf("%v, want %v", said, want)
					}
				})
			})
		}
	}
}

// An odd is a RoundTripper for another scheme.
type odd struct {
	serve   func(r *http.Request) (*http.Response, error)
	running atomic.Int64
}

func (o *odd) RoundTrip(r *http.Request) (*http.Response, error) {
	o.running.Add(1)
	defer o.running.Add(-1)
	return o.serve(r)
}

// A RoundTripper of RegisterProtocol has its place in a Group: its bodies are read, and Timeout and
// the end of the run end it by its context.
func TestGroupRegisteredProtocol(t *testing.T) {
	tr := fresh(t, &Transport{})
	o := &odd{serve: func(r *http.Request) (*http.Response, error) {
		switch r.URL.Path {
		case "/hangs":
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		case "/deaf":
			<-t.Context().Done()
			return nil, errors.New("late")
		}
		body := io.Reader(strings.NewReader(r.URL.Path))
		if r.URL.Path == "/endless" {
			body, _ = io.Pipe()
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Request: r, Body: io.NopCloser(body)}, nil
	}}
	tr.RegisterProtocol("odd", o)
	g := &Group{Transport: tr, Timeout: 50 * time.Millisecond}
	var cause error
	got := map[string]string{}
	sum, err := g.Each(context.Background(), simGets("odd://h/text", "odd://h/hangs"), func(o Outcome) {
		if got[o.Request.URL.Path] = string(o.Body); o.Err != nil {
			cause = o.Err
		}
	})
	if err != nil || sum.Responses != 1 || got["/text"] != "/text" || !errors.Is(cause, context.DeadlineExceeded) {
		t.Errorf("%v, %v, %v, %v", sum, got, cause, err)
	}
	for o.running.Load() > 0 { // its context has ended
		runtime.Gosched()
	}
}

// As many held requests, of as many hosts, as there may be cost no more for each outcome than few:
// at a cost of their number for each, this would take hours.
func TestGroupHoldsMany(t *testing.T) {
	const hosts, each = 10_000, 10
	release := make(chan struct{})
	var begun atomic.Int64
	tr := fresh(t, &Transport{})
	tr.RegisterProtocol("odd", &odd{serve: func(r *http.Request) (*http.Response, error) {
		begun.Add(1)
		<-release
		return &http.Response{StatusCode: 200, Header: http.Header{}, Request: r, Body: http.NoBody}, nil
	}})
	g := &Group{Transport: tr, AtOnce: hosts + 1, PerHost: 1, Hold: hosts * each, Timeout: patience * 100}
	r, err := g.Start(t.Context(), func(yield func(*http.Request) bool) {
		for i := range hosts * each {
			if !yield(simRequest("GET", fmt.Sprintf("odd://h%d/", i%hosts), nil)) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		defer close(release)
		for until := time.Now().Add(5 * patience); r.Summary().Requests < hosts*each || begun.Load() < hosts; {
			if time.Now().After(until) {
				t.Errorf("%d have begun: %v", begun.Load(), r.Status())
				return
			}
			time.Sleep(time.Millisecond)
		}
		if s := r.Status(); s.Waiting != hosts*(each-1) || len(s.Running) != hosts {
			t.Errorf("%v", s)
		}
	})
	for range r.Outcomes() {
	}
	watch.Wait()
	if s := r.Status(); s.Responses != hosts*each || s.Waiting+s.Paused+s.Ended != 0 || len(r.plan.hosts) != 0 {
		t.Errorf("%v, %d hosts", s, len(r.plan.hosts))
	}
}

// Hosts take turns, and of one host those that are due again come first.
func TestGroupPlan(t *testing.T) {
	p := plan{perHost: 2, hosts: map[string]*groupHost{}}
	for _, j := range []*job{{addr: "a", attempts: 0, index: 1}, {addr: "a", index: 2}, {addr: "b", index: 3},
		{addr: "a", attempts: 1, index: 4}, {addr: "c", index: 5}} {
		p.wait(j)
	}
	gone := p.hosts["c"].fresh.first
	p.drop(gone)
	var got []int
	var last *job
	for j := p.next(); j != nil; j = p.next() {
		got, last = append(got, j.index), j
	}
	if !slices.Equal(got, []int{4, 3, 1}) {
		t.Errorf("in this order: %v", got)
	}
	p.leave(last.host)
	if j := p.next(); j == nil || j.index != 2 {
		t.Errorf("then %+v", j)
	}
	p.leave(p.hosts["a"])
	p.leave(p.hosts["a"])
	p.leave(p.hosts["b"])
	if len(p.hosts) != 0 {
		t.Errorf("%d hosts are left", len(p.hosts))
	}
}

// A RoundTripper that heeds nothing gives its place back when the Timeout of its attempt is over.
// What it returns later is closed, and belongs to no other attempt.
func TestGroupDeafRoundTripper(t *testing.T) {
	tr := fresh(t, &Transport{})
	release := make(chan struct{})
	closed := make(chan string, 2)
	asked := atomic.Int64{}
	tr.RegisterProtocol("odd", &odd{serve: func(r *http.Request) (*http.Response, error) {
		text := "quick"
		if asked.Add(1) == 1 {
			<-release
			text = "late"
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Request: r,
			Body: closeTold{strings.NewReader(text), text, closed}}, nil
	}})
	g := &Group{Transport: tr, AtOnce: 1, Timeout: 50 * time.Millisecond, Retry: Retry{Attempts: 2, Base: 1}}
	sum, err := g.Each(t.Context(), simGets("odd://h/"), func(o Outcome) {
		if string(o.Body) != "quick" || o.Attempts != 2 {
			t.Errorf("%q after %d attempts, %v", o.Body, o.Attempts, o.Err)
		}
	})
	if err != nil || sum.Responses != 1 {
		t.Errorf("%v, %v", sum, err)
	}
	close(release)
	if first, second := <-closed, <-closed; first != "quick" || second != "late" {
		t.Errorf("closed: %s, %s", first, second)
	}
}

type closeTold struct {
	io.Reader
	text string
	told chan string
}

func (c closeTold) Close() error {
	c.told <- c.text
	return nil
}

// A request that the iterator gives after it has ended the context is not sent. The end of the
// context is also the run's error if the iterator has returned before it.
func TestGroupContextEndsAt(t *testing.T) {
	x := newCalmWorld(t)
	sent := 0
	host := x.serve(func(p *sim.Peer, r *http.Request) { sent++ })
	x.run(func() {
		ctx, cancel := context.WithCancel(context.Background())
		sum, err := (&Group{Transport: x.tr}).Each(ctx, func(yield func(*http.Request) bool) {
			cancel()
			yield(simRequest("GET", "http://"+host, nil))
		}, func(o Outcome) {
			if !errors.Is(o.Err, ErrStopped) || o.Attempts != 0 {
				t.Errorf("%+v", o)
			}
		})
		if !errors.Is(err, context.Canceled) || sum.Requests != 1 || sent != 0 {
			t.Errorf("%v, %v, %d were sent", sum, err, sent)
		}
		late := newSimContext(x.w)
		x.w.AfterFunc(time.Second, func() { late.end(context.Canceled) })
		sum, err = (&Group{Transport: x.tr}).Each(late, simGets("http://"+host), func(o Outcome) {
			if !errors.Is(o.Err, context.Canceled) || errors.Is(o.Err, ErrStopped) {
				t.Errorf("%+v", o)
			}
		})
		if !errors.Is(err, context.Canceled) || sum.Failed != 1 || sent != 1 {
			t.Errorf("%v, %v, %d were sent", sum, err, sent)
		}
	})
}

// The end of one context that running and waiting requests share gives all their places back at
// once, also those of Hold.
func TestGroupContextEndsMany(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(func(p *sim.Peer, r *http.Request) {
		if r.URL.Path == "/good" {
			welcome(p, r)
		}
	})
	ctx := newSimContext(x.w)
	ctx.endIn(100*time.Millisecond, context.Canceled)
	g := &Group{Transport: x.tr, AtOnce: 2, PerHost: 1, Hold: 3}
	x.run(func() {
		sum, err := g.Each(context.Background(), func(yield func(*http.Request) bool) {
			for range 4 {
				if !yield(simRequest("GET", "http://"+host+"/bad", nil).WithContext(ctx)) {
					return
				}
			}
			yield(simRequest("GET", "http://"+host+"/good", nil))
		}, func(o Outcome) { x.within(o.Request.URL.Path, x.since(), 100*time.Millisecond, 100*time.Millisecond) })
		if err != nil || sum.Responses != 1 || sum.Failed != 4 {
			t.Errorf("%v, %v", sum, err)
		}
	})
}

// Stop may be called by all of the user's code that a run calls.
func TestGroupStopsFromWithin(t *testing.T) {
	for _, where := range []string{"iterator", "If", "Prepare", "loop", "trace"} {
		x := newCalmWorld(t)
		host := x.serve(welcome)
		var r *Run
		stop := func(here string) {
			if here == where {
				r.Stop()
			}
		}
		g := &Group{Transport: x.tr, AtOnce: 1, Retry: Retry{Attempts: 2,
			If:      func(Outcome) bool { stop("If"); return false },
			Prepare: func(int, *http.Request) error { stop("Prepare"); return nil }}}
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
			GetConn: func(string) { stop("trace") }})
		var err error
		r, err = g.Start(context.Background(), func(yield func(*http.Request) bool) {
			for range 100 {
				stop("iterator")
				if !yield(simRequest("GET", "http://"+host, nil).WithContext(ctx)) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		x.run(func() {
			for range r.Outcomes() {
				stop("loop")
			}
			if s := r.Summary(); s.Requests == 0 || s.Requests > 3 || s.Responses+s.Failed != s.Requests {
				t.Errorf("in %s: %v", where, s)
			}
			x.within("the end", x.since(), 0, 10*time.Millisecond)
		})
	}
}

// Requests that cannot be sent take no place.
func TestGroupBadRequests(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(welcome)
	bad := []func(r *http.Request){
		func(r *http.Request) { r.URL = nil },
		func(r *http.Request) { r.Header = nil },
		func(r *http.Request) { r.URL.Host = "" },
		func(r *http.Request) { r.URL.Scheme = "gopher" },
		func(r *http.Request) { r.Method = "a b" },
		func(r *http.Request) { r.Header["a b"] = []string{"x"} },
		func(r *http.Request) { r.ContentLength = 7 },
		func(r *http.Request) { *r = http.Request{} },
	}
	g := &Group{Transport: x.tr, AtOnce: 1, Retry: Retry{Attempts: 3}}
	x.run(func() {
		sum, err := g.Each(context.Background(), func(yield func(*http.Request) bool) {
			for _, f := range bad {
				r := simRequest("GET", "http://"+host, nil)
				if f(r); !yield(r) || !yield(nil) {
					return
				}
			}
			yield(simRequest("GET", "http://"+host, nil))
		}, func(o Outcome) {
			if o.Err != nil && (o.Attempts > 1 || o.Response != nil) {
				t.Errorf("%+v", o)
			}
		})
		if err != nil || sum.Responses != 1 || sum.Failed != 2*len(bad) || sum.Failures["other"] != 2*len(bad) {
			t.Errorf("%v, %v", sum, err)
		}
	})
}

// A run that has nothing to do goes on until the iterator has returned.
func TestGroupIdles(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(welcome)
	x.run(func() {
		sum, err := (&Group{Transport: x.tr}).Each(context.Background(), func(yield func(*http.Request) bool) {
			for range 3 {
				sleep(x.w.NewParker(), x.w, time.Minute)
				if !yield(simRequest("GET", "http://"+host, nil)) {
					return
				}
			}
		}, func(o Outcome) {})
		if err != nil || sum.Responses != 3 {
			t.Errorf("%v, %v", sum, err)
		}
	})
}

// One Group serves several runs at once.
func TestGroupSharedByRuns(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	g := &Group{Transport: fresh(t, &Transport{}), AtOnce: 3, PerHost: 2, Timeout: patience,
		Retry: Retry{Attempts: 2, Base: 1, Prepare: func(int, *http.Request) error { return nil }}}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			sum, err := g.Each(t.Context(), numbered(t, sameHost(s.URL), 50, new(atomic.Int64)), func(Outcome) {})
			if err != nil || sum.Statuses[503] != 50 || sum.Retries != 50 {
				t.Errorf("%v, %v", sum, err)
			}
		})
	}
	all.Wait()
}
