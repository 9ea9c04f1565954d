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
	"runtime"
	"strings"
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
func serveAccepted(t *testing.T, wrap func(net.Listener) net.Listener, set func(*Server),
	run func(t *testing.T, f *fixture, r *record)) {
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

// ConnContext and ConnState are given what the listener gave, as by net/http: always the same, from
// before the handshake on.
func TestAcceptedConnsLikeNetHTTP(t *testing.T) {
	secure := func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair()}})
	}
	for _, c := range []struct {
		name   string
		wrap   func(net.Listener) net.Listener
		client func(t *testing.T, f *fixture, h hands)
	}{
		{"tls", secure, func(t *testing.T, f *fixture, h hands) { askOnce(t, f.dialTLS(t, trusting()), h.idle) }},
		{"wrapped", func(l net.Listener) net.Listener { return wrapping{l} },
			func(t *testing.T, f *fixture, h hands) { askOnce(t, dial(t, f), h.idle) }},
		{"tls, closed from outside", secure, func(t *testing.T, f *fixture, h hands) {
			closeIdle(t, f.dialTLS(t, trusting()), h)
		}},
		{"wrapped, closed from outside", func(l net.Listener) net.Listener { return wrapping{l} },
			func(t *testing.T, f *fixture, h hands) { closeIdle(t, dial(t, f), h) }},
		{"no handshake", secure, func(t *testing.T, f *fixture, _ hands) { dial(t, f).Close() }},
		{"another language", secure, func(t *testing.T, f *fixture, _ hands) {
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
					r.add("request in %v, TLS %t", q.Context().Value(contextKey{}),
						q.TLS != nil && q.TLS.HandshakeComplete)
				})
			}, func(t *testing.T, f *fixture, r *record) {
				c.client(t, f, hands{close: func() {
					mu.Lock()
					defer mu.Unlock()
					first.Close()
				}, idle: func() {
					within(t, "the connection is idle", func() bool { return strings.Contains(heard.String(), "idle") })
				}})
				select {
				case <-closed:
				case <-time.After(hangs):
					t.Error("never closed")
				}
				r.add("%s", heard)
			})
		})
	}
}

// A callback of a tls.Config that panics, or ends its goroutine, costs its connection and no other.
func TestPanicInHandshakeLikeNetHTTP(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func()
	}{
		{"panic", func() { panic("no certificate") }},
		{"ErrAbortHandler", func() { panic(http.ErrAbortHandler) }},
		{"Goexit", runtime.Goexit},
	} {
		t.Run(c.name, func(t *testing.T) {
			var states chan http.ConnState
			serveAccepted(t, func(l net.Listener) net.Listener {
				return tls.NewListener(l,
					&tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
						if hello.ServerName == "unknown" {
							c.fail()
						}
						cert := pair()
						return &cert, nil
					}})
			}, func(s *Server) {
				heard := make(chan http.ConnState, 10)
				states, s.ConnState = heard, func(_ net.Conn, state http.ConnState) { heard <- state }
				s.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			}, func(t *testing.T, f *fixture, r *record) {
				err := tls.Client(dial(t, f), &tls.Config{ServerName: "unknown"}).Handshake()
				r.add("%v", err)
				for range 2 {
					select {
					case state := <-states:
						r.add("%v", state)
					case <-time.After(hangs):
						t.Fatal("never closed")
					}
				}
				logged := f.log.String()
				r.add("logged %t", strings.HasPrefix(logged, "http: panic serving 127.0.0.1:") &&
					strings.Contains(logged, "no certificate\ngoroutine "))
				r.add("logged nothing %t", logged == "")
				nc := f.dialTLS(t, trusting())
				fmt.Fprint(nc, get+end)
				resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
				mustBody(t, resp, err)
				r.add("%d", resp.StatusCode)
			})
		})
	}
}

// hands are what a test's client can do at the server.
type hands struct {
	idle  func() // waits until ConnState has heard that the connection is idle
	close func() // closes what ConnContext was given
}

// askOnce makes a request, and goes when the connection waits for another.
func askOnce(t *testing.T, nc net.Conn, idle func()) {
	askIdle(t, nc, idle)
	nc.Close()
}

// closeIdle makes a request, and has the server's side end the connection behind it.
func closeIdle(t *testing.T, nc net.Conn, h hands) {
	in := askIdle(t, nc, h.idle)
	h.close()
	if n, err := in.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d bytes, %v", n, err)
	}
	nc.Close()
}

func askIdle(t *testing.T, nc net.Conn, idle func()) *bufio.Reader {
	fmt.Fprint(nc, get+end)
	in := bufio.NewReader(nc)
	resp, err := http.ReadResponse(in, nil)
	mustBody(t, resp, err)
	idle()
	return in
}
