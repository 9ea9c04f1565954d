package web

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// greetings is a server with connections in their handshake: one that has said nothing, and one in
// the middle of its hello.
func greetings(t *testing.T, s *Server) (f *fixture, conns []net.Conn) {
	t.Helper()
	greeted := make(chan struct{}, 2)
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			greeted <- struct{}{}
		}
	}
	f = serveTLS(t, s)
	for _, begun := range []string{"", "\x16\x03\x01\x02\x00\x01"} {
		nc, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(hangs))
		if _, err := io.WriteString(nc, begun); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, nc)
		<-greeted
	}
	return f, conns
}

// Shutdown waits for connections in their handshake, as for others on which no request has begun.
func TestShutdownWaitsForHandshakes(t *testing.T) {
	f, conns := greetings(t, &Server{Handler: describe})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Shutdown with two handshakes under way: %v", err)
	}
	for _, nc := range conns {
		nc.Close()
	}
	ctx, cancel = context.WithTimeout(t.Context(), hangs)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown after the last has gone: %v", err)
	}
}

// A ConnState function may cut off a handshake, as httptest.Server's does. That is logged before
// ConnState is told of the end, as with net/http, at each stage of the handshake.
func TestHandshakeCutOffIsLogged(t *testing.T) {
	for _, begun := range []string{"", "\x16\x03\x01\x02\x00\x01", string(clientHello(t))} {
		for _, soon := range []bool{false, true} {
			logged, conns, closed := new(lockedLog), make(chan net.Conn, 1), make(chan string, 1)
			f := serveTLS(t, &Server{ErrorLog: log.New(logged, "", 0), Handler: describe,
				ConnState: func(c net.Conn, state http.ConnState) {
					switch state {
					case http.StateNew:
						if soon {
							c.Close()
						}
						conns <- c
					case http.StateClosed:
						closed <- logged.String()
					}
				}})
			client := dial(t, f)
			io.WriteString(client, begun)
			c := <-conns
			c.Close()
			io.Copy(io.Discard, client)
			client.Close()
			if got := <-closed; !strings.HasPrefix(got, "http: TLS handshake error from 127.0.0.1:") ||
				strings.Count(got, "\n") != 1 {
				t.Errorf("%d bytes, closed at once %t: logged %q", len(begun), soon, got)
			}
		}
	}
}

// One whose handshake takes longer than the server's time for it does not hold Shutdown up,
// whenever it began.
func TestShutdownEndsSlowHandshakes(t *testing.T) {
	t.Parallel()
	f, conns := greetings(t, &Server{Handler: describe, ReadHeaderTimeout: 100 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for _, nc := range conns {
		if p, err := io.ReadAll(nc); len(p) > 0 || err != nil && !isReset(err) {
			t.Errorf("read %q, %v", p, err)
		}
	}
}

// Without any timeout of the server's own it is 5 s, from Shutdown on.
func TestShutdownHastensHandshakes(t *testing.T) {
	w := newWorld(1, sim.Calm())
	engine, err := myriad.Start(myriad.Config{System: w, Logger: quiet(), Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Engine: engine, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair()}}}
	ln, err := s.ListenTLS("tcp", "127.0.0.1:443", "", "")
	if err != nil {
		t.Fatal(err)
	}
	peer := w.Dial(ln.Addr())
	peer.Write([]byte("\x16\x03\x01\x02\x00\x01"))
	w.RunFor(time.Second)
	began := w.Now()
	if err := s.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	if took := w.Now().Sub(began); took < exchange.NewConnGrace || took > exchange.NewConnGrace+2*time.Second {
		t.Errorf("Shutdown took %v", took)
	}
	if err := engine.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	w.Settle()
	w.Check(t)
}

// Clients that go as soon as their whole ClientHello is sent, some with a FIN and some with a
// reset, are forgotten, also by Shutdown.
func TestHelloAndGone(t *testing.T) {
	states := make(chan http.ConnState, 200)
	f := serveTLS(t, &Server{Handler: describe, ConnState: func(_ net.Conn, s http.ConnState) { states <- s }})
	hello := clientHello(t)
	for i := range 60 {
		nc, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write(hello); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_ = nc.(*net.TCPConn).SetLinger(0)
		}
		nc.Close()
	}
	for opened, closed := 0, 0; closed < 60; {
		select {
		case s := <-states:
			switch s {
			case http.StateNew:
				opened++
			case http.StateClosed:
				closed++
			default:
				t.Fatalf("state %v without a handshake", s)
			}
		case <-time.After(hangs):
			t.Fatalf("%d connections have come, %d have gone", opened, closed)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil || f.state.Conns.Load() != 0 {
		t.Errorf("Shutdown: %v; %d connections are still counted", err, f.state.Conns.Load())
	}
}

// clientHello is the first flight of a client.
func clientHello(t *testing.T) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go tls.Client(a, trusting()).Handshake()
	p := make([]byte, 4<<10)
	n, err := b.Read(p)
	if err != nil || n != 5+int(p[3])<<8+int(p[4]) {
		t.Fatalf("%d bytes of a ClientHello, %v", n, err)
	}
	return p[:n]
}

func isReset(err error) bool {
	var e *net.OpError
	return errors.As(err, &e) && !e.Timeout()
}

// Close resets connections in their handshake, and says so in the log, as net/http does.
func TestCloseEndsHandshakes(t *testing.T) {
	f, conns := greetings(t, &Server{Handler: describe})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for i, nc := range conns {
		if _, err := nc.Read(make([]byte, 1)); !isReset(err) {
			t.Errorf("connection %d: Read: %v, want a reset", i, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if got := f.log.String(); !strings.Contains(got, "http: TLS handshake error from 127.0.0.1:") {
		t.Errorf("logged %q", got)
	}
}

// Handshakes succeed, break off anywhere, or are given to TLSNextProto while the server ends: every
// connection is counted out, and ConnState is told of its end.
func TestShutdownInMidHandshakes(t *testing.T) {
	for round := range 6 {
		var open atomic.Int64
		f := serveTLS(t, &Server{
			Handler: describe, TLSConfig: &tls.Config{NextProtos: []string{"shout"}},
			TLSNextProto: map[string]nextProto{"shout": func(_ *http.Server, tc *tls.Conn, _ http.Handler) {
				tc.Close()
			}},
			ConnState: func(c net.Conn, state http.ConnState) {
				switch {
				case state == http.StateClosed:
					open.Add(-1)
				case state == http.StateNew:
					if open.Add(1); rand.IntN(20) == 0 {
						c.Close()
					}
				}
			},
		})
		stop, seen := make(chan struct{}), make(chan struct{}, 1<<10)
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for {
					select {
					case <-stop:
						return
					default:
						once(f.addr, i%4)
					}
					select {
					case seen <- struct{}{}:
					default:
					}
				}
			}()
		}
		for range 20 + round {
			<-seen
		}
		ctx, cancel := context.WithTimeout(t.Context(), hangs)
		if round%2 == 0 {
			f.Close()
		}
		err := f.Shutdown(ctx)
		cancel()
		close(stop)
		wg.Wait()
		if n := f.state.Conns.Load(); err != nil || n != 0 {
			t.Errorf("round %d: Shutdown: %v; %d connections are still counted", round, err, n)
		}
		for patience := 20_000; open.Load() != 0; patience-- { // those of TLSNextProto are not Shutdown's
			if time.Sleep(time.Millisecond); patience == 0 {
				t.Fatalf("round %d: %d connections more have come than gone", round, open.Load())
			}
		}
	}
}

// once is a connection of one of four kinds.
func once(addr string, kind int) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(hangs))
	cfg := trusting()
	switch kind {
	case 0: // ends in its hello
		nc.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc")[:1+rand.IntN(9)])
		return
	case 1: // is reset in its handshake
		go tls.Client(nc, cfg).Handshake()
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
		nc.(*net.TCPConn).SetLinger(0)
		return
	case 2:
		cfg.NextProtos = []string{"shout"}
	}
	tc := tls.Client(nc, cfg)
	if tc.Handshake() == nil {
		io.WriteString(tc, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		io.Copy(io.Discard, tc)
	}
}
