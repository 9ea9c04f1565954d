package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// An ownConn is one that a user's listener gives.
type ownConn struct{ net.Conn }

// A wrapping listener gives such connections.
type wrapping struct{ net.Listener }

func (l wrapping) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &ownConn{nc}, nil
}

// serveAccepted serves with both servers from listeners that wrap makes.
func serveAccepted(t *testing.T, wrap func(net.Listener) net.Listener, set func(*Server), run func(t *testing.T, f *fixture, r *record)) {
	listen := func(t testing.TB, f *fixture, serve func(net.Listener) error) *fixture {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f.addr = ln.Addr().String()
		go serve(wrap(ln))
		return f
	}
	var both [2]record
	for i := range both {
		s := new(Server)
		set(s)
		f := prepare(t, s, myriad.Config{Loops: 2})
		if i == 0 {
			std := s.standard()
			std.ErrorLog = s.ErrorLog
			t.Cleanup(func() { std.Close() })
			listen(t, f, std.Serve)
		} else {
			listen(t, f, s.Serve)
		}
		run(t, f, &both[i])
	}
	if std, ours := both[0].String(), both[1].String(); std != ours {
		t.Errorf("net/http: %s\nhere:     %s", std, ours)
	}
}

// ConnContext and ConnState are given what the listener gave, as by net/http: always the same, from before the handshake on.
func TestAcceptedConnsLikeNetHTTP(t *testing.T) {
	secure := func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair()}})
	}
	for _, c := range []struct {
		name   string
		wrap   func(net.Listener) net.Listener
		client func(t *testing.T, f *fixture, closeIt func())
	}{
		{"tls", secure, func(t *testing.T, f *fixture, _ func()) { askOnce(t, f.dialTLS(t, trusting())) }},
		{"wrapped", func(l net.Listener) net.Listener { return wrapping{l} }, func(t *testing.T, f *fixture, _ func()) { askOnce(t, dial(t, f)) }},
		{"tls, closed from outside", secure, func(t *testing.T, f *fixture, closeIt func()) { closeIdle(t, f.dialTLS(t, trusting()), closeIt) }},
		{"wrapped, closed from outside", func(l net.Listener) net.Listener { return wrapping{l} }, func(t *testing.T, f *fixture, closeIt func()) { closeIdle(t, dial(t, f), closeIt) }},
		{"no handshake", secure, func(t *testing.T, f *fixture, _ func()) { dial(t, f).Close() }},
		{"another language", secure, func(t *testing.T, f *fixture, _ func()) {
			nc := dial(t, f)
			fmt.Fprint(nc, "SSH-2.0\r\n\r\n")
			io.Copy(io.Discard, nc)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var heard *record
			var mu sync.Mutex
			var first net.Conn
			var closed chan struct{}
			serveAccepted(t, c.wrap, func(s *Server) {
				heard, first, closed = new(record), nil, make(chan struct{})
				r, end := heard, closed
				s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
					mu.Lock()
					defer mu.Unlock()
					first = nc
					r.add("context %v", reflect.TypeOf(nc))
					return context.WithValue(context.Background(), contextKey{}, "another")
				}
				s.ConnState = func(nc net.Conn, state http.ConnState) {
					mu.Lock()
					defer mu.Unlock()
					r.add("%v same %t", state, nc == first)
					if state == http.StateClosed {
						close(end)
					}
				}
				s.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					r.add("request in %v, TLS %t", q.Context().Value(contextKey{}), q.TLS != nil && q.TLS.HandshakeComplete)
				})
			}, func(t *testing.T, f *fixture, r *record) {
				c.client(t, f, func() {
					mu.Lock()
					defer mu.Unlock()
					first.Close()
				})
				select {
				case <-closed:
				case <-time.After(20 * time.Second):
					t.Error("never closed")
				}
				r.add("%s", heard)
			})
		})
	}
}

// askOnce makes a request, and goes when it has been answered and the connection may wait for another.
func askOnce(t *testing.T, nc net.Conn) {
	fmt.Fprint(nc, get+end)
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	mustBody(t, resp, err)
	nc.Close()
}

// closeIdle makes a request, and has closeIt end the connection behind it.
func closeIdle(t *testing.T, nc net.Conn, closeIt func()) {
	fmt.Fprint(nc, get+end)
	in := bufio.NewReader(nc)
	resp, err := http.ReadResponse(in, nil)
	mustBody(t, resp, err)
	closeIt()
	if n, err := in.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d bytes, %v", n, err)
	}
	nc.Close()
}
