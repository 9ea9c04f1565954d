package main

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/examples/exampletest"
)

func TestRoutes(t *testing.T) {
	url := "http://" + exampletest.Serve(t, routes())
	r, err := http.Get(url + "/hello/Ann")
	if got := exampletest.Body(t, r, err); got != "{\"hello\":\"Ann\"}\n" {
		t.Errorf("hello: %q", got)
	}
	r, err = http.Post(url+"/shout", "application/json", strings.NewReader(`{"Text":"hey"}`))
	if got := exampletest.Body(t, r, err); got != "hey!" {
		t.Errorf("shout: %q", got)
	}
	r, err = http.Get(url + "/count/3")
	if got := exampletest.Body(t, r, err); got != "1\n2\n3\n" {
		t.Errorf("count: %q", got)
	}
	want, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	r, err = http.Get(url + "/source")
	if got := exampletest.Body(t, r, err); got != string(want) {
		t.Errorf("source: %d bytes, want %d", len(got), len(want))
	}
	r, err = http.Get(url + "/nowhere")
	if exampletest.Body(t, r, err); r.StatusCode != http.StatusNotFound {
		t.Errorf("nowhere: %s", r.Status)
	}
}
