package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// numbered are requests for base/0 to base/n-1; pulled counts those that were taken.
func numbered(t testing.TB, base func(i int) string, n int, pulled *atomic.Int64) iter.Seq[*http.Request] {
	return func(yield func(*http.Request) bool) {
		for i := range n {
			pulled.Add(1)
			if !yield(request(t, "GET", fmt.Sprintf("%s/%d", base(i), i), nil)) {
				return
			}
		}
	}
}

func sameHost(url string) func(int) string { return func(int) string { return url } }

// Each request has one outcome, at most AtOnce are under way, and no more is held than that.
func TestGroup(t *testing.T) {
	var now, most atomic.Int64
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		defer now.Add(-1)
		io.WriteString(w, r.URL.Path)
	})
	const n = 2000
	var pulled atomic.Int64
	g := &Group{Transport: fresh(t, &Transport{MaxIdleConnsPerHost: 10}), AtOnce: 10}
	seen := map[string]int{}
	finished := int64(0)
	sum, err := g.Each(t.Context(), numbered(t, sameHost(s.URL), n, &pulled), func(o Outcome) {
		if o.Err != nil || o.Response.StatusCode != 200 || string(o.Body) != o.Request.URL.Path || o.Attempts != 1 {
			t.Errorf("outcome %+v", o)
		}
		seen[string(o.Body)]++
		if finished++; pulled.Load()-finished > 10 {
			t.Errorf("%d requests are held", pulled.Load()-finished)
		}
	})
	if err != nil || len(seen) != n || sum.Requests != n || sum.Responses != n || sum.Statuses[200] != n ||
		sum.Failed != 0 {
		t.Errorf("%d outcomes, %v, %v", len(seen), sum, err)
	}
	if m := most.Load(); m > 10 {
		t.Errorf("%d requests at once", m)
	}
}

// A redirect is an outcome. Retry.If decides which errors are final.
func TestGroupLeavesDecisions(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/next", http.StatusFound) })
	secure := httptest.NewTLSServer(http.NotFoundHandler()) // whose certificate is not trusted
	defer secure.Close()
	urls := []string{s.URL + "/first", secure.URL}
	g := &Group{Transport: fresh(t, &Transport{}), Retry: Retry{Attempts: 3, Base: 1, If: func(o Outcome) bool {
		_, final := errors.AsType[*tls.CertificateVerificationError](o.Err)
		return o.Err != nil && !final
	}}}
	sum, err := g.Each(t.Context(), func(yield func(*http.Request) bool) {
		for _, u := range urls {
			if !yield(request(t, "GET", u, nil)) {
				return
			}
		}
	}, func(o Outcome) {
		if o.Err == nil && (o.Response.StatusCode != http.StatusFound || o.Response.Header.Get("Location") != "/next") {
			t.Errorf("%v %v", o.Response.Status, o.Response.Header)
		}
	})
	if err != nil || sum.Requests != 2 || sum.Statuses[http.StatusFound] != 1 || sum.Failed != 1 || sum.Retries != 0 {
		t.Errorf("%v, %v", sum, err)
	}
}

// A slow host takes its own places only, until Hold requests wait for it.
func TestGroupPerHost(t *testing.T) {
	release := make(chan struct{})
	slow := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { <-release })
	quick := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {})
	var pulled atomic.Int64
	base := func(i int) string {
		if i%2 == 0 {
			return slow.URL
		}
		return quick.URL
	}
	g := &Group{Transport: fresh(t, &Transport{}), AtOnce: 8, PerHost: 2, Hold: 20}
	r, err := g.Start(t.Context(), numbered(t, base, 100, &pulled))
	if err != nil {
		t.Fatal(err)
	}
	outcomes := 0
	for range r.Outcomes() {
		if outcomes++; outcomes == 20 {
			s := r.Status()
			if s.Waiting == 0 || s.Waiting > 20 || s.Responses != 20 || len(s.Running) < 2 ||
				!strings.HasPrefix(s.Running[0].URL, slow.URL) || s.Running[0].Phase > Sent {
				t.Errorf("status %+v", s)
			}
			close(release)
		}
	}
	if s := r.Summary(); s.Responses != 100 || outcomes != 100 {
		t.Errorf("%v", s)
	}
}

func TestGroupRetries(t *testing.T) {
	var asked atomic.Int64
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%3 != 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	})
	g := &Group{Transport: fresh(t, &Transport{}), AtOnce: 1, Retry: Retry{Attempts: 3, Base: time.Millisecond,
		Random: bytes.NewReader(make([]byte, 1000))}}
	put := request(t, "PUT", s.URL, strings.NewReader("again"))
	put.Header.Set("Idempotency-Key", "1")
	post := request(t, "POST", s.URL, strings.NewReader("once"))
	var got []string
	sum, err := g.Each(t.Context(), func(yield func(*http.Request) bool) {
		_ = yield(request(t, "GET", s.URL, nil)) && yield(put) && yield(post)
	}, func(o Outcome) {
		got = append(got, fmt.Sprint(o.Request.Method, o.Attempts, o.Response.StatusCode, string(o.Body)))
	})
	text := strings.Join(got, " ")
	if err != nil || text != "GET3 200 PUT3 200again POST1 503once" || sum.Retries != 4 {
		t.Errorf("%s, %v, %v", text, sum, err)
	}
}

func TestGroupLimitsBodies(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 1<<20)) })
	for most, want := range map[int]error{1000: ErrGroupBody, -1: nil, 1 << 20: nil} {
		g := &Group{Transport: fresh(t, &Transport{}), MaxBody: most}
		_, err := g.Each(t.Context(), func(yield func(*http.Request) bool) { yield(request(t, "GET", s.URL, nil)) },
			func(o Outcome) {
				if !errors.Is(o.Err, want) || len(o.Body) != max(most, 0) {
					t.Errorf("MaxBody %d: %d bytes, %v", most, len(o.Body), o.Err)
				}
			})
		if err != nil {
			t.Error(err)
		}
	}
}

// Each error of a Group has the phase of the attempt that failed, and is what errors.Is looks for.
func TestGroupErrors(t *testing.T) {
	x := newCalmWorld(t)
	head := "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
	host := x.serve(func(p *sim.Peer, r *http.Request) {
		switch r.URL.Path {
		case "/head":
			p.Write([]byte(head[:20]))
		case "/body":
			p.Write([]byte(head + "half"))
		case "/cut":
			p.Write([]byte(head + "half"))
			p.Close()
		case "/large":
			p.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 101)))
		case "/switches":
			p.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"))
		}
	})
	g := &Group{Transport: x.tr, Timeout: 100 * time.Millisecond, MaxBody: 100}
	for _, c := range []struct {
		url   string
		phase Phase
		is    error
		late  bool // for Timeout
		body  string
	}{
		{"http://" + host + "/sent", Sent, context.DeadlineExceeded, true, ""},
		{"http://" + host + "/head", Head, context.DeadlineExceeded, true, ""},
		{"http://" + host + "/body", Body, context.DeadlineExceeded, true, "half"},
		{"http://" + host + "/cut", Body, io.ErrUnexpectedEOF, false, "half"},
		{"http://" + host + "/large", Body, ErrGroupBody, false, strings.Repeat("x", 100)},
		{"http://" + host + "/switches", Body, myriad.ErrUnsupported, false, ""},
		{"http://127.0.0.1:1/", Dialing, syscall.ECONNREFUSED, false, ""},
	} {
		x.w.Go(func() {
			sum, err := g.Each(context.Background(), func(yield func(*http.Request) bool) {
				r := simRequest("GET", c.url, nil)
				r.Header = http.Header{"Connection": {"upgrade"}, "Upgrade": {"x"}}
				if yield(r) {
					yield(nil)
				}
			}, func(o Outcome) {
				if o.Request == nil {
					if o.Err != errNilRequest {
						t.Errorf("%v", o.Err)
					}
					return
				}
				e, named := o.Err.(*Error)
				if !named || e.Phase != c.phase || e.Addr != o.Request.URL.Host || !errors.Is(e, c.is) ||
					e.Timeout() != c.late || string(o.Body) != c.body {
					t.Errorf("%s: phase %v, %q, timeout %v: %v", c.url, e.Phase, o.Body, e.Timeout(), o.Err)
				}
				if hasHead := c.phase == Body; (o.Response != nil) != hasHead {
					t.Errorf("%s: %+v", c.url, o.Response)
				} else if hasHead {
					if p, err := io.ReadAll(o.Response.Body); string(p) != c.body || err != nil {
						t.Errorf("%s: %q, %v", c.url, p, err)
					}
				}
			})
			if err != nil || sum.Failures[c.phase.String()] != 1 || sum.Failures["other"] != 1 {
				t.Errorf("%s: %v, %v", c.url, sum, err)
			}
		})
		x.w.Run()
	}
	x.run(func() {})
}

// A run that is stopped before it is ranged over, also by its context, takes nothing.
func TestGroupStopsBefore(t *testing.T) {
	x := newCalmWorld(t)
	over := newSimContext(x.w)
	over.end(context.Canceled)
	requests := func(func(*http.Request) bool) { t.Error("the iterator is asked") }
	x.run(func() {
		for _, ctx := range []context.Context{over, context.Background()} {
			r, err := (&Group{Transport: x.tr}).Start(ctx, requests)
			if err != nil {
				t.Fatal(err)
			}
			if r.Stop(); !r.Status().Stopped {
				t.Error("it is not stopped")
			}
			for o := range r.Outcomes() {
				t.Errorf("%+v", o)
			}
			if s := r.Summary(); s.Requests != 0 {
				t.Errorf("%v", s)
			}
		}
		if sum, err := new(Group).Each(context.Background(), nil, nil); err != errGroupRequests {
			t.Errorf("without an iterator: %v, %v", sum, err)
		}
	})
}

// watched is a context that notes whether a run watches it.
type watched struct {
	context.Context
	calls int
}

func (w *watched) Done() <-chan struct{} { w.calls++; return w.Context.Done() }

func (w *watched) AfterFunc(f func()) func() bool { w.calls++; return func() bool { return true } }

// A Run that is never ranged over leaves nothing behind: no goroutine, and nothing at its context.
func TestGroupNeverRangedOver(t *testing.T) {
	x := newCalmWorld(t)
	inner, cancel := context.WithCancel(context.Background())
	ctx := &watched{Context: inner}
	x.run(func() {
		r, err := (&Group{Transport: x.tr}).Start(ctx, simGets("http://host/"))
		if err != nil {
			t.Fatal(err)
		}
		if s := r.Status(); ctx.calls > 0 || s.Stopped {
			t.Errorf("the context is watched: %d calls, %v", ctx.calls, s)
		}
		if cancel(); !r.Status().Stopped {
			t.Error("it is not stopped by its context")
		}
	})
}

// A second range gives nothing, and does not disturb the first.
func TestGroupRangedTwice(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(welcome)
	r, err := (&Group{Transport: x.tr}).Start(context.Background(), simGets("http://"+host+"/1", "http://"+host+"/2"))
	if err != nil {
		t.Fatal(err)
	}
	x.run(func() {
		outcomes := 0
		for range r.Outcomes() {
			outcomes++
			for range r.Outcomes() {
				t.Error("a second range gives an outcome")
			}
		}
		if s := r.Status(); outcomes != 2 || s.Responses != 2 ||
			s.String() != fmt.Sprint(s.Summary, "; 0 under way, 0 wait, 0 pause, 0 have ended") {
			t.Errorf("%d outcomes: %v", outcomes, s)
		}
	})
}

// On a loop a Group fails instead of waiting for ever.
func TestGroupOnALoop(t *testing.T) {
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {})
	tr := fresh(t, &Transport{})
	got := make(chan any, 2)
	tr.Do(request(t, "GET", s.URL, nil), func(r *http.Response, _ error) {
		r.Body.Close()
		g := &Group{Transport: tr}
		_, err := g.Each(context.Background(), simGets(s.URL), func(Outcome) {})
		got <- err
		defer func() { got <- recover() }()
		run, _ := g.Start(context.Background(), simGets(s.URL))
		for range run.Outcomes() {
		}
	})
	for range 2 {
		if err, _ := (<-got).(error); !errors.Is(err, myriad.ErrOnLoop) {
			t.Errorf("%v", err)
		}
	}
	e := &web.Server{Engine: tr.Engine, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum, err := (&Group{Transport: tr}).Each(r.Context(), simGets(s.URL, s.URL), func(Outcome) {})
		fmt.Fprint(w, sum.Responses, err)
	})}
	ln, err := e.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for range 10 { // some of them on the loop
		if _, body := get(t, tr, "http://"+ln.Addr().String()); body != "2 <nil>" {
			t.Errorf("in a handler: %s", body)
		}
	}
}

// A password in a URL is in no figures and no errors.
func TestGroupHidesPasswords(t *testing.T) {
	x := newCalmWorld(t)
	host := x.serve(silent)
	r, err := (&Group{Transport: x.tr, Timeout: time.Second}).Start(context.Background(),
		simGets("http://user:secret@"+host))
	if err != nil {
		t.Fatal(err)
	}
	x.w.AfterFunc(time.Millisecond, func() {
		if s := fmt.Sprint(r.Status().Running); !strings.Contains(s, "user") || strings.Contains(s, "secret") {
			t.Errorf("running: %s", s)
		}
	})
	x.run(func() {
		for o := range r.Outcomes() {
			if strings.Contains(o.Err.Error(), "secret") {
				t.Errorf("%v", o.Err)
			}
		}
	})
}

// A run that is stopped reports each request that it has taken.
func TestGroupStops(t *testing.T) {
	url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/0" {
			return
		}
		<-r.Context().Done()
	}).URL
	var pulled atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := &Group{Transport: fresh(t, &Transport{}), AtOnce: 5, PerHost: 4}
	r, err := g.Start(ctx, numbered(t, sameHost(url), 1_000_000, &pulled))
	if err != nil {
		t.Fatal(err)
	}
	outcomes := 0
	for o := range r.Outcomes() {
		if outcomes++; outcomes == 1 {
			cancel()
		} else if !errors.Is(o.Err, context.Canceled) && !errors.Is(o.Err, ErrStopped) {
			t.Errorf("%v", o.Err)
		}
	}
	if s := r.Summary(); int64(outcomes) != pulled.Load() || s.Responses != 1 || s.Failed != outcomes-1 {
		t.Errorf("%d outcomes of %d requests: %v", outcomes, pulled.Load(), s)
	}
	r, err = g.Start(t.Context(), numbered(t, sameHost(url), 1_000_000, &pulled))
	if err != nil {
		t.Fatal(err)
	}
	for range r.Outcomes() {
		break
	}
	if s := r.Status(); len(s.Running) != 0 || !s.Stopped || s.Responses+s.Failed != s.Requests {
		t.Errorf("%+v", s)
	}
}

// In worlds with faults and retries each request has one outcome.
func TestSimulatedGroups(t *testing.T) {
	for seed := range uint64(20) {
		w := sim.New(seed, sim.Options{})
		e, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s := &web.Server{Engine: e, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.Linger()
			io.WriteString(rw, r.URL.Path)
		})}
		ln, err := s.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g := &Group{Transport: &Transport{Engine: e}, AtOnce: 1 + int(seed%7), PerHost: 1 + int(seed%3),
			Retry: Retry{Attempts: 1 + int(seed%4), Random: zeroes{}}}
		outcomes, pulled := 0, atomic.Int64{}
		var sum Summary
		w.Go(func() {
			requests := numbered(t, sameHost("http://"+ln.Addr().String()), 60, &pulled)
			sum, err = g.Each(context.Background(), requests, func(o Outcome) {
				outcomes++
				if o.Err == nil && string(o.Body) != o.Request.URL.Path {
					t.Errorf("seed %d: %s has got %s", seed, o.Request.URL, o.Body)
				}
			})
		})
		w.Run()
		if err != nil || outcomes != 60 || sum.Responses+sum.Failed != 60 || sum.Responses == 0 {
			t.Errorf("seed %d: %d outcomes: %v, %v", seed, outcomes, sum, err)
		}
		g.Transport.CloseIdleConnections()
		s.Close()
		_ = s.Shutdown(context.Background())
		_ = e.Shutdown(context.Background())
		w.Run()
		w.Check(t)
	}
}

// zeroes is a source without chance.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
