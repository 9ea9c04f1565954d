package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// heldUp is for how long a loop was held up at most. A timer begins with the turn that its loop is
// in, so it may be early by as much.
func heldUp(f *fixture) (longest time.Duration) {
	for _, l := range f.Engine.Stats().Loops {
		longest = max(longest, l.LongestTurn)
	}
	return longest
}

// With timeouts set, every kind of hostile client is let go by them, a healthy one is served
// meanwhile, and nothing is left.
func TestHostileClients(t *testing.T) {
	const each, headTime = 50, 200 * time.Millisecond
	f := serve(t, &Server{ReadHeaderTimeout: headTime, ReadTimeout: 400 * time.Millisecond,
		WriteTimeout: 600 * time.Millisecond, IdleTimeout: 600 * time.Millisecond,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/large" {
				w.Write(make([]byte, 1<<20))
			}
		})})
	healthy := client(t)
	ask := func() {
		began := time.Now()
		r, err := healthy.Get(f.url("/"))
		// let go as a slow head is
		for late := began; err != nil && time.Since(late) > headTime-heldUp(f) && time.Since(began) < 20*time.Second; {
			late = time.Now()
			r, err = healthy.Get(f.url("/"))
		}
		if mustBody(t, r, err); r.StatusCode != http.StatusOK {
			t.Fatal(r.Status)
		}
	}
	ask()
	before := takenNow()
	var gone atomic.Int32
	var attackers []net.Conn
	attacks := []string{
		"GET / HTTP/1.1\r\nHo", // a slow head
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nx",          // a slow body
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx", // a slow chunk
		strings.Repeat("GET /large HTTP/1.1\r\nHost: h\r\n\r\n", 20),             // a reader that does not read
		"", // silence
		strings.Repeat("\x00\xffgarbage", 1000),
	}
	for _, attack := range attacks {
		for range each {
			c := dial(t, f)
			attackers = append(attackers, c)
			io.WriteString(c, attack)
			go func() {
				defer gone.Add(1)
				time.Sleep(time.Second) // reading nothing
				r := bufio.NewReader(c)
				for {
					if _, err := r.Discard(1 << 20); err != nil {
						return
					}
				}
			}()
		}
		ask()
	}
	deadline := time.Now().Add(hangs)
	for ; gone.Load() < int32(each*len(attacks)); time.Sleep(10 * time.Millisecond) {
		ask()
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d hostile clients were let go", gone.Load(), each*len(attacks))
		}
	}
	awaitConns(t, f, 1)
	healthy.CloseIdleConnections()
	for _, c := range attackers {
		c.Close()
	}
	awaitTaken(t, before, 2<<20)
}
