package push_test

import (
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

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
	ts.Unready()
	if w := ts.Do("GET", "/health", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "will shut down") {
		t.Errorf("health of a server that will shut down: %d %s", w.Code, w.Body)
	}
	if w := ts.Do("POST", "/api/publish", `{"channel":"news","data":"last"}`); w.Code != 200 {
		t.Errorf("publish to a server that will shut down: %d %s", w.Code, w.Body)
	}
	if err := ts.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := stream.Take()
	if !regexp.MustCompile(`data: "last"\n\nretry: [1-9]\d{3}\n\n$`).MatchString(got) || !stream.IsClosed() {
		t.Errorf("received %q, closed: %v", got, stream.IsClosed())
	}
	if got := ts.Do("GET", "/health", "").Code; got != 503 {
		t.Errorf("health afterwards: %d", got)
	}
	if w := ts.Do("POST", "/api/publish", `{"channel":"news","data":1}`); w.Code != 503 || !json.Valid(w.Body.Bytes()) {
		t.Errorf("publish afterwards: %d %s", w.Code, w.Body)
	}
}

// Entity tags are compared as RFC 9110 §13.1.2 has it.
func TestEntityTags(t *testing.T) {
	for header, want := range map[string]bool{`"a"`: true, `W/"a"`: true, `"b", W/"a"`: true, `*`: true, `a`: true,
		``:    false,
		`"b"`: false, `W/"b"`: false, `"a`: false, `"aa"`: false} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("If-None-Match", header)
		if answer.HasETag(r, "a") != want {
			t.Errorf("%s matches: %v", header, !want)
		}
	}
	m := servertest.New(t, push.Config{Doors: servertest.Doors(mercure.Config{Subscriptions: true})})
	tag := m.Do("GET", subscriptionsPath, "").Header().Get("ETag")
	if w := m.Do("GET", subscriptionsPath, "", "If-None-Match", "W/"+tag); w.Code != 304 {
		t.Errorf("a weak tag: %d", w.Code)
	}
}

// A body with a content coding is answered 415 by every door that reads one, and not taken for JSON
// that is malformed.
func TestCompressedBodies(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	for path, method := range everyPath(ts) {
		if method != "POST" {
			continue
		}
		for _, coding := range []string{"gzip", "identity, br", "x"} {
			w := ts.Do("POST", path, "\x1f\x8b", "Content-Encoding", coding)
			if w.Code != 415 || w.Header().Get("Accept-Encoding") != "identity" ||
				!strings.Contains(w.Body.String(), "the content encoding") {
				t.Errorf("%s with %s: %d %s", path, coding, w.Code, w.Body)
			}
		}
	}
	if w := ts.Do("POST", "/api/publish", `{"channel":"a","data":1}`, "Content-Encoding", "identity"); w.Code != 200 {
		t.Errorf("identity: %d %s", w.Code, w.Body)
	}
}
