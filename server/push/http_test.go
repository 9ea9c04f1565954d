package push_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/doors/mercure"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/web"
)

// A testServer is a Server with fake time and recorded streams.
type testServer struct {
	*push.Server
	hub     *hub.Hub
	handler http.Handler // what ServeHTTP calls: the Server, or what the test has put around it
	t       *testing.T
	clock   *pushtest.Clock
	log     *pushtest.Log
	detach  func(w http.ResponseWriter) (hub.ResponseStream, error)
	mu      sync.Mutex
	streams []*fakeStream
}

func newTestServer(t *testing.T, c push.Config) *testServer {
	t.Helper()
	buf.CheckLeaks(t)
	clock, log := pushtest.NewClock(), new(pushtest.Log)
	if c.Doors == nil {
		c.Doors = testDoors(mercure.Config{})
	}
	c.Clock, c.Random, c.Logger = clock, pushtest.Seeded(), slog.New(slog.NewTextHandler(log, nil))
	seam := new(seamDoor)
	c.Doors = append(c.Doors, seam)
	ts := &testServer{t: t, clock: clock, log: log}
	ts.detach = func(http.ResponseWriter) (hub.ResponseStream, error) {
		stream := new(fakeStream)
		ts.mu.Lock()
		ts.streams = append(ts.streams, stream)
		ts.mu.Unlock()
		return stream, nil
	}
	s, err := push.NewServer(c, func(w http.ResponseWriter) (hub.ResponseStream, error) { return ts.detach(w) })
	if err != nil {
		t.Fatal(err)
	}
	ts.Server, ts.hub, ts.handler = s, seam.Hub, s
	t.Cleanup(func() {
		for _, stream := range ts.streams {
			stream.Close(push.Disconnect{Code: 3000, Reason: "connection closed"})
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if c.Bus != nil {
			if err := c.Bus.Close(); err != nil {
				t.Errorf("the bus: %v", err)
			}
		}
	})
	return ts
}

// ServeHTTP calls ts.handler.
func (ts *testServer) ServeHTTP(w http.ResponseWriter, r *http.Request) { ts.handler.ServeHTTP(w, r) }

// publishAs publishes p, whose fields a program cannot all set.
func (ts *testServer) publishAs(ctx context.Context, channel string, p push.Publication) (push.Position, error) {
	return ts.hub.Publish(ctx, channel, p, false, false)
}

// fakeStream records what an SSE subscriber would read.
type fakeStream struct {
	mu     sync.Mutex
	out    strings.Builder
	stuck  int // bytes that the peer has not read
	closed bool
	ended  func()
}

func (f *fakeStream) Send(m *hub.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return io.ErrClosedPipe
	}
	f.out.Write(m.Payload)
	return nil
}

func (f *fakeStream) Queued() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stuck
}

func (f *fakeStream) Remote() string { return "192.0.2.1:1234" }

// Close calls onClose's function as web does: not from within close.
func (f *fakeStream) Close(push.Disconnect) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed && f.ended != nil {
		go f.ended()
	}
	f.closed = true
}

func (f *fakeStream) OnClose(g func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = g
	if f.closed {
		go g()
	}
}

// take returns the bytes sent since the last call.
func (f *fakeStream) take() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.out.String()
	f.out.Reset()
	return out
}

func (f *fakeStream) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// do sends a request; fields are header names and values in turn.
func (ts *testServer) do(method, target, body string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	ts.ServeHTTP(w, r)
	return w
}

// subscribe opens an SSE stream.
func (ts *testServer) subscribe(query string, fields ...string) *fakeStream {
	ts.t.Helper()
	w := ts.do("GET", "/events?"+query, "", fields...)
	if w.Code != 200 {
		ts.t.Fatalf("/events?%s: %d %s", query, w.Code, w.Body)
	}
	return ts.streams[len(ts.streams)-1]
}

func TestPublishAPI(t *testing.T) {
	ts := newTestServer(t, push.Config{APIKey: "key", Limits: push.Limits{Publication: 1000}})
	stream := ts.subscribe("channel=news")
	stream.take()
	good := `{"channel":"news","data":{"a": "é\u2028"}}`
	for _, tt := range []struct {
		name, method, body, key string
		status                  int
		answer                  string
	}{
		{"good", "POST", good, "key", 200, `{"result":{}}`},
		{"without a key", "POST", good, "", 401,
			`{"error":{"code":101,"message":"the key is missing or wrong: send it in the header X-API-Key, or as ` +
				`Authorization: apikey KEY"}}`},
		{"a wrong key", "POST", good, "kez", 401, `{"error":{"code":101,`},
		{"a longer key", "POST", good, "keyy", 401, `{"error":{"code":101,`},
		{"GET", "GET", "", "key", 405, `{"error":{"code":104,"message":"use POST"}}`},
		{"not JSON", "POST", "hello", "key", 400,
			`{"error":{"code":107,"message":"the body is not a JSON object that publish accepts`},
		{"empty", "POST", "", "key", 400, `{"error":{"code":107,`},
		{"half", "POST", good[:20], "key", 400, `{"error":{"code":107,`},
		{"more behind it", "POST", good + "x", "key", 400, `{"error":{"code":107,`},
		{"an array", "POST", "[]", "key", 400, `{"error":{"code":107,`},
		{"without a channel", "POST", `{"data":1}`, "key", 200,
			`{"error":{"code":107,"message":"channel is missing"}}`},
		{"without data", "POST", `{"channel":"news"}`, "key", 200,
			`{"error":{"code":107,"message":"data is missing"}}`},
		{"a number for a channel", "POST", `{"channel":1,"data":1}`, "key", 400, `{"error":{"code":107,`},
		{"a bad channel", "POST", `{"channel":"a\u0000","data":1}`, "key", 200,
			`{"error":{"code":107,"message":"the channel is not a name`},
		{"data that is not UTF-8", "POST", "{\"channel\":\"news\",\"data\":\"\xff\"}", "key", 200,
			`{"error":{"code":107,"message":"data is not UTF-8`},
		{"a surrogate in UTF-8", "POST", "{\"channel\":\"news\",\"data\":\"\xed\xa0\x80\"}", "key", 200,
			`{"error":{"code":107,"message":"data is not UTF-8`},
		{"a key that is not UTF-8", "POST", "{\"channel\":\"news\",\"data\":{\"\xc0\x80\":1}}", "key", 200,
			`{"error":{"code":107,"message":"data is not UTF-8`},
		{"a channel that is not UTF-8", "POST", "{\"channel\":\"news\xff\",\"data\":1}", "key", 200,
			`{"error":{"code":107,"message":"the channel is not a name`},
		{"half a surrogate for a channel", "POST", `{"channel":"\ud800","data":1}`, "key", 200,
			`{"error":{"code":107,"message":"the channel is not a name`},
		{"too much data", "POST", `{"channel":"news","data":"` + strings.Repeat("x", 1000) + `"}`, "key", 200,
			`{"error":{"code":106,"message":"data is 1002 bytes; the limit is 1000"}}`},
		{"far too much", "POST", strings.Repeat("x", 100000), "key", 413, `{"error":{"code":106,`},
	} {
		w := ts.do(tt.method, "/api/publish", tt.body, "X-API-Key", tt.key)
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.answer) || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.answer)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: Content-Type %q", tt.name, got)
		}
	}
	if got := stream.take(); got != `data: {"a":"é\u2028"}`+"\n\n" {
		t.Errorf("subscriber received %q", got)
	}
	if got := ts.do("GET", "/api/frobnicate", "").Code; got != 404 {
		t.Errorf("an unknown method: %d", got)
	}
}

func TestEvents(t *testing.T) {
	ts := newTestServer(t, push.Config{})
	one := ts.subscribe("channel=news&channel=news", "Last-Event-ID", "7")
	both := ts.subscribe("channel=sport&channel=news&named=1")
	if got := one.take(); !strings.HasPrefix(got, "retry: ") || !strings.HasSuffix(got, "\n\n") {
		t.Errorf("a stream starts with %q", got)
	}
	both.take()
	ts.do("POST", "/api/publish", `{"channel":"news","data":{"n":1}}`)
	ts.do("POST", "/api/publish", `{"channel":"sport","data":2}`)
	if got, want := one.take(), "data: {\"n\":1}\n\n"; got != want {
		t.Errorf("received %q, want %q", got, want)
	}
	if got, want := both.take(), "event: news\ndata: {\"n\":1}\n\nevent: sport\ndata: 2\n\n"; got != want {
		t.Errorf("received %q, want %q", got, want)
	}
	for range 3 {
		ts.clock.Advance(25 * time.Second)
		if got := one.take(); got != ":\n\n" {
			t.Errorf("a ping interval later: %q", got)
		}
	}
	if one.isClosed() {
		t.Error("closed without an answer to a ping, which SSE does not have")
	}
	one.Close(push.Disconnect{Code: 3000, Reason: "connection closed"})
	pushtest.WaitFor(t, "the session to end", func() bool { return ts.Figures(0).Connections == 1 })
}

func TestSlowEvents(t *testing.T) {
	ts := newTestServer(t, push.Config{Limits: push.Limits{Queue: 1000}})
	slow, quick := ts.subscribe("channel=news"), ts.subscribe("channel=news")
	slow.stuck = 990
	ts.do("POST", "/api/publish", `{"channel":"news","data":"0123456789"}`)
	if !slow.isClosed() || quick.isClosed() {
		t.Errorf("slow closed: %v, quick closed: %v", slow.isClosed(), quick.isClosed())
	}
	if got := ts.Figures(0).SlowDisconnects; got != 1 {
		t.Errorf("%d slow disconnects", got)
	}
}

func TestEventsRefused(t *testing.T) {
	ts := newTestServer(t, push.Config{TokenSecret: testSecret, Limits: push.Limits{Channels: 2}})
	all := tokens(t, ts.clock.Now())
	good := "&token=" + all["good"]
	for _, tt := range []struct {
		name, method, query string
		status              int
		answer              string
	}{
		{"no channel", "GET", "x=1" + good, 400, `{"error":{"code":107,"message":"name a channel`},
		{"another parameter", "GET", "channel=a&lastEventId=e:1" + good, 400,
			`{"error":{"code":107,"message":"the parameter \"lastEventId\" is not served: the parameters are chan`},
		{"another value", "GET", "channel=a&named=true" + good, 400,
			`{"error":{"code":107,"message":"named is \"true\"`},
		{"named error", "GET", "channel=error&named=1" + good, 400,
			`{"error":{"code":107,"message":"an event named \"error\"`},
		{"named gap", "GET", "channel=a&channel=gap&named=1" + good, 400,
			`{"error":{"code":107,"message":"an event named`},
		{"named open", "GET", "channel=open&named=1" + good, 400, `{"error":{"code":107,"message":"an event named`},
		{"an empty channel", "GET", "channel=" + good, 400, `{"error":{"code":107,`},
		{"a line end in it", "GET", "channel=a%0Adata:b" + good, 400, `{"error":{"code":107,`},
		{"not UTF-8", "GET", "channel=a%FF" + good, 400, `{"error":{"code":107,`},
		{"too long", "GET", "channel=" + strings.Repeat("x", 256) + good, 400, `{"error":{"code":107,`},
		{"too many", "GET", "channel=a&channel=b&channel=c" + good, 400,
			`{"error":{"code":107,"message":"3 channels, at most 2`},
		{"POST", "POST", "channel=a" + good, 405, `{"error":{"code":104,`},
		{"no token", "GET", "channel=a", 401, `{"error":{"code":101,`},
		{"expired", "GET", "channel=a&token=" + all["expired"], 401,
			`{"error":{"code":109,"message":"token expired"}}`},
		{"forged", "GET", "channel=a&token=" + all["another secret"], 401,
			`{"error":{"code":3500,"message":"invalid token"}}`},
		{"none", "GET", "channel=a&token=" + all["none"], 401, `{"error":{"code":3500,`},
	} {
		w := ts.do(tt.method, "/events?"+tt.query, "")
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.answer) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.answer)
		}
	}
	if len(ts.streams) > 0 {
		t.Fatal("a client without a valid token was accepted")
	}
	ts.subscribe("channel=a&token=" + all["good"])
	byHeader := ts.subscribe("channel=a", "Authorization", "Bearer "+all["good"])
	ts.clock.Advance(59 * time.Second)
	if byHeader.isClosed() {
		t.Error("closed before the token ended")
	}
	ts.clock.Advance(2 * time.Second)
	if !byHeader.isClosed() {
		t.Error("open after the token ended")
	}
}

// An SSE client that disconnects before its handler runs is not logged as an error. A server other
// than web.Server, which cannot hold streams, is logged with what to do.
func TestEventsNotOpened(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error // of detach; nil: the error of web.Detached for another server's ResponseWriter
		status int
		logged string
	}{
		{"the client has disconnected", fmt.Errorf("web: write: %w", net.ErrClosed), 200, ""},
		{"the client has reset", syscall.ECONNRESET, 200, ""},
		{"another server", nil, 500, "push: events need a web.Server"},
	} {
		ts := newTestServer(t, push.Config{})
		ts.detach = func(w http.ResponseWriter) (hub.ResponseStream, error) { return nil, tt.err }
		if tt.err == nil {
			ts.detach = func(w http.ResponseWriter) (hub.ResponseStream, error) {
				_, err := web.Detached(w)
				return nil, err
			}
		}
		w := ts.do("GET", "/events?channel=news", "")
		if w.Code != tt.status || (w.Body.Len() == 0) != (tt.logged == "") {
			t.Errorf("%s: answered %d %s", tt.name, w.Code, w.Body)
		}
		if got := ts.log.String(); !strings.Contains(got, tt.logged) || (got == "") != (tt.logged == "") {
			t.Errorf("%s: logged %q, want %q", tt.name, got, tt.logged)
		}
	}
}

func TestOrigins(t *testing.T) {
	ts := newTestServer(t, push.Config{AllowedOrigins: []string{"app.example.org", "https://*.example.net"}})
	for _, tt := range []struct {
		origin, host string
		allowed      bool
		header       string
	}{
		{"", "push.example.com", true, ""},
		{"http://push.example.com", "push.example.com", true, ""},
		{"http://push.example.com", "push.example.com:80", true, ""},
		{"https://PUSH.example.com", "push.example.com", true, ""},
		{"http://push.example.com:8080", "push.example.com", false, ""},
		{"http://evil.example.com", "push.example.com", false, ""},
		{"https://app.example.org", "push.example.com", true, "https://app.example.org"},
		{"https://app.example.org.evil.com", "push.example.com", false, ""},
		{"https://a.example.net", "push.example.com", true, "https://a.example.net"},
		{"http://a.example.net", "push.example.com", false, ""},
		{"null", "push.example.com", false, ""},
		{"null", "null", false, ""},
		{"push.example.com", "push.example.com", false, ""},
	} {
		for _, target := range []string{"/api/publish", "/events?channel=a", "/connection/websocket"} {
			method := "GET"
			if target == "/api/publish" {
				method = "POST"
			}
			w := ts.do(method, "http://"+tt.host+target, `{"channel":"a","data":1}`, "Origin", tt.origin)
			if (w.Code != 403) != tt.allowed {
				t.Errorf("%s from %q on %q: %d", target, tt.origin, tt.host, w.Code)
			}
			if got := w.Header().Get("Access-Control-Allow-Origin"); got != tt.header {
				t.Errorf("%s from %q on %q: allowed origin %q, want %q", target, tt.origin, tt.host, got, tt.header)
			}
		}
	}
	w := ts.do("OPTIONS", "/api/publish", "", "Origin", "https://app.example.org", "Access-Control-Request-Method",
		"POST")
	if w.Code != 204 || !strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "X-API-Key") {
		t.Errorf("preflight: %d %v", w.Code, w.Header())
	}
	if _, err := push.New(push.Config{AllowedOrigins: []string{"[a"}}); err == nil {
		t.Error("a malformed pattern was accepted")
	}
}

func TestMetricsAndStats(t *testing.T) {
	ts := newTestServer(t, push.Config{Version: "v9"})
	ts.subscribe("channel=news")
	ts.subscribe("channel=news&channel=more")
	ts.do("POST", "/api/publish", `{"channel":"news","data":1}`)
	w := ts.do("GET", "/metrics", "")
	for _, line := range []string{"myriad_connections 2", "myriad_messages_total 2", "myriad_publishes_total 1",
		"myriad_slow_disconnects_total 0",
		"go_goroutines ", "process_open_fds "} {
		if !strings.Contains(w.Body.String(), "\n"+line) {
			t.Errorf("metrics without %q", line)
		}
	}
	want := `{"version":"v9","development":true,"connections":2,"channels":2,"publishes":1,"messages":2,` +
		`"slow_disconnects":0,`
	if got := ts.do("GET", "/console/stats", "").Body.String(); !strings.HasPrefix(got, want) {
		t.Errorf("stats\n got %s\nwant %s", got, want)
	}
}

func TestHealthAndShutdown(t *testing.T) {
	ts := newTestServer(t, push.Config{})
	stream := ts.subscribe("channel=news")
	if w := ts.do("GET", "/health", ""); w.Code != 200 || w.Body.String() != "{}" {
		t.Errorf("health: %d %s", w.Code, w.Body)
	}
	ts.do("POST", "/api/publish", `{"channel":"news","data":"last"}`)
	if err := ts.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := stream.take(); !strings.HasSuffix(got, "data: \"last\"\n\n") || !stream.isClosed() {
		t.Errorf("received %q, closed: %v", got, stream.isClosed())
	}
	if got := ts.do("GET", "/health", "").Code; got != 503 {
		t.Errorf("health afterwards: %d", got)
	}
	if w := ts.do("POST", "/api/publish", `{"channel":"news","data":1}`); w.Code != 503 || !json.Valid(w.Body.Bytes()) {
		t.Errorf("publish afterwards: %d %s", w.Code, w.Body)
	}
}
