package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"testing"
	"time"

	"github.com/myriad-go/myriad/client"
	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/web/webtest"
	"github.com/myriad-go/myriad/websocket"
)

// echoes serves WebSockets that send each message back, and end with 4001 when they are told to.
// ended is called with the status of each end.
func echoes(t *testing.T, ended func(websocket.StatusCode)) *webtest.Server {
	t.Helper()
	o := &websocket.Options{
		OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) {
			if string(p) == "end" {
				_ = c.Close(4001, "")
				return
			}
			_ = c.Write(op, p)
		},
		OnClose: func(_ *websocket.Conn, err error) { ended(websocket.CloseStatus(err)) },
	}
	s := webtest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = websocket.Accept(w, r, o)
	}))
	t.Cleanup(s.Close)
	return s
}

// Messages pass in both directions, and so does the end of either side.
func TestPassWebSockets(t *testing.T) {
	ends := make(chan websocket.StatusCode, 2)
	backend := echoes(t, func(code websocket.StatusCode) { ends <- code })
	s := webtest.NewServer(passWebSockets(backend.URL))
	defer s.Close()
	a, b := s.Dial(t, httptest.NewRequest("GET", "/", nil)), s.Dial(t, httptest.NewRequest("GET", "/", nil))
	for _, text := range []string{"one", "two"} {
		a.Send(text + " of a")
		b.Send(text + " of b")
	}
	for _, want := range []string{"one", "two"} {
		if of, by := a.Receive(), b.Receive(); of != want+" of a" || by != want+" of b" {
			t.Errorf("a got %q, b got %q", of, by)
		}
	}
	a.Send("end")
	if code := a.Closed(); code != 4001 {
		t.Errorf("the backend has ended with 4001, and the client was told %v", code)
	}
	<-ends
	if err := b.Close(4002, ""); err != nil {
		t.Error(err)
	}
	if code := <-ends; code != 4002 {
		t.Errorf("the client has ended with 4002, and the backend was told %v", code)
	}
	nowhere := webtest.NewServer(passWebSockets("ws://127.0.0.1:1"))
	defer nowhere.Close()
	if code := nowhere.Dial(t, httptest.NewRequest("GET", "/", nil)).Closed(); code != websocket.StatusBadGateway {
		t.Errorf("without a backend: closed with %v", code)
	}
}

// goroutines counts those that run or wait in the given code. Idle workers count for none: they are
// kept for 10 to 15 s after a burst.
func goroutines(within string) (n int) {
	all := make([]byte, 8<<20)
	for one := range bytes.SplitSeq(all[:runtime.Stack(all, true)], []byte("\n\n")) {
		if bytes.Contains(one, []byte(within)) && !bytes.Contains(one, []byte("/workers.(*worker).next(")) {
			n++
		}
	}
	return n
}

// What the guide says of a silent WebSocket's goroutines: httputil.ReverseProxy has four, and
// passWebSockets none.
func TestProxyCost(t *testing.T) {
	const sockets = 50
	backend := echoes(t, func(websocket.StatusCode) {})
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	carry := &client.Transport{}
	defer carry.CloseIdleConnections()
	reverse := httputil.NewSingleHostReverseProxy(target)
	reverse.Transport = carry
	for _, tt := range []struct {
		name    string
		handler http.Handler
		within  string
		each    int
	}{
		{"passWebSockets", passWebSockets(backend.URL), "\n", 0},
		{"httputil.ReverseProxy", reverse, "\nnet/http/httputil.", 4},
	} {
		s := webtest.NewServer(tt.handler)
		before, memory := goroutines(tt.within), inUse()
		for range sockets {
			c := s.Dial(t, httptest.NewRequest("GET", "/", nil))
			c.Send("hello")
			if got := c.Receive(); got != "hello" {
				t.Fatalf("%s: got %q", tt.name, got)
			}
		}
		used := (inUse() - memory) / sockets
		for from := time.Now(); ; time.Sleep(time.Millisecond) {
			n := goroutines(tt.within) - before
			if n < tt.each*sockets+sockets/2 && (tt.each == 0 || n > tt.each*sockets-sockets/2) {
				break
			}
			if time.Since(from) > exampletest.Patience {
				t.Errorf("%s: %d goroutines for %d WebSockets, want %d each", tt.name, n, sockets, tt.each)
				break
			}
		}
		t.Logf("%s: %d kB for each WebSocket, of the client and the backend, too", tt.name, used/1000)
		s.Close()
	}
}

// inUse is the memory of the heap and of stacks.
func inUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}
