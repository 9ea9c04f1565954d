package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/examples/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// start runs an engine until the test ends, and then checks that all blocks have been released.
func start(t *testing.T) *myriad.Engine {
	t.Helper()
	engine, err := myriad.Start(myriad.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), exampletest.Patience)
		defer cancel()
		if err := engine.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if n := buf.InUse(); n != 0 {
			t.Errorf("%d blocks were not released", n)
		}
	})
	return engine
}

func listen(t *testing.T, engine *myriad.Engine, h myriad.Handler) (addr string) {
	t.Helper()
	ln, err := engine.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

// connect dials without the engine.
func connect(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(exampletest.Patience))
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

func wire(payloads ...string) (text string) {
	for _, payload := range payloads {
		frame := newFrame(payload)
		text += string(frame.Bytes())
		frame.Release()
	}
	return text
}

// The frames are the same for every cut of the stream into two pieces.
func TestEveryCut(t *testing.T) {
	stream := wire("one", "", strings.Repeat("x", 300), "four")
	for cut := range len(stream) {
		var in buf.Chain
		got := ""
		for _, piece := range []string{stream[:cut], stream[cut:]} {
			in.Append([]byte(piece))
			for {
				frame, err := nextFrame(&in)
				if err != nil {
					t.Fatal(err)
				}
				if frame == nil {
					break
				}
				got += string(frame.Bytes())
				frame.Release()
			}
		}
		if got != stream || in.Len() > 0 {
			t.Fatalf("cut at %d: %q, %d bytes remain", cut, got, in.Len())
		}
	}
}

// If the length is too large, nothing is buffered.
func TestTooLong(t *testing.T) {
	engine := start(t)
	conn := connect(t, listen(t, engine, server{idle: time.Hour}))
	conn.Write([]byte{0, 1, 0, 1})
	if got, err := io.ReadAll(conn); len(got) > 0 || err == nil {
		t.Errorf("read %q, %v; want a reset", got, err)
	}
}

// The program's client talks to its server, over TCP, over TLS and behind a load balancer.
func TestAnswers(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	roots := x509.NewCertPool()
	roots.AddCert(borrowed.Certificate())
	for name, config := range map[string]*tls.Config{"TCP": nil, "TLS": {RootCAs: roots, ServerName: "example.com"}} {
		t.Run(name, func(t *testing.T) {
			var own *tls.Config
			if config != nil {
				own = &tls.Config{Certificates: borrowed.TLS.Certificates}
			}
			engine := start(t)
			c, err := dial(t.Context(), engine, listen(t, engine, handler(server{idle: time.Hour}, own, nil)), config)
			if err != nil {
				t.Fatal(err)
			}
			defer c.conn.Close()
			long := strings.Repeat("long ", 10_000)
			for _, ask := range []string{"hello", "", long, "count 3", "count no", "count -1", "bye"} {
				if err := c.send(ask); err != nil {
					t.Fatal(err)
				}
			}
			for _, want := range []string{
				"HELLO", "", strings.ToUpper(long), "1", "2", "3", "not a number", "not a number", "BYE",
			} {
				if got, err := c.receive(); got != want || err != nil {
					t.Fatalf("got %.40q, %v; want %.40q", got, err, want)
				}
			}
		})
	}
}

// A PROXY header comes first, and then the protocol.
func TestBehindABalancer(t *testing.T) {
	engine := start(t)
	networks := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	conn := connect(t, listen(t, engine, handler(server{idle: time.Hour}, nil, networks)))
	io.WriteString(conn, "PROXY TCP4 203.0.113.9 198.51.100.1 51234 443\r\n"+wire("hello"))
	conn.CloseWrite()
	if got, err := io.ReadAll(conn); string(got) != wire("HELLO") || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// A client that requests much and does not read has a bounded queue. When it reads, it gets
// everything.
func TestBackpressure(t *testing.T) {
	const n = 100_000
	engine := start(t)
	conn := connect(t, listen(t, engine, server{idle: time.Hour}))
	io.WriteString(conn, wire("count "+strconv.Itoa(n), "count "+strconv.Itoa(n), "end"))
	for engine.Stats().Full == 0 {
		time.Sleep(time.Millisecond) // until the queue is full for the first time
	}
	if queued := engine.Stats().Queued; queued > 300<<10 {
		t.Errorf("%d bytes are queued for one client", queued)
	}
	conn.CloseWrite()
	got, err := io.ReadAll(conn)
	var want strings.Builder
	for range 2 {
		for i := range n {
			want.WriteString(wire(strconv.Itoa(i + 1)))
		}
	}
	want.WriteString(wire("END"))
	if string(got) != want.String() || err != nil {
		t.Errorf("%d bytes of %d, %v", len(got), want.Len(), err)
	}
}

// Silent clients are closed, and clients that do not read are reset. Closed gets the reason.
func TestTimers(t *testing.T) {
	engine := start(t)
	addr := listen(t, engine, server{idle: 50 * time.Millisecond})
	if got, err := io.ReadAll(connect(t, addr)); len(got) > 0 || err != nil {
		t.Errorf("silent: %q, %v", got, err)
	}
	stalled := connect(t, addr)
	io.WriteString(stalled, wire("count 100000000"))
	for engine.Stats().Full == 0 || engine.Stats().Conns > 0 {
		time.Sleep(time.Millisecond)
	}
}

// A client that ends within a frame gets a reset.
func TestEndsWithinAFrame(t *testing.T) {
	engine := start(t)
	conn := connect(t, listen(t, engine, server{idle: time.Hour}))
	io.WriteString(conn, wire("hello")+wire("cut")[:5])
	conn.CloseWrite()
	if _, err := io.ReadAll(conn); err == nil {
		t.Error("the end looks like one in order")
	}
}

// The program answers its own client, and shuts down cleanly.
func TestProgram(t *testing.T) {
	cmd, url := exampletest.Program(t)
	addr := strings.TrimPrefix(url, "http://")
	engine := start(t)
	c, err := dial(t.Context(), engine, addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.conn.Close()
	if err := errors.Join(c.send("hello"), cmd.Process.Signal(os.Interrupt)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestGuide(t *testing.T) {
	exampletest.Guide(t, "protocol.md", "first/main.go", "frame.go", "session.go", "main.go", "client.go",
		"frames_test.go")
}

// Many concurrent clients send pieces of all sizes.
func TestManyClients(t *testing.T) {
	engine := start(t)
	addr := listen(t, engine, server{idle: time.Hour})
	for i := range 50 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, addr)
			text := wire("hello", strings.Repeat("y", i*100), "count 2")
			for at := 0; at < len(text); at += i + 1 {
				io.WriteString(conn, text[at:min(len(text), at+i+1)])
			}
			conn.CloseWrite()
			want := wire("HELLO", strings.Repeat("Y", i*100), "1", "2")
			if got, err := io.ReadAll(conn); string(got) != want || err != nil {
				t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
			}
		})
	}
}
