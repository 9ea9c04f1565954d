package web

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/workers"
)

// TestMain fails when goroutines of this module or blocks are left behind.
func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

// A fixture is a server on a loopback address with an engine of its own.
type fixture struct {
	*Server
	addr string
	log  *lockedLog
}

// poolOf is the pool of a server on sockets.
func poolOf(st *state) *workers.Pool { return st.Tasks.PoolOf(st.Engine.System()).(*workers.Pool) }

// serve runs s until the test ends.
func serve(t testing.TB, s *Server) *fixture { return serveOn(t, s, myriad.Config{Loops: 2}) }

func serveOn(t testing.TB, s *Server, c myriad.Config) *fixture {
	t.Helper()
	f := prepare(t, s, c)
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	return f
}

// prepare gives s an engine until the test ends.
func prepare(t testing.TB, s *Server, c myriad.Config) *fixture {
	t.Helper()
	engine, err := myriad.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Server: s, log: new(lockedLog)}
	s.mostAwake = 1 // so that in every test with more than one connection some hibernate
	s.Engine = engine
	if s.ErrorLog == nil {
		s.ErrorLog = log.New(f.log, "", 0)
	}
	t.Cleanup(func() { f.stop(t, engine) })
	return f
}

func (f *fixture) stop(t testing.TB, engine *myriad.Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	f.Close()
	if err := f.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := engine.Shutdown(ctx); err != nil {
		t.Errorf("engine Shutdown: %v", err)
	}
}

func (f *fixture) url(path string) string { return "http://" + f.addr + path }

// client is an http.Client with connections of its own.
func client(t testing.TB) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: hangs}
}

// hangs is how long a test waits for what must happen, before it says that it does not. It judges
// nothing: a machine may be busy with other things for long.
var hangs = soak.Patience(2 * time.Minute)

// atLength returns a context for a call that must return. It ends after hangs.
func atLength(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	t.Cleanup(cancel)
	return ctx
}

// receive returns the next value of a channel. If none comes within hangs, the test fails.
func receive[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(hangs):
		t.Fatal("waited too long")
	}
	return v
}

func dial(t testing.TB, f *fixture) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(hangs))
	return c
}

// raw sends request as it is, ends its side if asked, and reads all that comes until the server
// closes.
func raw(t testing.TB, f *fixture, request string, fin bool) string {
	t.Helper()
	c := dial(t, f)
	io.WriteString(c, request)
	if fin {
		c.(*net.TCPConn).CloseWrite()
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("after %d bytes: %v", len(answer), err)
	}
	c.Close() // or the server waits for that
	return string(answer)
}

func mustBody(t testing.TB, r *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// quiet is for simulations, where faults are the rule.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

const (
	get     = "GET / HTTP/1.1\r\nHost: h\r\n"
	post    = "POST / HTTP/1.1\r\nHost: h\r\n"
	chunked = post + "Transfer-Encoding: chunked\r\n\r\n"
)

// statusOf is the status of the first answer.
func statusOf(answer string) string {
	if fields := strings.Fields(answer); len(fields) > 1 {
		return fields[1]
	}
	return ""
}
