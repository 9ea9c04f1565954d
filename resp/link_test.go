package resp

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/resp/wire"
)

// A connection that hangs in its setup holds up no command, as long as there is another one.
func TestClientUsesTheConnectionThereIs(t *testing.T) {
	c := &Client{Conns: 3, DialTimeout: time.Minute}
	w := newScriptedWorld(t, c, func(conn int, _ *sim.Peer, args []string) string {
		if conn != 1 {
			return ""
		}
		return simple(args)
	})
	ended := 0
	for range 100 {
		w.Go(func() {
			if _, err := c.Do(context.Background(), "PING"); err != nil {
				t.Error(err)
			}
			ended++
		})
	}
	w.RunFor(time.Second)
	if ended != 100 {
		t.Errorf("%d of 100 commands have ended", ended)
	}
}

// MaxPending counts commands of users. Where one connection has as many, another one is used.
func TestMaxPendingCounts(t *testing.T) {
	c := &Client{Conns: 2, MaxPending: 2}
	w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string {
		if args[0] == "HELLO" {
			return "%0\r\n"
		}
		return ""
	})
	var errs []error
	for round := range 2 {
		for range 2 {
			c.Start(func(_ Value, err error) { errs = append(errs, err) }, "PING")
		}
		w.RunFor(time.Second) // the second time there are connections
		if len(errs) != 0 {
			t.Errorf("round %d: %v", round, errs)
		}
	}
	c.Start(func(_ Value, err error) { errs = append(errs, err) }, "PING")
	if len(errs) != 1 || !errors.Is(errs[0], ErrPending) {
		t.Errorf("a fifth command: %v", errs)
	}
}

// A command whose caller has left before there was a connection is not sent. Its place is free.
func TestClientForgetsCallersThatLeft(t *testing.T) {
	var got []string
	c := &Client{Conns: 1, MaxPending: 1}
	w := newScriptedWorld(t, c, func(_ int, p *sim.Peer, args []string) string {
		if args[0] == "HELLO" {
			return ""
		}
		got = append(got, args[1])
		return simple(args)
	})
	for i := range 3 {
		w.Go(func() {
			ctx := newSimContext(w.World, context.DeadlineExceeded)
			ctx.endIn(time.Millisecond)
			if _, err := c.Do(ctx, "ECHO", fmt.Sprint(i)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("command %d: %v", i, err)
			}
		})
		w.RunFor(10 * time.Millisecond)
	}
	w.Go(func() {
		if v, err := c.Do(context.Background(), "ECHO", "last"); err != nil || v.Text() != "last" {
			t.Errorf("%v, %v", v, err)
		}
	})
	w.RunFor(10 * time.Millisecond)
	w.peers[0].Write([]byte("%0\r\n"))
	w.RunFor(time.Second)
	if fmt.Sprint(got) != "[last]" {
		t.Errorf("the server gets %q", got)
	}
}

// The memory of a long command is free when it has been sent, not when it is answered.
func TestClientKeepsNoLongRequest(t *testing.T) {
	c := &Client{Conns: 1}
	w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string {
		if args[0] == "HELLO" {
			return "%0\r\n"
		}
		return ""
	})
	c.Start(func(Value, error) {}, "ECHO", strings.Repeat("x", 1<<20))
	w.RunFor(time.Minute)
	l := c.links[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn.sent.n != 1 || l.conn.sent.first.request != nil {
		t.Errorf("%d commands are sent", l.conn.sent.n)
	}
}

// A command that a server refuses in the middle ends, and is not sent for ever.
func TestClientGivesUpOnRefusedPart(t *testing.T) {
	for _, answers := range []bool{true, false} {
		var w *scriptedWorld
		c := &Client{Conns: 1, Silence: -1}
		w = newScriptedWorld(t, c, func(_ int, p *sim.Peer, args []string) string {
			seen := 0
			p.OnReceived = func(b []byte) {
				if seen += len(b); seen < 1<<20 {
					return
				}
				p.OnReceived = nil
				if answers {
					p.Write([]byte("-ERR Protocol error: invalid bulk length\r\n"))
				}
				p.Close()
			}
			return "%0\r\n"
		})
		ended, errs := 0, error(nil)
		c.Start(func(_ Value, err error) { ended, errs = ended+1, err }, "ECHO", strings.Repeat("x", 12<<20))
		w.RunFor(time.Minute)
		_, refused := errors.AsType[Error](errs)
		if ended != 1 || errs == nil || errors.Is(errs, ErrLost) || len(w.peers) > mostCuts || answers && !refused {
			t.Errorf("answers %v: ended %d times, on %d connections: %v", answers, ended, len(w.peers), errs)
		}
	}
}

// A connection to a server that has become a replica is replaced, once in 10 s at most. What was
// sent on it is answered.
func TestClientLeavesReplica(t *testing.T) {
	const readonly = "READONLY You can't write against a read only replica."
	for name, answer := range map[string]string{"command": readonly,
		"script": "ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -" + readonly} {
		t.Run(name, func(t *testing.T) { testLeavesReplica(t, answer) })
	}
}

func testLeavesReplica(t *testing.T, readonly string) {
	var w *scriptedWorld
	c := &Client{Conns: 1}
	w = newScriptedWorld(t, c, func(conn int, _ *sim.Peer, args []string) string {
		switch args[0] {
		case "SET":
			return "-" + readonly + "\r\n"
		case "SLOW":
			return ""
		case "ECHO":
			return string(wire.AppendBulk(nil, fmt.Sprint(conn)))
		}
		return simple(args)
	})
	answers := func(want string) {
		t.Helper()
		got := ""
		c.Start(func(v Value, err error) { got = fmt.Sprint(v, err) }, "ECHO", "x")
		w.RunFor(time.Second)
		if got != want+" <nil>" {
			t.Errorf("the answer is %q, want that of connection %s", got, want)
		}
	}
	set := func() {
		t.Helper()
		c.Start(func(_ Value, err error) {
			if err != Error(readonly) {
				t.Error(err)
			}
		}, "SET", "k", "v")
		w.RunFor(time.Second)
	}
	answers("0")
	set()
	answers("0") // it is too young
	w.RunFor(leastLife)
	slow := ""
	set()
	answers("1")
	if !w.peers[0].Ended() && !w.peers[0].Closed() {
		t.Error("the first connection is still there")
	}
	set()
	answers("1")
	w.RunFor(leastLife)
	c.Start(func(Value, error) {
		c.Start(func(v Value, err error) { slow = fmt.Sprint(v, err) }, "SLOW") // behind SET, when that is answered
	}, "PING")
	c.Start(func(Value, error) {}, "SET", "k", "v")
	w.RunFor(time.Second)
	answers("2")
	if slow != "" || w.peers[1].Closed() {
		t.Errorf("the replaced connection is closed, its command has ended: %q", slow)
	}
	w.peers[1].Write([]byte("+late\r\n"))
	w.RunFor(time.Second)
	if slow != "late <nil>" || !w.peers[1].Closed() {
		t.Errorf("the reply on the replaced connection is %q; it is closed: %v", slow, w.peers[1].Closed())
	}
	answers("2")
}

// A burst of commands leaves no memory behind.
func TestClientForgetsBursts(t *testing.T) {
	c := &Client{Conns: 1}
	w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string { return simple(args) })
	const burst = 20_000
	answered := 0
	for range burst {
		c.Start(func(_ Value, err error) {
			if answered++; err != nil {
				t.Error(err)
			}
		}, "PING")
	}
	w.RunFor(time.Minute)
	l := c.links[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered != burst || l.conn.sent != (callList{}) {
		t.Errorf("%d of %d commands are answered, %d are kept", answered, burst, l.conn.sent.n)
	}
}

// Servers may push to a connection for commands, before a reply and behind it, with an attribute in
// front: none of it is taken for a reply.
func TestClientTellsPushesFromReplies(t *testing.T) {
	var pushed []string
	c := &Client{Conns: 1, OnPush: func(v Value) { pushed = append(pushed, v.String()) }}
	w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string {
		switch args[0] {
		case "HELLO":
			return ">1\r\n+early\r\n%0\r\n"
		case "PUBLISH":
			return ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n:1\r\n|1\r\n+k\r\n+v\r\n>1\r\n+late\r\n"
		}
		return simple(args)
	})
	var got []string
	for i := range 3 {
		c.Start(func(v Value, err error) { got = append(got, fmt.Sprint(v, err)) }, "PUBLISH", "a", "x")
		c.Start(func(v Value, err error) { got = append(got, fmt.Sprint(v, err)) }, "ECHO", fmt.Sprint(i))
	}
	w.RunFor(time.Second)
	if want := "[1 <nil> 0 <nil> 1 <nil> 1 <nil> 1 <nil> 2 <nil>]"; fmt.Sprint(got) != want {
		t.Errorf("the replies are %v, want %v", got, want)
	}
	if want := "[[early] [message a x] [late] [message a x] [late] [message a x] [late]]"; fmt.Sprint(pushed) != want {
		t.Errorf("pushed is %v, want %v", pushed, want)
	}
}

// A push in the middle of a reply ends the connection: no command gets the reply to another one.
func TestClientRefusesInterruptedReply(t *testing.T) {
	c := &Client{Conns: 1}
	w := newScriptedWorld(t, c, func(conn int, _ *sim.Peer, args []string) string {
		if args[0] == "MGET" && conn == 0 {
			return "*2\r\n>2\r\n+invalidate\r\n*1\r\n+k\r\n$1\r\na\r\n$1\r\nb\r\n"
		}
		return simple(args)
	})
	var got []string
	for _, command := range [][]string{{"MGET", "k", "l"}, {"ECHO", "1"}} {
		c.Start(func(v Value, err error) { got = append(got, fmt.Sprint(v, errors.Is(err, ErrLost))) }, command...)
	}
	w.RunFor(time.Second)
	c.Start(func(v Value, err error) { got = append(got, fmt.Sprint(v, err)) }, "ECHO", "2")
	w.RunFor(time.Second)
	if want := "[ true  true 2 <nil>]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Subscribe and Do beside Close end with ErrClientClosed, and do not wait.
func TestClientCloseBesideCalls(t *testing.T) {
	addr := serve(t, &Server{})
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ctx := ctxOf(t)
	for range soak.Size(t, 200, 5000) {
		c := &Client{Addr: addr, Engine: e, Conns: 1}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, err := c.Subscribe(ctx, func(string, []byte) {}, "a")
				if err != nil && !errors.Is(err, ErrClientClosed) {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if _, err := c.Do(ctx, "PING"); err != nil && !errors.Is(err, ErrClientClosed) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() { _ = c.Close() })
		wg.Wait()
	}
}

// Callers come and go, connections break and come back. Each reply belongs to its command, and in
// the end nothing is pending.
func TestClientUnderFire(t *testing.T) {
	conns := make(chan *Conn, 1000)
	c := clientOf(t, &Client{Addr: serve(t, &Server{OnOpen: func(c *Conn) { conns <- c }}), Conns: 3, MaxPending: 64,
		Backoff: func(int) time.Duration { return time.Millisecond }})
	ctx := ctxOf(t)
	var good, lost atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range soak.Size(t, 300, 5000) {
				text := fmt.Sprint(i, "-", j)
				if i%4 == 0 {
					text += strings.Repeat("x", 20_000)
				}
				short, cancel := context.WithTimeout(ctx, time.Duration((i*j)%17)*100*time.Microsecond+time.Microsecond)
				v, err := c.Do(short, "ECHO", text)
				cancel()
				switch {
				case err == nil && v.Text() != text:
					t.Errorf("%.20q is answered %.20q", text, v.Text())
				case err == nil:
					good.Add(1)
				default:
					lost.Add(1)
				}
				if j%100 == 50 {
					select {
					case nc := <-conns:
						nc.nc.Abort(nil)
					default:
					}
				}
			}
		})
	}
	wg.Wait()
	for ctx.Err() == nil {
		if v, err := c.Do(ctx, "ECHO", "last"); err == nil && v.Text() == "last" {
			break
		}
	}
	if good.Load() == 0 || ctx.Err() != nil {
		t.Errorf("%d commands were answered, %d not; %v", good.Load(), lost.Load(), ctx.Err())
	}
	for _, l := range c.links {
		for pending := 1; pending > 0 && ctx.Err() == nil; runtime.Gosched() { // replies of callers that have left
			l.mu.Lock()
			pending = l.pending()
			l.mu.Unlock()
		}
	}
	if n := c.waiting.Load(); n != 0 || ctx.Err() != nil {
		t.Errorf("%d commands wait; %v", n, ctx.Err())
	}
}
