package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/client"
)

// Each attempt has a date and a signature of its own, and a name that does not exist is not tried
// again.
func ExampleRetry() {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, r.Header.Get("Signature"))
	}))
	defer server.Close()
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		panic(err)
	}
	defer engine.Shutdown(context.Background())

	g := &client.Group{
		Transport: &client.Transport{Engine: engine},
		Timeout:   20 * time.Second, // for each attempt
		Retry: client.Retry{
			Attempts: 3,
			If: func(o client.Outcome) bool {
				unknown, ok := errors.AsType[*net.DNSError](o.Err)
				return o.Err != nil && !(ok && unknown.IsNotFound) ||
					o.Err == nil && o.Response.StatusCode == http.StatusServiceUnavailable
			},
			Prepare: func(attempt int, r *http.Request) error {
				r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
				r.Header.Set("Signature", fmt.Sprintf("of attempt %d", attempt))
				return nil
			},
		},
	}
	defer g.Transport.CloseIdleConnections()
	sum, err := g.Each(context.Background(), func(yield func(*http.Request) bool) {
		req, _ := http.NewRequest("GET", server.URL, nil)
		yield(req)
	}, func(o client.Outcome) {
		fmt.Println(o.Response.StatusCode, string(o.Body), o.Took >= time.Second)
	})
	fmt.Println(sum.Responses, sum.Retries, err)
	// Output:
	// 200 of attempt 2 true
	// 1 1 <nil>
}

// A crawler: what an outcome leads to is sent by the same run. The iterator blocks until there is
// something, and ends when all that was found has been seen.
func ExampleRun_Outcomes() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.Path) < 4 {
			fmt.Fprint(w, r.URL.Path+"x") // the next page
		}
	}))
	defer server.Close()
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		panic(err)
	}
	defer engine.Shutdown(context.Background())

	found := make(chan string, 1000)
	found <- "/"
	g := &client.Group{Transport: &client.Transport{Engine: engine}, PerHost: 4}
	defer g.Transport.CloseIdleConnections()
	run, err := g.Start(context.Background(), func(yield func(*http.Request) bool) {
		for path := range found {
			req, _ := http.NewRequest("GET", server.URL+path, nil)
			if !yield(req) {
				return
			}
		}
	})
	if err != nil {
		panic(err)
	}
	unseen := 1
	for o := range run.Outcomes() {
		fmt.Println(o.Request.URL.Path, len(o.Body))
		if next := string(o.Body); next != "" {
			unseen++
			found <- next
		}
		if unseen--; unseen == 0 {
			close(found)
		}
	}
	// Output:
	// / 2
	// /x 3
	// /xx 4
	// /xxx 0
}
