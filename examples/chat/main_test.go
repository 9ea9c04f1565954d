package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
	"github.com/myriad-go/myriad/workers"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(crowdEnv); order != "" {
		if err := beCrowd(order); err != nil {
			log.Fatal("the crowd: ", err)
		}
		return
	}
	gin.SetMode(gin.TestMode)
	os.Exit(m.Run())
}

// A club is the chat with its listeners: http and https.
type club struct {
	room   *room
	client *http.Client
	urls   map[string]string // by scheme
}

func open(t *testing.T) *club {
	t.Helper()
	borrowed := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(borrowed.Close)
	c := &club{room: newRoom(), client: borrowed.Client(), urls: map[string]string{}}
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait) // the last to be called
	for _, scheme := range []string{"http", "https"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.urls[scheme] = scheme + "://" + ln.Addr().String()
		if scheme == "https" {
			ln = secured(ln, borrowed.TLS.Certificates[0])
		}
		server := &http.Server{Handler: routes(c.room)}
		serving.Go(func() { _ = server.Serve(ln) })
		t.Cleanup(func() { _ = server.Close() })
	}
	return c
}

func (c *club) stats(t *testing.T, scheme string) (s struct{ Connected, Goroutines int }) {
	t.Helper()
	resp, err := c.client.Get(c.urls[scheme] + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// All guests receive all messages, over ws and wss, beside gin's ordinary routes, and no socket has
// a goroutine.
func TestChat(t *testing.T) {
	c := open(t)
	const n = 150 // for each scheme
	before := c.stats(t, "http").Goroutines
	heard := make(chan string, 4*n)
	o := &websocket.DialOptions{TLSConfig: &tls.Config{InsecureSkipVerify: true}}
	o.Dispatch, o.Compression.Enabled, o.HandshakeTimeout = web.DispatchInline, true, time.Minute
	o.OnMessage = func(_ *websocket.Conn, _ websocket.Op, p []byte) { heard <- string(p) }
	var guests []*websocket.Conn
	for i := range 2 * n {
		url := c.urls[[]string{"http", "https"}[i%2]]
		conn, _, err := websocket.Dial(context.Background(), fmt.Sprintf("%s/chat?name=guest%d",
			strings.Replace(url, "http", "ws", 1), i), o)
		if err != nil {
			t.Fatal(err)
		}
		guests = append(guests, conn)
	}
	for c.stats(t, "https").Connected < 2*n {
		time.Sleep(time.Millisecond)
	}
	for i, guest := range guests[:2] {
		if err := guest.Write(websocket.OpText, []byte("Hello!")); err != nil {
			t.Fatal(err)
		}
		for range guests {
			if got, want := <-heard, fmt.Sprintf("guest%d: Hello!", i); got != want {
				t.Fatalf("heard %q, want %q", got, want)
			}
		}
	}
	after := c.stats(t, "http").Goroutines
	// idle workers leave
	for end := time.Now().Add(workers.DefaultIdle*3/2 + exampletest.Patience); after > before+60 &&
		time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		after = c.stats(t, "http").Goroutines
	}
	if after > before+60 {
		t.Errorf("%d goroutines for %d sockets, %d without", after, 2*n, before)
	} else {
		t.Logf("%d sockets, %d goroutines; %d without them", 2*n, after, before)
	}
	for _, guest := range guests {
		_ = guest.Close(websocket.StatusNormalClosure, "")
	}
	for c.stats(t, "http").Connected > 0 {
		time.Sleep(time.Millisecond)
	}
}
