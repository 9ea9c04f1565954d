package push_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// Requests of an emulated client come at the same time. Each is answered once, and what is left is
// what the last one has asked for.
func TestEmulationAtTheSameTime(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	c := ts.Open("POST", "/connection/http_stream", `{"id":1,"connect":{}}`)
	session, node := emulatedIn(t, c.Take())
	const requests = 40
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			command := fmt.Sprintf(`{"id":%d,"subscribe":{"channel":"a"}}`+"\n"+
				`{"id":%d,"unsubscribe":{"channel":"a"}}`, 10+2*i, 11+2*i)
			if code := emulate(ts, session, node, command); code != 204 {
				t.Errorf("answered with %d", code)
			}
		})
	}
	all.Wait()
	lines := strings.Split(strings.TrimSpace(c.Take()), "\n")
	if len(lines) != 2*requests {
		t.Errorf("%d replies to %d commands", len(lines), 2*requests)
	}
	for _, line := range lines {
		if strings.Contains(line, "error") && !strings.Contains(line, `"code":105`) {
			t.Errorf("received %s", line)
		}
	}
	ts.Do("POST", "/api/publish", `{"channel":"a","data":1}`)
	if got := c.Take(); got != "" {
		t.Errorf("a client that has left received %q", got)
	}
}

// What is published in front of an end reaches the client before the end, by every door.
func TestEndBehindTheLastMessage(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	connect := `{"id":1,"connect":{"subs":{"a":{}}}}`
	streams := map[string]*servertest.Stream{
		"events":          ts.Events("channel=a"),
		"uni_http_stream": ts.Open("POST", "/connection/uni_http_stream", `{"subs":{"a":{}}}`),
	}
	two := ts.Open("POST", "/connection/http_stream", connect)
	session, node := emulatedIn(t, two.Take())
	emulate(ts, session, node, `{"id":2,"subscribe":{"channel":"a"}}`)
	streams["http_stream"] = two
	for _, s := range streams {
		s.Take()
	}
	ts.Do("POST", "/api/publish", `{"channel":"a","data":"last"}`)
	for _, s := range ts.Hub.Sessions() {
		s.Disconnect(push.Disconnect{Code: 4000, Reason: "over"})
	}
	for name, s := range streams {
		got := s.Take()
		last, end := strings.Index(got, `"last"`), strings.Index(got, "4000")
		if !s.IsClosed() || last < 0 || end >= 0 && end < last {
			t.Errorf("%s: received %q, closed: %v", name, got, s.IsClosed())
		}
	}
}

// In RESP3 messages come between replies, never inside of one: not inside of EXEC's, which has the
// replies of the publications that cause them. CLIENT REPLY OFF does not stop them.
func TestRedisMessagesBesideReplies(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	p := dialRedis(t, listenRedis(s, t))
	p.ask("HELLO 3", "%7\r\n")
	readUntil(t, p, "*0\r\n")
	p.ask("SUBSCRIBE a", ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	message := func(text string) string { return ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n" + text + "\r\n" }
	p.ask("MULTI\r\nPUBLISH a 1\r\nECHO x\r\nPUBLISH a 2\r\nEXEC", "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n"+
		message("1")+message("2")+"*3\r\n:1\r\n$1\r\nx\r\n:1\r\n")
	p.ask("CLIENT REPLY OFF\r\nPUBLISH a 3\r\nPING\r\nCLIENT REPLY ON\r\nPING", message("3")+"+OK\r\n+PONG\r\n")
}

// A pattern that costs as much as all names together is refused, where there is no other bound.
func TestRedisPatternsAreBounded(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	p := dialRedis(t, listenRedis(s, t))
	long := "*[" + strings.Repeat("z", 20_000) + "]"
	p.ask("PUBSUB CHANNELS "+long, "-ERR the pattern is longer than the name of a channel may be\r\n")
	p.ask("PSUBSCRIBE "+long, "-ERR limit exceeded\r\n")
	p.ask("PUBSUB NUMPAT", ":0\r\n")
}
