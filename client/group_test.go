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
