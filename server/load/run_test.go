package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors"
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

// A message of one's own goes out as text, and must come back as it is.
func TestEchoesOfAMessage(t *testing.T) {
	t.Parallel()
	const message = `{"type":"say","text":"hallo, Welt"}`
	at := serveSockets(t, func(c *websocket.Conn, op websocket.Op, p []byte) {
		if op != websocket.OpText || string(p) != message {
			t.Errorf("the server was sent %v %q", op, p)
		}
		_ = c.Write(op, p)
	})
	r := run(t, Plan{Kind: Echo, URL: at, Connections: 2, Message: message}, Options{}, requests(20))
	if r.Failures() != 0 || r.NoEcho() != "" {
		t.Errorf("failures %v, %q", r.Total.Failed, r.NoEcho())
	}
}

// serveSockets starts a server of WebSockets that calls f with each message.
func serveSockets(t *testing.T, f func(c *websocket.Conn, op websocket.Op, p []byte)) string {
	t.Helper()
	o := &websocket.Options{Dispatch: web.DispatchInline, OnMessage: f}
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = websocket.Accept(w, r, o) }))
}

// A server that is no echo is named as such, whether it answers something else or nothing.
func TestServersThatAreNoEcho(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer  func(c *websocket.Conn, op websocket.Op, p []byte)
		timeout time.Duration
		enough  func(s *Sample) bool
		says    string
	}{
		"answers": {func(c *websocket.Conn, op websocket.Op, _ []byte) { _ = c.Write(op, []byte("welcome")) }, 0,
			requests(20), "other messages came"},
		"silent": {func(*websocket.Conn, websocket.Op, []byte) {}, 500 * time.Millisecond, // to connect, too
			func(s *Sample) bool { return s.failures() > 5 }, "nothing else came"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Plan{Kind: Echo, URL: serveSockets(t, tt.answer), Connections: 4, Timeout: tt.timeout}
			r := run(t, p, Options{}, tt.enough)
			var text strings.Builder
			if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "this server is no echo: ") ||
				!strings.Contains(text.String(), tt.says) {
				t.Errorf("%v in\n%s", err, &text)
			}
		})
	}
}

// Members of rooms get the messages of their own room. The servers differ in how a room is chosen,
// in what they wrap a message in, and in whether they send it back to its sender.
func TestRooms(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path, join, message string
		back                bool
	}{
		"by URL":          {"/?room={room}&user=ann{n}", "", "", true},
		"by a message":    {"/", `{"join":"{room}","name":"ann{n}"}`, `{"say":"{id} and more"}`, true},
		"without an echo": {"/?room={room}&user=ann{n}", "", "{id}", false},
	} {
		t.Run(name, func(t *testing.T) {
			var users sync.Map
			groups := map[string]*websocket.Group{"0": {}, "1": {}, "2": {}}
			enter := func(c *websocket.Conn, room, user string) {
				if _, twice := users.LoadOrStore(user, room); twice || groups[room] == nil {
					t.Errorf("%s enters room %q, twice: %v", user, room, twice)
					return
				}
				_, _ = groups[room].Join(c) // it fails if the connection has ended
				c.SetValue(groups[room])
			}
			message := func(c *websocket.Conn, op websocket.Op, p []byte) {
				g, _ := c.Value().(*websocket.Group)
				if g == nil {
					var asked struct{ Join, Name string }
					if err := json.Unmarshal(p, &asked); err != nil {
						t.Error(err)
					}
					enter(c, asked.Join, asked.Name)
					return
				}
				p = fmt.Appendf(nil, `{"from":"ann","said":%q}`, p)
				if tt.back {
					_ = g.Send(op, p)
				} else {
					_ = g.SendExcept(op, p, c)
				}
			}
			at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				o := &websocket.Options{Dispatch: web.DispatchInline, OnMessage: message}
				if q := r.URL.Query(); q.Has("room") {
					o.OnOpen = func(c *websocket.Conn) { enter(c, q.Get("room"), q.Get("user")) }
				}
				_, _ = websocket.Accept(w, r, o)
			}))
			p := Plan{Kind: Push, Protocol: Rooms, URL: at + tt.path, Connections: 30, Channels: 3, Rate: 100,
				Join: tt.join, Message: tt.message}
			r := run(t, p, Options{}, func(s *Sample) bool { return s.Requests >= 30 && s.Push.Deliveries >= 200 })
			push := r.Total.Push
			delete(r.Total.Failed, neverSent) // depends on the machine's speed
			if push.Missing+push.Duplicates+push.Late != 0 || r.Failures() != 0 || r.Open != 33 || r.Complete == 0 {
				t.Errorf("missing %d, twice %d, late %d, failures %v, open %d, complete %d", push.Missing,
					push.Duplicates, push.Late, r.Total.Failed, r.Open, r.Complete)
			}
		})
	}
}

// A server that knows no rooms passes everything to everybody: that is counted.
func TestMessagesOfOtherRooms(t *testing.T) {
	t.Parallel()
	var all websocket.Group
	o := &websocket.Options{Dispatch: web.DispatchInline, OnOpen: func(c *websocket.Conn) { _, _ = all.Join(c) }}
	o.OnMessage = func(_ *websocket.Conn, op websocket.Op, p []byte) { _ = all.Send(op, p) }
	at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = websocket.Accept(w, r, o) }))
	r := run(t, Plan{Kind: Push, Protocol: Rooms, URL: at, Connections: 6, Channels: 2, Rate: 50}, Options{},
		func(s *Sample) bool { return s.Failed["a message of another room"] > 0 && s.Push.Deliveries > 0 })
	if n := r.Total.Push.Missing; n != 0 {
		t.Errorf("%d are missing", n)
	}
}

// Ids survive what servers put around them, and those of another run do not count.
func TestMessageIDs(t *testing.T) {
	t.Parallel()
	due := time.Unix(1764000000, 123456789)
	id := string(messageID(7, 3, 12, due))
	type got struct{ room, number, due int64 }
	for text, want := range map[string][]got{
		"":                                  nil,
		id:                                  {{3, 12, due.UnixNano()}},
		`{"text":"` + id + `","n":12}`:      {{3, 12, due.UnixNano()}},
		id + "9" + id:                       {{3, 12, due.UnixNano()}, {3, 12, due.UnixNano()}},
		string(messageID(8, 3, 12, due)):    nil,
		id[:len(id)-20]:                     nil,
		"load0000000000000007.load.1.2.3.4": nil,
	} {
		var all []got
		eachID([]byte(text), 7, func(room, number, due int64) { all = append(all, got{room, number, due}) })
		if fmt.Sprint(all) != fmt.Sprint(want) {
			t.Errorf("%q: %v, want %v", text, all, want)
		}
	}
}

func TestRoomsAreChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		plan Plan
		says string
	}{
		{Plan{Kind: Push, Protocol: Rooms, Message: "hello"}, "has no {id}"},
		{Plan{Kind: Push, Protocol: Rooms, Recover: true}, "cannot recover"},
		{Plan{Kind: Echo, Join: "hello"}, "without rooms"},
		{Plan{Kind: Idle, Message: "hello"}, "a message for the kind idle"},
		{Plan{Kind: Echo, Protocol: Rooms}, "the protocol rooms for the kind echo"},
		{Plan{Kind: Echo, Message: "\xff"}, "is not UTF-8"},
	} {
		tt.plan.URL, tt.plan.Duration = "ws://127.0.0.1:1", time.Second
		if err := tt.plan.withDefaults().check(); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v", tt.plan, err)
		}
	}
	ok := Plan{Kind: Push, Protocol: Rooms, URL: "wss://127.0.0.1:1/{room}?n={n}", Duration: time.Second}
	if err := ok.withDefaults().check(); err != nil {
		t.Error(err)
	}
}

func TestPushReachesAll(t *testing.T) {
	t.Parallel()
	for _, protocol := range []Protocol{Centrifuge, Events} {
		t.Run(string(protocol), func(t *testing.T) {
			s, err := push.New(push.Config{Doors: doors.All(doors.Config{})})
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

// A server that refuses every fifth publication, and ends the connection of every seventh after it
// has made it. With Retry each is made once, and none has failed.
func TestPublicationsAreMadeAgain(t *testing.T) {
	t.Parallel()
	s, err := push.New(push.Config{Doors: doors.All(doors.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.WithoutCancel(t.Context())) })
	var n, refused, cut atomic.Int64
	at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/publish" {
			s.ServeHTTP(w, r)
			return
		}
		switch n := n.Add(1); {
		case n%5 == 0:
			refused.Add(1)
			if n%2 == 0 {
				w.Header().Set("Connection", "close")
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		case n%7 == 0:
			cut.Add(1)
			s.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			s.ServeHTTP(w, r)
		}
	}))
	p := Plan{Kind: Push, URL: at, Connections: 12, Channels: 3, Rate: 200, Retry: true}
	r := run(t, p, Options{}, requests(60))
	push := r.Total.Push
	delete(r.Total.Failed, neverSent) // depends on the machine's speed
	if push.Missing+push.Duplicates+push.Late != 0 || r.Failures() != 0 {
		t.Errorf("missing %d, twice %d, late %d, failures %v", push.Missing, push.Duplicates, push.Late, r.Total.Failed)
	}
	if refused.Load() == 0 || cut.Load() == 0 || r.Total.Lost == 0 || push.Deliveries < 4*r.Total.Requests {
		t.Errorf("%d refused, %d cut, %d connections lost, %d publications with %d deliveries", refused.Load(),
			cut.Load(), r.Total.Lost, r.Total.Requests, push.Deliveries)
	}
	if push.Silence <= 0 || push.Silence > r.Elapsed+p.Timeout+time.Minute {
		t.Errorf("a silence of %s in %s", push.Silence, r.Elapsed)
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

// A worker that only receives has its loops' processors. One that sends has all, and what the user
// has said is left as it is.
func TestProcessorsOfWorkers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	if text, set := os.LookupEnv("GOMAXPROCS"); set {
		t.Setenv("GOMAXPROCS", text) // it is restored
		os.Unsetenv("GOMAXPROCS")
	}
	for _, tt := range []struct {
		plan   Plan
		worker int
		want   string
	}{
		{Plan{Kind: Push, Loops: 2}, 1, "GOMAXPROCS=2"}, {Plan{Kind: Push, Loops: 2}, 0, ""},
		{Plan{Kind: Push, Loops: 4}, 1, ""}, {Plan{Kind: Idle, Loops: 1}, 0, "GOMAXPROCS=1"},
		{Plan{Kind: HTTP, Loops: 1}, 1, ""}, {Plan{Kind: Arrivals, Loops: 1}, 1, ""},
	} {
		if got := strings.Join(processorsOf(tt.plan, tt.worker), " "); got != tt.want {
			t.Errorf("worker %d of %s with %d loops has %q, want %q", tt.worker, tt.plan.Kind, tt.plan.Loops, got,
				tt.want)
		}
	}
	t.Setenv("GOMAXPROCS", "3")
	if got := processorsOf(Plan{Kind: Idle, Loops: 1}, 0); got != nil {
		t.Errorf("the user has said 3, and it has %q", got)
	}
}

// What the load itself has used is that of the part that counts, however short it is, and whether
// or not the run is watched.
func TestOwnUseOfAShortRun(t *testing.T) {
	t.Parallel()
	at := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r, err := Run(t.Context(), Plan{Kind: HTTP, URL: at, Connections: 8, Duration: 100 * time.Millisecond,
		Timeout: time.Minute}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.CPU <= 0 || r.Own.Busiest <= 0 {
		t.Errorf("CPU time %s of %s, %+v", r.CPU, r.Elapsed, r.Own)
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
	s, err := push.New(push.Config{Doors: doors.All(doors.Config{}), Namespaces: []push.Namespace{{HistorySize: 1000,
		Recovery: true}}})
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

// Subscribers come when they are due, and leave as soon as they are subscribed.
func TestArrivals(t *testing.T) {
	t.Parallel()
	for _, protocol := range []Protocol{Centrifuge, Events} {
		t.Run(string(protocol), func(t *testing.T) {
			s, err := push.New(push.Config{Doors: doors.All(doors.Config{})})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Shutdown(context.WithoutCancel(t.Context())) })
			p := Plan{Kind: Arrivals, URL: serve(t, s), Connections: 8, Rate: 200, Protocol: protocol}
			r := run(t, p, Options{}, func(s *Sample) bool { return s.Service.Count() >= 40 })
			delete(r.Total.Failed, neverSent) // depends on the machine's speed
			if r.Failures() != 0 || r.Total.Lost != 0 || r.Total.Requests < 20 {
				t.Errorf("failures %v, %d lost, %d of %d were served", r.Total.Failed, r.Total.Lost,
					r.Total.Service.Count(), r.Total.Requests)
			}
		})
	}
}

// A server that is too slow for them, or refuses them, makes arrivals fail.
func TestArrivalsFail(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		timeout time.Duration
		reason  string
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 0, "connecting: status 503"},
		"silent": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-silent:
			case <-r.Context().Done():
			}
		}, 50 * time.Millisecond, "connecting: timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Plan{Kind: Arrivals, URL: serve(t, tt.handler), Connections: 4, Rate: 100, Protocol: Events,
				Timeout: tt.timeout}
			r := run(t, p, Options{}, func(s *Sample) bool { return s.Failed[tt.reason] >= 10 })
			if r.Total.Service.Count() != 0 {
				t.Errorf("%d were served", r.Total.Service.Count())
			}
		})
	}
	close(silent)
}

// A server takes five connections and refuses all others: the run goes on with the five.
func TestRunGoesOnWithWhatIsOpen(t *testing.T) {
	t.Parallel()
	var taken atomic.Int64
	o := &websocket.Options{Dispatch: web.DispatchInline}
	o.OnMessage = func(c *websocket.Conn, op websocket.Op, p []byte) { _ = c.Write(op, p) }
	at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if taken.Add(1) > 5 {
			w.WriteHeader(503)
			return
		}
		_, _ = websocket.Accept(w, r, o)
	}))
	r := run(t, Plan{Kind: Echo, URL: at, Connections: 9}, Options{Stall: 2 * time.Second}, requests(50))
	if r.Open < 1 || r.Open > 5 || r.Wanted != 9 || !r.Stalled || !strings.Contains(r.Missed(), "of 9 connections") {
		t.Errorf("%d of %d connections, stalled: %t: %s", r.Open, r.Wanted, r.Stalled, r.Missed())
	}
	if r.Total.Failed["connecting: status 503"] == 0 {
		t.Errorf("failures %v", r.Total.Failed)
	}
}

// A worker without descriptors for all of its connections begins at once with those that it can
// have, and says so.
func TestDescriptorsLimitARun(t *testing.T) {
	t.Parallel()
	at := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Workers: 1, Command: []string{"sh", "-c",
		"ulimit -n 100 && exec env " + workerVariable + "=1 " + self}}
	r := run(t, Plan{Kind: HTTP, URL: at, Connections: 100}, o, requests(100))
	if r.Open != 100-r.Own.Short || r.Own.Short != reservedFiles || r.Stalled ||
		!strings.Contains(strings.Join(r.Verdict, "; "), "want of descriptors") {
		t.Errorf("%d connections, %d beyond the limit, stalled: %t, verdict %q", r.Open, r.Own.Short, r.Stalled,
			r.Verdict)
	}
}
