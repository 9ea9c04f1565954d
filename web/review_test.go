package web

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// These are what a review found by trying: each was wrong once.

// A handler that answers before it has read the body is heard by a client that is still sending it.
func TestEarlyAnswerReachesASender(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})})
	for _, size := range []int64{200 << 10, 400 << 10, 1 << 20, 5 << 20, 20 << 20} {
		for range 3 {
			c := client(t)
			r, err := c.Post(f.url("/"), "text/plain", io.LimitReader(zeros{}, size))
			if mustBody(t, r, err); r.StatusCode != http.StatusUnauthorized {
				t.Fatalf("%d bytes: %v", size, r.Status)
			}
			req, _ := http.NewRequest("POST", f.url("/"), io.LimitReader(zeros{}, size))
			req.ContentLength = size
			r, err = c.Do(req)
			if mustBody(t, r, err); r.StatusCode != http.StatusUnauthorized {
				t.Fatalf("%d bytes, declared: %v", size, r.Status)
			}
		}
	}
}

// A call for a connection that has gone fails at once.
func TestTakeoverOfALostConnection(t *testing.T) {
	began, took := make(chan bool, 3), make(chan error, 3)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- true
		<-r.Context().Done()
		switch r.URL.Path {
		case "/hijack":
			_, _, err := w.(http.Hijacker).Hijack()
			took <- err
		case "/upgrade":
			took <- Upgrade(w, []byte(switching), &shout{make(chan struct{}), make(chan error, 1)})
		case "/detach":
			_, err := Detached(w)
			took <- err
		}
	})})
	for _, path := range []string{"/hijack", "/upgrade", "/detach"} {
		c := dial(t, f)
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
		<-began // no handler begins for a client that has gone
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
		if err := <-took; err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}

// However a client goes away, its stream is told once.
func TestStreamsOfFleetingClients(t *testing.T) {
	var mu sync.Mutex
	open := 0
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Detached(w)
		if err != nil {
			return
		}
		mu.Lock()
		open++
		mu.Unlock()
		s.OnClose(func(error) {
			mu.Lock()
			open--
			mu.Unlock()
		})
	})})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 300 {
				c, err := net.Dial("tcp", f.addr)
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
				if i%2 == 0 {
					c.(*net.TCPConn).SetLinger(0)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	for f.Engine.Stats().Conns > 0 || f.state.conns.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := poolOf(f.state).Close(t.Context()); err != nil { // every handler has returned
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if open != 0 {
		t.Errorf("%d streams were not told", open)
	}
}

// The time for the answer runs while the body is still coming, and when the handler sets it itself.
func TestWriteTimeoutWhileTheBodyComes(t *testing.T) {
	for _, own := range []bool{false, true} {
		wrote := make(chan error, 1)
		s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if own {
				http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			}
			p := make([]byte, 64<<10)
			for {
				if _, err := w.Write(p); err != nil {
					wrote <- err
					return
				}
			}
		})}
		if !own {
			s.WriteTimeout = 50 * time.Millisecond
		}
		f := serve(t, s)
		c := dial(t, f)
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nhello")
		if err := <-wrote; err == nil {
			t.Error("no error")
		}
	}
}

// gin's Context.Stream asserts a CloseNotifier.
func TestCloseNotify(t *testing.T) {
	began, told := make(chan struct{}), make(chan bool, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		//lint:ignore SA1019 deprecated, and asked for by frameworks
		gone := w.(http.CloseNotifier).CloseNotify()
		close(began)
		told <- <-gone
	})})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-began
	c.Close()
	if !<-told {
		t.Error("told false")
	}
}

var _ myriad.Stopper = (*conn)(nil)
