package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web/internal/http1"
)

// While a client takes its time over a file, no timeout of idle connections ends it, and its next
// request is served.
func TestIdleTimeoutSparesFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f.bin")
	if err := os.WriteFile(name, make([]byte, 24<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	returned := make(chan struct{}, 2)
	f := serve(t, &Server{IdleTimeout: 30 * time.Millisecond, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, name)
			returned <- struct{}{}
		})})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-returned // with nothing read: no goroutine waits for the client
	time.Sleep(100 * time.Millisecond)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	r := bufio.NewReader(c)
	for range 2 {
		resp, err := http.ReadResponse(r, nil)
		if got := mustBody(t, resp, err); len(got) != 24<<20 {
			t.Fatalf("%d bytes", len(got))
		}
	}
}

// IdleTimeout begins when a large answer has gone, and not when its handler has returned; a second
// after it the connection ends.
func TestIdleTimeoutBehindLargeAnswers(t *testing.T) {
	const size, timeout = 250_000, 5 * time.Second
	w, client := slow(t, &Server{IdleTimeout: timeout, ReadHeaderTimeout: time.Minute, Dispatch: DispatchInline,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Write(make([]byte, size))
		})})
	for asked := range 3 {
		client.StopReading()
		client.Write([]byte(get + end))
		w.RunFor(timeout - time.Second)
		if got := client.Count(); got > asked*size+size {
			t.Fatalf("%d bytes have come, although the client does not read", got)
		}
		client.Resume()
		w.RunFor(timeout - time.Second)
		if got := client.Count(); got < asked*size+size || client.Ended() {
			t.Fatalf("%d bytes have come of %d answers, ended %v", got, asked+1, client.Ended())
		}
	}
	client.Write([]byte(get + end))
	w.RunFor(timeout - time.Second)
	if client.Ended() {
		t.Error("the connection ends too soon")
	}
	w.RunFor(2*time.Second + 100*time.Millisecond)
	if !client.Ended() {
		t.Error("the connection does not end")
	}
}

// So it does if the connection hibernates, and wakes with what has belonged to another.
func TestIdleTimeoutBehindLargeAnswersAsleep(t *testing.T) {
	const timeout = 5 * time.Second
	s := &Server{IdleTimeout: timeout, mostAwake: 1, Dispatch: DispatchInline,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.Write(make([]byte, http1.LateBytes+1)) // of which nothing is sent
			}
		})}
	w, awake := slow(t, s)
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}
	clients := []*sim.Peer{awake, w.Dial(addr), w.Dial(addr)}
	for i, method := range []string{"GET", "HEAD", "GET"} {
		clients[i].Write([]byte(method + " / HTTP/1.1\r\nHost: h\r\n\r\n"))
		w.RunFor(100 * time.Millisecond)
	}
	if n := s.Engine.Stats().Hibernating; n != 2 {
		t.Errorf("%d connections hibernate", n)
	}
	w.RunFor(timeout - time.Second)
	for i, c := range clients {
		if c.Ended() {
			t.Errorf("connection %d ends too soon", i)
		}
	}
	w.RunFor(2 * time.Second)
	for i, c := range clients {
		if !c.Ended() {
			t.Errorf("connection %d does not end", i)
		}
	}
}

// With a WriteTimeout, too, the time of an idle connection begins when its answer has gone, and not
// when that had to have gone.
func TestIdleTimeoutBesideWriteTimeout(t *testing.T) {
	const timeout = 5 * time.Second
	for _, d := range dispatches {
		w, client := slow(t, &Server{IdleTimeout: timeout, WriteTimeout: time.Minute, Dispatch: d,
			Handler: http.NotFoundHandler()})
		for range 3 { // with DispatchAuto the first do not run inline
			client.Write([]byte(get + end))
			w.RunFor(timeout - time.Second)
		}
		if client.Ended() {
			t.Errorf("%v: the connection ends too soon", d)
		}
		if w.RunFor(2 * time.Second); !client.Ended() {
			t.Errorf("%v: the connection does not end", d)
		}
	}
}
