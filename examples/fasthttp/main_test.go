package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/myriad-go/myriad/web"
)

func start(t *testing.T, h fasthttp.RequestHandler) string {
	t.Helper()
	s := &web.Server{Handler: Adapt(h, maxBody)}
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

func TestHandlersOfFasthttp(t *testing.T) {
	url := start(t, handle)
	for range 3 { // contexts are used again
		r, err := http.Get(url + "/hello?name=Ann")
		if got := body(t, r, err); got != "Hello, Ann!" || r.ContentLength != 11 {
			t.Errorf("hello: %q, length %d", got, r.ContentLength)
		}
		r, err = http.Post(url+"/count", "text/plain", strings.NewReader(strings.Repeat("x", 100_000)))
		if got := body(t, r, err); got != "100000 bytes by POST from 127.0.0.1" {
			t.Errorf("count: %q", got)
		}
		r, err = http.Post(url+"/count", "text/plain", io.MultiReader(strings.NewReader("in chunks"))) // of no known length
		if got := body(t, r, err); got != "9 bytes by POST from 127.0.0.1" {
			t.Errorf("count: %q", got)
		}
		r, err = http.Get(url + "/redirect")
		if got := body(t, r, err); got != "Hello, again!" {
			t.Errorf("redirect: %q", got)
		}
		r, err = http.Get(url + "/nowhere")
		if body(t, r, err); r.StatusCode != http.StatusNotFound {
			t.Errorf("nowhere: %s", r.Status)
		}
	}
}

func TestStreamsOfFasthttp(t *testing.T) {
	url := start(t, func(ctx *fasthttp.RequestCtx) {
		ctx.Response.Header.Set("X-Kind", "stream")
		ctx.Response.Header.SetCookie(newCookie("a", "1"))
		ctx.Response.Header.SetCookie(newCookie("b", "2"))
		if ctx.IsHead() {
			ctx.SetStatusCode(fasthttp.StatusNoContent)
			return
		}
		ctx.SetBodyStream(strings.NewReader(strings.Repeat("y", 300_000)), -1)
	})
	r, err := http.Get(url)
	if got := body(t, r, err); len(got) != 300_000 || r.Header.Get("X-Kind") != "stream" || len(r.Cookies()) != 2 {
		t.Errorf("%d bytes, %v", len(got), r.Header)
	}
	r, err = http.Head(url)
	if body(t, r, err); r.StatusCode != http.StatusNoContent {
		t.Errorf("HEAD: %s", r.Status)
	}
}

func newCookie(key, value string) *fasthttp.Cookie {
	c := new(fasthttp.Cookie)
	c.SetKey(key)
	c.SetValue(value)
	return c
}
