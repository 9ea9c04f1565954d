package client_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/myriad-go/myriad/client"
)

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.URL.Path) }

func Example() {
	server := httptest.NewServer(http.HandlerFunc(hello))
	defer server.Close()
	t := &client.Transport{}
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
	t := &client.Transport{MaxConnsPerHost: 1} // so that the answers come in order
	defer t.CloseIdleConnections()

	lines := make(chan string)
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
					go func() { lines <- text }() // a loop must not wait
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
