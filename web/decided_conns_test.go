package web

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The address of a client on a unix socket is "@", also if its own socket has a name.
func TestAddressOnAUnixSocket(t *testing.T) {
	dir := t.TempDir()
	for i, std := range []bool{true, false} {
		path := filepath.Join(dir, fmt.Sprint("server", i))
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.RemoteAddr)
		})}
		listen := server.Serve
		if std {
			listen = server.standard().Serve
		} else {
			serve(t, server)
		}
		served := make(chan error, 1)
		go func() { served <- listen(ln) }()
		own := filepath.Join(dir, fmt.Sprint("client", i))
		nc, err := net.DialUnix("unix", &net.UnixAddr{Name: own, Net: "unix"}, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(nc, get+"Connection: close\r\n\r\n")
		got, err := io.ReadAll(nc)
		want := "\r\n\r\n@"
		if std {
			want = "\r\n\r\n" + own
		}
		if err != nil || !strings.HasSuffix(string(got), want) {
			t.Errorf("net/http %t: %q, %v, want %q", std, got, err, want)
		}
		nc.Close()
		ln.Close()
		<-served
	}
}

// A cloakedConn is a connection of a listener that wraps its connections.
type cloakedConn struct{ net.Conn }

// Hijack of a connection that the listener has wrapped gives another net.Conn, which has the
// listener's in NetConn.
func TestHijackOfAWrappedConn(t *testing.T) {
	l := &foreign{conns: make(chan net.Conn), done: make(chan struct{})}
	hijacked := make(chan net.Conn, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		hijacked <- nc
	})})
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	ours, theirs := net.Pipe()
	given := &cloakedConn{theirs}
	l.conns <- given
	go io.WriteString(ours, get+end)
	nc := <-hijacked
	below, ok := nc.(interface{ NetConn() net.Conn })
	if !ok || nc == net.Conn(given) || below.NetConn() != net.Conn(given) {
		t.Errorf("a %T, want another net.Conn with the listener's in NetConn", nc)
	}
	nc.Close()
	ours.Close()
	l.Close()
	<-served
}

// Of pipelined requests that have come together only the last is followed by StateIdle.
func TestIdleBetweenPipelinedRequests(t *testing.T) {
	for _, std := range []bool{true, false} {
		states := make(chan http.ConnState, 20)
		begin := serve
		if std {
			begin = serveStandard
		}
		f := begin(t, &Server{ConnState: func(_ net.Conn, s http.ConnState) { states <- s },
			Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
		sent(t, f, get+end+get+end+get+"Connection: close\r\n\r\n", false)
		var got []http.ConnState
		for s := range states {
			if got = append(got, s); s == http.StateClosed {
				break
			}
		}
		if idle := slices.Contains(got, http.StateIdle); idle != std {
			t.Errorf("net/http %t: %v", std, got)
		}
	}
}
