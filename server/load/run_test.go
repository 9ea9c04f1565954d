package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// serve starts a server for a test and returns its URL.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	return serveWith(t, &web.Server{Handler: h})
}

// serveWith starts a server that was made, over TLS if it has a configuration for that.
func serveWith(t *testing.T, s *web.Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.Engine = engine
	scheme, serve := "http://", s.Serve
	if s.TLSConfig != nil {
		scheme, serve = "https://", func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	served := make(chan error, 1)
	go func() { served <- serve(ln) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = engine.Shutdown(over) // what is still open is aborted
	})
	return scheme + ln.Addr().String()
}

// run makes a load until enough has been counted, however long that takes on this machine.
func run(t *testing.T, p Plan, o Options, enough func(s *Sample) bool) *Report {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p.Duration = time.Hour
	if p.Timeout == 0 {
		p.Timeout = time.Minute
	}
	o.Watch = func(p Progress) {
		if p.Phase == Running && enough(p.Total) {
			stop()
		}
	}
	r, err := Run(ctx, p, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// requests is enough for a run when n requests have been counted.
func requests(n int64) func(s *Sample) bool {
	return func(s *Sample) bool { return s.Requests >= n }
}

func TestClosedLoopCountsWhatTheServerServed(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		_, _ = io.WriteString(w, "hello")
	}))
	r := run(t, Plan{Kind: HTTP, URL: at, Connections: 8}, Options{}, requests(100))
	if n := r.Total.Requests; n == 0 || n > served.Load() {
		t.Errorf("%d requests counted, %d served", n, served.Load())
	}
	if r.Failures() != 0 || r.Open != 8 || r.Total.Latency.Count() != r.Total.Requests {
		t.Errorf("failures %v, %d connections, %d latencies", r.Total.Failed, r.Open, r.Total.Latency.Count())
	}
}

func TestOpenLoopKeepsTheRate(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	at := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	r := run(t, Plan{Kind: HTTP, URL: at, Connections: 50, Rate: 1000}, Options{}, requests(300))
	// However slow this machine is, each request that was due counts, answered or not, and no
	// other.
	if n, due := r.Total.Latency.Count(), 1000*r.Elapsed.Seconds(); math.Abs(float64(n)-due) > 1 {
		t.Errorf("%d latencies in %s, at 1000 a second", n, r.Elapsed)
	}
	if r.Total.Requests > served.Load() {
		t.Errorf("%d requests counted, %d served", r.Total.Requests, served.Load())
	}
}

func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	r := run(t, Plan{Kind: HTTP, URL: at, Connections: 2}, Options{}, requests(10))
	if n := r.Total.Failed["status 503"]; n == 0 || n != r.Total.Requests {
		t.Errorf("%d of %d requests were counted as refused", n, r.Total.Requests)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	at := "http://" + freeport.For(t, 1)[0]
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	refused := func(p Progress) {
		if p.Total.failures() > 0 {
			stop()
		}
	}
	_, err := Run(ctx, Plan{Kind: HTTP, URL: at, Duration: time.Second}, Options{Watch: refused})
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("the error was %v", err)
	}
}

func TestNothingOpensInTime(t *testing.T) {
	t.Parallel()
	at := serve(t, http.NotFoundHandler())
	_, err := Run(t.Context(), Plan{Kind: HTTP, URL: at, Duration: time.Second}, Options{OpenTimeout: 1})
	if err == nil || !strings.Contains(err.Error(), "no attempt has ended yet") {
		t.Errorf("the error was %v", err)
	}
}

func TestEchoes(t *testing.T) {
	t.Parallel()
	o := &websocket.Options{Dispatch: web.DispatchInline}
	o.OnMessage = func(c *websocket.Conn, op websocket.Op, p []byte) { _ = c.Write(op, p) }
	at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = websocket.Accept(w, r,
			o)
	}))
	r := run(t, Plan{Kind: Echo, URL: at, Connections: 8, Size: 1000}, Options{}, requests(100))
	if r.Total.Requests == 0 || r.Failures() != 0 {
		t.Errorf("%d echoes, failures %v", r.Total.Requests, r.Total.Failed)
	}
	if r = run(t, Plan{Kind: Idle, URL: at, Connections: 100}, Options{}, requests(0)); r.Open != 100 ||
		r.Total.Lost != 0 {
		t.Errorf("%d idle connections, %d lost", r.Open, r.Total.Lost)
	}
}

func TestPushReachesAll(t *testing.T) {
	t.Parallel()
	for _, protocol := range []Protocol{Centrifuge, Events} {
		t.Run(string(protocol), func(t *testing.T) {
			s, err := push.New(push.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Shutdown(context.WithoutCancel(t.Context())) })
			p := Plan{Kind: Push, URL: serve(t, s), Connections: 60, Channels: 3, Rate: 100, Protocol: protocol}
			r := run(t, p, Options{}, requests(30))
			push := r.Total.Push
			delete(r.Total.Failed, neverSent) // depends on the machine's speed
			if push.Missing+push.Duplicates+push.Late != 0 || r.Failures() != 0 {
				t.Errorf("missing %d, twice %d, late %d, failures %v", push.Missing, push.Duplicates, push.Late,
					r.Total.Failed)
			}
			if push.Deliveries < 20*r.Total.Requests || r.Total.Requests == 0 || r.Complete == 0 {
				t.Errorf("%d publications, %d deliveries, %d complete", r.Total.Requests, push.Deliveries, r.Complete)
			}
		})
	}
}

// A server that loses every seventh event and sends every fifth twice.
func TestLossesAndDoublesAreCounted(t *testing.T) {
	t.Parallel()
	var lost, doubled atomic.Int64
	var mu sync.Mutex
	streams := map[*web.Stream]struct{}{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		s, err := web.Detached(w)
		if err != nil {
			t.Error(err)
			return
		}
		s.Flush()
		mu.Lock()
		defer mu.Unlock()
		streams[s] = struct{}{}
	})
	n := 0
	mux.HandleFunc("POST /api/publish", func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Data json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		event := fmt.Appendf(nil, "data: %s\n\n", request.Data)
		if n++; n%7 == 0 {
			lost.Add(int64(len(streams)))
			return
		}
		if n%5 == 0 {
			doubled.Add(int64(len(streams)))
			event = append(event, event...)
		}
		for s := range streams {
			_, _ = s.Write(event)
			s.Flush()
		}
	})
	// The last event may be among those lost, and is then waited for.
	p := Plan{Kind: Push, URL: serve(t, mux), Connections: 5, Rate: 200, Protocol: Events, Timeout: 3 * time.Second}
	r := run(t, p, Options{}, requests(40))
	if p := r.Total.Push; p.Missing != lost.Load() || p.Duplicates != doubled.Load() || lost.Load() == 0 ||
		doubled.Load() == 0 {
		t.Errorf("missing %d of %d, twice %d of %d", p.Missing, lost.Load(), p.Duplicates, doubled.Load())
	}
}

// Workers are processes of this test; see TestMain.
func TestWorkersShareALoad(t *testing.T) {
	t.Parallel()
	at := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Workers: 3, Command: []string{"env", workerVariable + "=1", self}}
	r := run(t, Plan{Kind: HTTP, URL: at, Connections: 7}, o, requests(100))
	if r.Open != 7 || r.Workers != 3 || r.Total.Requests == 0 || r.CPU == 0 {
		t.Errorf("%d connections of %d workers, %d requests, CPU %s", r.Open, r.Workers, r.Total.Requests, r.CPU)
	}
}

func TestWorkersOfOtherHosts(t *testing.T) {
	t.Parallel()
	const secret = "correct horse battery"
	at := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	wrong, joined := make(chan error, 1), make(chan error, 1)
	go func() {
		wrong <- Join(t.Context(), ln.Addr().String(), "battery horse correct")
		joined <- Join(t.Context(), ln.Addr().String(), secret)
	}()
	hosts, err := Muster(t.Context(), ln, secret, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-wrong; err == nil {
		t.Error("a worker without the secret was taken")
	}
	if r := run(t, Plan{Kind: HTTP, URL: at, Connections: 3}, Options{Hosts: hosts}, requests(10)); r.Workers != 1 {
		t.Errorf("%d workers, want 1", r.Workers)
	}
	if err := <-joined; err != nil {
		t.Errorf("the worker ended with %v", err)
	}
}

func TestShortSecretsAreRefused(t *testing.T) {
	t.Parallel()
	if err := Join(t.Context(), "127.0.0.1:1", "short"); err == nil || !strings.Contains(err.Error(), "16 at least") {
		t.Errorf("the error was %v", err)
	}
}

func TestStormsAreCounted(t *testing.T) {
	t.Parallel()
	s, err := push.New(push.Config{Namespaces: []push.Namespace{{HistorySize: 1000, Recovery: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.WithoutCancel(t.Context())) })
	p := Plan{Kind: Push, URL: serve(t, s), Connections: 20, Rate: 50, Recover: true, Storm: 200 * time.Millisecond}
	r := run(t, p, Options{}, func(s *Sample) bool { return len(s.Push.Returns) > 0 })
	if p := r.Total.Push; len(p.Returns) == 0 || p.Missing+p.Duplicates+p.Late != 0 {
		t.Errorf("%d storms, missing %d, twice %d, late %d, failures %v", len(p.Returns), p.Missing, p.Duplicates,
			p.Late,
			r.Total.Failed)
	}
}
