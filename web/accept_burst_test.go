package web

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/myriad-go/myriad"
)

// A burst listens, and tells when it has given so many connections.
type burst struct {
	net.Listener
	left  int
	given chan struct{}
}

func (l *burst) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if l.left--; l.left == 0 {
		close(l.given)
	}
	return nc, err
}

// Peers that come faster than the loop takes them wait. None is dropped.
func TestServeLosesNoneOfABurst(t *testing.T) {
	const intake, all = 1024, 1100
	f := prepare(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "served")
	})}, myriad.Config{Loops: 1})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	began, release := make(chan struct{}), make(chan struct{})
	if err := f.Engine.Loops()[0].Do(func() { close(began); <-release }); err != nil {
		t.Fatal(err)
	}
	<-began
	l := &burst{ln, intake + 1, make(chan struct{})}
	go f.Serve(l)
	var peers []net.Conn
	for range all {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		peers = append(peers, nc)
	}
	<-l.given
	close(release)
	for i, nc := range peers {
		if _, err := io.WriteString(nc, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatalf("peer %d: %v", i, err)
		}
		if answer, err := io.ReadAll(nc); err != nil || len(answer) == 0 {
			t.Fatalf("peer %d of %d: %q, %v", i, all, answer, err)
		}
	}
}
