package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/server/push/answer"
)

func TestConnectAndSubscribeInOneFrame(t *testing.T) {
	n := newTestNode(t)
	c := n.dial()
	c.frame([]byte("{\"id\":1,\"connect\":{\"name\":\"js\"}}\n{\"id\":2," +
		"\"subscribe\":{\"channel\":\"news\"}}\n{\"id\":3,\"ping\":{}}\n"))
	id := c.s.ID()
	c.want(t, "one frame",
		`{"id":1,"connect":{"client":"`+id+`","version":"test","ping":25,"pong":true}}`+"\n"+`{"id":2,"subscribe":{}}`,
		`{"id":3,"ping":{}}`)
	if len(id) != 36 || id[14] != '4' || !strings.ContainsRune("89ab", rune(id[19])) {
		t.Errorf("client id %q is not a random UUID", id)
	}
	c.wantOpen(t, "connected")
}

// A client of a newer version offers what the server does not do, and goes without it. The members
// are those of client.proto 0.23 and one of tomorrow.
func TestOffersAreReadPast(t *testing.T) {
	n := newTestNode(t)
	for _, form := range []Form{jsonForm, protobufForm} {
		connect := `{"id":1,"tomorrow":{},"connect":{"headers":{"X-A":"b"},"flag":1,"profile":"p","dict":"d",` +
			`"tomorrow":[1]}}`
		subscribe := `{"id":2,"subscribe":{"channel":"news","positioned":true,"recoverable":true,"tomorrow":1}}`
		if form == protobufForm {
			connect = "\x1b\x08\x01\x22\x17\x32\x0a\x0a\x03X-A\x12\x03b=c\x38\x01\x42\x01d\x4a\x01p\xa2\x06\x00"
			subscribe = "\x11\x08\x02\x2a\x0d\x0a\x04news\x48\x01\x50\x01\xa0\x06\x01"
		}
		f := new(fakeTransport)
		f.s = n.Start(f, form)
		f.frame([]byte(connect))
		f.frame([]byte(subscribe))
		got := f.take()
		if len(got) != 2 || !strings.Contains(got[0], f.s.ID()) || strings.Contains(got[0]+got[1], "flag") {
			t.Errorf("%v: %q", form, got)
		}
		f.wantOpen(t, "after offers")
	}
}

func TestCommands(t *testing.T) {
	n := newTestNode(t)
	c := n.connected("news")
	for _, tt := range []struct{ name, command, reply string }{
		{"subscribe again", `{"id":3,"subscribe":{"channel":"news"}}`,
			`{"id":3,"error":{"code":105,"message":"already subscribed"}}`},
		{"unsubscribe", `{"id":4,"unsubscribe":{"channel":"news"}}`, `{"id":4,"unsubscribe":{}}`},
		{"unsubscribe again", `{"id":5,"unsubscribe":{"channel":"news"}}`, `{"id":5,"unsubscribe":{}}`},
		{"subscribe anew", `{"id":6,"subscribe":{"channel":"news"}}`, `{"id":6,"subscribe":{}}`},
		{"a name too long", `{"id":7,"subscribe":{"channel":"` + strings.Repeat("x", 256) + `"}}`,
			`{"id":7,"error":{"code":107,"message":"bad request"}}`},
		{"a name with a control character", `{"id":8,"subscribe":{"channel":"a\nb"}}`,
			`{"id":8,"error":{"code":107,"message":"bad request"}}`},
		{"publish elsewhere", `{"id":9,"publish":{"channel":"void","data":1}}`, `{"id":9,"publish":{}}`},
		{"publish nothing", `{"id":10,"publish":{"channel":"void"}}`,
			`{"id":10,"error":{"code":107,"message":"bad request"}}`},
		{"data that is not UTF-8", "{\"id\":19,\"publish\":{\"channel\":\"news\",\"data\":\"\xfe\"}}",
			`{"id":19,"error":{"code":107,"message":"bad request"}}`},
		{"publish to a name that is not UTF-8", "{\"id\":20,\"publish\":{\"channel\":\"news\xfe\",\"data\":1}}",
			`{"id":20,"error":{"code":107,"message":"bad request"}}`},
		{"a name that is not UTF-8", "{\"id\":21,\"subscribe\":{\"channel\":\"news\xfe\"}}",
			`{"id":21,"error":{"code":107,"message":"bad request"}}`},
		{"presence", `{"id":11,"presence":{"channel":"news"}}`,
			`{"id":11,"error":{"code":108,"message":"not available"}}`},
		{"presence_stats", `{"id":12,"presence_stats":{"channel":"news"}}`,
			`{"id":12,"error":{"code":108,"message":"not available"}}`},
		{"history", `{"id":13,"history":{"channel":"news"}}`,
			`{"id":13,"error":{"code":108,"message":"not available"}}`},
		{"rpc", `{"id":14,"rpc":{"method":"m","data":{}}}`,
			`{"id":14,"error":{"code":108,"message":"not available"}}`},
		{"rpc without a method", `{"id":23,"rpc":{}}`, `{"id":23,"error":{"code":108,"message":"not available"}}`},
		{"sub_refresh of a poll",
			`{"id":24,"sub_refresh":{"channel":"news","token":"t","type":4,"track":[{"key":"a"}]}}`,
			`{"id":24,"error":{"code":107,"message":"bad request"}}`},
		{"refresh without a secret", `{"id":15,"refresh":{"token":"t"}}`,
			`{"id":15,"error":{"code":108,"message":"not available"}}`},
		{"history without", `{"id":22,"history":{"channel":"void"}}`,
			`{"id":22,"error":{"code":108,"message":"not available"}}`},
		{"sub_refresh", `{"id":16,"sub_refresh":{"channel":"news","token":"t"}}`,
			`{"id":16,"error":{"code":108,"message":"not available"}}`},
		{"several", "{\"id\":17,\"ping\":{}}\n{\"id\":18,\"presence\":{\"channel\":\"a\"}}",
			"{\"id\":17,\"ping\":{}}\n{\"id\":18,\"error\":{\"code\":108,\"message\":\"not available\"}}"},
	} {
		c.frame([]byte(tt.command))
		c.want(t, tt.name, tt.reply)
		c.wantOpen(t, tt.name)
	}
}

func TestFramesThatDisconnect(t *testing.T) {
	many := strings.Repeat("{\"id\":1,\"ping\":{}}\n", 257)
	for _, tt := range []struct {
		name, frame string
		fresh       bool
		want        answer.Disconnect
	}{
		{"empty", "", false, answer.DisconnectBadRequest},
		{"an empty line", "\n", false, answer.DisconnectBadRequest},
		{"not JSON", "hello", false, answer.DisconnectBadRequest},
		{"half a command", `{"id":1,`, false, answer.DisconnectBadRequest},
		{"no method", `{"id":1}`, false, answer.DisconnectBadRequest},
		{"an unknown method", `{"id":1,"dance":{}}`, false, answer.DisconnectBadRequest},
		{"no id", `{"subscribe":{"channel":"news"}}`, false, answer.DisconnectBadRequest},
		{"connect twice", `{"id":1,"connect":{}}`, false, answer.DisconnectBadRequest},
		{"a pong without a ping", `{}`, false, answer.DisconnectBadRequest},
		{"subscribe without a channel", `{"id":1,"subscribe":{}}`, false, answer.DisconnectBadRequest},
		{"unsubscribe without a channel", `{"id":1,"unsubscribe":{}}`, false, answer.DisconnectBadRequest},
		{"presence without a channel", `{"id":1,"presence":{}}`, false, answer.DisconnectBadRequest},
		{"history without a channel", `{"id":1,"history":{}}`, false, answer.DisconnectBadRequest},
		{"sub_refresh without a channel", `{"id":1,"sub_refresh":{}}`, false, answer.DisconnectBadRequest},
		{"publish without a channel", `{"id":1,"publish":{"data":1}}`, false, answer.DisconnectBadRequest},
		{"too many commands", many, false, answer.DisconnectBadRequest},
		{"send", `{"send":{"data":1}}`, false, answer.DisconnectNotAvailable},
		{"subscribe before connect", `{"id":1,"subscribe":{"channel":"news"}}`, true, answer.DisconnectBadRequest},
		{"pong before connect", `{}`, true, answer.DisconnectBadRequest},
		{"connect without an id", `{"connect":{}}`, true, answer.DisconnectBadRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newTestNode(t)
			c := n.dial()
			if !tt.fresh {
				c = n.connected("news")
			}
			c.frame([]byte(tt.frame))
			c.wantClosed(t, "after the frame", tt.want)
			c.take()
			c.frame([]byte(`{"id":9,"ping":{}}`))
			c.want(t, "after the disconnect")
		})
	}
}

func TestPublish(t *testing.T) {
	n := newTestNode(t)
	a, b, other := n.connected("news"), n.connected("news"), n.connected("sport")
	a.frame([]byte(`{"id":3,"publish":{"channel":"news","data":{"text": "hi"}}}`))
	pub := `{"push":{"channel":"news","pub":{"data":{"text":"hi"},"info":{"user":"","client":"` + a.s.ID() +
		`"}}}}`
	a.want(t, "the publisher", pub, `{"id":3,"publish":{}}`)
	b.want(t, "another subscriber", pub)
	other.want(t, "a subscriber of another channel")

	if _, err := n.publish(context.Background(), "news", bus.Publication{Data: []byte("[1,\r\n 2]\n")}); err != nil {
		t.Fatal(err)
	}
	b.want(t, "from the server", `{"push":{"channel":"news","pub":{"data":[1,2]}}}`)
	b.frame([]byte(`{"id":4,"unsubscribe":{"channel":"news"}}`))
	b.take()
	n.publish(context.Background(), "news", bus.Publication{Data: []byte("3")})
	b.want(t, "after unsubscribing")
	if got := n.count.publishes.Load(); got != 3 {
		t.Errorf("%d publishes counted", got)
	}
	if got := n.count.messages.Load(); got != 5 {
		t.Errorf("%d messages counted", got)
	}
}

func TestPublishDenied(t *testing.T) {
	n := newTestNode(t, func(n *Hub) { n.rules.DenyClientPublish = true })
	c := n.connected()
	c.frame([]byte(`{"id":3,"publish":{"channel":"news","data":1}}`))
	c.want(t, "publish", `{"id":3,"error":{"code":103,"message":"permission denied"}}`)
}

func TestChannelLimit(t *testing.T) {
	n := newTestNode(t, func(n *Hub) { n.limits.Channels = 3 })
	c := n.connected("a", "b", "c")
	c.frame([]byte(`{"id":9,"subscribe":{"channel":"d"}}`))
	c.want(t, "one too many", `{"id":9,"error":{"code":106,"message":"limit exceeded"}}`)
	c.frame([]byte("{\"id\":10,\"unsubscribe\":{\"channel\":\"a\"}}\n{\"id\":11,\"subscribe\":{\"channel\":\"d\"}}"))
	c.want(t, "after an unsubscribe", "{\"id\":10,\"unsubscribe\":{}}\n{\"id\":11,\"subscribe\":{}}")
}

func TestPing(t *testing.T) {
	n := newTestNode(t)
	c := n.connected()
	for i := range 5 {
		n.clock.advance(n.timing.Ping)
		c.want(t, fmt.Sprintf("ping %d", i), `{}`)
		c.frame([]byte(`{}`))
	}
	c.wantOpen(t, "answering pings")
	n.clock.advance(n.timing.Ping)
	c.want(t, "the last ping", `{}`)
	n.clock.advance(n.timing.Pong / 2)
	c.wantOpen(t, "half of the time to answer has passed")
	n.clock.advance(n.timing.Pong)
	c.wantClosed(t, "no answer", answer.DisconnectNoPong)
	c.hangUp()
	n.clock.advance(10 * n.timing.Ping)
	c.want(t, "after the end")
}

func TestFirstPingsAreSpread(t *testing.T) {
	n := newTestNode(t)
	clients := make([]*fakeTransport, 200)
	for i := range clients {
		clients[i] = n.connected()
	}
	n.clock.advance(n.timing.Ping/2 - wheelSlot)
	pinged := 0
	for range 4 {
		for _, c := range clients {
			pinged += len(c.take())
		}
		n.clock.advance(n.timing.Ping / 8)
	}
	if pinged < 100 || pinged > 190 {
		t.Errorf("%d of 200 pinged three quarters into the spread", pinged)
	}
}

func TestStale(t *testing.T) {
	n := newTestNode(t)
	silent, expired := n.dial(), n.dial()
	expired.s.refuseConnect()
	n.clock.advance(n.timing.Connect - time.Second)
	silent.wantOpen(t, "there is time left")
	n.clock.advance(2 * time.Second)
	silent.wantClosed(t, "nothing was sent", answer.DisconnectStale)
	expired.wantClosed(t, "connect was refused", answer.DisconnectStale)
}

func TestSlowConsumer(t *testing.T) {
	n := newTestNode(t, func(n *Hub) { n.limits.Queue = 4096 })
	slow, quick := n.connected("news", "more"), n.connected("news")
	slow.stuck = true
	data := []byte(`"` + strings.Repeat("x", 200) + `"`)
	for i := range 50 {
		if _, err := n.publish(context.Background(), "news", bus.Publication{Data: data}); err != nil {
			t.Fatal(err)
		}
		if got := quick.take(); len(got) != 1 {
			t.Fatalf("publication %d: the quick one received %d messages", i, len(got))
		}
	}
	slow.wantClosed(t, "not reading", answer.DisconnectSlow)
	quick.wantOpen(t, "reading")
	if slow.max > 4096 || slow.max < 3000 {
		t.Errorf("%d bytes were queued, the limit is 4096", slow.max)
	}
	if got := n.count.slow.Load(); got != 1 {
		t.Errorf("%d slow disconnects counted, want 1", got)
	}
	want := fmt.Sprintf("client=%s user=\"\" channel=news remote=192.0.2.1:1234 queued_bytes=%d "+
		"message_bytes=%d limit_bytes=4096", slow.s.id, slow.max, len(data))
	if log := n.log.String(); strings.Count(log, "slow client") != 1 || !strings.Contains(log, want) {
		t.Errorf("log %q, want once %q", log, want)
	}
	n.publish(context.Background(), "more", bus.Publication{Data: data})
	if slow.Queued() > slow.max {
		t.Error("a client that was disconnected got more")
	}
}

func TestSlowByTheTransportsLimit(t *testing.T) {
	n := newTestNode(t)
	c := n.connected("news")
	c.full = true
	n.publish(context.Background(), "news", bus.Publication{Data: []byte("1")})
	c.wantClosed(t, "the transport is full", answer.DisconnectSlow)
}

// The queue of a client that sends many commands and reads no replies is bounded.
func TestSlowReader(t *testing.T) {
	n := newTestNode(t, func(n *Hub) { n.limits.Queue = 1000 })
	c := n.connected()
	c.stuck = true
	for range 100 {
		c.frame([]byte(`{"id":3,"ping":{}}`))
	}
	c.wantClosed(t, "not reading replies", answer.DisconnectSlow)
	if c.max > 1000 {
		t.Errorf("%d bytes queued", c.max)
	}
}

func TestOneMessageAboveTheQueueLimit(t *testing.T) {
	n := newTestNode(t, func(n *Hub) { n.limits.Queue = 100 })
	c := n.connected("news")
	n.publish(context.Background(), "news", bus.Publication{Data: []byte(`"` + strings.Repeat("x", 500) + `"`)})
	if got := c.take(); len(got) != 1 {
		t.Errorf("received %d messages", len(got))
	}
	c.wantOpen(t, "it reads")
}

func TestDrain(t *testing.T) {
	n := newTestNode(t)
	a, b := n.connected("news"), n.dial()
	if _, err := n.publish(context.Background(), "news", bus.Publication{Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.drain(ctx) }()
	waitFor(t, "both to be disconnected", func() bool { return n.isDraining() && a.isClosed() && b.isClosed() })
	a.want(t, "accepted before", `{"push":{"channel":"news","pub":{"data":1}}}`)
	if _, err := n.publish(context.Background(), "news",
		bus.Publication{Data: []byte("2")}); err != answer.ErrDraining {
		t.Errorf("publish: %v", err)
	}
	late := n.dial()
	for i, c := range []*fakeTransport{a, b, late} {
		waitFor(t, "a client to be disconnected", c.isClosed)
		c.wantClosed(t, fmt.Sprint("client ", i), answer.DisconnectShutdown)
		c.hangUp()
	}
	if err := <-done; err != nil {
		t.Errorf("drain: %v", err)
	}
	cancel()
}

// A client that publishes while the server drains, before its own connection has its turn, hears
// that it can try again. It is no failure for the operator's log.
func TestPublishWhileDraining(t *testing.T) {
	n := newTestNode(t)
	c := n.connected("news")
	n.gate.shut()
	c.frame([]byte(`{"id":3,"publish":{"channel":"news","data":1}}`))
	c.want(t, "refused", `{"id":3,"error":{"code":100,"message":"the server is shutting down","temporary":true}}`)
	if text := n.log.String(); strings.Contains(text, "ERROR") {
		t.Error(text)
	}
}

func TestDrainRunsOutOfTime(t *testing.T) {
	n := newTestNode(t)
	n.connected()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := n.drain(ctx); err != context.Canceled {
		t.Errorf("drain: %v", err)
	}
}

// For any input of a client, the server answers with frames of the protocol or disconnects it.
// Other clients are not affected.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"news\"}}"),
		[]byte("{\"id\":3,\"publish\":{\"channel\":\"news\",\"data\":1}}"))
	f.Add([]byte("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"\\u0000\"}}\n{\"id\":3,"+
		"\"unsubscribe\":{\"channel\":\"x\"}}"), []byte("{}"))
	f.Add([]byte("{\"id\":1,\"connect\":{}}\n{\"send\":{}}"), []byte("\n"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		n := newTestNode(t, func(n *Hub) { n.limits.Publication = 1000 })
		bystander := n.connected("news")
		c := n.dial()
		c.frame(first)
		n.clock.advance(n.timing.Ping / 2)
		c.frame(second)
		for _, message := range c.take() {
			for line := range strings.Lines(message) {
				if !json.Valid([]byte(line)) {
					t.Errorf("answered with %q", line)
				}
			}
		}
		if closed := c.s.IsClosing(); closed != (c.closed != nil) {
			t.Errorf("leaving %v, closed with %v", closed, c.closed)
		}
		c.hangUp()
		bystander.wantOpen(t, "a client that did nothing")
	})
}

// A quietStream ends when the test ends it.
type quietStream struct {
	*fakeTransport
	ended func()
}

func (q *quietStream) OnClose(f func()) { q.ended = f }

// A stream that opens while the node shuts down is disconnected, without an error in the log.
func TestEventsAtTheEnd(t *testing.T) {
	n := newTestNode(t)
	if err := errors.Join(n.drain(context.Background()), n.close()); err != nil {
		t.Errorf("the node's end: %v", err)
	}
	late, q := NewStreamTransport("", nil), &quietStream{fakeTransport: new(fakeTransport)}
	opened := n.startConnected(late, eventForm, Grant{})
	if !opened.IsClosing() { // else the door would subscribe it
		t.Error("a late session is not closing")
	}
	opened.OpenEvents(late, q, opened.Ended)
	q.wantClosed(t, "a late stream", answer.DisconnectShutdown)
	q.ended()
	if strings.Contains(n.log.String(), "ERROR") {
		t.Errorf("the log says:\n%s", n.log)
	}
}
