package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// A scriptedWorld is a client in a world without faults, whose server is a script.
type scriptedWorld struct {
	*sim.World
	t     *testing.T
	c     *Client
	peers []*sim.Peer
}

// newScriptedWorld has answer called with each command of each connection; what it returns is sent.
func newScriptedWorld(t *testing.T, c *Client,
	answer func(conn int, p *sim.Peer, args []string) string) *scriptedWorld {
	t.Helper()
	w := &scriptedWorld{World: sim.New(1, sim.Calm()), t: t, c: c}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) {
		conn := len(w.peers)
		w.peers = append(w.peers, p)
		var in []byte
		p.OnEnded = p.Close
		p.OnReceived = func(b []byte) {
			in = append(in, b...)
			for {
				n, args, err := ParseCommand(in, nil, Limits{})
				if err != nil {
					t.Errorf("connection %d gets %q: %v", conn, in, err)
				}
				if n == 0 {
					return
				}
				words := make([]string, len(args))
				for i, a := range args {
					words[i] = string(a)
				}
				in = in[n:]
				p.Write([]byte(answer(conn, p, words)))
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Engine, c.Logger, c.Addr = e, quiet(), ln.Addr().String()
	t.Cleanup(func() {
		_ = c.Close()
		for _, p := range w.peers {
			p.Close()
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		w.Run()
		w.Check(t)
	})
	return w
}

// simple answers HELLO, ECHO and other commands.
func simple(args []string) string {
	switch args[0] {
	case "HELLO":
		return "%0\r\n"
	case "ECHO":
		return string(AppendBulk(nil, args[1]))
	case "SUBSCRIBE", "UNSUBSCRIBE":
		var p []byte
		for i, name := range args[1:] {
			p = AppendInt(AppendBulk(AppendBulk(AppendPush(p, 3, RESP3), strings.ToLower(args[0])), name), int64(i+1))
		}
		return string(p)
	}
	return "+OK\r\n"
}

// DialTimeout holds for all that comes before commands can be sent, for commands and for
// subscriptions.
func TestDialTimeoutCoversSetup(t *testing.T) {
	for _, hung := range []string{"HELLO", "SELECT", "CLIENT", "TLS"} {
		for _, subscribe := range []bool{false, true} {
			if subscribe && hung == "SELECT" {
				continue // it is not sent there
			}
			t.Run(fmt.Sprint(hung, subscribe), func(t *testing.T) {
				c := &Client{DialTimeout: 700 * time.Millisecond, Silence: -1, DB: 1, Name: "me", Conns: 1}
				waitsFor := "it waits for the answer to " + hung
				if hung == "TLS" {
					c.TLSConfig, waitsFor = &tls.Config{}, "it waits for the handshake of TLS"
				}
				w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string {
					if args[0] == hung {
						return ""
					}
					return simple(args)
				})
				if hung == "TLS" {
					w = newHungWorld(t, c)
				}
				var err error
				began, took := w.Now(), time.Duration(-1)
				w.Go(func() {
					if subscribe {
						_, err = c.Subscribe(context.Background(), func(string, []byte) {}, "a")
					} else {
						_, err = c.Do(context.Background(), "PING")
					}
					took = w.Now().Sub(began)
				})
				w.RunFor(5 * time.Second)
				if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ErrLost) ||
					!strings.Contains(err.Error(), waitsFor) || took < c.DialTimeout ||
					took > c.DialTimeout+time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
			})
		}
	}
}

// newHungWorld is a world whose server takes connections, and says nothing.
func newHungWorld(t *testing.T, c *Client) *scriptedWorld {
	w := &scriptedWorld{World: sim.New(1, sim.Calm()), t: t, c: c}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) { p.OnEnded = p.Close })
	if err != nil {
		t.Fatal(err)
	}
	c.Engine, c.Logger, c.Addr = e, quiet(), ln.Addr().String()
	t.Cleanup(func() {
		_ = c.Close()
		_ = ln.Close()
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		w.Run()
		w.Check(t)
	})
	return w
}

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
	if l.conn.sent.n != 1 || l.conn.sent.ring[l.conn.sent.head].request != nil {
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

// A server that ends each connection before it has been of use is asked at ever longer intervals.
func TestClientBacksOffFromUselessConnections(t *testing.T) {
	c := &Client{Conns: 1}
	w := newScriptedWorld(t, c, func(_ int, p *sim.Peer, args []string) string {
		if args[0] == "HELLO" {
			return "%0\r\n"
		}
		p.Close()
		return ""
	})
	w.Go(func() {
		if _, err := c.Subscribe(context.Background(), func(string, []byte) {}, "a"); !errors.Is(err, ErrClientClosed) {
			t.Error(err)
		}
	})
	w.RunFor(10 * time.Second)
	if n := len(w.peers); n < 5 || n > 12 {
		t.Errorf("%d connections in 10 s", n)
	}
}

// A connection to a server that has become a replica is replaced, once in 10 s at most. What was
// sent on it is answered.
func TestClientLeavesReplica(t *testing.T) {
	var w *scriptedWorld
	c := &Client{Conns: 1}
	w = newScriptedWorld(t, c, func(conn int, _ *sim.Peer, args []string) string {
		switch args[0] {
		case "SET":
			return "-READONLY You can't write against a read only replica.\r\n"
		case "SLOW":
			return ""
		case "ECHO":
			return string(AppendBulk(nil, fmt.Sprint(conn)))
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
			if e, ok := errors.AsType[Error](err); !ok || e.Code() != "READONLY" {
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
	const burst = 20 * keptCalls
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
	if n := len(l.conn.sent.ring); answered != burst || n > keptCalls {
		t.Errorf("%d of %d commands are answered, there is room for %d", answered, burst, n)
	}
}

// A server that ends an idle connection costs no command.
func TestClientAfterIdleConnectionEnds(t *testing.T) {
	c := &Client{Conns: 1}
	w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string { return simple(args) })
	for i := range 4 {
		var failed error
		c.Start(func(_ Value, err error) { failed = err }, "PING")
		w.RunFor(time.Minute)
		if failed != nil || len(w.peers) != i+1 {
			t.Errorf("round %d, on %d connections: %v", i, len(w.peers), failed)
		}
		w.peers[i].Close()
		w.RunFor(time.Minute)
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

// Subscriptions notice a server that is dead without a word, within three times Silence. One that
// sends messages is alive, however late it answers PING.
func TestSubscriptionsNoticeDeadServer(t *testing.T) {
	for _, busy := range []bool{false, true} {
		var lost time.Time
		c := &Client{Silence: time.Second}
		w := newScriptedWorld(t, c, func(conn int, _ *sim.Peer, args []string) string {
			if args[0] == "PING" && conn == 0 {
				return ""
			}
			return simple(args)
		})
		c.OnLost = func(*Subscription, error) { lost = w.Now() }
		got := 0
		w.Go(func() {
			if _, err := c.Subscribe(context.Background(), func(string, []byte) { got++ }, "", "a b\r\n"); err != nil {
				t.Error(err)
			}
		})
		w.RunFor(time.Millisecond)
		began := w.Now()
		const seconds = 20
		for range 2 * seconds {
			w.RunFor(time.Second / 2)
			if busy {
				w.peers[0].Write([]byte(">3\r\n+message\r\n+\r\n+x\r\n"))
			}
		}
		switch {
		case busy && (!lost.IsZero() || got < 2*seconds-1):
			t.Errorf("a busy server: %d messages; lost after %v", got, lost.Sub(began))
		case !busy && (lost.IsZero() || lost.Sub(began) > 3*c.Silence+100*time.Millisecond || len(w.peers) != 2):
			t.Errorf("a dead server: noticed after %v, on %d connections", lost.Sub(began), len(w.peers))
		}
	}
}

// A subscription that is closed while there is no connection is not asked for on the next one.
func TestSubscriptionClosedWhileDisconnected(t *testing.T) {
	var asked []string
	refuse := false
	c := &Client{}
	w := newScriptedWorld(t, c, func(_ int, p *sim.Peer, args []string) string {
		if refuse && args[0] == "HELLO" {
			p.Close()
			return ""
		}
		asked = append(asked, strings.Join(args, " "))
		return simple(args)
	})
	subs := map[string]*Subscription{}
	w.Go(func() {
		for _, name := range []string{"a", "b", "c"} {
			s, err := c.Subscribe(context.Background(), func(string, []byte) {}, name)
			if err != nil {
				t.Error(err)
			}
			subs[name] = s
		}
	})
	w.RunFor(time.Second)
	refuse, asked = true, nil
	w.peers[0].Reset()
	w.RunFor(10 * time.Second) // several attempts fail
	subs["b"].Close()
	subs["b"].Close() // a second time
	refuse = false
	w.RunFor(10 * time.Second)
	if want := "[HELLO 3 SUBSCRIBE a SUBSCRIBE c]"; fmt.Sprint(asked) != want {
		t.Errorf("the server is asked %v, want %v", asked, want)
	}
	subs["a"].Close()
	w.RunFor(time.Second)
	if want := "UNSUBSCRIBE a"; asked[len(asked)-1] != want {
		t.Errorf("the server is asked %v at last, want %v", asked, want)
	}
}

// Subscribe beside the Close of the last other subscription to the channel: what is confirmed is
// subscribed. Others, with many names, keep the connection's lock busy.
func TestSubscribeBesideClose(t *testing.T) {
	c := clientOf(t, &Client{Addr: serve(t, &Server{}), Conns: 1})
	ctx := ctxOf(t)
	none := func(string, []byte) {}
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	var stop atomic.Bool
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			for !stop.Load() {
				s, err := c.Subscribe(ctx, none, names...)
				if err != nil {
					t.Error(err)
					return
				}
				s.Close()
			}
		})
	}
	last, err := c.Subscribe(ctx, none, "a")
	for round := range soak.Size(t, 200, 10_000) {
		if err != nil {
			break
		}
		var wg sync.WaitGroup
		wg.Go(last.Close)
		last, err = c.Subscribe(ctx, none, "a")
		wg.Wait()
		if v, err := c.Do(ctx, "PUBLISH", "a", "hi"); err != nil || v.Int != 1 {
			t.Errorf("round %d: a message has %v receivers: %v", round, v.Int, err)
		}
	}
	if err != nil {
		t.Error(err)
	}
	stop.Store(true)
	busy.Wait()
}

// What confirms a subscription is the answer to its own command, not to that of another one which
// has ended meanwhile.
func TestSubscribeWaitsForItsOwnAnswer(t *testing.T) {
	var got []string
	c := &Client{}
	w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string {
		if args[0] == "HELLO" {
			return "%0\r\n"
		}
		got = append(got, args[0])
		return ""
	})
	returned := 0
	subscribe := func(d time.Duration) {
		ctx := newSimContext(w.World, context.Canceled)
		ctx.endIn(d)
		_, _ = c.Subscribe(ctx, func(string, []byte) {}, "a")
		returned++
	}
	w.Go(func() { subscribe(time.Millisecond) })
	w.RunFor(10 * time.Millisecond)
	w.Go(func() { subscribe(time.Hour) })
	w.RunFor(10 * time.Millisecond)
	if fmt.Sprint(got) != "[SUBSCRIBE UNSUBSCRIBE SUBSCRIBE]" || returned != 1 {
		t.Fatalf("the server gets %q, %d have returned", got, returned)
	}
	for i, word := range got {
		w.peers[0].Write([]byte(simple([]string{word, "a"})))
		w.RunFor(10 * time.Millisecond)
		if want := 1 + i/2; returned != want {
			t.Errorf("after the answer to command %d: %d have returned", i, returned)
		}
	}
}

// A subscription is told when it may have lost messages: between the last one before that and the
// next one.
func TestSubscriptionIsToldOfLosses(t *testing.T) {
	for _, how := range []string{"reset", "unsubscribe", "refuse"} {
		t.Run(how, func(t *testing.T) {
			var got []string
			c := &Client{}
			refuse := false
			w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string {
				if refuse && args[0] == "SUBSCRIBE" {
					refuse = false
					return "-NOPERM no\r\n"
				}
				return simple(args)
			})
			c.OnLost = func(s *Subscription, err error) {
				got = append(got, fmt.Sprintf("lost %s %v", s.Names(), errors.Is(err, ErrLost)))
			}
			w.Go(func() {
				receive := func(_ string, m []byte) { got = append(got, string(m)) }
				if _, err := c.Subscribe(context.Background(), receive, "b", "a", "b"); err != nil {
					t.Error(err)
				}
			})
			w.RunFor(time.Second)
			message := func(text string) {
				p := w.peers[len(w.peers)-1]
				p.Write(AppendBulk(AppendBulk(AppendBulk(AppendPush(nil, 3, RESP3), "message"), "a"), text))
				w.RunFor(time.Second)
			}
			message("1")
			want := "[1 lost [a b] true 2]"
			switch how {
			case "reset":
				w.peers[0].Reset()
			case "unsubscribe":
				w.peers[0].Write([]byte(simple([]string{"UNSUBSCRIBE", "a"})))
			case "refuse":
				refuse = true
				w.peers[0].Reset()
				w.RunFor(time.Second)
				w.peers[1].Reset()
				want = "[1 lost [a b] false 2]"
			}
			w.RunFor(10 * time.Second)
			message("2")
			if fmt.Sprint(got) != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
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
