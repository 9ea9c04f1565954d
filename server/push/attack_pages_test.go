package push_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"

	"github.com/myriad-go/myriad/server/push"
)

// This file has what a page of another site may try through a visitor's browser, and what a
// publisher may try with line breaks.

// everyPath returns every path of the server, with the method of its requests.
func everyPath(ts *servertest.Server) map[string]string {
	paths := map[string]string{"/emulation": "POST", "/api": "POST", "/api/batch": "POST", "/api/unknown": "POST",
		"/cluster/remove?node=a": "POST", mercurePath + "?topic=a": "GET", mercurePath: "POST",
		subscriptionsPath: "GET", "/events?channel=news": "GET", "/console/token": "POST"}
	for _, name := range []string{"websocket", "uni_websocket", "http_stream", "sse", "uni_http_stream", "uni_sse"} {
		paths["/connection/"+name] = "GET"
	}
	for _, name := range []string{"stats", "channels", "channel?name=news", "cluster", "connections", "namespaces",
		"refusals", "events?channel=news"} {
		paths["/console/"+name] = "GET"
	}
	for _, m := range servertest.APIMethods(ts) {
		paths["/api/"+m.Name] = "POST"
	}
	return paths
}

// In development mode, where nothing needs a key, a page of another site gets 403 from every path:
// it can neither open a WebSocket nor publish by a form. The page's browser sends Origin.
func TestAttackOtherSites(t *testing.T) {
	ts := servertest.New(t, push.Config{Doors: servertest.Doors(mercure.Config{Subscriptions: true})})
	stream := ts.Events("channel=news")
	stream.Take()
	for path, method := range everyPath(ts) {
		for _, origin := range []string{"https://evil.example", "null", "http://example.com.evil.example",
			"http://example.com:81", "file://", "http://evil.example/http://example.com"} {
			for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded"} {
				fields := []string{"Origin", origin, "Content-Type", contentType}
				if strings.Contains(path, "websocket") {
					fields = append(fields, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version",
						"13",
						"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
				}
				w := ts.Do(method, path, `{"channel":"news","data":1}`, fields...)
				if w.Code != http.StatusForbidden || w.Header().Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s %s from %s: %d", method, path, origin, w.Code)
				}
			}
		}
	}
	if got := stream.Take(); got != "" {
		t.Errorf("a page of another site has published: %q", got)
	}
	if n := len(ts.Streams); n != 1 {
		t.Errorf("%d streams are open, want 1", n)
	}
}

// A page of another site that asks first is not told that it may.
func TestAttackPreflight(t *testing.T) {
	ts := servertest.New(t, push.Config{AllowedOrigins: []string{"https://app.example.org"}})
	for origin, status := range map[string]int{"https://evil.example": 403, "https://app.example.org": 204,
		"https://app.example.org.evil.example": 403} {
		for path := range everyPath(ts) {
			w := ts.Do("OPTIONS", path, "", "Origin", origin, "Access-Control-Request-Method", "POST",
				"Access-Control-Request-Headers", "x-api-key")
			allowed := w.Header().Get("Access-Control-Allow-Origin")
			if w.Code != status || (allowed != "") != (status == 204) {
				t.Errorf("%s from %s: %d, allowed %q", path, origin, w.Code, allowed)
			}
		}
	}
}

// Data, channels and ids with line breaks do not add fields to events: JSON is written on one line,
// names have no control characters, and an id in Last-Event-ID is not repeated.
func TestAttackLineBreaks(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 5, Recovery: true}}})
	const breaks = `id: 9\nevent: evil\r\n\r\ndata: evil\r`
	stream := ts.Events("channel=news&last_event_id=x%0Aevent:%20evil")
	uni := ts.Open("POST", "/connection/uni_sse", `{"subs":{"news":{}}}`)
	for _, data := range []string{`"` + breaks + `"`, "{\"a\"\n:\r\n1}", "[1,\n\n2]", "\"\u2028\u2029\""} {
		body := `{"channel":"news","data":` + data + `,"tags":{"a":"` + breaks +
			`"},"idempotency_key":"` + breaks + `"}`
		ts.Do("POST", "/api/publish", body)
		ts.PublishAs(context.Background(), "news", push.Publication{Data: []byte(data), User: "u\nevent: evil"})
	}
	for name, got := range map[string]string{"events": stream.Take(), "uni_sse": uni.Take()} {
		for line := range strings.FieldsFuncSeq(got, func(r rune) bool { return r == '\n' || r == '\r' }) {
			field, _, _ := strings.Cut(line, ":")
			if field != "data" && field != "id" && field != "retry" && field != "" && line != "event: gap" ||
				strings.HasPrefix(line, "data: evil") || strings.HasPrefix(line, "id: 9") {
				t.Errorf("%s: the line %q", name, line)
			}
		}
		if !strings.Contains(got, "data: ") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, name := range []string{"a%0Aevent:%20evil", "a%0Dx", "a%00"} {
		if w := ts.Do("GET", "/events?named=1&channel="+name, ""); w.Code != http.StatusBadRequest {
			t.Errorf("the channel %s: %d", name, w.Code)
		}
	}
}

// The console's paths need the key, however they are written.
func TestAttackConsolePaths(t *testing.T) {
	ts := servertest.New(t, push.Config{APIKey: "key", TokenSecret: tokentest.Secret})
	for path, method := range everyPath(ts) {
		if !strings.HasPrefix(path, "/console/") {
			continue
		}
		for _, written := range []string{path, strings.Replace(path, "/console/", "//console/", 1),
			strings.Replace(path, "/console/", "/console/./", 1), strings.Replace(path, "/console/", "/console/%2e/",
				1)} {
			w := httptest.NewRecorder()
			ts.ServeHTTP(w, httptest.NewRequest(method, written, strings.NewReader("{}")))
			if w.Code < 300 || strings.Contains(w.Body.String(), `"connections"`) {
				t.Errorf("%s %s: %d %s", method, written, w.Code, w.Body)
			}
		}
	}
}

// Paths of the Mercure door.
const (
	mercurePath       = "/.well-known/mercure"
	subscriptionsPath = mercurePath + "/subscriptions"
)
