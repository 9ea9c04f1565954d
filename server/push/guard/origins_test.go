package guard

import (
	"net/http"
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
		o, err := NewOrigins(patterns, nil)
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
		"https://bücher.example", "://", "://host", "1a://host", "a b://host"} {
		if _, err := NewOrigins([]string{pattern}, nil); err == nil {
			t.Errorf("the pattern %q was accepted", pattern)
		}
	}
}

// A request with several origins is not a browser's.
func TestSeveralOrigins(t *testing.T) {
	strict, err := NewOrigins([]string{"app.example.org"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := []string{"https://app.example.org", "https://evil.example"}
	if v := strict.judge(&http.Request{Host: "a", Header: http.Header{"Origin": r}}); v.allowed {
		t.Error("a request with several origins is allowed")
	}
}
