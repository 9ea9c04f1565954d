package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

type contextKey struct{}

// hear lets a server's functions record their calls, in order.
func hear(s *Server, r *record, base context.Context, closed chan<- struct{}) {
	s.BaseContext = func(l net.Listener) context.Context {
		r.add("base for %s %s", l.Addr().Network(), plain(l.Addr().String()))
		return base
	}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		srv, _ := ctx.Value(http.ServerContextKey).(*http.Server)
		r.add("conn %s in %v: server %t, local address %v", c.LocalAddr().Network(), ctx.Value(contextKey{}),
			srv != nil && srv.Handler != nil, ctx.Value(http.LocalAddrContextKey))
		return context.WithValue(ctx, contextKey{}, fmt.Sprint(ctx.Value(contextKey{}), " of ",
			plain(c.RemoteAddr().String())))
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		r.add("%v %s", state, plain(c.RemoteAddr().String()))
		if state == http.StateClosed || state == http.StateHijacked {
			closed <- struct{}{}
		}
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		ctx := q.Context()
		srv, _ := ctx.Value(http.ServerContextKey).(*http.Server)
		local, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr)
		_, ok := ctx.Deadline()
		r.add("%s in %v: server %t, local address %s %s, deadline %t, %v %v", q.URL, ctx.Value(contextKey{}),
			srv != nil && srv.Handler != nil, local.Network(),
			plain(local.String()), ok, ctx.Err(), context.Cause(ctx))
		context.AfterFunc(ctx, func() {}) // a watcher must not change anything
		switch q.URL.Path {
		case "/hijack":
			nc, _, err := http.NewResponseController(w).Hijack()
			r.add("hijacked: %v %v", err, ctx.Err())
			nc.Close()
		case "/wait":
			w.(http.Flusher).Flush()
			<-ctx.Done()
			r.add("waited: %v, %v", ctx.Err(), context.Cause(ctx))
		}
	})
}

// serveFrom is serve by means of Server.Serve.
func serveFrom(t testing.TB, s *Server) *fixture {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := prepare(t, s, myriad.Config{Loops: 2})
	f.addr = ln.Addr().String()
	go s.Serve(ln)
	return f
}

// Contexts say of themselves what net/http's do, also while they end: programs print them, and the
// arguments of mocked calls.
func TestPrintedContextsLikeNetHTTP(t *testing.T) {
	printed := make(chan string)
	set := func(s *Server) {
		s.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			printed <- fmt.Sprintf("%v and %+v", r.Context(), context.WithValue(r.Context(), contextKey{}, "derived"))
			for r.Context().Err() == nil {
				_ = fmt.Sprint(r.Context())
			}
		})
	}
	sameBeside(t, serveFrom, set, func(t *testing.T, f *fixture, r *record) {
		nc := dial(t, f)
		io.WriteString(nc, get+end)
		r.add("%s", plain(<-printed))
		nc.Close()
	})
}

// BaseContext, ConnContext and ConnState get the same calls in the same order as from net/http.
// Handlers have the same contexts, which end alike with the connection, the handler or the base.
func TestContextsLikeNetHTTP(t *testing.T) {
	for name, begin := range map[string]func(testing.TB, *Server) *fixture{"Listen": serve, "Serve": serveFrom} {
		for _, c := range []struct {
			name, request, ends string
		}{
			{"one", get + end, ""},
			{"silent", "", "fin"},
			{"hijack", "GET /hijack HTTP/1.1\r\nHost: h\r\n\r\n", ""},
			{"the client goes", "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n", "close"},
			{"the base ends", "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n", "base"},
			{"the base ends with a cause", "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n", "cause"},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				heard, closed := new(record), make(chan struct{}, 1)
				var endBase context.CancelCauseFunc
				sameBeside(t, begin, func(s *Server) {
					base, cancel := context.WithCancelCause(context.WithValue(context.Background(), contextKey{},
						"base"))
					heard, endBase = new(record), cancel
					hear(s, heard, base, closed)
				}, func(t *testing.T, f *fixture, r *record) {
					conn := dial(t, f)
					in := bufio.NewReader(conn)
					io.WriteString(conn, c.request)
					if c.ends != "fin" { // the beginning of the answer, or of what the hijacker wrote
						in.ReadString('\n')
					}
					switch c.ends {
					case "close":
						conn.Close()
					case "fin":
						closeWrite(conn)
					case "base":
						endBase(nil)
					case "cause":
						endBase(errors.New("enough"))
					}
					if c.ends != "close" {
						closeWrite(conn)
						io.Copy(io.Discard, in)
					}
					select {
					case <-closed:
					case <-time.After(hangs):
						t.Error("never closed")
					}
					all := heard.String()
					if c.ends == "close" { // whether the reset is seen before the connection is idle is chance
						all = strings.Replace(all, "; idle #", "", 1)
					}
					r.add("%s", all)
				})
				endBase(nil)
			})
		}
	}
}

// A BaseContext that returns nil panics where the server begins, as with net/http, and nothing goes
// on listening.
func TestNilBaseContext(t *testing.T) {
	base := func(net.Listener) context.Context { return nil }
	said := func(serve func(net.Listener) error, ln net.Listener) (v any) {
		defer func() { v = recover() }()
		return serve(ln)
	}
	std, ours := keptPort(t), keptPort(t)
	want := said((&http.Server{BaseContext: base}).Serve, std)
	f := prepare(t, &Server{BaseContext: base}, myriad.Config{Loops: 1})
	if got := said(f.Serve, ours); got != want {
		t.Errorf("Serve: got %v, net/http: %v", got, want)
	}
	closed := func(addr net.Addr) {
		if c, err := net.Dial("tcp", addr.String()); err == nil {
			t.Errorf("%v is still open", addr)
			c.Close()
		}
	}
	closed(std.Addr())
	closed(ours.Addr())
	if got := said(func(net.Listener) error { _, err := f.Listen("tcp", ours.Addr().String()); return err },
		nil); got != want {
		t.Errorf("Listen: got %v, net/http: %v", got, want)
	}
	closed(ours.Addr())
}

// keptPort listens on a port that stays reserved for the whole test, also when the listener is
// closed, because a connection that was made there stays.
func keptPort(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, connect := range []func() (net.Conn, error){func() (net.Conn,
		error) {
		return net.Dial("tcp", ln.Addr().String())
	}, ln.Accept} {
		c, err := connect()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	return ln
}

// A ConnContext that returns nil costs its connection, and is logged; the server goes on.
func TestNilConnContext(t *testing.T) {
	first := true
	s := &Server{
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if first {
				first = false
				return nil
			}
			return ctx
		},
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
	logged := new(lockedLog)
	f := serveOn(t, s, myriad.Config{Loops: 1, Logger: slog.New(slog.NewTextHandler(logged, nil))})
	c, err := net.Dial("tcp", f.addr)
	if err == nil { // else it has been reset already
		defer c.Close()
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("got %d bytes", n)
		}
	}
	within(t, "it is logged", func() bool { return strings.Contains(logged.String(), "ConnContext returned nil") })
	if got := raw(t, f, last, false); statusOf(got) != "200" {
		t.Errorf("then %q", got)
	}
}

// When a client has the whole answer, the request's context has ended, as with net/http.
func TestContextEndsBeforeAnswer(t *testing.T) {
	t.Parallel()
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		var contexts sync.Map // by address
		f := serve(t, &Server{Dispatch: d, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			contexts.Store(r.RemoteAddr, r.Context())
		})})
		var clients sync.WaitGroup
		for range 8 { // that keep the processors busy
			c := dial(t, f)
			clients.Go(func() {
				in := bufio.NewReader(c)
				for i := range 500 {
					io.WriteString(c, get+end)
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
					ctx, _ := contexts.Load(c.LocalAddr().String())
					if err := ctx.(context.Context).Err(); err != context.Canceled {
						t.Errorf("request %d: %v", i, err)
						return
					}
				}
			})
		}
		clients.Wait()
	})
}

// A context whose base has ended has ended at once: where Err says so Done is closed, as package
// context promises.
func TestContextEndsWithItsBaseLikeNetHTTP(t *testing.T) {
	for _, first := range []bool{true, false} {
		var end context.CancelFunc
		var notes *record
		sameOnBoth(t, func(s *Server) {
			var base context.Context
			base, end = context.WithCancel(context.Background())
			notes = new(record)
			s.BaseContext = func(net.Listener) context.Context { return base }
			s.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if first {
					notes.add("before: %v, done %t", r.Context().Err(), isDone(r.Context()))
				}
				end()
				notes.add("%v, done %t, %v", r.Context().Err(), isDone(r.Context()), r.Context().Err())
			})
		}, func(t *testing.T, f *fixture, r *record) {
			for range 20 {
				raw(t, f, last, false)
			}
			r.add("%v", notes)
			end()
		})
	}
}

func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// A read deadline that has passed and is then lifted lets a body with a length go on, and one in
// chunks not, as with net/http.
func TestLiftedDeadlineLikeNetHTTP(t *testing.T) {
	for _, parts := range [][2]string{{"Content-Length: 6\r\n\r\none", "two"},
		{"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n", "3\r\ntwo\r\n0\r\n\r\n"}} {
		var failed, over chan struct{}
		var notes *record
		sameOnBoth(t, func(s *Server) {
			failed, over, notes = make(chan struct{}), make(chan struct{}), new(record)
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(over)
				deadlines := http.NewResponseController(w)
				p := make([]byte, 3)
				_, err := io.ReadFull(r.Body, p)
				notes.add("%s %v", p, err)
				deadlines.SetReadDeadline(time.Now())
				p, err = io.ReadAll(r.Body)
				notes.add("%s %t", p, err != nil)
				deadlines.SetReadDeadline(time.Time{})
				close(failed)
				// what is there by then is not given to a Read that must fail
				if ours, ok := r.Body.(*exchange.Body); ok {
					for !ours.Complete() {
						time.Sleep(time.Millisecond)
					}
				}
				p, err = io.ReadAll(r.Body)
				notes.add("%s %t", p, err != nil)
			})
		}, func(t *testing.T, f *fixture, r *record) {
			c := dial(t, f)
			io.WriteString(c, post+parts[0])
			<-failed
			io.WriteString(c, parts[1])
			<-over
			r.add("%s: %s", parts[0], notes)
		})
	}
}
