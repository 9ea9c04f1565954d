package resp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// clientOf is a client on an engine of its own.
func clientOf(t testing.TB, c *Client) *Client {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	c.Engine = e
	t.Cleanup(func() {
		_ = c.Close() // always nil
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return c
}

// eachServer runs a test of a client against redis-server and against ours, in both protocols.
func eachServer(t *testing.T, f func(t *testing.T, c *Client)) {
	for _, proto := range []Protocol{RESP2, RESP3} {
		t.Run(fmt.Sprintf("redis-server/%d", proto), func(t *testing.T) {
			f(t, clientOf(t, &Client{Network: "unix", Addr: redis(t), Protocol: proto}))
		})
		t.Run(fmt.Sprintf("ours/%d", proto), func(t *testing.T) {
			f(t, clientOf(t, &Client{Addr: serve(t, &Server{}), Protocol: proto}))
		})
	}
}

// ctxOf bounds a test.
func ctxOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Very many goroutines share few connections, and each gets its own reply.
func TestClientManyGoroutines(t *testing.T) {
	eachServer(t, func(t *testing.T, c *Client) {
		ctx := ctxOf(t)
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				for j := range 5 {
					text := fmt.Sprintf("%d-%d", i, j)
					v, err := c.Do(ctx, "ECHO", text)
					if err != nil || v.Text() != text {
						t.Errorf("ECHO %s: %v, %v", text, v, err)
						return
					}
				}
			})
		}
		wg.Wait()
		if _, err := c.Do(ctx, "NOPE"); !strings.HasPrefix(fmt.Sprint(err), "ERR unknown command") {
			t.Errorf("an unknown command: %v", err)
		}
		if v, err := c.DoBytes(ctx, []byte("GET"), []byte("none")); err != nil || !v.IsNull() {
			t.Errorf("GET none: %v, %v", v, err)
		}
	})
}

func TestClientCallbacks(t *testing.T) {
	eachServer(t, func(t *testing.T, c *Client) {
		const n = 5000
		var ended atomic.Int32
		var wg sync.WaitGroup
		wg.Add(n)
		for i := range n {
			text := fmt.Sprint(i)
			c.Start(func(v Value, err error) {
				defer wg.Done()
				ended.Add(1)
				if err != nil || v.Text() != text {
					t.Errorf("%s: %v, %v", text, v, err)
				}
			}, "ECHO", text)
		}
		wg.Wait()
		if ended.Load() != n {
			t.Errorf("%d callbacks for %d commands", ended.Load(), n)
		}
	})
}

func TestClientSubscribes(t *testing.T) {
	eachServer(t, func(t *testing.T, c *Client) {
		ctx := ctxOf(t)
		got := make(chan string, 100)
		take := func(name string) func(string, []byte) {
			return func(channel string, message []byte) { got <- name + " " + channel + " " + string(message) }
		}
		one, err := c.Subscribe(ctx, take("one"), "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		two, err := c.PSubscribe(ctx, take("two"), "a*")
		if err != nil {
			t.Fatal(err)
		}
		defer two.Close()
		want := func(channel string, receivers int64, all ...string) {
			t.Helper()
			if v, err := c.Do(ctx, "PUBLISH", channel, "hi"); err != nil || v.Int != receivers {
				t.Errorf("PUBLISH %s: %v, %v", channel, v, err)
			}
			left := map[string]bool{}
			for _, s := range all {
				left[s] = true
			}
			for range all {
				s := <-got
				if !left[s] {
					t.Errorf("got %q, want of %q", s, all)
				}
				delete(left, s)
			}
		}
		want("b", 1, "one b hi")
		want("a", 2, "one a hi", "two a hi")
		one.Close()
		if _, err := c.Subscribe(ctx, take("three"), "c"); err != nil { // behind the end of one
			t.Fatal(err)
		}
		want("a", 1, "two a hi")
		want("b", 0)
		want("c", 1, "three c hi")
	})
}

// A client comes back by itself, and so do its subscriptions.
func TestClientReconnects(t *testing.T) {
	conns := make(chan *Conn, 100)
	s := &Server{OnOpen: func(c *Conn) { conns <- c }}
	c := clientOf(t, &Client{Addr: serve(t, s), Conns: 1})
	ctx := ctxOf(t)
	got := make(chan string, 100)
	subscribing, cancel := context.WithCancel(ctx)
	if _, err := c.Subscribe(subscribing, func(_ string, m []byte) { got <- string(m) }, "a"); err != nil {
		t.Fatal(err)
	}
	cancel() // it bounds Subscribe, and not the subscription
	for round := range 5 {
		if _, err := c.Do(ctx, "ECHO", "x"); err != nil && !errors.Is(err, ErrLost) {
			t.Fatalf("round %d: %v", round, err)
		}
		for {
			v, err := c.Do(ctx, "PUBLISH", "a", fmt.Sprint(round))
			if err != nil && !errors.Is(err, ErrLost) || ctx.Err() != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if err == nil && v.Int > 0 {
				break
			}
		}
		if m := <-got; m != fmt.Sprint(round) {
			t.Errorf("got %q in round %d", m, round)
		}
		for len(conns) > 0 {
			(<-conns).nc.Abort(nil)
		}
	}
}

func TestClientFails(t *testing.T) {
	ctx := ctxOf(t)
	c := clientOf(t, &Client{Network: "unix", Addr: "/nowhere/at/all", Conns: 1})
	for range 3 {
		if _, err := c.Do(ctx, "PING"); err == nil || !strings.Contains(err.Error(), "/nowhere/at/all") {
			t.Errorf("without a server: %v", err)
		}
	}
	if _, err := c.Subscribe(ctx, nil, "a"); err == nil {
		t.Error("it subscribes without a server")
	}
	s := &Server{Auth: func(_ *Conn, user, password string) bool { return user == "me" && password == "pw" }}
	addr := serve(t, s)
	bad := clientOf(t, &Client{Addr: addr, Username: "me", Password: "no", Conns: 1})
	if _, err := bad.Do(ctx, "PING"); !strings.Contains(fmt.Sprint(err), "refuses HELLO: WRONGPASS") {
		t.Errorf("with a wrong password: %v", err)
	}
	good := clientOf(t, &Client{Addr: addr, Username: "me", Password: "pw", Name: "me"})
	if v, err := good.Do(ctx, "CLIENT", "GETNAME"); err != nil || v.Text() != "me" {
		t.Errorf("with the right one: %v, %v", v, err)
	}
	slow := clientOf(t, &Client{Addr: serve(t, &Server{}), MaxPending: 2, Conns: 1})
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := slow.Do(short, "SLEEP", "500ms"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow command: %v", err)
	}
	slow.Start(func(Value, error) {}, "PING")
	if _, err := slow.Do(ctx, "PING"); !errors.Is(err, ErrPending) {
		t.Errorf("above MaxPending: %v", err)
	}
	_ = slow.Close()
	if _, err := slow.Do(ctx, "PING"); !errors.Is(err, ErrClientClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A server that is silent while a reply is to come is given up.
func TestClientSilence(t *testing.T) {
	c := clientOf(t, &Client{Addr: serve(t, &Server{}), Silence: 30 * time.Millisecond, Conns: 1})
	if _, err := c.Do(ctxOf(t), "SLEEP", "300ms"); !errors.Is(err, ErrLost) {
		t.Errorf("%v", err)
	}
}

// Client and server in one world with faults: every command ends once, and those that succeed have
// their own reply. When the faults are of a kind that loses nothing, all succeed.
func TestClientSimulation(t *testing.T) {
	for seed := range soak.Size(t, uint64(12), 2000) {
		for _, faults := range []sim.Options{sim.Lossless(), {}} {
			runClientWorld(t, seed, faults)
		}
	}
}

func runClientWorld(t *testing.T, seed uint64, faults sim.Options) {
	t.Helper()
	w := sim.New(seed, faults)
	e, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	mux := simStore(func() *myriad.Engine { return e })
	new(PubSub).Register(mux)
	s := &Server{Engine: e, Logger: quiet(), WriteLimit: 4 << 10, Handler: mux}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{Engine: e, Addr: ln.Addr().String(), Conns: 2, Protocol: RESP2 + Protocol(seed%2),
		Silence: time.Minute}
	const callers, each = 8, 25
	var ended, good int
	for i := range callers {
		w.Go(func() {
			for j := range each {
				text := fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("z", j*i*7%900))
				v, err := c.Do(context.Background(), "ECHO", text)
				ended++
				switch {
				case err == nil && v.Text() == text:
					good++
				case err == nil:
					t.Errorf("seed %d: %.20q is answered %.20q", seed, text, v.Text())
				}
			}
		})
	}
	for i := range each {
		text := fmt.Sprint("callback ", i)
		c.Start(func(v Value, err error) {
			ended++
			if err == nil && v.Text() == text {
				good++
			}
		}, "ECHO", text)
	}
	w.RunFor(10 * time.Minute)
	all := (callers + 1) * each
	if ended != all || faults.Reset < 0 && good != all {
		t.Errorf("seed %d: %d of %d commands have ended, %d well", seed, ended, all, good)
	}
	_ = c.Close()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	if err := e.Shutdown(context.Background()); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	w.Run()
	w.Check(t)
}

func BenchmarkClientDo(b *testing.B) {
	c := clientOf(b, &Client{Addr: serve(b, &Server{})})
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Do(ctx, "ECHO", "x"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
