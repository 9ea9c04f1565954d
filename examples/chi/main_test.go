package main

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/websocket"
)

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(p)
}

func TestRoutes(t *testing.T) {
	url := "http://" + exampletest.Serve(t, routes())
	r, got := get(t, url+"/articles/7")
	if got != "article 7" || r.Trailer.Get("X-Bytes") != "9" {
		t.Errorf("got %q, trailer %v", got, r.Trailer)
	}
	if r, got = get(t, url+"/articles/7/slow"); r.StatusCode != http.StatusGatewayTimeout ||
		got != "context deadline exceeded\n" {
		t.Errorf("slow: %s %q", r.Status, got)
	}
	if r, _ = get(t, url+"/nowhere"); r.StatusCode != http.StatusNotFound {
		t.Errorf("nowhere: %s", r.Status)
	}
}

func TestUpgradeThroughMiddleware(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), exampletest.Patience)
	defer cancel()
	got := make(chan string, 1)
	c, _, err := websocket.Dial(ctx, "ws://"+exampletest.Serve(t, routes())+"/echo",
		&websocket.DialOptions{Options: websocket.Options{
			OnMessage: func(_ *websocket.Conn, _ websocket.Op, p []byte) { got <- string(p) },
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort(nil)
	if err := c.Write(websocket.OpText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	select {
	case s := <-got:
		if s != "hello" {
			t.Errorf("got %q", s)
		}
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
}
