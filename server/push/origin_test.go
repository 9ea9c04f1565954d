package push_test

import (
	"context"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// doorPaths are paths of all doors by HTTP, with requests that they answer.
var doorPaths = []struct{ method, path, body string }{
	{"GET", "/events?channel=a", ""}, {"GET", "/connection/sse?cf_connect=%7B%7D", ""},
	{"POST", "/connection/http_stream", `{"id":1,"connect":{}}`}, {"POST", "/connection/uni_http_stream", "{}"},
	{"GET", "/connection/uni_sse?cf_connect=%7B%7D", ""}, {"POST", "/emulation", "{}"},
	{"GET", "/connection/websocket", ""}, {"GET", mercurePath + "?topic=a", ""}, {"POST", "/api/publish", "{}"},
}

// All doors take the same origins.
func TestOriginsOfAllDoors(t *testing.T) {
	ts := servertest.New(t, push.Config{AllowedOrigins: []string{"*"}})
	strict := servertest.New(t, push.Config{AllowedOrigins: []string{"app.example.org"}})
	for _, origin := range []string{"file://", "null", "http://host/", "ws://host/a?x=y", "http://[::1]:3000",
		"garbage"} {
		for _, door := range doorPaths {
			fields := []string{"Origin", origin}
			w := ts.Do(door.method, door.path, door.body, fields...)
			if w.Code == 403 || w.Header().Get("Access-Control-Allow-Origin") != origin {
				t.Errorf("%s from %s: %d %v", door.path, origin, w.Code, w.Header())
			}
			if w := strict.Do(door.method, door.path, door.body, fields...); w.Code != 403 {
				t.Errorf("%s from %s, which is not allowed: %d", door.path, origin, w.Code)
			}
		}
	}
	live := servertest.NewLive(t, push.Config{AllowedOrigins: []string{"*"}})
	for _, origin := range []string{"file://", "null", "http://host/", "ws://host/a?x=y", "garbage"} {
		c := live.Dial("GET /connection/websocket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n" +
			"Upgrade: websocket\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: " + origin +
			"\r\n\r\n")
		if line, err := c.R.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 101 ") {
			t.Errorf("a WebSocket from %s: %q, %v", origin, line, err)
		}
		c.Close()
	}
}

// Pages of sites that a pattern names may send cookies and the fields of hooks to every door; those
// that only * allows may not, and what their browsers send nevertheless does not reach a hook.
func TestCORSOfAllDoors(t *testing.T) {
	var cookies []string
	ts := servertest.New(t, push.Config{AllowedOrigins: []string{"https://app.example.org", "*"}, Hooks: push.Hooks{
		Headers: []string{"cookie", "X-Session", "Authorization"},
		Connect: func(_ context.Context, c push.Caller, _ push.ConnectRequest) (push.ConnectAnswer, error) {
			cookies = append(cookies, c.Header.Get("Cookie")+c.Header.Get("Authorization"))
			return push.ConnectAnswer{}, nil
		}}})
	for origin, credentials := range map[string]string{"https://app.example.org": "true", "https://other.example": "",
		"null": ""} {
		for _, door := range doorPaths {
			w := ts.Do(door.method, door.path, door.body, "Origin", origin)
			h := w.Header()
			if h.Get("Access-Control-Allow-Origin") != origin ||
				h.Get("Access-Control-Allow-Credentials") != credentials ||
				h.Get("Vary") != "Origin" || !strings.Contains(h.Get("Access-Control-Expose-Headers"),
				"Last-Event-ID") {
				t.Errorf("%s from %s: %v", door.path, origin, h)
			}
			w = ts.Do("OPTIONS", door.path, "", "Origin", origin, "Access-Control-Request-Method", door.method,
				"Access-Control-Request-Headers", "x-session")
			h = w.Header()
			if w.Code != 204 || h.Get("Access-Control-Allow-Credentials") != credentials ||
				h.Get("Access-Control-Allow-Headers") != "Authorization, Cache-Control, Content-Type, Last-Event-ID, "+
					"X-API-Key, cookie, X-Session" {
				t.Errorf("%s from %s asks first: %d %v", door.path, origin, w.Code, h)
			}
		}
	}
	for _, tt := range []struct{ origin, authorization, want string }{
		{"", "", "s=1"}, {"http://example.com", "", "s=1"}, {"https://app.example.org", "", "s=1"},
		{"https://app.example.org", "Basic eDp5", "s=1Basic eDp5"}, {"https://other.example", "", ""},
		{"https://other.example", "Basic eDp5", ""}, {"https://other.example", "Bearer x", "Bearer x"},
		{"null", "", ""},
	} {
		for _, path := range []string{"/connection/http_stream", "/connection/sse"} {
			cookies = nil
			ts.Do("POST", path, `{"id":1,"connect":{}}`, "Origin", tt.origin, "Cookie", "s=1", "Authorization",
				tt.authorization)
			if len(cookies) != 1 || cookies[0] != tt.want {
				t.Errorf("%s from %s: the hook got %q, want %q", path, tt.origin, cookies, tt.want)
			}
		}
	}
}
