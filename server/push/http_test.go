package push_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
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
