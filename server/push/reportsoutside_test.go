package push_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/doors/centrifuge"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/fossil"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// This file tries, from outside of the package, what users of other servers have reported, where no
// other test does: docs/HUNTS.md has the list.

// A deskClient speaks the Centrifuge protocol to a desk, in JSON.
type deskClient struct {
	*deskTransport
	s *hub.Session
	t *testing.T
}

func newReportDesk(t *testing.T, c push.Config) *desk {
	c.Doors = doors.All(doors.Config{})
	if c.Timing.Ping == 0 {
		c.Timing.Ping = time.Hour
	}
	return newDesk(t, c)
}

// client opens a connection.
func (d *desk) client() *deskClient {
	c := new(deskTransport)
	return &deskClient{c, d.seam.Start(c, centrifuge.New().Forms()[0], nil), d.t}
}

// connected opens a connection and connects, with a token if it is not "".
func (d *desk) connected(token string) *deskClient {
	d.t.Helper()
	c := d.client()
	if got := c.ask(fmt.Sprintf(`{"id":1,"connect":{"token":%q}}`, token)); len(got) != 1 || got[0].Connect == nil {
		d.t.Fatalf("connect was answered %+v", got)
	}
	return c
}

// ask sends commands in one frame, and returns what has come since the last call.
func (c *deskClient) ask(commands ...string) []said {
	c.t.Helper()
	centrifuge.RunMessage(c.s, []byte(strings.Join(commands, "\n")))
	return c.take()
}

// take returns what has come since the last call.
func (c *deskClient) take() (all []said) {
	c.t.Helper()
	for _, frame := range c.sent {
		for line := range strings.SplitSeq(strings.TrimRight(frame, "\n"), "\n") {
			var one said
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				c.t.Fatalf("%v in %q", err, line)
			}
			all = append(all, one)
		}
	}
	c.sent = nil
	return all
}

// subscribed sends a subscribe command, and returns the answer.
func (c *deskClient) subscribed(fields string) *saidSubscribed {
	c.t.Helper()
	got := c.ask(`{"id":2,"subscribe":{` + fields + `}}`)
	for _, one := range got {
		if one.Subscribe != nil {
			return one.Subscribe
		}
	}
	c.t.Fatalf("subscribe %s was answered %+v", fields, got)
	return nil
}

// publish publishes JSON.
func (d *desk) publish(channel, data string, o push.PublishOptions) push.Position {
	d.t.Helper()
	at, err := d.PublishWith(context.Background(), channel, []byte(data), o)
	if err != nil {
		d.t.Fatal(err)
	}
	return at
}

// publications returns the data of the publications in list, with deltas applied to base.
func (c *deskClient) publications(list []said, base []byte) (data []string, deltas int) {
	c.t.Helper()
	for _, one := range list {
		if one.Push == nil || one.Push.Pub == nil {
			c.t.Fatalf("got %+v", one)
		}
		var text string
		if json.Unmarshal(one.Push.Pub.Data, &text) != nil {
			text = string(one.Push.Pub.Data)
		}
		if one.Push.Pub.Delta {
			whole, err := fossil.Apply(base, []byte(text), 1<<20)
			if err != nil {
				c.t.Fatalf("a delta to %q: %v", base, err)
			}
			text, deltas = string(whole), deltas+1
		}
		data, base = append(data, text), []byte(text)
	}
	return data, deltas
}

// A client that gets deltas comes back before it has got anything, behind a recovery without
// publications, and behind one with some. The first publication is whole each time.
func TestReportDeltasBehindReconnects(t *testing.T) {
	d := newReportDesk(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 10, Recovery: true}}})
	text := func(n int) string { return fmt.Sprintf(`{"n":%d,"state":%q}`, n, strings.Repeat("as before ", 30)) }
	at := push.Position{}
	for round, missed := range []int{0, 0, 2, 0} {
		for i := range missed {
			d.publish("a", text(100*round+i), push.PublishOptions{})
		}
		c := d.connected("")
		ask := `"channel":"a","delta":"fossil"`
		if at.Epoch != "" {
			ask += fmt.Sprintf(`,"recover":true,"offset":%d,"epoch":%q`, at.Offset, at.Epoch)
		}
		r := c.subscribed(ask)
		if !r.Delta || len(r.Publications) != missed || r.WasRecovering != r.Recovered {
			t.Errorf("round %d: %+v", round, r)
		}
		at = push.Position{Offset: r.Offset, Epoch: r.Epoch}
		if round == 0 { // it goes before it has got anything
			c.s.Ended()
			continue
		}
		d.publish("a", text(100*round+8), push.PublishOptions{})
		at = d.publish("a", text(100*round+9), push.PublishOptions{})
		list := c.take()
		if len(list) != 2 || list[0].Push.Pub.Delta || !list[1].Push.Pub.Delta {
			t.Fatalf("round %d: got %+v", round, list)
		}
		data, _ := c.publications(list, nil)
		if want := []string{text(100*round + 8), text(100*round + 9)}; !slices.Equal(data, want) {
			t.Errorf("round %d: got %q", round, data)
		}
		c.s.Ended()
	}
}

// A client that asks for deltas and for a filter gets no deltas, and nothing that its filter leaves
// out.
func TestReportDeltasWithFilters(t *testing.T) {
	d := newReportDesk(t, push.Config{})
	c := d.connected("")
	if r := c.subscribed(`"channel":"a","delta":"fossil","tf":{"key":"k","cmp":"eq","val":"x"}`); r.Delta {
		t.Error("deltas beside a filter")
	}
	for i, tag := range []string{"x", "y", "x"} {
		d.publish("a", fmt.Sprintf(`{"n":%d,"state":"%s"}`, i, strings.Repeat("s", 100)),
			push.PublishOptions{Tags: map[string]string{"k": tag}})
	}
	data, deltas := c.publications(c.take(), nil)
	if len(data) != 2 || deltas != 0 || !strings.HasPrefix(data[1], `{"n":2,`) {
		t.Errorf("got %q, %d of them deltas", data, deltas)
	}
	c.s.Ended()
}

// reportToken returns a token of ann that ends after d.
func (d *desk) reportToken(after time.Duration, claims jwt.MapClaims) string {
	claims["sub"], claims["exp"] = "ann", d.clock.Now().Add(after).Unix()
	return tokentest.Sign(d.t, jwt.SigningMethodHS256, []byte(tokentest.Secret), claims)
}

// A subscription cannot be kept by a token that has expired, and one without a new token ends.
func TestReportExpiredSubRefresh(t *testing.T) {
	d := newReportDesk(t, push.Config{TokenSecret: tokentest.Secret,
		Namespaces: []push.Namespace{{SubscribeToken: true}},
		Timing:     push.Timing{Refresh: 2 * time.Second}})
	subscribed := func() *deskClient {
		c := d.connected(d.reportToken(time.Hour, jwt.MapClaims{}))
		token := d.reportToken(10*time.Second, jwt.MapClaims{"channel": "a"})
		if r := c.subscribed(fmt.Sprintf(`"channel":"a","token":%q`, token)); !r.Expires || r.TTL != 10 {
			t.Errorf("subscribed with %+v", r)
		}
		return c
	}
	c := subscribed()
	expired := d.reportToken(-time.Second, jwt.MapClaims{"channel": "a"})
	c.ask(fmt.Sprintf(`{"id":3,"sub_refresh":{"channel":"a","token":%q}}`, expired))
	if c.closed == nil || *c.closed != answer.DisconnectSubscriptionExpired || !c.closed.Reconnects() {
		t.Errorf("an expired token: closed with %v", c.closed)
	}
	c.s.Ended()
	c = subscribed()
	c.ask(`{"id":3,"sub_refresh":{"token":"t"}}`)
	if c.closed == nil || *c.closed != answer.DisconnectBadRequest {
		t.Errorf("sub_refresh without a channel: closed with %v", c.closed)
	}
	c.s.Ended()
	c = subscribed()
	d.clock.Advance(15 * time.Second)
	got := c.take()
	if len(got) != 1 || got[0].Push == nil || got[0].Push.Unsubscribe == nil || got[0].Push.Unsubscribe.Code != 2501 ||
		c.closed != nil {
		t.Errorf("behind the end of the token: %+v, closed with %v", got, c.closed)
	}
	d.publish("a", "1", push.PublishOptions{})
	if got := c.take(); len(got) > 0 {
		t.Errorf("then it got %+v", got)
	}
	c.s.Ended()
}

// A refresh that says "expired", and one that names a time in the past, end a connection in the
// same way: its client comes back. One without a token is a mistake of the client.
func TestReportRefreshWithAPastTime(t *testing.T) {
	var said push.RefreshAnswer
	var d *desk
	d = newReportDesk(t, push.Config{Hooks: push.Hooks{
		Connect: func(context.Context, push.Caller, push.ConnectRequest) (push.ConnectAnswer, error) {
			return push.ConnectAnswer{User: "ann", ExpireAt: d.clock.Now().Unix() + 5}, nil
		},
		Refresh: func(context.Context, push.Caller) (push.RefreshAnswer, error) { return said, nil },
	}})
	for _, one := range []push.RefreshAnswer{{Expired: true}, {ExpireAt: 1}, {ExpireAt: d.clock.Now().Unix()}} {
		said = one
		c := d.connected("")
		d.clock.Advance(10 * time.Second)
		if c.closed == nil || *c.closed != answer.DisconnectExpired || !c.closed.Reconnects() {
			t.Errorf("%+v: closed with %v", one, c.closed)
		}
		c.s.Ended()
	}
	d = newReportDesk(t, push.Config{TokenSecret: tokentest.Secret})
	for _, token := range []string{"", d.reportToken(-time.Minute, jwt.MapClaims{})} {
		c := d.connected(d.reportToken(time.Minute, jwt.MapClaims{}))
		c.ask(fmt.Sprintf(`{"id":2,"refresh":{"token":%q}}`, token))
		want := answer.DisconnectBadRequest
		if token != "" {
			want = answer.DisconnectExpired
		}
		if c.closed == nil || *c.closed != want {
			t.Errorf("refresh with %q: closed with %v", token, c.closed)
		}
		c.s.Ended()
	}
}

// The server ends a user's subscription: his connections that have none are told nothing, so that a
// subscription which they ask for at that moment lasts.
func TestReportUnsubscribeOfOthers(t *testing.T) {
	d := newReportDesk(t, push.Config{TokenSecret: tokentest.Secret})
	token := d.reportToken(time.Hour, jwt.MapClaims{})
	with, without := d.connected(token), d.connected(token)
	with.subscribed(`"channel":"a"`)
	n, err := d.Unsubscribe(context.Background(), push.Target{User: "ann"}, "a")
	if n != 1 || err != nil {
		t.Errorf("%d subscriptions were ended, %v", n, err)
	}
	if got := with.take(); len(got) != 1 || got[0].Push == nil || got[0].Push.Unsubscribe == nil ||
		got[0].Push.Unsubscribe.Code != 2000 {
		t.Errorf("the subscriber got %+v", got)
	}
	if got := without.take(); len(got) > 0 {
		t.Errorf("the other one got %+v", got)
	}
	without.subscribed(`"channel":"a"`)
	d.publish("a", "1", push.PublishOptions{})
	if got := without.take(); len(got) != 1 {
		t.Errorf("then it got %+v", got)
	}
	with.s.Ended()
	without.s.Ended()
}

// Commands that undo each other come in one frame. Each takes effect before the next one, so that
// subscribing again is not refused, and there is one subscription in the end.
func TestReportSubscribeBehindUnsubscribe(t *testing.T) {
	d := newReportDesk(t, push.Config{Namespaces: []push.Namespace{{JoinLeave: true, Presence: true}}})
	c, watcher := d.connected(""), d.connected("")
	watcher.subscribed(`"channel":"a","join_leave":true`)
	watcher.take()
	got := c.ask(`{"id":2,"subscribe":{"channel":"a"}}`, `{"id":3,"unsubscribe":{"channel":"a"}}`,
		`{"id":4,"subscribe":{"channel":"a"}}`, `{"id":5,"unsubscribe":{"channel":"a"}}`,
		`{"id":6,"unsubscribe":{"channel":"a"}}`, `{"id":7,"subscribe":{"channel":"a"}}`)
	if len(got) != 6 {
		t.Fatalf("got %+v", got)
	}
	for i, one := range got {
		if one.ID != i+2 || one.Error != nil {
			t.Errorf("answer %d is %+v", i, one)
		}
	}
	d.publish("a", "1", push.PublishOptions{})
	if got := c.take(); len(got) != 1 {
		t.Errorf("one publication came as %+v", got)
	}
	joins, leaves := 0, 0
	for _, one := range watcher.take() {
		switch {
		case one.Push.Join != nil:
			joins++
		case one.Push.Leave != nil:
			leaves++
		}
		if joins-leaves < 0 || joins-leaves > 1 {
			t.Errorf("%d joins and %d leaves", joins, leaves)
		}
	}
	if joins != 3 || leaves != 2 {
		t.Errorf("%d joins and %d leaves", joins, leaves)
	}
	c.s.Ended()
	watcher.s.Ended()
}

// Behind the answer to unsubscribe nothing of the channel comes any more: neither publications, nor
// joins, nor what the server tells its subscribers.
func TestReportNothingBehindUnsubscribe(t *testing.T) {
	d := newReportDesk(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 3, Recovery: true, JoinLeave: true,
		PushJoinLeave: true}}})
	c, other := d.connected(""), d.connected("")
	c.subscribed(`"channel":"a"`)
	c.take()
	c.ask(`{"id":3,"unsubscribe":{"channel":"a"}}`)
	other.subscribed(`"channel":"a"`)
	d.publish("a", "1", push.PublishOptions{})
	d.bus.lose("a")
	if _, err := d.Unsubscribe(context.Background(), push.Target{Client: c.s.ID()}, "a"); err != nil {
		t.Error(err)
	}
	if got := c.take(); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
	c.s.Ended()
	other.s.Ended()
}

// A client is told that it has missed something, whether it missed more than the history holds, or
// was away for longer, or the history was removed. It gets nothing instead of a part.
func TestReportMissedIsTold(t *testing.T) {
	d := newReportDesk(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 5, HistoryAge: time.Minute,
		Recovery: true}}})
	for what, miss := range map[string]func(){
		"too many": func() {
			for range 7 {
				d.publish("a", "1", push.PublishOptions{})
			}
		},
		"too old": func() {
			d.publish("a", "1", push.PublishOptions{})
			d.clock.Advance(2 * time.Minute)
		},
		"removed": func() {
			d.publish("a", "1", push.PublishOptions{})
			if err := d.RemoveHistory(context.Background(), "a"); err != nil {
				t.Error(err)
			}
		},
		"nothing": func() {},
		"few":     func() { d.publish("a", "1", push.PublishOptions{}) },
	} {
		c := d.connected("")
		at := c.subscribed(`"channel":"a"`)
		c.s.Ended()
		miss()
		c = d.connected("")
		r := c.subscribed(fmt.Sprintf(`"channel":"a","recover":true,"offset":%d,"epoch":%q`, at.Offset, at.Epoch))
		complete := what == "nothing" || what == "few"
		if r.Recovered != complete || !complete && len(r.Publications) > 0 || !r.WasRecovering {
			t.Errorf("%s: %+v", what, r)
		}
		c.s.Ended()
	}
}

// Presence, and the joins and leaves that come beside it, add up to who is there, also if a client
// leaves right behind the answer.
func TestReportPresenceBesideLeaves(t *testing.T) {
	d := newReportDesk(t, push.Config{Namespaces: []push.Namespace{{Presence: true, JoinLeave: true}}})
	c := d.connected("")
	var others []*deskClient
	come := func() {
		other := d.connected("")
		other.subscribed(`"channel":"a"`)
		others = append(others, other)
	}
	for range 3 {
		come()
	}
	c.subscribed(`"channel":"a","join_leave":true`)
	c.take()
	come()
	others[0].s.Ended()
	list := c.ask(`{"id":3,"presence":{"channel":"a"}}`)
	others[1].s.Ended()
	come()
	list = append(list, c.take()...)
	there := map[string]bool{}
	answered := false
	for _, one := range list {
		switch {
		case one.Presence != nil:
			answered = true
			clear(there)
			for id := range one.Presence.Presence {
				there[id] = true
			}
		case one.Push != nil && one.Push.Join != nil:
			there[one.Push.Join.Info.Client] = true
		case one.Push != nil && one.Push.Leave != nil:
			delete(there, one.Push.Leave.Info.Client)
		}
	}
	now, err := d.Presence(context.Background(), "a")
	if err != nil || !answered || len(now.Clients) != len(there) {
		t.Errorf("%v are there, %v; the client knows of %v", now.Clients, err, there)
	}
	for _, one := range now.Clients {
		if !there[one.Client] {
			t.Errorf("the client does not know of %s", one.Client)
		}
	}
	for _, one := range append(others[2:], c) {
		one.s.Ended()
	}
}

// Several servers live in one process, one after the other and at the same time. Each has figures
// of its own.
func TestReportServersInOneProcess(t *testing.T) {
	connections := func(d *desk) string {
		rec := httptest.NewRecorder()
		d.Admin().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		_, rest, _ := strings.Cut(rec.Body.String(), "\nmyriad_connections ")
		n, _, _ := strings.Cut(rest, "\n")
		return n
	}
	for range 2 {
		a, b := newReportDesk(t, push.Config{}), newReportDesk(t, push.Config{})
		c := a.connected("")
		if connections(a) != "1" || connections(b) != "0" {
			t.Errorf("%s and %s connections", connections(a), connections(b))
		}
		c.s.Ended()
	}
}

// A broadcast that is repeated with its key publishes to the channels that it has not reached yet,
// and one name that is no channel's costs no other.
func TestReportBroadcastsInPart(t *testing.T) {
	d := newReportDesk(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 10}}})
	ctx := context.Background()
	o := push.PublishOptions{IdempotencyKey: "order 7"}
	first, err := d.Broadcast(ctx, []string{"a", "b\n", "b"}, []byte("1"), o)
	if err != nil || first[0].Err != nil || first[2].Err != nil || !errors.As(first[1].Err, new(push.Error)) {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := d.Broadcast(ctx, []string{"a", "b", "c"}, []byte("1"), o)
	if err != nil || again[0].Position != first[0].Position || again[1].Position != first[2].Position {
		t.Errorf("%+v, %v, first %+v", again, err, first)
	}
	for _, name := range []string{"a", "b", "c"} {
		if h, err := d.History(ctx, name, push.Query{Limit: -1}); err != nil || len(h.Publications) != 1 {
			t.Errorf("%s has %v, %v", name, h.Publications, err)
		}
	}
}

// A client that is refused again and again, in ever new channels, leaves nothing behind.
func TestReportRefusedSubscriptions(t *testing.T) {
	d := newReportDesk(t, push.Config{Namespaces: []push.Namespace{{SubscribeHook: true}}, Hooks: push.Hooks{
		Subscribe: func(context.Context, push.Caller, push.SubscribeRequest) (push.SubscribeAnswer, error) {
			return push.SubscribeAnswer{}, push.ErrPermissionDenied
		}}})
	c := d.connected("")
	for i := range 1000 {
		got := c.ask(fmt.Sprintf(`{"id":2,"subscribe":{"channel":"a%d"}}`, i))
		if len(got) != 1 || got[0].Error == nil || got[0].Error.Code != 103 {
			t.Fatalf("got %+v", got)
		}
	}
	nodes, err := d.Nodes(context.Background())
	if err != nil || nodes[0].Channels != 0 || nodes[0].Subscriptions != 0 || len(d.bus.channels) > 0 {
		t.Errorf("left: %+v, %v; the bus has %q", nodes, err, d.bus.channels)
	}
	c.s.Ended()
}

// reportEvents opens a server on a simulated network, whose streams of events can be looked at.
func reportEvents(t *testing.T, rules ...push.Namespace) *world {
	t.Helper()
	o := worldOptions{faults: sim.Calm()}
	o.faults.MaxSteps = 1 << 30
	o.config = push.Config{Namespaces: rules, Timing: push.Timing{Ping: 20 * time.Second}}
	return openWorld(t, 1, o)
}

// events opens a stream, and returns the peer and the head.
func (w *world) events(query, fields string) (*sim.Peer, string) {
	w.t.Helper()
	p := w.Dial(w.addr.Addr())
	p.Write([]byte("GET /events?" + query + " HTTP/1.1\r\nHost: test\r\n" + fields + "\r\n"))
	w.pass(time.Second)
	head, _, found := strings.Cut(string(p.Received()), "\r\n\r\n")
	if !found || !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		w.t.Fatalf("events were answered %q", p.Received())
	}
	return p, head
}

// streamed returns the lines of a stream that are not of the chunked coding.
func streamed(p *sim.Peer) (list []string) {
	_, body, _ := strings.Cut(string(p.Received()), "\r\n\r\n")
	for chunk := range strings.SplitSeq(body, "\r\n") {
		for line := range strings.SplitSeq(chunk, "\n") {
			if strings.Contains(line, ":") {
				list = append(list, line)
			}
		}
	}
	return list
}

// Proxies and browsers neither keep events back nor end a silent stream: it is not compressed, says
// that it must not be buffered, and has a comment in each interval.
func TestReportStreamsBehindProxies(t *testing.T) {
	w := reportEvents(t)
	p, head := w.events("channel=a", "Accept-Encoding: gzip, br\r\n")
	lower := strings.ToLower(head)
	for _, want := range []string{"x-accel-buffering: no", "cache-control: no-store",
		"content-type: text/event-stream"} {
		if !strings.Contains(lower, want) {
			t.Errorf("no %s in %q", want, head)
		}
	}
	if strings.Contains(lower, "content-encoding") {
		t.Errorf("compressed: %q", head)
	}
	w.pass(10 * time.Minute)
	comments := 0
	for _, line := range streamed(p) {
		if line == ":" {
			comments++
		}
	}
	if p.Ended() || p.Closed() || comments < 25 || comments > 35 {
		t.Errorf("ended %v, closed %v, %d comments in ten minutes", p.Ended(), p.Closed(), comments)
	}
	p.Close()
	w.pass(time.Second)
	w.end()
}

// An event without an id leaves a client where it was, a stream of several channels has no ids that
// it could not continue from, and a client whose position is gone is told.
func TestReportLastEventIDs(t *testing.T) {
	w := reportEvents(t, push.Namespace{HistorySize: 10, Recovery: true})
	ctx := context.Background()
	publish := func(channel, data string, o push.PublishOptions) {
		if _, err := w.server.PublishWith(ctx, channel, []byte(`"#`+data+`#"`), o); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := w.events("channel=a", "")
	publish("a", "1", push.PublishOptions{})
	publish("a", "2", push.PublishOptions{SkipHistory: true})
	w.pass(time.Second)
	lines := streamed(p)
	ids := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, "id: ") })
	if len(ids) != 2 || lines[len(lines)-1] != `data: "#2#"` || !strings.HasPrefix(lines[len(lines)-2], "data: ") {
		t.Fatalf("got %q", lines)
	}
	p.Close()
	publish("a", "3", push.PublishOptions{})
	publish("a", "4", push.PublishOptions{SkipHistory: true})
	p, _ = w.events("channel=a", "Last-Event-ID: "+strings.TrimPrefix(ids[1], "id: ")+"\r\n")
	if got := strings.Join(streamed(p), " "); !strings.HasSuffix(got, `data: "#3#"`) || strings.Contains(got, "#1#") ||
		strings.Contains(got, "gap") {
		t.Errorf("it continues with %q", got)
	}
	p.Close()
	p, _ = w.events("channel=a", "Last-Event-ID: of-another-server:3\r\n")
	if got := strings.Join(streamed(p), " "); !strings.Contains(got, `event: gap data: {"channel":"a"}`) {
		t.Errorf("an id of another server: %q", got)
	}
	p.Close()
	p, _ = w.events("channel=a&channel=b&named=1", "Last-Event-ID: "+strings.TrimPrefix(ids[0], "id: ")+"\r\n")
	publish("b", "5", push.PublishOptions{})
	publish("a", "6", push.PublishOptions{})
	w.pass(time.Second)
	got := slices.DeleteFunc(streamed(p), func(line string) bool { return strings.HasPrefix(line, "retry: ") })
	if want := []string{"event: b", `data: "#5#"`, "event: a", `data: "#6#"`}; !slices.Equal(got, want) {
		t.Errorf("of several channels came %q", got)
	}
	p.Close()
	w.pass(time.Second)
	w.end()
}
