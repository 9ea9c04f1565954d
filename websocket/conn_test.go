package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/lifetime"
	"github.com/myriad-go/myriad/web"
)

func closeWith(code StatusCode, reason string) string {
	return string(appendCloseBody(nil, code, reason))
}

// orderedByKind puts data before pongs, and close last.
func orderedByKind(l []string) []string {
	l = slices.Clone(l)
	rank := func(s string) int {
		return slices.IndexFunc([]string{"text", "binary", "pong", "close"},
			func(kind string) bool { return strings.HasPrefix(s, kind) })
	}
	slices.SortStableFunc(l, func(a, b string) int { return rank(a) - rank(b) })
	return l
}

// The same bytes, one at a time with time in between: nothing is kept but what is incomplete.
func TestByteByByte(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d web.Dispatch) {
		o, heard := recorded(&Options{Dispatch: d, PingInterval: quiet, OnMessage: echoBack})
		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
		wire := sampleRequest + clientFrame(false, OpText, "κό") + clientFrame(true, opContinuation, "σμε") +
			clientFrame(true, OpPing, "still there?")
		c := w.client("")
		for i := range len(wire) {
			c.Write([]byte(wire[i : i+1]))
			w.Settle()
		}
		if got, want := c.lines(t), lines(`text "κόσμε"`, `pong "still there?"`); !slices.Equal(got, want) {
			t.Errorf("the client read %q, want %q", got, want)
		}
		c.send(OpClose, closeWith(StatusGoingAway, ""))
		w.Run()
		if got, want := heard.all(), lines("open", `text "κόσμε"`, "end 1001"); !slices.Equal(got, want) {
			t.Errorf("heard %q, want %q", got, want)
		}
		w.stop()
	})
}

// With every fault on, whatever happens to a connection, its callbacks come in order: open, a
// prefix of what was sent, one end.
func TestChaos(t *testing.T) {
	ways := [4]web.Dispatch{web.DispatchPool, web.DispatchInline, web.DispatchAuto, quickly}
	for seed := range uint64(40) {
		byConn := map[*Conn]*[]string{}
		o := &Options{Dispatch: ways[seed%4], PingInterval: quiet, Logger: slog.New(slog.DiscardHandler)}
		note := func(c *Conn, s string) {
			if byConn[c] == nil {
				byConn[c] = new([]string)
			}
			*byConn[c] = append(*byConn[c], s)
		}
		o.OnOpen = func(c *Conn) { note(c, "open") }
		o.OnMessage = func(c *Conn, op Op, p []byte) { note(c, string(p)); _ = c.Write(op, p) }
		o.OnClose = func(c *Conn, err error) { note(c, "end") }
		w := newWorld(t, seed, sim.Options{}, myriad.Config{}, handlerOf(t, o))
		var clients []*client
		for range 8 {
			c := w.client(sampleRequest)
			for i := range 200 {
				c.send(OpText, fmt.Sprint(i))
			}
			clients = append(clients, c)
		}
		clients[3].Reset()
		clients[5].CloseWrite()
		w.RunFor(1e9)
		for _, c := range clients {
			c.Close()
		}
		w.Run()
		for _, heard := range byConn {
			checkOrder(t, seed, *heard)
		}
		w.stop()
	}
}

func checkOrder(t *testing.T, seed uint64, heard []string) {
	t.Helper()
	if len(heard) < 2 || heard[0] != "open" || heard[len(heard)-1] != "end" {
		t.Fatalf("seed %d: heard %.200q", seed, heard)
	}
	for i, s := range heard[1 : len(heard)-1] {
		if s != fmt.Sprint(i) {
			t.Fatalf("seed %d: message %d is %q", seed, i, s)
		}
	}
}

// The same seed gives the same trace, byte for byte.
func TestSeedReproduces(t *testing.T) {
	run := func() uint64 {
		o := &Options{OnMessage: echoBack}
		w := newWorld(t, 7, sim.Options{}, myriad.Config{}, Handler(o))
		for range 5 {
			w.client(sampleRequest + strings.Repeat(clientFrame(true, OpText, "again"), 50))
		}
		w.RunFor(100e9)
		hash := w.Hash()
		w.stop()
		return hash
	}
	if a, b := run(), run(); a != b {
		t.Errorf("hashes %x and %x", a, b)
	}
}

func TestReadAheadIsKept(t *testing.T) {
	o, heard := recorded(&Options{PingInterval: quiet})
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
	frame := clientFrame(true, OpText, "early")
	c := w.client(sampleRequest + frame + frame[:3])
	w.Settle()
	c.Write([]byte(frame[3:]))
	w.Settle()
	if got, want := heard.all(), lines("open", `text "early"`, `text "early"`); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
	if !bytes.Contains(c.Received(), []byte("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")) {
		t.Errorf("the response has no accept key: %q", c.Received())
	}
	w.finish(c)
}

type userKey struct{}

// The context outlives the request, carries what middleware has set, and has ended with its cause
// when OnClose is called.
func TestContextOfAccept(t *testing.T) {
	var request context.Context
	contexts, ended := make(chan context.Context, 1), make(chan error, 1)
	o := &Options{Engine: startEngine(t, myriad.Config{}), Workers: startPool(t),
		OnMessage: func(c *Conn, _ Op, _ []byte) { contexts <- c.Context() },
		OnClose: func(c *Conn, err error) {
			if got := context.Cause(c.Context()); got != err || c.Context().Value(userKey{}) != "ann" {
				t.Errorf("in OnClose the cause is %v and the user %v, want %v and ann", got,
					c.Context().Value(userKey{}), err)
			}
			ended <- err
		}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request = r.Context()
		if _, err := Accept(w, r.WithContext(context.WithValue(r.Context(), userKey{}, "ann")), o); err != nil {
			t.Error(err)
		}
	})
	eachHandler(t, h, new(lockedLines), func(t *testing.T, addr string) {
		p := dialRaw(t, addr).open()
		<-request.Done() // the handler has returned
		p.write(clientFrame(true, OpText, "?"))
		ctx := <-contexts
		if ctx.Err() != nil || ctx.Value(userKey{}) != "ann" || ctx.Value(http.ServerContextKey) == nil {
			t.Errorf("error %v, user %v", ctx.Err(), ctx.Value(userKey{}))
		}
		afterwards := make(chan struct{})
		context.AfterFunc(ctx, func() { close(afterwards) })
		p.write(clientFrame(true, OpClose, closeWith(4001, "enough")))
		<-ctx.Done()
		<-afterwards
		var e *CloseError
		if err := context.Cause(ctx); !errors.As(err, &e) || e.Code != 4001 || ctx.Err() != context.Canceled ||
			err != <-ended {
			t.Errorf("ended with %v, %v", ctx.Err(), err)
		}
	})
}

// A connection that asks for no context, and whose request has no values but the server's, keeps
// none.
func TestContextCostsNothing(t *testing.T) {
	conns := make(chan *Conn, 1)
	o := &Options{Engine: startEngine(t, myriad.Config{}), Workers: startPool(t), OnOpen: func(c *Conn) { conns <- c }}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = Accept(w, r, o) })
	onWeb := &web.Server{Engine: startEngine(t, myriad.Config{}), Handler: h}
	ln, err := onWeb.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer onWeb.Close()
	dialRaw(t, ln.Addr().String()).open()
	c := <-conns
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cold != nil {
		t.Errorf("an idle connection has %+v", c.cold)
	}
}

// Without values, before the connection has arrived, with Pull, by each kind of end, in callbacks:
// there is a context, and it ends.
func TestContextEnds(t *testing.T) {
	for _, pull := range []bool{false, true} {
		for name, end := range map[string]func(c *Conn, p *client){
			"close frame": func(_ *Conn, p *client) { p.send(OpClose, closeWith(1000, "")) },
			"FIN":         func(_ *Conn, p *client) { p.CloseWrite() },
			"Abort":       func(c *Conn, _ *client) { c.Abort(nil) },
			"reset":       func(_ *Conn, p *client) { p.Reset() },
		} {
			o := &Options{PingInterval: quiet, Pull: pull}
			var conn *Conn
			var early context.Context
			o.OnOpen = func(c *Conn) { conn, early = c, c.Context() }
			w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
			p := w.client(sampleRequest)
			w.RunFor(time.Second)
			if early == nil || early.Err() != nil || early != conn.Context() {
				t.Fatalf("%s: the context of an open connection is %v, later %v", name, early, conn.Context())
			}
			end(conn, p)
			w.RunFor(time.Minute)
			if cause := context.Cause(early); cause == nil || early.Err() == nil || conn.Context() != early {
				t.Errorf("%s: the context ended with %v", name, cause)
			}
			w.stop()
		}
	}
}

// A context that is asked for too late has ended.
func TestContextOfClosed(t *testing.T) {
	o := &Options{PingInterval: quiet}
	var conn *Conn
	o.OnOpen = func(c *Conn) { conn = c; c.Abort(nil) }
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
	w.client(sampleRequest)
	w.RunFor(time.Minute)
	if ctx := conn.Context(); ctx.Err() == nil || !errors.Is(context.Cause(ctx), net.ErrClosed) {
		t.Errorf("it ended with %v", context.Cause(ctx))
	}
	w.stop()
}

// A context that is asked for while the connection ends has ended afterwards, with OnClose's error,
// and is the only one.
func TestContextAskedBesideTheEnd(t *testing.T) {
	for _, pull := range []bool{false, true} {
		s, err := (&Options{PingInterval: quiet, Pull: pull}).settings()
		must(t, err)
		for range 20_000 {
			c := newConn(s, deflateTerms{}, 0)
			c.needCold().life = lifetime.Of(t.Context())
			var asked [2]context.Context
			gate := newGate(3)
			var wg sync.WaitGroup
			for i := range asked {
				wg.Go(func() { gate.pass(); asked[i] = c.Context() })
			}
			wg.Go(func() { gate.pass(); c.ends(errAborted) })
			wg.Wait()
			for _, ctx := range asked {
				if ctx != c.Context() || ctx.Err() == nil || context.Cause(ctx) != c.end.reasonNow(c) {
					t.Fatalf("Pull %v: a context ended with %v, %v, and is the connection's: %v", pull, ctx.Err(),
						context.Cause(ctx), ctx == c.Context())
				}
			}
		}
	}
}

// A gate lets goroutines pass when all of them are there, as nearly at once as can be.
type gate struct{ missing atomic.Int32 }

func newGate(n int32) *gate {
	g := new(gate)
	g.missing.Store(n)
	return g
}

func (g *gate) pass() {
	for g.missing.Add(-1); g.missing.Load() > 0; {
		runtime.Gosched()
	}
}

// In OnClose the cause is OnClose's error, whether the context was asked for before or not, by each
// kind of end.
func TestContextInOnClose(t *testing.T) {
	for _, early := range []bool{false, true} {
		for _, pull := range []bool{false, true} {
			for name, end := range map[string]func(c *Conn, p *client){
				"close frame": func(_ *Conn, p *client) { p.send(OpClose, closeWith(4001, "enough")) },
				"FIN":         func(_ *Conn, p *client) { p.CloseWrite() },
				"Abort":       func(c *Conn, _ *client) { c.Abort(nil) },
				"Close":       func(c *Conn, _ *client) { _ = c.Close(StatusNormalClosure, "") },
				"reset":       func(_ *Conn, p *client) { p.Reset() },
			} {
				o := &Options{PingInterval: quiet, Pull: pull}
				var conn *Conn
				o.OnOpen = func(c *Conn) {
					if conn = c; early {
						c.Context()
					}
				}
				ended := false
				o.OnClose = func(c *Conn, err error) {
					ended = true
					if got := context.Cause(c.Context()); err == nil || got != err {
						t.Errorf("%s, asked for before %v: in OnClose the cause is %v, want %v", name, early, got, err)
					}
				}
				w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
				p := w.client(sampleRequest)
				w.RunFor(time.Second)
				end(conn, p)
				w.RunFor(time.Minute)
				if !ended {
					t.Errorf("%s: OnClose was not called", name)
				}
				w.stop()
			}
		}
	}
}
