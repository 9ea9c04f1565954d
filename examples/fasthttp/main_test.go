package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/myriad-go/myriad/examples/exampletest"
)

func TestHandlersOfFasthttp(t *testing.T) {
	url := "http://" + exampletest.Serve(t, Adapt(handle, maxBody))
	for range 3 { // contexts are used again
		r, err := http.Get(url + "/hello?name=Ann")
		if got := exampletest.Body(t, r, err); got != "Hello, Ann!" || r.ContentLength != 11 {
			t.Errorf("hello: %q, length %d", got, r.ContentLength)
		}
		r, err = http.Post(url+"/count", "text/plain", strings.NewReader(strings.Repeat("x", 100_000)))
		if got := exampletest.Body(t, r, err); got != "100000 bytes by POST from 127.0.0.1" {
			t.Errorf("count: %q", got)
		}
		// of no known length
		r, err = http.Post(url+"/count", "text/plain", io.MultiReader(strings.NewReader("in chunks")))
		if got := exampletest.Body(t, r, err); got != "9 bytes by POST from 127.0.0.1" {
			t.Errorf("count: %q", got)
		}
		r, err = http.Get(url + "/redirect")
		if got := exampletest.Body(t, r, err); got != "Hello, again!" {
			t.Errorf("redirect: %q", got)
		}
		r, err = http.Get(url + "/nowhere")
		if exampletest.Body(t, r, err); r.StatusCode != http.StatusNotFound {
			t.Errorf("nowhere: %s", r.Status)
		}
	}
}

func TestStreamsOfFasthttp(t *testing.T) {
	stream := func(ctx *fasthttp.RequestCtx) {
		ctx.Response.Header.Set("X-Kind", "stream")
		ctx.Response.Header.SetCookie(newCookie("a", "1"))
		ctx.Response.Header.SetCookie(newCookie("b", "2"))
		if ctx.IsHead() {
			ctx.SetStatusCode(fasthttp.StatusNoContent)
			return
		}
		ctx.SetBodyStream(strings.NewReader(strings.Repeat("y", 300_000)), -1)
	}
	url := "http://" + exampletest.Serve(t, Adapt(stream, maxBody))
	r, err := http.Get(url)
	if got := exampletest.Body(t, r, err); len(got) != 300_000 || r.Header.Get("X-Kind") != "stream" ||
		len(r.Cookies()) != 2 {
		t.Errorf("%d bytes, %v", len(got), r.Header)
	}
	r, err = http.Head(url)
	if exampletest.Body(t, r, err); r.StatusCode != http.StatusNoContent {
		t.Errorf("HEAD: %s", r.Status)
	}
}

func newCookie(key, value string) *fasthttp.Cookie {
	c := new(fasthttp.Cookie)
	c.SetKey(key)
	c.SetValue(value)
	return c
}
