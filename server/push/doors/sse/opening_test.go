package sse_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/membus"
)

// opens requests a stream on a goroutine, and closes answered when the answer has come, which must
// be 200.
func opens(ts *servertest.Server, query string) (answered chan struct{}) {
	answered = make(chan struct{})
	go func() {
		defer close(answered)
		if w := ts.Do("GET", "/events?"+query, ""); w.Code != 200 {
			ts.T.Errorf("/events?%s: %d %s", query, w.Code, w.Body)
		}
	}()
	return answered
}

// The head of a stream is sent after its channels have been subscribed to.
func TestEventsSubscribeBeforeTheHead(t *testing.T) {
	for _, recovery := range []bool{false, true} {
		bus := newBlockingBus()
		ts := servertest.New(t, push.Config{Bus: bus, Namespaces: []push.Namespace{{HistorySize: 3,
			Recovery: recovery}}})
		for _, query := range []string{"channel=news", "channel=a&channel=b&channel=c"} {
			before := ts.Heads()
			answered := opens(ts, query)
			for range strings.Count(query, "channel=") {
				if name := <-bus.asked; ts.Heads() > before {
					t.Errorf("recovery %v, %s: the head was sent before %s was subscribed to", recovery, query, name)
				}
				bus.goOn <- struct{}{}
			}
			<-answered
			if ts.Heads() != before+1 {
				t.Errorf("recovery %v, %s: no head", recovery, query)
			}
		}
	}
}

// detaching makes the server call f before each head.
func detaching(ts *servertest.Server, f func()) {
	detach := ts.Detach
	ts.Detach = func(w http.ResponseWriter) (hub.ResponseStream, error) {
		f()
		return detach(w)
	}
}

// Publications made while the head is sent come after it, in order.
func TestEventsBehindTheHead(t *testing.T) {
	for _, tt := range []struct{ query, want string }{
		{"channel=plain:1", "data: 1\n\ndata: 2\n\ndata: 3\n\n"},
		{"channel=plain:1&named=1",
			"event: plain:1\ndata: 1\n\nevent: plain:1\ndata: 2\n\nevent: plain:1\ndata: 3\n\n"},
		{"channel=plain:1&channel=news", "data: 1\n\ndata: 2\n\ndata: 3\n\n"},
		{"channel=kept:1", "id: E:0\n\nid: E:1\ndata: 1\n\nid: E:2\ndata: 2\n\nid: E:3\ndata: 3\n\n"},
	} {
		ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{Name: "plain"},
			{Name: "kept", HistorySize: 3, Recovery: true}, {}}})
		name, _, _ := strings.Cut(strings.TrimPrefix(tt.query, "channel="), "&")
		publish := func(data string) { ts.Do("POST", "/api/publish", `{"channel":"`+name+`","data":`+data+`}`) }
		detaching(ts, func() { publish("1"); publish("2") })
		stream := ts.Events(tt.query)
		publish("3")
		retry, got, _ := strings.Cut(stream.Take(), "\n\n")
		_, rest, _ := strings.Cut(got, "id: ")
		if epoch, _, found := strings.Cut(rest, ":"); found {
			got = strings.ReplaceAll(got, epoch, "E")
		}
		if !strings.HasPrefix(retry, "retry: ") || got != tt.want {
			t.Errorf("%s: received %q and %q, want %q", tt.query, retry, got, tt.want)
		}
	}
}

// Streams that open under a continuous load get every publication after their heads, once and in
// order.
func TestEventsOpenUnderLoad(t *testing.T) {
	const last, streams = 2000, 100
	ts := servertest.New(t, push.Config{})
	var begun atomic.Int64
	var heads []int64 // publications begun when the head was sent
	detaching(ts, func() { heads = append(heads, begun.Load()) })
	var publisher sync.WaitGroup
	publisher.Go(func() {
		for range last {
			data := strconv.FormatInt(begun.Add(1), 10)
			if _, err := ts.PublishAs(t.Context(), "news", push.Publication{Data: []byte(data)}); err != nil {
				t.Errorf("publish: %v", err)
			}
		}
	})
	for range streams {
		ts.Events("channel=news")
	}
	publisher.Wait()
	for i, stream := range ts.Streams {
		_, got, _ := strings.Cut(stream.Take(), "\n\n")
		first := int64(last) + 1
		if _, err := fmt.Sscanf(got, "data: %d", &first); err != nil && got != "" || first > heads[i]+1 {
			t.Fatalf("the head was sent after publication %d, and the first publication was %d (%v)", heads[i], first,
				err)
		}
		for n := first; n <= last; n++ {
			next := fmt.Sprintf("data: %d\n\n", n)
			if !strings.HasPrefix(got, next) {
				t.Fatalf("publication %d does not follow: %.40q", n, got)
			}
			got = got[len(next):]
		}
	}
}

// If the subscription fails, or the server shuts down meanwhile, the stream begins with 200 and
// ends. An EventSource reconnects after that, but gives up at any other status.
func TestEventsEndBeforeTheHead(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(ts *servertest.Server, bus *blockingBus) (ended chan error)
	}{
		{"refused", func(_ *servertest.Server, bus *blockingBus) chan error {
			bus.err = errors.New("no route to the broker")
			return nil
		}},
		{"shut down", func(ts *servertest.Server, _ *blockingBus) chan error {
			ended := make(chan error, 1)
			go func() { ended <- ts.Shutdown(ts.T.Context()) }()
			pushtest.WaitFor(ts.T, "the session to be disconnected", ts.Hub.Sessions()[0].IsClosing)
			return ended
		}},
	} {
		bus := newBlockingBus()
		ts := servertest.New(t, push.Config{Bus: bus})
		answered := opens(ts, "channel=news")
		<-bus.asked
		ended := tt.end(ts, bus)
		bus.goOn <- struct{}{}
		<-answered
		if ended != nil {
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		if got := ts.Streams[0].Take(); !strings.HasPrefix(got, "retry: ") || !ts.Streams[0].IsClosed() {
			t.Errorf("%s: received %q, closed: %v", tt.name, got, ts.Streams[0].IsClosed())
		}
	}
}

// A client that disconnects before the head leaves no session and no channel.
func TestEventsClientLeavesBeforeTheHead(t *testing.T) {
	counting := &pushtest.CountingBus{Bus: membus.New(membus.Config{Clock: pushtest.NewClock()})}
	ts := servertest.New(t, push.Config{Bus: counting})
	ts.Detach = func(http.ResponseWriter) (hub.ResponseStream, error) {
		ts.Do("POST", "/api/publish", `{"channel":"news","data":1}`)
		return nil, net.ErrClosed
	}
	ts.Do("GET", "/events?channel=news&channel=more", "")
	if n, channels := ts.Figures(0).Connections, counting.Subscribed.Load(); n != 0 || channels != 0 {
		t.Errorf("%d connections and %d channels are left", n, channels)
	}
}

// A client's queue is bounded before the head, too.
func TestSlowBeforeTheHead(t *testing.T) {
	ts := servertest.New(t, push.Config{Limits: push.Limits{Queue: 1000}})
	detaching(ts, func() {
		for range 200 {
			ts.Do("POST", "/api/publish", `{"channel":"news","data":"0123456789"}`)
		}
	})
	stream := ts.Events("channel=news")
	if got := stream.Take(); !stream.IsClosed() || len(got) > 1100 {
		t.Errorf("received %d bytes, closed: %v", len(got), stream.IsClosed())
	}
	if got := ts.Figures(0).SlowDisconnects; got != 1 {
		t.Errorf("%d slow disconnects", got)
	}
}

// Over sockets, too, a client that has the head gets the next publication.
func TestEventsAfterTheHead(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	for i := range 50 {
		c := s.Dial("GET /events?channel=news HTTP/1.1\r\nHost: test\r\n\r\n")
		if line := c.Head(); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Fatalf("events: %s", line)
		}
		if _, err := s.PublishAs(t.Context(), "news", push.Publication{Data: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
		for want := fmt.Sprintf("data: %d", i); ; {
			if line := c.Line(); strings.Contains(line, "data: ") {
				if line != want {
					t.Fatalf("received %q first, want %q", line, want)
				}
				break
			}
		}
		c.Close()
	}
}

// In a blockingBus Subscribe blocks until goOn is closed. It then returns err if that is not nil.
type blockingBus struct {
	bus.Bus
	asked chan string
	goOn  chan struct{}
	err   error
}

func newBlockingBus() *blockingBus {
	return &blockingBus{Bus: membus.New(membus.Config{}), asked: make(chan string), goOn: make(chan struct{})}
}

func (b *blockingBus) Subscribe(ctx context.Context, t bus.Topic, r bus.Receiver) error {
	b.asked <- t.Name
	<-b.goOn
	if b.err != nil {
		return b.err
	}
	return b.Bus.Subscribe(ctx, t, r)
}
