package web

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
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
