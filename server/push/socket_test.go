package push_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// busy returns the number of goroutines, without the idle workers of pools.
func busy() int {
	stacks := leaktest.Goroutines()
	return strings.Count(stacks, "\n\n") + 1 - strings.Count(stacks, "workers.(*worker).next(")
}

// Every subscriber receives every broadcast, complete and in order. The server has no goroutine per
// subscriber.
func TestSubscribersOverSockets(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	before := busy()
	const each, broadcasts = 150, 20
	var sockets, streams []*servertest.RawClient
	for range each {
		sockets = append(sockets, s.SubscribeNews())
		c := s.Dial("GET /events?channel=news HTTP/1.1\r\nHost: test\r\n\r\n")
		if line := c.Head(); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Fatal(line)
		}
		streams = append(streams, c)
	}
	pushtest.WaitFor(t, "all clients to connect", func() bool { return s.Figures(0).Connections == 2*each })
	pushtest.WaitFor(t, fmt.Sprintf("no more than 45 goroutines more for %d clients", 2*each),
		func() bool { return busy() <= before+45 })
	for i := range broadcasts {
		s.PublishNews(fmt.Sprintf(`{"n":%d}`, i))
	}
	for _, c := range sockets {
		for i := range broadcasts {
			if _, p := c.Frame(); p != fmt.Sprintf(`{"push":{"channel":"news","pub":{"data":{"n":%d}}}}`, i) {
				t.Fatalf("broadcast %d: %s", i, p)
			}
		}
	}
	for _, c := range streams {
		for i := range broadcasts {
			for line := c.Line(); ; line = c.Line() {
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					if data != fmt.Sprintf(`{"n":%d}`, i) {
						t.Fatalf("broadcast %d: %s", i, data)
					}
					break
				}
			}
		}
	}
}

// A subscriber that never reads is disconnected. The others receive everything meanwhile.
func TestSlowConsumerOverSockets(t *testing.T) {
	s := servertest.NewLive(t, push.Config{Limits: push.Limits{Queue: 256 << 10},
		Timing: push.Timing{Close: 200 * time.Millisecond}})
	slowSocket, quick := s.SubscribeNews(), s.SubscribeNews()
	slowStream := s.Dial("GET /events?channel=news HTTP/1.1\r\nHost: test\r\n\r\n")
	slowStream.Head()
	for _, c := range []*servertest.RawClient{slowSocket, slowStream} {
		c.Conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	}
	pushtest.WaitFor(t, "all clients to connect", func() bool { return s.Figures(0).Connections == 3 })
	data := `"` + strings.Repeat("x", 100<<10) + `"`
	for i := 0; s.Figures(0).SlowDisconnects < 2; i++ {
		if i == 1000 {
			t.Fatal("no client is slow after 100 MB")
		}
		s.PublishNews(data)
		if _, p := quick.Frame(); len(p) < len(data) {
			t.Fatalf("broadcast %d: %d bytes", i, len(p))
		}
	}
	pushtest.WaitFor(t, "the slow clients to be disconnected", func() bool { return s.Figures(0).Connections == 1 })
	for _, want := range []string{"disconnected a slow client", "channel=news", "limit_bytes=262144"} {
		if strings.Count(s.Log.String(), want) != 2 {
			t.Errorf("the log says %q %d times, want 2:\n%s", want, strings.Count(s.Log.String(), want), s.Log)
		}
	}
	s.PublishNews(`"still here"`)
	if _, p := quick.Frame(); !strings.Contains(p, "still here") {
		t.Errorf("received %s", p)
	}
}

// At shutdown, clients get what was queued, and then a close with its code, or the end of the
// stream.
func TestShutdownOverSockets(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	socket := s.SubscribeNews()
	stream := s.Dial("GET /events?channel=news HTTP/1.1\r\nHost: test\r\n\r\n")
	stream.Head()
	pushtest.WaitFor(t, "all clients to connect", func() bool { return s.Figures(0).Connections == 2 })
	s.PublishNews(`"last"`)
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		done <- s.Shutdown(ctx)
	}()
	if _, p := socket.Frame(); p != `{"push":{"channel":"news","pub":{"data":"last"}}}` {
		t.Errorf("received %s", p)
	}
	if op, p := socket.Frame(); op != 8 || p != "\x0b\xb9shutdown" {
		t.Errorf("received opcode %d, %q, want a close with 3001", op, p)
	}
	// the client's close frame, after which the server ends the connection
	io.WriteString(socket, "\x88\x82\x00\x00\x00\x00\x0b\xb9")
	if _, err := socket.R.ReadByte(); err != io.EOF {
		t.Errorf("behind the close: %v", err)
	}
	socket.Close()
	var tail string
	for !strings.HasSuffix(tail, "0\r\n\r\n") { // the last chunk: the connection itself goes on
		b, err := stream.R.ReadByte()
		if err != nil {
			t.Fatalf("the stream broke behind %q: %v", tail, err)
		}
		tail += string(b)
	}
	if !strings.Contains(tail, "data: \"last\"\n\n") {
		t.Errorf("the stream ended with %q", tail)
	}
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A client can put bytes that are not UTF-8 into binary frames and requests. The server must not
// copy them into text frames: clients that receive them fail their connections (RFC 6455 §8.1).
func TestOnlyUTF8IsSpread(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	other, c := s.SubscribeNews(), s.Dial(servertest.UpgradeRequest)
	c.Head()
	for _, tt := range []struct{ command, want string }{
		{"{\"id\":1,\"connect\":{\"name\":\"\xff\",\"version\":\"\xff\",\"data\":\"\xff\"}}",
			`{"id":1,"connect":{"client":"`},
		{"{\"id\":2,\"publish\":{\"channel\":\"news\",\"data\":\"\xff\"}}",
			`{"id":2,"error":{"code":107,"message":"bad request"}}`},
		{"{\"id\":3,\"subscribe\":{\"channel\":\"\xff\"}}", `{"id":3,"error":{"code":107,"message":"bad request"}}`},
	} {
		io.WriteString(c, "\x82"+servertest.MaskedText(tt.command)[1:])
		if op, p := c.Frame(); op != 1 || !strings.HasPrefix(p, tt.want) || !utf8.ValidString(p) {
			t.Errorf("%q was answered with opcode %d, %q", tt.command, op, p)
		}
	}
	r, err := http.Post("http://"+s.Addr+"/api/publish", "application/json",
		strings.NewReader("{\"channel\":\"news\",\"data\":\"\xff\"}"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || !strings.HasPrefix(string(answer), `{"error":{"code":107,`) {
		t.Errorf("publish by HTTP: %s, %s, %v", r.Status, answer, err)
	}
	s.PublishNews(`"é"`)
	if op, p := other.Frame(); op != 1 || p != `{"push":{"channel":"news","pub":{"data":"é"}}}` {
		t.Errorf("a subscriber received opcode %d, %q", op, p)
	}
}

// A publisher whose body is far too long is refused while it still sends, and receives the reason.
func TestTooLargeOverSockets(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	body := `{"channel":"news","data":"` + strings.Repeat("x", 5<<20) + `"}`
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	var publishers sync.WaitGroup
	for i := range 20 {
		publishers.Go(func() {
			r, err := client.Post("http://"+s.Addr+"/api/publish", "application/json", strings.NewReader(body))
			if err != nil {
				t.Errorf("publication %d: %v", i, err)
				return
			}
			answer, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || r.StatusCode != http.StatusRequestEntityTooLarge ||
				!strings.Contains(string(answer), `"code":106`) {
				t.Errorf("publication %d: %s %s, %v", i, r.Status, answer, err)
			}
		})
	}
	publishers.Wait()
}

// Input that is not the protocol is refused with a clear answer.
func TestGarbageOverSockets(t *testing.T) {
	s := servertest.NewLive(t, push.Config{Limits: push.Limits{Frame: 1000}})
	for _, tt := range []struct {
		name, frame, want string
	}{
		{"not JSON", servertest.MaskedText("hello"), "\x0d\xadbad request"},
		{"before connect", servertest.MaskedText(`{"id":1,"subscribe":{"channel":"x"}}`), "\x0d\xadbad request"},
		{"too long", servertest.MaskedText(strings.Repeat("x", 1001)), "\x03\xf1"},
		{"not masked", "\x81\x02{}", "\x03\xea"},
		{"not UTF-8", servertest.MaskedText("\xff\xff"), "\x03\xef"},
	} {
		c := s.Dial(servertest.UpgradeRequest + tt.frame)
		c.Head()
		if op, p := c.Frame(); op != 8 || !strings.HasPrefix(p, tt.want) {
			t.Errorf("%s: opcode %d, %q, want a close with %q", tt.name, op, p, tt.want)
		}
	}
}
