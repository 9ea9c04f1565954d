package resp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/resp/wire"
)

// What the server refuses ends the subscription that asked for it, and no other one: neither one
// that is asked for at the same time, nor one that comes back on a new connection.
func TestSubscriptionIsRefusedAlone(t *testing.T) {
	socket := redis(t)
	ctx := ctxOf(t)
	admin := clientOf(t, &Client{Network: "unix", Addr: socket})
	if _, err := admin.Do(ctx, "ACL", "SETUSER", "me", "on", ">pw", "+@all", "&a*"); err != nil {
		t.Fatal(err)
	}
	warned := make(chan string, 100)
	logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) { warned <- string(p) }), nil))
	c := clientOf(t, &Client{Network: "unix", Addr: socket, Username: "me", Password: "pw", Logger: logger})
	got := make(chan string, 100)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := c.Subscribe(ctx, func(string, []byte) {}, fmt.Sprint("a", i)); err != nil {
				t.Errorf("a channel that is allowed: %v", err)
			}
		})
		wg.Go(func() {
			_, err := c.Subscribe(ctx, func(string, []byte) {}, fmt.Sprint("b", i), fmt.Sprint("a", i))
			if !strings.HasPrefix(fmt.Sprint(err), "NOPERM") {
				t.Errorf("one that is not: %v", err)
			}
		})
	}
	wg.Wait()
	if _, err := c.Subscribe(ctx, func(ch string, m []byte) { got <- ch + string(m) }, "az"); err != nil {
		t.Fatal(err)
	}
	// Redis ends the connections of a user who may not have a channel any more.
	if _, err := admin.Do(ctx, "ACL", "SETUSER", "me", "resetchannels", "&az"); err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil {
		if v, err := admin.Do(ctx, "PUBLISH", "az", "!"); err != nil || v.Int == 1 {
			break
		}
	}
	if m := <-got; m != "az!" {
		t.Errorf("got %q", m)
	}
	if w := <-warned; !strings.Contains(w, "refuses a subscription") || !strings.Contains(w, "NOPERM") {
		t.Errorf("logged %q", w)
	}
}

// A writerFunc is a function as an io.Writer.
type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
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
				message := wire.AppendBulk(wire.AppendPush(nil, 3, RESP3), "message")
				p.Write(wire.AppendBulk(wire.AppendBulk(message, "a"), text))
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
