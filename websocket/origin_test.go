package websocket

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// CheckOrigin decides alone, for Accept, Handler and AppendUpgrade alike, and sees the request.
func TestCheckOrigin(t *testing.T) {
	var asked *http.Request
	o := &Options{Engine: startEngine(t, myriad.Config{}), PingInterval: quiet,
		CheckOrigin: func(r *http.Request) bool {
			asked = r
			return r.Header.Get("X-Token") == "good"
		}}
	foreign := strings.Replace(sampleRequest, "Upgrade:", "Origin: https://evil.example\r\nX-Token: good\r\nUpgrade:",
		1)
	own := strings.Replace(sampleRequest, "Upgrade:", "Origin: https://example.com\r\nUpgrade:", 1)
	for _, c := range []struct {
		name, request string
		asks, allowed bool
	}{
		{"foreign", foreign, true, true},
		{"own", own, true, false},
		{"none", sampleRequest, true, false},
		{"not a handshake", strings.Replace(foreign, "Version: 13", "Version: 12", 1), false, false},
	} {
		judge := func(way string, ok bool) {
			t.Helper()
			if ok != c.allowed || (asked != nil) != c.asks {
				t.Errorf("%s, %s: allowed %v, want %v; CheckOrigin was asked: %v, want %v", c.name, way, ok, c.allowed,
					asked != nil, c.asks)
			}
			if asked != nil && (asked.Host != "example.com" || asked.URL.Path != "/chat") {
				t.Errorf("%s, %s: CheckOrigin saw %v", c.name, way, asked)
			}
			asked = nil
		}
		_, _, err := AppendUpgrade(nil, []byte(c.request), o)
		judge("AppendUpgrade", err == nil)

		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
		p := w.client(c.request)
		w.RunFor(time.Second)
		judge("Handler", strings.HasPrefix(string(p.Received()), "HTTP/1.1 101 "))
		w.finish(p)

		rec := httptest.NewRecorder()
		_, err = Accept(rec, requestOf(t, c.request), o) // a recorder cannot be hijacked: what is allowed fails later
		judge("Accept", err != nil && rec.Code == http.StatusInternalServerError)
	}
}

func TestCheckOriginBesidePatterns(t *testing.T) {
	o := &Options{OriginPatterns: []string{"*"}, CheckOrigin: func(*http.Request) bool { return true }}
	if _, err := o.settings(); err == nil || !strings.Contains(err.Error(), "CheckOrigin") {
		t.Errorf("both ways of deciding were accepted: %v", err)
	}
}
