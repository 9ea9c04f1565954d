package push

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// What browsers, WebViews and libraries send as Origin is one of a page, or is not.
func TestJudgeOrigins(t *testing.T) {
	type row struct {
		pattern, origin string
		allowed, named  bool
	}
	for _, tt := range []row{
		// of the server itself
		{"", "http://push.example.com", true, true}, {"", "https://push.example.com:443", true, true},
		{"", "http://push.example.com:80/", true, true}, {"", "wss://push.example.com/connection?x=y", true, true},
		{"", "capacitor://push.example.com", false, false}, {"", "http://push.example.com@evil.example", false, false},
		{"", "http://evil.example/http://push.example.com", false, false},
		{"", "http://evil.example#push.example.com", false,
			false},
		{"", `http://evil.example\@push.example.com`, false, false},
		{"", "http://push.example.com, http://evil.example", false,
			false},
		{"", "push.example.com", false, false}, {"", "://push.example.com", false, false}, {"", "null", false, false},
		// anybody's
		{"*", "https://evil.example", true, false}, {"*", "file://", true, false}, {"*", "null", true, false},
		{"*", "http://host/", true, false}, {"*", "ws://host/a?x=y", true, false}, {"*", "garbage", true, false},
		{"https://*", "https://evil.example", true, false}, {"*:8080", "http://evil.example:8080", true, false},
		{"*.*", "http://evil.example", true, false}, {"[a-z]*", "http://evil.example", true, false},
		{"https://*", "http://evil.example", false, false},
		// by a pattern
		{"app.example.org", "https://app.example.org", true, true},
		{"app.example.org", "https://app.example.org/", true, true},
		{"app.example.org", "ws://app.example.org/a?x=y", true, true},
		{"app.example.org", "http://app.example.org:81", false,
			false},
		{"app.example.org:443", "https://app.example.org", true, true},
		{"app.example.org:443", "http://app.example.org", false,
			false},
		{"https://app.example.org:443", "https://app.example.org", true, true},
		{"http://app.example.org:80", "http://app.example.org:80", true, true},
		{"http://app.example.org:*", "http://app.example.org", true, true},
		{"wss://app.example.org", "https://app.example.org", true, true},
		{"HTTPS://App.example.ORG", "https://app.example.org",
			true, true},
		{"*.example.org", "https://a.b.example.org", true, true},
		{"*.example.org", "https://example.org.evil.example", false,
			false},
		{"https://*.example.org", "https://evil.example/.example.org", false, false},
		{"http://[::1]:3000", "http://[::1]:3000", true, true}, {"[::1]:3000", "http://[::1]:3000", true, true},
		{`http://\[::1\]:3000`, "http://[::1]:3000", true, true}, {"[::1]", "http://[::1]", true, true},
		{"http://[0:0:0:0:0:0:0:1]:*", "http://[::1]:81", true, true},
		{"http://[::1]:3000", "http://[::2]:3000", false, false},
		{"http://[2001:DB8::1]", "http://[2001:db8::1]", true, true}, {"http://[::1]:80", "http://[::1]", true, true},
		{"host[12].example.org", "http://host2.example.org", true, true},
		{"file://", "file://", true, true}, {"file://", "file:///", true, true},
		{"file://", "file:///www/index.html", true, true},
		{"file://*", "file://", true, false}, {"null", "null", true, false}, {"null", "file://", false, false},
		{"capacitor://localhost", "capacitor://localhost", true, true}, {"localhost", "ionic://localhost", true, true},
	} {
		var patterns []string
		if tt.pattern != "" {
			patterns = []string{tt.pattern}
		}
		o, err := newOrigins(patterns)
		if err != nil {
			t.Error(err)
			continue
		}
		if v := o.judgeOrigin(tt.origin, "push.example.com"); v.allowed != tt.allowed || v.named != tt.named ||
			(v.foreign == "") != (tt.pattern == "" && tt.allowed) {
			t.Errorf("%s by %q: %+v", tt.origin, tt.pattern, v)
		}
	}
	for _, pattern := range []string{"", "[a", "http://", "wss://", "https://app.example.org/", "app.example.org/path",
		"https://bücher.example"} {
		if _, err := newOrigins([]string{pattern}); err == nil {
			t.Errorf("the pattern %q was accepted", pattern)
		}
	}
}

// doorPaths are paths of all doors by HTTP, with requests that they answer.
var doorPaths = []struct{ method, path, body string }{
	{"GET", "/events?channel=a", ""}, {"GET", "/connection/sse?cf_connect=%7B%7D", ""},
	{"POST", "/connection/http_stream", `{"id":1,"connect":{}}`}, {"POST", "/connection/uni_http_stream", "{}"},
	{"GET", "/connection/uni_sse?cf_connect=%7B%7D", ""}, {"POST", "/emulation", "{}"},
	{"GET", "/connection/websocket", ""}, {"GET", mercurePath + "?topic=a", ""}, {"POST", "/api/publish", "{}"},
}

// All doors take the same origins.
func TestOriginsOfAllDoors(t *testing.T) {
	ts := newTestServer(t, Config{AllowedOrigins: []string{"*"}})
	strict := newTestServer(t, Config{AllowedOrigins: []string{"app.example.org"}})
	for _, origin := range []string{"file://", "null", "http://host/", "ws://host/a?x=y", "http://[::1]:3000",
		"garbage"} {
		for _, door := range doorPaths {
			fields := []string{"Origin", origin}
			w := ts.do(door.method, door.path, door.body, fields...)
			if w.Code == 403 || w.Header().Get("Access-Control-Allow-Origin") != origin {
				t.Errorf("%s from %s: %d %v", door.path, origin, w.Code, w.Header())
			}
			if w := strict.do(door.method, door.path, door.body, fields...); w.Code != 403 {
				t.Errorf("%s from %s, which is not allowed: %d", door.path, origin, w.Code)
			}
		}
	}
	live := newLiveServer(t, Config{AllowedOrigins: []string{"*"}})
	for _, origin := range []string{"file://", "null", "http://host/", "ws://host/a?x=y", "garbage"} {
		c := live.dial("GET /connection/websocket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n" +
			"Upgrade: websocket\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: " + origin +
			"\r\n\r\n")
		if line, err := c.r.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 101 ") {
			t.Errorf("a WebSocket from %s: %q, %v", origin, line, err)
		}
		c.Close()
	}
	r := []string{"https://app.example.org", "https://evil.example"}
	if v := strict.origins.judge(&http.Request{Host: "a", Header: http.Header{"Origin": r}}); v.allowed {
		t.Error("a request with several origins is allowed")
	}
}

// Pages of sites that a pattern names may send cookies and the fields of hooks to every door; those
// that only * allows may not, and what their browsers send nevertheless does not reach a hook.
func TestCORSOfAllDoors(t *testing.T) {
	var cookies []string
	ts := newTestServer(t, Config{AllowedOrigins: []string{"https://app.example.org", "*"}, Hooks: Hooks{
		Headers: []string{"cookie", "X-Session", "Authorization"},
		Connect: func(_ context.Context, c Caller, _ ConnectRequest) (ConnectAnswer, error) {
			cookies = append(cookies, c.Header.Get("Cookie")+c.Header.Get("Authorization"))
			return ConnectAnswer{}, nil
		}}})
	for origin, credentials := range map[string]string{"https://app.example.org": "true", "https://other.example": "",
		"null": ""} {
		for _, door := range doorPaths {
			w := ts.do(door.method, door.path, door.body, "Origin", origin)
			h := w.Header()
			if h.Get("Access-Control-Allow-Origin") != origin ||
				h.Get("Access-Control-Allow-Credentials") != credentials ||
				h.Get("Vary") != "Origin" || !strings.Contains(h.Get("Access-Control-Expose-Headers"),
				"Last-Event-ID") {
				t.Errorf("%s from %s: %v", door.path, origin, h)
			}
			w = ts.do("OPTIONS", door.path, "", "Origin", origin, "Access-Control-Request-Method", door.method,
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
			ts.do("POST", path, `{"id":1,"connect":{}}`, "Origin", tt.origin, "Cookie", "s=1", "Authorization",
				tt.authorization)
			if len(cookies) != 1 || cookies[0] != tt.want {
				t.Errorf("%s from %s: the hook got %q, want %q", path, tt.origin, cookies, tt.want)
			}
		}
	}
}
