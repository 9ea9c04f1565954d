package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web"
)

func start(t *testing.T) string {
	t.Helper()
	s := &web.Server{Handler: routes()}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func body(t *testing.T, r *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

func TestRoutes(t *testing.T) {
	url := start(t)
	r, err := http.Get(url + "/hello/Ann")
	if got := body(t, r, err); got != "{\"hello\":\"Ann\"}\n" {
		t.Errorf("hello: %q", got)
	}
	r, err = http.Post(url+"/shout", "application/json", strings.NewReader(`{"Text":"hey"}`))
	if got := body(t, r, err); got != "hey!" {
		t.Errorf("shout: %q", got)
	}
	r, err = http.Get(url + "/count/3")
	if got := body(t, r, err); got != "1\n2\n3\n" {
		t.Errorf("count: %q", got)
	}
	want, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	r, err = http.Get(url + "/source")
	if got := body(t, r, err); got != string(want) {
		t.Errorf("source: %d bytes, want %d", len(got), len(want))
	}
	r, err = http.Get(url + "/nowhere")
	if body(t, r, err); r.StatusCode != http.StatusNotFound {
		t.Errorf("nowhere: %s", r.Status)
	}
}
