package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// serveShaken runs s behind a listener of crypto/tls until the test ends.
func serveShaken(t testing.TB, s *Server, cfg *tls.Config) *fixture {
	t.Helper()
	engine, err := myriad.Start(myriad.Config{Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Server: s, log: new(lockedLog)}
	s.Engine, s.ErrorLog = engine, log.New(f.log, "", 0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	cfg.Certificates = []tls.Certificate{pair()}
	if err := s.start(); err != nil { // here, for tests that look at its state
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(tls.NewListener(l, cfg)) }()
	t.Cleanup(func() {
		f.stop(t, engine)
		if err := <-served; err != http.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return f
}

// The negotiated protocol decides who serves: TLSNextProto, this server, or neither, wherever the
// handshake was made.
func TestALPN(t *testing.T) {
	protos := func() *tls.Config { return &tls.Config{NextProtos: []string{"shout", "unserved", "http/1.1"}} }
	never := func(_ *http.Server, tc *tls.Conn, _ http.Handler) { fmt.Fprint(tc, "net/http serves this itself") }
	server := func() *Server {
		return &Server{Handler: describe, TLSConfig: protos(), TLSNextProto: map[string]nextProto{
			"shout": func(s *http.Server, tc *tls.Conn, h http.Handler) {
				r := &http.Request{Method: "GET", URL: &url.URL{Path: "/"}}
				h.ServeHTTP(httptest.NewRecorder(), r)
				ctx := h.(interface{ BaseContext() context.Context }).BaseContext()
				fmt.Fprint(tc, "SHOUTED ", r.TLS.NegotiatedProtocol, " ", r.Body == http.NoBody,
					r.RemoteAddr == tc.RemoteAddr().String(), ctx.Value(http.ServerContextKey) == s)
			},
			"http/1.1": never,
		}}
	}
	for name, f := range map[string]*fixture{"ServeTLS": serveTLS(t, server()),
		"a foreign listener": serveShaken(t, server(), protos())} {
		for proto, want := range map[string]string{"shout": "SHOUTED shout true true true", "unserved": "",
			"http/1.1": "HTTP/1.1 200 OK\r\n"} {
			cfg := trusting()
			cfg.NextProtos = []string{proto}
			nc := f.dialTLS(t, cfg)
			if proto == "http/1.1" { // no other client waits for a first byte
				fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			}
			got, err := io.ReadAll(nc)
			if err != nil || !strings.HasPrefix(string(got), want) || want == "" && len(got) > 0 {
				t.Errorf("%s, %s: got %q, %v", name, proto, got, err)
			}
		}
	}
}

// The handler that a function of TLSNextProto is given has the context of ConnContext, and answers
// "OPTIONS *" itself, as net/http's does.
func TestALPNHandler(t *testing.T) {
	type key struct{}
	protos := &tls.Config{NextProtos: []string{"shout"}}
	server := func() *Server {
		return &Server{Handler: describe, TLSConfig: protos,
			ConnContext: func(ctx context.Context, nc net.Conn) context.Context {
				return context.WithValue(ctx, key{}, nc.RemoteAddr().String())
			},
			TLSNextProto: map[string]nextProto{"shout": func(_ *http.Server, tc *tls.Conn, h http.Handler) {
				ctx := h.(interface{ BaseContext() context.Context }).BaseContext()
				w := httptest.NewRecorder()
				h.ServeHTTP(w, &http.Request{Method: "OPTIONS", RequestURI: "*", URL: &url.URL{Path: "*"}})
				fmt.Fprintf(tc, "context %t body %q fields %s", ctx.Value(key{}) == tc.RemoteAddr().String(), w.Body,
					sorted(w.Header()))
			}},
		}
	}
	cfg := trusting()
	cfg.NextProtos = []string{"shout"}
	for name, f := range map[string]*fixture{"ServeTLS": serveTLS(t, server()),
		"a foreign listener": serveShaken(t, server(), protos.Clone())} {
		want := `context true body "" fields Content-Length=["0"]`
		if got, err := io.ReadAll(f.dialTLS(t, cfg)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

// A handedOn connection is the only one of its own listener, whose second Accept fails when it has
// been closed.
type handedOn struct {
	net.Conn
	given  bool
	closed chan struct{}
}

func (c *handedOn) Accept() (net.Conn, error) {
	if !c.given {
		c.given = true
		return c, nil
	}
	<-c.closed
	return nil, io.EOF
}

func (c *handedOn) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return c.Conn.Close()
}

func (c *handedOn) Addr() net.Addr { return c.LocalAddr() }

// The *http.Server that a function of TLSNextProto is given knows what SetKeepAlivesEnabled has
// said, before it was made and later.
func TestALPNKeepAlives(t *testing.T) {
	s := &Server{Handler: http.NotFoundHandler(), TLSConfig: &tls.Config{NextProtos: []string{"shout"}},
		TLSNextProto: map[string]nextProto{"shout": func(std *http.Server, tc *tls.Conn, _ http.Handler) {
			if err := std.Serve(&handedOn{Conn: tc, closed: make(chan struct{})}); err != io.EOF {
				t.Error(err)
			}
		}},
	}
	s.SetKeepAlivesEnabled(false)
	f := serveTLS(t, s)
	cfg := trusting()
	cfg.NextProtos = []string{"shout"}
	for i, kept := range []bool{false, true, false} {
		if i > 0 {
			s.SetKeepAlivesEnabled(kept)
		}
		nc := f.dialTLS(t, cfg)
		io.WriteString(nc, get+end)
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if mustBody(t, resp, err); resp.Close == kept {
			t.Errorf("keep-alives %t, and the connection closes: %t", kept, resp.Close)
		}
		nc.Close()
	}
}

// A ConnContext that panics costs its connection alone, also where a function of TLSNextProto would
// have had it.
func TestALPNConnContextPanics(t *testing.T) {
	states := make(chan http.ConnState, 10)
	f := serveTLS(t, &Server{TLSConfig: &tls.Config{NextProtos: []string{"shout"}},
		ConnState:   func(_ net.Conn, s http.ConnState) { states <- s },
		ConnContext: func(context.Context, net.Conn) context.Context { panic("no context") },
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){
			"shout": func(*http.Server, *tls.Conn, http.Handler) { t.Error("served") },
		},
	})
	cfg := trusting()
	cfg.NextProtos = []string{"shout"}
	if got, _ := io.ReadAll(f.dialTLS(t, cfg)); len(got) > 0 {
		t.Errorf("got %q", got)
	}
	if a, b := <-states, <-states; a != http.StateNew || b != http.StateClosed {
		t.Errorf("states %v, %v", a, b)
	}
	awaitConns(t, f, 0)
}

// Failures of handshakes end in time, are told to ConnState and the log, and answered if they are a
// slip.
func TestFailingHandshakes(t *testing.T) {
	states := make(chan http.ConnState, 100)
	f := serveShaken(t, &Server{Handler: describe, ReadTimeout: 50 * time.Millisecond,
		ConnState: func(_ net.Conn, s http.ConnState) { states <- s }}, &tls.Config{})
	for _, c := range []struct{ sent, want, logged string }{
		{"", "", "timeout"},
		{"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
			"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
			"client sent an HTTP request to an HTTPS server"},
		{"\x16\x03\x01\x00\x02\x01\x00", "", "TLS handshake error"},
	} {
		var got []byte
		// the client may be held up until it is too late
		for tries := 0; tries == 0 || c.want != "" && len(got) == 0 && tries < 100; tries++ {
			nc := dial(t, f)
			io.WriteString(nc, c.sent)
			got, _ = io.ReadAll(nc) // an alert may come before the end
			if a, b := <-states, <-states; a != http.StateNew || b != http.StateClosed {
				t.Errorf("%q: states %v, %v", c.sent, a, b)
			}
		}
		if !strings.HasPrefix(string(got), c.want) {
			t.Errorf("%q: got %q", c.sent, got)
		}
		if text := f.log.String(); !strings.Contains(text, "TLS handshake error from 127.0.0.1:") ||
			!strings.Contains(text, c.logged) {
			t.Errorf("%q: logged: %q", c.sent, text)
		}
	}
}

// Close ends handshakes that are not answered; it leaves no goroutine, as TestMain holds. Shutdown
// waits for one that is completed.
func TestShutdownDuringHandshakes(t *testing.T) {
	t.Parallel()
	f := serveShaken(t, &Server{Handler: describe}, &tls.Config{})
	silent := dial(t, f)
	for f.state.Conns.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	late := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		late <- f.Shutdown(ctx)
	}()
	for !f.closing.Load() {
		time.Sleep(time.Millisecond)
	}
	nc := tls.Client(silent, trusting())
	fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if _, err := bufio.NewReader(nc).ReadString('\n'); err != nil {
		t.Errorf("a client whose handshake had begun: %v", err)
	}
	if err := <-late; err != nil {
		t.Error(err)
	}

	f = serveShaken(t, &Server{Handler: describe, ReadHeaderTimeout: time.Hour}, &tls.Config{})
	beginHandshakes(t, f, 10)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	awaitConns(t, f, 0)
	_, accepted := net.Pipe() // accepted when Close had been here
	f.shake(tls.Server(accepted, &tls.Config{}), newFront(f.Server))
	awaitConns(t, f, 0)
}

// Close is logged for connections in their handshake as by net/http, before ConnState is called.
func TestCloseInHandshakesLikeNetHTTP(t *testing.T) {
	var said []string
	onEach(t, http.NotFoundHandler(), func(t *testing.T, s serves) {
		logged, states := new(lockedLog), make(chan http.ConnState, 10)
		report := func(_ net.Conn, state http.ConnState) { states <- state }
		switch s := s.(type) {
		case *http.Server:
			s.ErrorLog, s.ConnState = log.New(logged, "", 0), report
		case *Server:
			s.ErrorLog, s.ConnState = log.New(logged, "", 0), report
		}
		secured := func(l net.Listener) net.Listener {
			return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair()}})
		}
		dial(t, &fixture{addr: begin(t, s, secured)})
		if state := <-states; state != http.StateNew {
			t.Errorf("state %v", state)
		}
		s.Close()
		if state := <-states; state != http.StateClosed {
			t.Errorf("then %v", state)
		}
		said = append(said, plain(logged.String()))
		if got := said[len(said)-1]; got != said[0] || !strings.Contains(got, net.ErrClosed.Error()) {
			t.Errorf("net/http says %q, here %q", said[0], got)
		}
	})
}

func beginHandshakes(t *testing.T, f *fixture, n int) {
	for range n {
		dial(t, f)
	}
	for f.state.Conns.Load() < int64(n) {
		time.Sleep(time.Millisecond)
	}
}

// Shutdown gives handshakes five seconds, however long the server would.
func TestShutdownCutsHandshakesOff(t *testing.T) {
	t.Parallel()
	f := serveShaken(t, &Server{Handler: describe, ReadHeaderTimeout: time.Hour}, &tls.Config{})
	beginHandshakes(t, f, 3)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// Serve after the end returns what net/http returns, for comparison.
func TestServeAfterShutdown(t *testing.T) {
	s := &Server{Handler: describe, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair()}}}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, serve := range map[string]func(net.Listener) error{
		"Serve": s.Serve, "ServeTLS": func(l net.Listener) error { return s.ServeTLS(l, "", "") },
		"ListenAndServe": func(net.Listener) error { return s.ListenAndServe() },
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := serve(l); err != http.ErrServerClosed {
			t.Errorf("%s: %v", name, err)
		}
		if err := l.Close(); name != "ListenAndServe" && !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s has left its listener open: %v", name, err)
		} else if name == "ListenAndServe" && err != nil {
			t.Error(err)
		}
	}
}

// A handshake that begins after the deadline was set has to end then, too, and none later than the
// first deadline.
func TestShakingEndsLateComers(t *testing.T) {
	var k shaking
	k.end(time.Unix(1, 0))
	k.end(time.Now().Add(time.Hour))
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	defer time.AfterFunc(hangs, func() { client.Close() }).Stop()
	tc := tls.Server(server, &tls.Config{})
	k.add(tc)
	if err := tc.Handshake(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("handshake: %v", err)
	}
}

// A nextProto is a value of http.Server's TLSNextProto.
type nextProto = func(*http.Server, *tls.Conn, http.Handler)
