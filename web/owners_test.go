package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/web/internal/exchange"
	"github.com/myriad-go/myriad/web/internal/http1"
)

// These are about moments: the loop does something for an exchange exactly where its handler's
// goroutine stands.

func exchangeOf(w http.ResponseWriter) *exchange.Exchange { return w.(*exchange.Given).Out.Load().X }

// turnOf runs f on the loop of x, when it has looked at what x wants, and returns after that.
func turnOf(x *exchange.Exchange, f func()) {
	for _, g := range []func(){func() {}, f} { // a request of one turn is done in the next
		done := make(chan struct{})
		x.Lane.Loop.Post(func() { g(); close(done) })
		<-done
	}
}

// A detour is a carrier with which something else happens before a head or a refusal, or instead of
// it.
type detour struct {
	exchange.Carrier
	before func() error
	after  func()
}

func (d *detour) SendHead(next []byte, last bool) error {
	return d.around(func() error { return d.Carrier.SendHead(next, last) })
}

func (d *detour) Refuse(status int, reason string) error {
	return d.around(func() error { return d.Carrier.Refuse(status, reason) })
}

func (d *detour) around(f func() error) error {
	if d.before != nil {
		if err := d.before(); err != nil {
			return err
		}
	}
	err := f()
	if d.after != nil {
		d.after()
	}
	return err
}

// A holding is the context of a connection whose requests, if they have been watched, are held up
// at their end: by then a handler has returned, and its answer is not complete.
type holding struct {
	context.Context
	hold func()
}

func (h *holding) Done() <-chan struct{} { return make(chan struct{}) }

func (h *holding) AfterFunc(func()) (stop func() bool) {
	return func() bool { h.hold(); return true }
}

// holdingServer calls hold on the goroutine of a handler that has asked for its context's end.
func holdingServer(hold func(), s *Server) *Server {
	s.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return &holding{ctx, hold} }
	return s
}

// A request of a chain that is late before its handler begins is run, or the connection would never
// end.
func TestChainOfALateRequest(t *testing.T) {
	var next *exchange.Exchange
	late := func() { next.Out.Lose(os.ErrDeadlineExceeded) }
	f := serve(t, holdingServer(late, &Server{Dispatch: DispatchPool, WriteTimeout: time.Hour,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/first" {
				next = &exchangeOf(w).Carrier.(*http1.Stream).Chain.Exchange
				r.Context().Done()
			}
			io.WriteString(w, r.URL.Path)
		})}))
	c := dial(t, f)
	io.WriteString(c, "GET /first HTTP/1.1\r\nHost: h\r\n\r\nGET /late HTTP/1.1\r\nHost: h\r\n\r\n")
	all, err := io.ReadAll(c)
	if got := answers(t, string(all)); err != nil || fmt.Sprint(got) != "[/first]" {
		t.Errorf("got %q, %v", got, err)
	}
}

// Hijack of a connection that went when the answer was late already does not wait for it.
func TestHijackOfALateAndLostRequest(t *testing.T) {
	ready, failed := make(chan struct{}), make(chan error, 1)
	f := serve(t, &Server{
		Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
			w.WriteHeader(http.StatusEarlyHints)
			if err := exchangeOf(w).Out.LostErr(); err != os.ErrDeadlineExceeded {
				t.Errorf("not late: %v", err)
			}
			close(ready)
			for ctx := &exchangeOf(w).Given.Ctx; !ctx.IsLost(); {
				time.Sleep(time.Millisecond)
			}
			_, _, err := w.(http.Hijacker).Hijack()
			failed <- err
		}),
	})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	receive(t, ready)
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
	select {
	case err := <-failed:
		if err == nil {
			t.Error("Hijack of a connection that has gone")
		}
	case <-time.After(hangs):
		t.Fatal("Hijack waits for ever")
	}
}

// A handler reads a body that the client holds back until 100 Continue, while earlier answers fill
// the queue. It waits for room without using the processor, and at most until the final answer
// begins.
func TestContinueWaitsForRoom(t *testing.T) {
	for _, answered := range []bool{false, true} {
		begun, settled, free := make(chan *exchange.Exchange), make(chan struct{}), make(chan struct{})
		f := serveOn(t, &Server{Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				x := exchangeOf(w)
				held := make(chan struct{})
				x.Lane.Loop.Post(func() { close(held); <-free }) // so that nothing leaves
				<-held
				w.WriteHeader(http.StatusEarlyHints)
				x.Conn().SetWriteLimit(1)
				read := make(chan string)
				go func() {
					body, err := io.ReadAll(r.Body)
					read <- fmt.Sprint(string(body), err)
				}()
				begun <- x
				if answered {
					refusedTwice(x)
					w.WriteHeader(http.StatusOK)
					within(t, "the body itself is waited for", x.Body.Awaited)
					close(settled)
				}
				io.WriteString(w, <-read)
			})}, myriad.Config{Loops: 1})
		c := dial(t, f)
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n"+
			"Connection: close\r\n\r\n")
		refusedTwice(receive(t, begun))
		for range 1000 {
			runtime.Gosched()
		}
		if n := f.Engine.Stats().Full; n > 4 {
			t.Errorf("tried %d times", n)
		}
		if answered {
			<-settled
			io.WriteString(c, "body")
		}
		close(free)
		r := bufio.NewReader(c)
		for _, want := range []string{"HTTP/1.1 103 Early Hints\r\n", "\r\n", "HTTP/1.1 100 Continue\r\n", "\r\n"} {
			if answered && strings.Contains(want, "100") {
				break
			}
			if line, err := r.ReadString('\n'); line != want {
				t.Fatalf("got %q, %v", line, err)
			}
		}
		if !answered {
			io.WriteString(c, "body")
		}
		if all, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(all), "\r\n\r\nbody<nil>") {
			t.Errorf("got %q, %v", all, err)
		}
	}
}

// refusedTwice returns when something has been refused for want of room, and again when a call
// waited for it.
func refusedTwice(x *exchange.Exchange) {
	for x.Lane.Server.Engine.Stats().Full < 2 {
		runtime.Gosched()
	}
}

// waitsForRoom reports whether the handler of x waits for room, or is about to.
func waitsForRoom(x *exchange.Exchange) bool {
	x.Out.Mu.Lock()
	defer x.Out.Mu.Unlock()
	return x.Out.Seldom != nil && x.Out.Seldom.Room != nil
}

// A refusing executor takes nothing, and does something first.
type refusing struct {
	driver.Executor
	before func()
}

func (e refusing) TryGoAll([]func()) int { e.before(); return 0 }

// refusingServer refuses all requests: before is called with each, on the loop.
func refusingServer(t *testing.T, before func(x *exchange.Exchange)) *fixture {
	f := serveOn(t, &Server{Dispatch: DispatchPool}, myriad.Config{Loops: 1})
	set, ln := make(chan struct{}), f.state.lanes[0]
	ln.Loop.Post(func() {
		pool := f.state.Tasks.PoolOf(f.Engine.System())
		f.state.Tasks.UsePool(refusing{pool, func() { before(&ln.Awake[0].(*http1.Conn).X.Exchange) }})
		close(set)
	})
	receive(t, set)
	return f
}

// A request that is refused when its client has gone does not count as a handler that goes on
// without it.
func TestRefusedOfALostClient(t *testing.T) {
	t.Parallel()
	f := refusingServer(t, func(x *exchange.Exchange) {
		x.Carrier.(*http1.Stream).ConnectionLost(io.ErrUnexpectedEOF,
			nil)
	})
	raw(t, f, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", false)
	within(t, "nothing is counted", func() bool { return f.state.Conns.Load() == 0 })
}

// A connection that has no room for the refusal ends without it.
func TestRefusedWithoutRoom(t *testing.T) {
	f := refusingServer(t, func(x *exchange.Exchange) {
		x.Carrier = &detour{Carrier: x.Carrier, before: func() error { return myriad.ErrFull }}
	})
	if got := raw(t, f, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", false); got != "" {
		t.Errorf("got %q", got)
	}
}

// What comes behind the fault of a body is not taken for its continuation.
func TestNothingBehindABrokenBody(t *testing.T) {
	for _, body := range [][2]string{{"4\r\nabcdXX", "\r\n0\r\n\r\n"}, {"4\r\nabcd\r\nX\r\n", "0\r\n\r\n"}} {
		begun, goOn := make(chan struct{}), make(chan struct{})
		f := serveOn(t, &Server{Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					return
				}
				close(begun)
				<-goOn
				_, err := io.ReadAll(r.Body)
				fmt.Fprint(w, err)
			})}, myriad.Config{Loops: 1})
		c := dial(t, f)
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"+body[0])
		receive(t, begun)
		io.WriteString(c, body[1])
		for range 5 { // the loop has come to the rest by then
			raw(t, f, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false)
		}
		close(goOn)
		all, err := io.ReadAll(c)
		if got := answers(t, string(all)); err != nil || len(got) != 1 || got[0] == "<nil>" {
			t.Errorf("%q: got %q, %v", body, all, err)
		}
	}
}

// first speaks first.
type first struct{ text string }

func (f first) Opened(c *myriad.Conn)        { io.WriteString(c, f.text) }
func (first) Received(*myriad.Conn, []byte)  {}
func (first) Closed(_ *myriad.Conn, _ error) {}

// An upgraded connection is opened when the head of the switch has been queued, whenever the loop
// looks.
func TestUpgradeHeadComesFirst(t *testing.T) {
	const before = 16 << 20 // more than sockets hold
	looked := make(chan struct{})
	f := serve(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := exchangeOf(w)
			c := x.Conn()
			c.SetWriteLimit(1)
			c.Write(make([]byte, before)) // there is no room for the head
			go func() {
				defer close(looked)
				for !waitsForRoom(x) {
					runtime.Gosched()
				}
				x.Carrier.Notify() // as a deadline does
				turnOf(x, func() {})
				c.SetWriteLimit(0)
			}()
			if err := Upgrade(w, []byte(switching), first{"hello"}); err != nil {
				t.Error(err)
			}
		})})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	receive(t, looked)
	io.CopyN(io.Discard, c, before)
	got := make([]byte, len(switching+"hello"))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != switching+"hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// An upgrade waits for its turn: what takes the connection over before does not find the new
// handler on it.
func TestUpgradeBehindATakeover(t *testing.T) {
	behind, upgraded := make(chan *exchange.Exchange, 1), make(chan error, 1)
	f := serve(t, &Server{PipelineDepth: 8, Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/upgrade" {
				behind <- exchangeOf(w)
				upgraded <- Upgrade(w, []byte(switching), first{"intruder"})
				return
			}
			for y := <-behind; !waitsForRoom(y); {
				runtime.Gosched()
			}
			nc, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(nc, "mine")
			nc.Close()
		})})
	c := dial(t, f)
	io.WriteString(c, "GET /hijack HTTP/1.1\r\nHost: h\r\n\r\nGET /upgrade HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\n"+
		"Connection: Upgrade\r\n\r\n")
	all, err := io.ReadAll(c)
	if string(all) != "mine" {
		t.Errorf("got %q, %v", all, err)
	}
	if err := receive(t, upgraded); !errors.Is(err, http.ErrHijacked) {
		t.Errorf("Upgrade: %v", err)
	}
}

// A stream that begins too late ends the connection: its head has gone, and promises a body.
func TestDetachedTooLate(t *testing.T) {
	f := serve(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/late" {
				return
			}
			x := exchangeOf(w)
			x.Carrier = &detour{Carrier: x.Carrier, after: func() { x.Out.Lose(os.ErrDeadlineExceeded) }}
			if _, err := Detached(w); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Detached: %v", err)
			}
		})})
	c := dial(t, f)
	io.WriteString(c, "GET /late HTTP/1.1\r\nHost: h\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n")
	if all, err := io.ReadAll(c); err != nil || strings.Count(string(all), "HTTP/1.1") > 1 {
		t.Errorf("got %q, %v", all, err)
	}
}

// The deadline of an answer does not end the stream that it has become, not even before the handler
// has returned.
func TestDetachedOutlivesTheDeadline(t *testing.T) {
	f := serve(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s, err := Detached(w)
			if err != nil {
				t.Error(err)
				return
			}
			x := exchangeOf(w)
			turnOf(x, func() {
				x.WriteBy = 1
				s.Write([]byte("text"))
				h := x.Carrier.(*http1.Stream)
				h.H.DeadlinePassed(h)
			})
			s.Close()
		})})
	got := raw(t, f, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false)
	if bodies := answers(t, got); fmt.Sprint(bodies) != "[text]" {
		t.Errorf("got %q", got)
	}
}

// A deadline set on the conn that ConnState got ends a Stream as it ends other connections.
func TestDeadlineFromOutsideEndsAStream(t *testing.T) {
	var shown net.Conn
	ended := make(chan error, 1)
	f := serve(t, &Server{
		ConnState: func(nc net.Conn, state http.ConnState) {
			if state == http.StateActive {
				shown = nc
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s, err := Detached(w)
			if err != nil {
				t.Error(err)
				return
			}
			s.OnClose(func(err error) { ended <- err })
			s.Write([]byte("text"))
		}),
	})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		t.Fatal(err)
	}
	for {
		shown.SetDeadline(time.Unix(1, 0)) // it may come before the Stream has the connection
		select {
		case err := <-ended:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the stream ended with %v", err)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}
