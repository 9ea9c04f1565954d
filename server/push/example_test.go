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
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/web"
)

// A program embeds a push server: clients subscribe at its paths, and the program publishes.
func ExampleServer_Publish() {
	pusher, err := push.New(push.Config{DenyClientPublish: true, Doors: doors.All(doors.Config{})})
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

// Users of a shop's own pages, who have its cookie, get the shop's events. What clients use of the
// push server stands behind a prefix of the shop's mux; its API and console (Admin) are not served.
func Example_embed() {
	type userKey struct{}
	pusher, err := push.New(push.Config{
		DenyClientPublish: true, Doors: doors.All(doors.Config{}),
		Namespaces: []push.Namespace{{Name: "orders", HistorySize: 10, Recovery: true, SubscribeHook: true}},
		Hooks: push.Hooks{
			Connect: func(ctx context.Context, _ push.Caller, _ push.ConnectRequest) (push.ConnectAnswer, error) {
				user, ok := ctx.Value(userKey{}).(string) // what the middleware below has found out
				if !ok {
					return push.ConnectAnswer{}, push.Disconnect{Code: 4501, Reason: "log in first"}
				}
				return push.ConnectAnswer{User: user, Channels: []string{"orders:" + user}}, nil
			},
			Subscribe: func(_ context.Context, c push.Caller, r push.SubscribeRequest) (push.SubscribeAnswer, error) {
				if r.Channel != "orders:"+c.User {
					return push.SubscribeAnswer{}, push.Error{Code: 103, Message: "permission denied"}
				}
				return push.SubscribeAnswer{}, nil
			},
		},
	})
	if err != nil {
		panic(err)
	}
	login := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c, err := r.Cookie("user"); err == nil { // a real shop looks up its session
				r = r.WithContext(context.WithValue(r.Context(), userKey{}, c.Value))
			}
			next.ServeHTTP(w, r)
		})
	}
	mux := http.NewServeMux()
	mux.Handle("/push/", login(http.StripPrefix("/push", pusher.Clients())))
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		panic(err)
	}
	shop := &web.Server{Handler: mux, Engine: engine}
	listener, err := shop.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}

	// A client of ann's. Those in browsers use a library, over WebSocket.
	ask, err := http.NewRequest("POST", "http://"+listener.Addr().String()+"/push/connection/uni_http_stream",
		strings.NewReader("{}"))
	if err != nil {
		panic(err)
	}
	ask.AddCookie(&http.Cookie{Name: "user", Value: "ann"})
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Scan() // the reply to connect

	ctx := context.Background()
	at, err := pusher.PublishWith(ctx, "orders:ann", []byte(`{"order": 7, "state": "sent"}`),
		push.PublishOptions{IdempotencyKey: "order 7 sent"})
	if err != nil {
		panic(err)
	}
	lines.Scan()
	fmt.Println(strings.Contains(lines.Text(), `{"order":7,"state":"sent"}`), at.Offset)

	kept, err := pusher.History(ctx, "orders:ann", push.Query{Limit: -1})
	fmt.Println(len(kept.Publications), err)
	ended, err := pusher.Disconnect(ctx, push.Target{User: "ann"}, push.Disconnect{Code: 4502, Reason: "logged out"})
	fmt.Println(ended, err)

	answer.Body.Close()
	pusher.Shutdown(ctx)
	shop.Shutdown(ctx)
	engine.Shutdown(ctx)
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// true 1
	// 1 <nil>
	// 1 <nil>
}

// One listener serves the paths of clients, another the API, the metrics and the console.
func ExampleServer_Admin() {
	pusher, err := push.New(push.Config{Doors: doors.All(doors.Config{})})
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
