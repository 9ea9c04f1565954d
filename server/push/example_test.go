package push_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/web"
)

// A program embeds a push server: clients subscribe at its paths, and the program publishes.
func ExampleServer_Publish() {
	pusher, err := push.New(push.Config{DenyClientPublish: true})
	if err != nil {
		panic(err)
	}
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		panic(err)
	}
	s := &web.Server{Handler: pusher, Engine: engine}
	listener, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	subscriber, err := http.Get("http://" + listener.Addr().String() + "/events?channel=news")
	if err != nil {
		panic(err)
	}
	if err := pusher.Publish(context.Background(), "news", []byte(`{"text": "hello"}`)); err != nil {
		panic(err)
	}
	for lines := bufio.NewScanner(subscriber.Body); lines.Scan(); {
		if text := lines.Text(); len(text) > 5 && text[:5] == "data:" {
			fmt.Println(text)
			break
		}
	}
	subscriber.Body.Close()
	pusher.Shutdown(context.Background())
	s.Shutdown(context.Background())
	engine.Shutdown(context.Background())
	http.DefaultClient.CloseIdleConnections()
	// Output: data: {"text":"hello"}
}

// One listener serves the paths of clients, another the API, the metrics and the console.
func ExampleServer_Admin() {
	pusher, err := push.New(push.Config{})
	if err != nil {
		panic(err)
	}
	defer pusher.Shutdown(context.Background())
	ask := func(h http.Handler) {
		var served []string
		for _, path := range []string{"/health", "/api/info", "/metrics", "/events"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader("{}")))
			if w.Code != http.StatusNotFound {
				served = append(served, path)
			}
		}
		fmt.Println(served)
	}
	ask(pusher.Clients())
	ask(pusher.Admin())
	// Output:
	// [/health /events]
	// [/health /api/info /metrics]
}
