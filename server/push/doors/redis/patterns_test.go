package redis_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
	"github.com/myriad-go/myriad/server/push/membus"
)

// pmessage is a publication in the channel a as a subscriber of the pattern a* gets it.
func pmessage(text string) string {
	return fmt.Sprintf("*4\r\n$8\r\npmessage\r\n$2\r\na*\r\n$1\r\na\r\n$%d\r\n%s\r\n", len(text), text)
}

// redisMessage reads an array of strings and numbers.
func redisMessage(t *testing.T, r *bufio.Reader) (list []string) {
	t.Helper()
	line := func() string {
		text, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return strings.TrimSuffix(text, "\r\n")
	}
	var n int
	if _, err := fmt.Sscanf(line(), "*%d", &n); err != nil {
		t.Fatal(err)
	}
	for range n {
		one := line()
		if strings.HasPrefix(one, "$") {
			one = line()
		}
		list = append(list, one)
	}
	return list
}

const psubscribed = "*3\r\n$10\r\npsubscribe\r\n$2\r\na*\r\n:1\r\n"

// A publication that comes again under its id reaches a pattern once, as it reaches a channel.
func TestPatternsGetAPublicationOnce(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	p := dialRedis(t, listenRedis(s, t))
	p.ask("PSUBSCRIBE a*", psubscribed)
	for _, text := range []string{`"1"`, `"again"`} {
		if _, err := s.PublishAs(context.Background(), "a", push.Publication{ID: "x", Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PublishAs(context.Background(), "a", push.Publication{Data: []byte("2")}); err != nil {
		t.Fatal(err)
	}
	p.ask("", pmessage(`"1"`)+pmessage("2"))
}

// Clients publish at the same time. A subscriber of a pattern gets everything once, and in the
// order of a subscriber of the channel.
func TestPatternsKeepTheOrder(t *testing.T) {
	for _, rules := range []push.Namespace{{}, {HistorySize: 10, HistoryAge: time.Minute}} {
		s := servertest.NewLive(t, push.Config{Namespaces: []push.Namespace{rules}})
		addr := listenRedis(s, t)
		plain, pattern := dialRedis(t, addr), dialRedis(t, addr)
		plain.ask("SUBSCRIBE a", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
		pattern.ask("PSUBSCRIBE a*", psubscribed)
		const publishers = 8
		each := 50
		var all sync.WaitGroup
		for i := range publishers {
			all.Go(func() {
				for j := range each {
					if _, err := s.PublishAs(context.Background(), "a",
						push.Publication{Data: fmt.Appendf(nil, "%d", i*each+j)}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		r, q := bufio.NewReader(plain), bufio.NewReader(pattern)
		for i := range publishers * each {
			want, got := redisMessage(t, r)[2], redisMessage(t, q)[3]
			if got != want {
				t.Errorf("history %d: publication %d is %s by the pattern, and %s by the channel",
					rules.HistorySize, i, got, want)
				break
			}
		}
		all.Wait()
	}
}

// A client subscribes to a pattern and leaves it while others publish. The confirmation comes
// before the first publication, and nothing comes after that of the end.
func TestPatternsBeginAndEndInOrder(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	p := dialRedis(t, listenRedis(s, t))
	r := bufio.NewReader(p)
	for range 50 {
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for range 300 { // so few that the client's queue has room for all
					if _, err := s.PublishAs(context.Background(), "a",
						push.Publication{Data: []byte("1")}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		io.WriteString(p, "PSUBSCRIBE a*\r\n")
		if got := redisMessage(t, r); got[0] != "psubscribe" {
			t.Fatalf("the first is %q", got)
		}
		io.WriteString(p, "PUNSUBSCRIBE a*\r\n")
		for word := ""; word != "punsubscribe"; {
			if word = redisMessage(t, r)[0]; word != "pmessage" && word != "punsubscribe" {
				t.Fatalf("then comes %q", word)
			}
		}
		all.Wait()
	}
}

// tappedBus counts its taps. It is another bus.Local than the default.
type tappedBus struct {
	*membus.Bus
	taps atomic.Int32
}

func (b *tappedBus) Tap(f func(string, []push.Publication)) func() {
	b.taps.Add(1)
	stop := b.Bus.Tap(f)
	return func() {
		stop()
		b.taps.Add(-1)
	}
}

// A node taps its bus once while it has patterns, and not otherwise.
func TestPatternsTapTheBus(t *testing.T) {
	bus := &tappedBus{Bus: membus.New(membus.Config{})}
	s := servertest.NewLive(t, push.Config{Bus: bus})
	p := dialRedis(t, listenRedis(s, t))
	p.ask("PSUBSCRIBE a*", psubscribed)
	p.ask("PSUBSCRIBE b*", strings.NewReplacer("a*", "b*", ":1", ":2").Replace(psubscribed))
	if got := bus.taps.Load(); got != 1 {
		t.Errorf("the bus of a node with two patterns has %d taps, want 1", got)
	}
	p.ask("PUNSUBSCRIBE a*", "*3\r\n$12\r\npunsubscribe\r\n$2\r\na*\r\n:1\r\n")
	p.ask("PUNSUBSCRIBE", "*3\r\n$12\r\npunsubscribe\r\n$2\r\nb*\r\n:0\r\n")
	if got := bus.taps.Load(); got != 0 {
		t.Errorf("the bus of a node without patterns has %d taps", got)
	}
}

// A client hangs up in the middle of a transaction. Its other commands run, with its rights, and
// leave nothing behind: the server's shutdown would wait for it.
func TestRedisClientThatHangsUp(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	users := make(chan string, 3)
	s := servertest.NewLive(t, push.Config{APIKey: "key", TokenSecret: tokentest.Secret,
		Namespaces: []push.Namespace{{}, {Name: "ask", PublishHook: true}},
		Hooks: push.Hooks{Publish: func(_ context.Context, c push.Caller, _ push.PublishRequest) (push.PublishAnswer,
			error) {
			if users <- c.User; len(users) == 1 {
				close(begun)
				<-goOn
			}
			return push.PublishAnswer{}, nil
		}}})
	p := dialRedis(t, listenRedis(s, t))
	p.ask("AUTH "+tokentest.Tokens(t, time.Now())["good"], "+OK\r\n")
	p.ask("MULTI\r\nPUBLISH ask:a 1\r\nPUBLISH ask:a 2\r\nPUBLISH ask:a 3\r\nEXEC", "+OK\r\n"+
		strings.Repeat("+QUEUED\r\n", 3))
	<-begun
	before := len(s.Hub.Sessions())
	if err := p.Conn.(*net.TCPConn).SetLinger(0); err != nil { // a reset: behind a FIN all commands are answered
		t.Fatal(err)
	}
	p.Close()
	for len(s.Hub.Sessions()) == before {
		time.Sleep(time.Millisecond) // until the server has noticed
	}
	close(goOn)
	first := <-users
	for range 2 {
		if user := <-users; user != first || user == "" {
			t.Errorf("the user of another publication is %q, not %q", user, first)
		}
	}
	if got := len(s.Hub.Sessions()); got != 0 {
		t.Errorf("%d sessions left", got)
	}
}
