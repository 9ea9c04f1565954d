package push_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"

	"github.com/myriad-go/myriad/web"
)

func TestPublishAPI(t *testing.T) {
	ts := servertest.New(t, push.Config{APIKey: "key", Limits: push.Limits{Publication: 1000}})
	stream := ts.Events("channel=news")
	stream.Take()
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
		w := ts.Do(tt.method, "/api/publish", tt.body, "X-API-Key", tt.key)
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.answer) || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.answer)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: Content-Type %q", tt.name, got)
		}
	}
	if got := stream.Take(); got != `data: {"a":"é\u2028"}`+"\n\n" {
		t.Errorf("subscriber received %q", got)
	}
	if got := ts.Do("GET", "/api/frobnicate", "").Code; got != 404 {
		t.Errorf("an unknown method: %d", got)
	}
}

func TestEvents(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	one := ts.Events("channel=news&channel=news", "Last-Event-ID", "7")
	both := ts.Events("channel=sport&channel=news&named=1")
	if got := one.Take(); !strings.HasPrefix(got, "retry: ") || !strings.HasSuffix(got, "\n\n") {
		t.Errorf("a stream starts with %q", got)
	}
	both.Take()
	ts.Do("POST", "/api/publish", `{"channel":"news","data":{"n":1}}`)
	ts.Do("POST", "/api/publish", `{"channel":"sport","data":2}`)
	if got, want := one.Take(), "data: {\"n\":1}\n\n"; got != want {
		t.Errorf("received %q, want %q", got, want)
	}
	if got, want := both.Take(), "event: news\ndata: {\"n\":1}\n\nevent: sport\ndata: 2\n\n"; got != want {
		t.Errorf("received %q, want %q", got, want)
	}
	for range 3 {
		ts.Clock.Advance(25 * time.Second)
		if got := one.Take(); got != ":\n\n" {
			t.Errorf("a ping interval later: %q", got)
		}
	}
	if one.IsClosed() {
		t.Error("closed without an answer to a ping, which SSE does not have")
	}
	one.Close(push.Disconnect{Code: 3000, Reason: "connection closed"})
	pushtest.WaitFor(t, "the session to end", func() bool { return ts.Figures(0).Connections == 1 })
}

func TestSlowEvents(t *testing.T) {
	ts := servertest.New(t, push.Config{Limits: push.Limits{Queue: 1000}})
	slow, quick := ts.Events("channel=news"), ts.Events("channel=news")
	slow.SetQueued(990)
	ts.Do("POST", "/api/publish", `{"channel":"news","data":"0123456789"}`)
	if !slow.IsClosed() || quick.IsClosed() {
		t.Errorf("slow closed: %v, quick closed: %v", slow.IsClosed(), quick.IsClosed())
	}
	if got := ts.Figures(0).SlowDisconnects; got != 1 {
		t.Errorf("%d slow disconnects", got)
	}
}

func TestEventsRefused(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret, Limits: push.Limits{Channels: 2}})
	all := tokentest.Tokens(t, ts.Clock.Now())
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
		w := ts.Do(tt.method, "/events?"+tt.query, "")
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.answer) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.answer)
		}
	}
	if len(ts.Streams) > 0 {
		t.Fatal("a client without a valid token was accepted")
	}
	ts.Events("channel=a&token=" + all["good"])
	byHeader := ts.Events("channel=a", "Authorization", "Bearer "+all["good"])
	ts.Clock.Advance(59 * time.Second)
	if byHeader.IsClosed() {
		t.Error("closed before the token ended")
	}
	ts.Clock.Advance(2 * time.Second)
	if !byHeader.IsClosed() {
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
		ts := servertest.New(t, push.Config{})
		ts.Detach = func(w http.ResponseWriter) (hub.ResponseStream, error) { return nil, tt.err }
		if tt.err == nil {
			ts.Detach = func(w http.ResponseWriter) (hub.ResponseStream, error) {
				_, err := web.Detached(w)
				return nil, err
			}
		}
		w := ts.Do("GET", "/events?channel=news", "")
		if w.Code != tt.status || (w.Body.Len() == 0) != (tt.logged == "") {
			t.Errorf("%s: answered %d %s", tt.name, w.Code, w.Body)
		}
		if got := ts.Log.String(); !strings.Contains(got, tt.logged) || (got == "") != (tt.logged == "") {
			t.Errorf("%s: logged %q, want %q", tt.name, got, tt.logged)
		}
	}
}

func TestOrigins(t *testing.T) {
	ts := servertest.New(t, push.Config{AllowedOrigins: []string{"app.example.org", "https://*.example.net"}})
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
			w := ts.Do(method, "http://"+tt.host+target, `{"channel":"a","data":1}`, "Origin", tt.origin)
			if (w.Code != 403) != tt.allowed {
				t.Errorf("%s from %q on %q: %d", target, tt.origin, tt.host, w.Code)
			}
			if got := w.Header().Get("Access-Control-Allow-Origin"); got != tt.header {
				t.Errorf("%s from %q on %q: allowed origin %q, want %q", target, tt.origin, tt.host, got, tt.header)
			}
		}
	}
	w := ts.Do("OPTIONS", "/api/publish", "", "Origin", "https://app.example.org", "Access-Control-Request-Method",
		"POST")
	if w.Code != 204 || !strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "X-API-Key") {
		t.Errorf("preflight: %d %v", w.Code, w.Header())
	}
	if _, err := push.New(push.Config{AllowedOrigins: []string{"[a"}}); err == nil {
		t.Error("a malformed pattern was accepted")
	}
}

func TestMetricsAndStats(t *testing.T) {
	ts := servertest.New(t, push.Config{Version: "v9"})
	ts.Events("channel=news")
	ts.Events("channel=news&channel=more")
	ts.Do("POST", "/api/publish", `{"channel":"news","data":1}`)
	w := ts.Do("GET", "/metrics", "")
	for _, line := range []string{"myriad_connections 2", "myriad_messages_total 2", "myriad_publishes_total 1",
		"myriad_slow_disconnects_total 0",
		"go_goroutines ", "process_open_fds "} {
		if !strings.Contains(w.Body.String(), "\n"+line) {
			t.Errorf("metrics without %q", line)
		}
	}
	want := `{"version":"v9","development":true,"connections":2,"channels":2,"publishes":1,"messages":2,` +
		`"slow_disconnects":0,`
	if got := ts.Do("GET", "/console/stats", "").Body.String(); !strings.HasPrefix(got, want) {
		t.Errorf("stats\n got %s\nwant %s", got, want)
	}
}

func TestHealthAndShutdown(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	stream := ts.Events("channel=news")
	if w := ts.Do("GET", "/health", ""); w.Code != 200 || w.Body.String() != "{}" {
		t.Errorf("health: %d %s", w.Code, w.Body)
	}
	ts.Do("POST", "/api/publish", `{"channel":"news","data":"last"}`)
	if err := ts.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := stream.Take(); !strings.HasSuffix(got, "data: \"last\"\n\n") || !stream.IsClosed() {
		t.Errorf("received %q, closed: %v", got, stream.IsClosed())
	}
	if got := ts.Do("GET", "/health", "").Code; got != 503 {
		t.Errorf("health afterwards: %d", got)
	}
	if w := ts.Do("POST", "/api/publish", `{"channel":"news","data":1}`); w.Code != 503 || !json.Valid(w.Body.Bytes()) {
		t.Errorf("publish afterwards: %d %s", w.Code, w.Body)
	}
}
