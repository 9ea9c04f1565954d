package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/client"
)

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.URL.Path) }

func Example() {
	server := httptest.NewServer(http.HandlerFunc(hello))
	defer server.Close()
	engine, err := myriad.Start(myriad.Config{}) // myriad.Default, where Transport.Engine is nil
	if err != nil {
		panic(err)
	}
	defer engine.Shutdown(context.Background())
	t := &client.Transport{Engine: engine}
	defer t.CloseIdleConnections()

	hc := &http.Client{Transport: t}
	r, err := hc.Get(server.URL + "/a")
	if err != nil {
		panic(err)
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	fmt.Println(r.Status, string(body))
	// Output: 200 OK hello /a
}

func ExampleTransport_Do() {
	server := httptest.NewServer(http.HandlerFunc(hello))
	defer server.Close()
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		panic(err)
	}
	defer engine.Shutdown(context.Background())
	t := &client.Transport{Engine: engine}
	defer t.CloseIdleConnections()

	lines := make(chan string, 3) // a loop must not wait
	for _, path := range []string{"/a", "/b", "/c"} {
		req, _ := http.NewRequest("GET", server.URL+path, nil)
		t.Do(req, func(r *http.Response, err error) {
			if err != nil {
				panic(err)
			}
			text := ""
			client.OnBody(r, func(p []byte, err error) {
				text += string(p)
				if err == io.EOF {
					r.Body.Close()
					lines <- text
				}
			})
		})
		fmt.Println(<-lines)
	}
	// Output:
	// hello /a
	// hello /b
	// hello /c
}

func ExampleGroup() {
	server := httptest.NewServer(http.HandlerFunc(hello))
	defer server.Close()
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		panic(err)
	}
	defer engine.Shutdown(context.Background())

	g := &client.Group{Transport: &client.Transport{Engine: engine}, AtOnce: 50, PerHost: 5}
	defer g.Transport.CloseIdleConnections()
	sum, err := g.Each(context.Background(), func(yield func(*http.Request) bool) {
		for i := range 1000 {
			req, _ := http.NewRequest("GET", fmt.Sprintf("%s/%d", server.URL, i), nil)
			if !yield(req) {
				return
			}
		}
	}, func(o client.Outcome) {
		if o.Err != nil {
			fmt.Println(o.Request.URL, o.Err)
		}
	})
	fmt.Println(sum.Responses, sum.Failed, err)
	// Output: 1000 0 <nil>
}
