package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors"
)

func TestDevelopmentShowsTheEngine(t *testing.T) {
	engine, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Shutdown(t.Context()) })
	h := localHost(withDebug(http.NotFoundHandler(), engine))
	for path, want := range map[string]int{"/debug/myriad": 200, "/debug/other": 404, "/": 404} {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = "127.0.0.1:8000"
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: status %d, want %d: %s", path, w.Code, want, w.Body)
		}
	}
}

// In development mode only pages of this machine may use the server.
func TestDevelopmentServesThisMachineOnly(t *testing.T) {
	pusher, err := push.New(push.Config{AllowedOrigins: localOrigins, Doors: doors.All(doors.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pusher.Shutdown(t.Context()) })
	h := localHost(pusher)
	for _, c := range []struct {
		host, origin string
		status       int
	}{
		{"127.0.0.1:8000", "", 200},
		{"localhost:8000", "", 200},
		{"[::1]:8000", "", 200},
		{"[::1]", "", 200},
		{"localhost", "http://localhost:3000", 200},
		{"127.0.0.1:8000", "http://127.0.0.1:3000", 200},
		{"127.0.0.1:8000", "https://localhost", 200},
		{"127.0.0.1:8000", "http://[::1]:3000", 200},
		{"127.0.0.1:8000", "https://example.org", 403},
		{"127.0.0.1:8000", "http://localhost.example.org", 403},
		{"rebound.example.org:8000", "", 403},
		{"rebound.example.org:8000", "http://rebound.example.org:8000", 403},
	} {
		r := httptest.NewRequest("GET", "/health", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("host %q, origin %q: status %d, want %d: %s", c.host, c.origin, w.Code, c.status, w.Body)
		}
		if c.origin != "" && c.status == http.StatusOK && w.Header().Get("Access-Control-Allow-Origin") != c.origin {
			t.Errorf("host %q, origin %q: the page cannot read the answer", c.host, c.origin)
		}
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
