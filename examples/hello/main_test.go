package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web"
)

// start serves the routes until the test ends, and returns the server's URL.
func start(t *testing.T) string {
	t.Helper()
	s := &web.Server{Handler: routes()}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

// client is one whose idle connections do not outlive the test: Shutdown waits for those that have not asked anything.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestRoutes(t *testing.T) {
	url, c := start(t), client(t)
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/hello", "", 200, "Hello, world!\n"},
		{"GET", "/hello?name=Ann", "", 200, "Hello, Ann!\n"},
		{"POST", "/count", strings.Repeat("x", 1<<20), 200, "1048576\n"},
		{"GET", "/count", "", 405, "Method Not Allowed\n"},
		{"GET", "/nothing", "", 404, "404 page not found\n"},
	} {
		req, err := http.NewRequest(tt.method, url+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", tt.method, tt.path, err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != tt.status || string(body) != tt.want {
			t.Errorf("%s %s: %d %q, %v; want %d %q", tt.method, tt.path, res.StatusCode, body, err, tt.status, tt.want)
		}
	}
}

// The program ends in order when it is told to, and says why when it cannot begin.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := serve(ctx, &web.Server{Addr: "127.0.0.1:0", Handler: routes()}); err != nil {
		t.Error(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := serve(context.Background(), &web.Server{Addr: taken.Addr().String()}); err == nil {
		t.Error("serving on an address that is taken did not fail")
	}
}
