package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/web"
)

func TestRoutes(t *testing.T) {
	url, c := "http://"+exampletest.Serve(t, routes()), exampletest.Client(t)
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
