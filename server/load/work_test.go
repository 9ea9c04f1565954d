package load

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// A worker that has counted all keeps its connections until its orders end. Other workers may still
// wait for publications.
func TestConnectionsStayUntilAllHaveCounted(t *testing.T) {
	t.Parallel()
	const n = 3
	opened, events := make(chan *websocket.Conn, n), make(chan string, 2*n)
	o := &websocket.Options{Dispatch: web.DispatchInline,
		OnOpen:  func(c *websocket.Conn) { opened <- c },
		OnPong:  func(*websocket.Conn, []byte, time.Duration) { events <- "pong" },
		OnClose: func(*websocket.Conn, error) { events <- "closed" }}
	at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = websocket.Accept(w, r, o) }))
	in, giveOrder := io.Pipe()
	updates, out := io.Pipe()
	over := make(chan error, 1)
	go func() { over <- Work(in, out) }()
	orders, answers := json.NewEncoder(giveOrder), json.NewDecoder(updates)
	until := func(o order, done func(update) bool) {
		t.Helper()
		if err := orders.Encode(o); err != nil {
			t.Fatal(err)
		}
		for {
			var u update
			if err := answers.Decode(&u); err != nil || u.Err != "" {
				t.Fatal(err, u.Err)
			}
			if done(u) {
				return
			}
		}
	}
	p := part{Plan: Plan{Kind: Idle, URL: at, Connections: n, Duration: time.Hour}.withDefaults(),
		Every: time.Millisecond,
		Beat:  time.Hour}
	until(order{Part: &p}, func(u update) bool { return u.Ready })
	until(order{Start: &window{Send: time.Now(), Count: time.Now()}}, func(update) bool { return true })
	until(order{Stop: true}, func(u update) bool { return u.Paused })
	until(order{End: true}, func(u update) bool { return u.Done })
	for range n {
		if err := (<-opened).Ping([]byte("are you there?")); err != nil {
			t.Error(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		for range n {
			if got := <-events; got != want {
				t.Errorf("a connection says %q, want %q", got, want)
			}
		}
	}
	expect("pong")
	if err := giveOrder.Close(); err != nil {
		t.Fatal(err)
	}
	expect("closed")
	if err := <-over; err != nil {
		t.Error(err)
	}
}
