package push

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/outbox/outboxtest"
)

func withRules(t *testing.T, list ...Namespace) func(*Hub) {
	return func(n *Hub) { n.rules = mustRules(t, list...) }
}

// signed returns a token with these claims besides exp, a minute from now.
func (n *testNode) signed(c jwt.MapClaims) string {
	n.t.Helper()
	if c["exp"] == nil {
		c["exp"] = n.clock.Now().Add(time.Minute).Unix()
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString([]byte(testSecret))
	if err != nil {
		n.t.Fatal(err)
	}
	return token
}

// as opens a connection with a token.
// of returns the sessions of a user.
func (n *testNode) of(user string) (list []*Session) {
	for _, s := range n.Clients() {
		if s.IsConnected() && s.User() == user {
			list = append(list, s)
		}
	}
	return list
}

func (n *testNode) as(c jwt.MapClaims) *fakeTransport {
	n.t.Helper()
	f := n.dial()
	f.frame([]byte(`{"id":1,"connect":{"token":"` + n.signed(c) + `"}}`))
	if got := f.take(); len(got) != 1 || !strings.Contains(got[0], `"client"`) {
		n.t.Fatalf("connecting was answered with %q", got)
	}
	return f
}

func (f *fakeTransport) asks(t *testing.T, what, command, answer string) {
	t.Helper()
	f.frame([]byte(command))
	f.want(t, what, answer)
}

const (
	denied    = `"error":{"code":103,"message":"permission denied"}}`
	publishIt = `{"id":4,"publish":{"channel":"C","data":1}}`
	published = `{"id":4,"publish":{}}`
)

func TestWhoMayPublish(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, Namespace{}, Namespace{Name: "s", Publish: PublishSubscribers},
		Namespace{Name: "t", Publish: PublishToken}, Namespace{Name: "n", Publish: PublishNobody}))
	to := func(channel string) string { return strings.Replace(publishIt, "C", channel, 1) }
	c := n.as(jwt.MapClaims{"sub": "ann"})
	c.asks(t, "any client", to("news"), published)
	c.asks(t, "nobody", to("n:1"), `{"id":4,`+denied)
	c.asks(t, "not subscribed", to("s:1"), `{"id":4,`+denied)
	c.asks(t, "subscribes", `{"id":2,"subscribe":{"channel":"s:1"}}`, `{"id":2,"subscribe":{}}`)
	c.frame([]byte(to("s:1")))
	if got := c.take(); len(got) != 2 || got[1] != published {
		t.Errorf("a subscriber that publishes was answered with %q", got)
	}
	c.asks(t, "subscribes without a token", `{"id":2,"subscribe":{"channel":"t:1"}}`, `{"id":2,"subscribe":{}}`)
	c.asks(t, "a token would be needed", to("t:1"), `{"id":4,`+denied)
	for channel, allow := range map[string][]string{"t:2": {"pub"}, "t:3": {"sub"}} {
		token := n.signed(jwt.MapClaims{"sub": "ann", "channel": channel, "allow": allow})
		c.frame([]byte(`{"id":2,"subscribe":{"channel":"` + channel + `","token":"` + token + `"}}`))
		c.take()
		c.frame([]byte(to(channel)))
		if got := c.take(); (got[len(got)-1] == published) != slices.Contains(allow, "pub") {
			t.Errorf("with %v: %q", allow, got)
		}
	}
}

func TestSubscriptionTokens(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, Namespace{Name: "p", SubscribeToken: true, Presence: true}))
	c := n.as(jwt.MapClaims{"sub": "ann", "channels": []string{"p:mine"}})
	subscribe := func(channel string, claims jwt.MapClaims) string {
		token := ""
		if claims != nil {
			token = n.signed(claims)
		}
		return `{"id":2,"subscribe":{"channel":"` + channel + `","token":"` + token + `"}}`
	}
	c.asks(t, "no token", subscribe("p:1", nil), `{"id":2,`+denied)
	c.asks(t, "in the connection's", subscribe("p:mine", nil),
		`{"id":2,"error":{"code":105,"message":"already subscribed"}}`)
	c.asks(t, "another channel's", subscribe("p:1", jwt.MapClaims{"sub": "ann", "channel": "p:2"}), `{"id":2,`+denied)
	c.asks(t, "another user's", subscribe("p:1", jwt.MapClaims{"sub": "bob", "channel": "p:1"}), `{"id":2,`+denied)
	c.asks(t, "a connection's", subscribe("p:1", jwt.MapClaims{"sub": "ann"}), `{"id":2,`+denied)
	c.asks(t, "expired", subscribe("p:1", jwt.MapClaims{"sub": "ann", "channel": "p:1",
		"exp": n.clock.Now().Add(-time.Hour).Unix()}),
		`{"id":2,"error":{"code":109,"message":"token expired"}}`)
	c.asks(t, "good", subscribe("p:1", jwt.MapClaims{"sub": "ann", "channel": "p:1", "info": map[string]int{"a": 1}}),
		`{"id":2,"subscribe":{"expires":true,"ttl":60}}`)
	c.asks(t, "presence", `{"id":5,"presence":{"channel":"p:1"}}`,
		`{"id":5,"presence":{"presence":{"`+c.s.ID()+`":{"user":"ann","client":"`+c.s.ID()+`",`+
			`"chan_info":{"a":1}}}}}`)

	old := n.signed(jwt.MapClaims{"sub": "ann", "channel": "p:1", "exp": n.clock.Now().Add(-time.Second).Unix()})
	d := n.as(jwt.MapClaims{"sub": "ann", "channels": []string{"p:mine"}})
	d.asks(t, "refreshed by an expired token, not subscribed",
		`{"id":6,"sub_refresh":{"channel":"p:1","token":"`+old+`"}}`,
		`{"id":6,`+denied)
	d.asks(t, "subscribes", subscribe("p:1", jwt.MapClaims{"sub": "ann", "channel": "p:1"}),
		`{"id":2,"subscribe":{"expires":true,"ttl":60}}`)
	d.frame([]byte(`{"id":6,"sub_refresh":{"channel":"p:1","token":"` + old + `"}}`))
	// its client comes back
	d.wantClosed(t, "refreshed by an expired token", Disconnect{Code: 3006, Reason: "subscription expired"})
	later := n.signed(jwt.MapClaims{"sub": "ann", "channel": "p:1", "exp": n.clock.Now().Add(2 * time.Minute).Unix()})
	c.asks(t, "refreshed", `{"id":6,"sub_refresh":{"channel":"p:1","token":"`+later+`"}}`,
		`{"id":6,"sub_refresh":{"expires":true,"ttl":120}}`)
	c.asks(t, "refreshed, not subscribed", `{"id":6,"sub_refresh":{"channel":"p:2","token":"`+later+`"}}`,
		`{"id":6,`+denied)
	c.asks(t, "refreshed without a token", `{"id":6,"sub_refresh":{"channel":"p:1"}}`,
		`{"id":6,"error":{"code":107,"message":"bad request"}}`)
	c.s.mu.Lock()
	c.s.endAt, c.s.pingAt = 0, 0 // only the subscription ends
	c.s.mu.Unlock()
	n.clock.advance(2 * time.Minute)
	c.want(t, "the token has expired, but there is time to renew it")
	n.clock.advance(n.timing.Refresh + time.Second)
	c.want(t, "not renewed", `{"push":{"channel":"p:1","unsubscribe":{"code":2501,"reason":"subscription expired"}}}`)
	c.wantOpen(t, "a subscription has expired")
	if c.s.member("p:1") != nil || c.s.member("p:mine") == nil {
		t.Error("the wrong subscription has ended")
	}
}

func TestPresenceAndNotices(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, Namespace{Presence: true, JoinLeave: true}),
		func(n *Hub) { n.limits.Present = 2 })
	a := n.as(jwt.MapClaims{"sub": "ann", "info": "x"})
	a.frame([]byte(`{"id":2,"subscribe":{"channel":"news","join_leave":true}}`))
	info := func(f *fakeTransport, user, more string) string {
		return `{"user":"` + user + `","client":"` + f.s.ID() + `"` + more + `}`
	}
	notice := func(kind, info string) string {
		return `{"push":{"channel":"news","` + kind + `":{"info":` + info + `}}}`
	}
	a.want(t, "subscribed", `{"id":2,"subscribe":{}}`, notice("join", info(a, "ann", `,"conn_info":"x"`)))
	b := n.as(jwt.MapClaims{"sub": "bob"})
	b.asks(t, "not subscribed", `{"id":5,"presence":{"channel":"news"}}`,
		`{"id":5,"presence":{"presence":{"`+a.s.ID()+`":`+info(a, "ann", `,"conn_info":"x"`)+`}}}`)
	b.frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	b.want(t, "a client that did not ask for notices", `{"id":2,"subscribe":{}}`)
	a.want(t, "another client has joined", notice("join", info(b, "bob", "")))
	a.asks(t, "presence", `{"id":5,"presence":{"channel":"news"}}`,
		fmt.Sprintf(`{"id":5,"presence":{"presence":{"%s":%s,"%s":%s}}}`, a.s.id, info(a, "ann", `,"conn_info":"x"`),
			b.s.id, info(b, "bob", "")))
	c := n.as(jwt.MapClaims{"sub": "bob"})
	c.frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	a.take()
	a.asks(t, "too many", `{"id":5,"presence":{"channel":"news"}}`,
		`{"id":5,"error":{"code":106,"message":"limit exceeded"}}`)
	a.asks(t, "stats", `{"id":5,"presence_stats":{"channel":"news"}}`,
		`{"id":5,"presence_stats":{"num_clients":3,"num_users":2}}`)
	c.hangUp()
	a.want(t, "a client has disconnected", notice("leave", info(c, "bob", "")))
	b.frame([]byte(`{"id":3,"unsubscribe":{"channel":"news"}}`))
	a.want(t, "a client has unsubscribed", notice("leave", info(b, "bob", "")))
}

// Under push-join-leave also a client that did not ask is told who joins and leaves.
func TestNoticesForAll(t *testing.T) {
	n := newTestNode(t, withRules(t, Namespace{JoinLeave: true, PushJoinLeave: true}))
	a, b := n.connected(), n.connected()
	notice := func(kind string, of *fakeTransport) string {
		return `{"push":{"channel":"news","` + kind + `":{"info":{"user":"","client":"` + of.s.ID() + `"}}}}`
	}
	a.frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	a.want(t, "subscribed", `{"id":2,"subscribe":{}}`, notice("join", a))
	b.frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	a.want(t, "another client has joined", notice("join", b))
	b.hangUp()
	a.want(t, "it has left", notice("leave", b))
}

// Under a policy that drops, a client that does not read stays connected and misses the oldest
// publications. When it reads again, it gets the rest in order. Others get everything.
func TestSlowPolicies(t *testing.T) {
	data := func(i int) string { return fmt.Sprintf(`"%03d%s"`, i, strings.Repeat("x", 995)) }
	for _, rule := range []SlowPolicy{SlowDropOldest, SlowLatestOnly} {
		t.Run(string(rule), func(t *testing.T) {
			const publications = 200
			ns := Namespace{Slow: rule}
			if rule == SlowDropOldest {
				ns.SlowQueue = 20 << 10
			}
			n := newTestNode(t, withRules(t, ns))
			slow, quick := n.connected("news"), n.connected("news")
			slow.stuck = true
			for i := range publications {
				n.mustPublish("news", data(i))
				if got := quick.take(); len(got) != 1 {
					t.Fatalf("publication %d: the quick one received %d messages", i, len(got))
				}
			}
			slow.wantOpen(t, "not reading")
			most, kept := handed, 20
			if rule == SlowLatestOnly {
				most, kept = handedLatest, 1
			}
			if slow.max > handed+2048 {
				t.Errorf("its transport was given %d bytes, want about %d", slow.max, most)
			}
			ch := slow.s.members[0].ch
			waiting := ch.outboxes[slow.s.members[0]].Len()
			if waiting < kept*9/10 || waiting > kept {
				t.Errorf("%d wait for it, want about %d", waiting, kept)
			}
			dropped := n.count.overflow.Dropped.Load()
			if got := int(dropped) + waiting + slow.max/1000; got < publications-5 || got > publications+5 {
				t.Errorf("%d dropped, %d wait, %d bytes handed over", dropped, waiting, slow.max)
			}
			slow.mu.Lock()
			slow.stuck, slow.bytes = false, 0
			slow.mu.Unlock()
			n.clock.advance(2 * wheelSlot)
			got := slow.take()
			if len(got) != waiting || !strings.Contains(got[len(got)-1], data(publications-1)) {
				t.Fatalf("reading again it received %d messages, %d waited", len(got), waiting)
			}
			for i, message := range got {
				if !strings.Contains(message, data(publications-waiting+i)) {
					t.Errorf("message %d is %.80s", i, message)
				}
			}
			n.mustPublish("news", "1")
			slow.want(t, "it keeps up again", `{"push":{"channel":"news","pub":{"data":1}}}`)
			if len(ch.outboxes) > 0 {
				t.Error("it still lags")
			}
			want := "client=" + slow.s.ID() + ` user="" channel=news remote=192.0.2.1:1234 policy=` +
				string(rule)
			end := fmt.Sprintf("has caught up\" client=%s channel=news dropped=%d\n", slow.s.id, dropped)
			if log := n.log.String(); strings.Count(log, "misses publications") != 1 || !strings.Contains(log, want) ||
				!strings.Contains(log, end) {
				t.Errorf("log %q", log)
			}
			if list := n.droppers.newestFirst(); len(list) != 1 || list[0].Client != slow.s.ID() ||
				list[0].Queued < slow.max+kept*900 || list[0].Queued > slow.max+kept*1100 {
				t.Errorf("remembered are %+v; %d bytes were handed over", list, slow.max)
			}
		})
	}
}

// A subscriber keeps the promises of each policy.
func TestSlowPoliciesConform(t *testing.T) {
	rules := map[outbox.Policy]Namespace{
		outbox.DropOldest: {Slow: SlowDropOldest, SlowQueue: 20 << 10},
		outbox.Latest:     {Slow: SlowLatestOnly},
		outbox.Close:      {Slow: SlowDisconnect},
	}
	outboxtest.Run(t, outboxtest.Config{
		Policies: slices.Sorted(maps.Keys(rules)),
		New: func(t *testing.T, p outbox.Policy) outboxtest.Receiver {
			n := newTestNode(t, withRules(t, rules[p]), func(n *Hub) { n.timing.Ping = time.Hour })
			r := &slowMember{n, n.connected("news")}
			r.stuck = true
			return r
		},
		Many: 1200, // of 1000 bytes; Limits.Queue is less than all of them
	})
}

// A slowMember reads only in Drain.
type slowMember struct {
	n *testNode
	*fakeTransport
}

func (r *slowMember) Offer(n int) outboxtest.Answer {
	r.n.mustPublish("news", fmt.Sprintf(`"%d %s"`, n, strings.Repeat("x", 1000)))
	if r.isClosed() {
		return outboxtest.Ended
	}
	return outboxtest.Taken
}

func (r *slowMember) Drain() (got []int) {
	r.readOn()
	r.n.clock.advance(2 * wheelSlot)
	for _, message := range r.take() {
		var number int
		if _, err := fmt.Sscanf(message, `{"push":{"channel":"news","pub":{"data":"%d `, &number); err != nil {
			r.n.t.Errorf("%.80s: %v", message, err)
		}
		got = append(got, number)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck = true
	return got
}

func (r *slowMember) Missed() uint64 { return r.n.count.overflow.Dropped.Load() }
func (r *slowMember) Closed() bool   { return r.isClosed() }

// Slow clients of one form wait for the same bytes. The log does not name those that miss nothing.
func TestSlowClientsShare(t *testing.T) {
	n := newTestNode(t, withRules(t, Namespace{Slow: SlowLatestOnly}))
	a, b := n.connected("news"), n.connected("news")
	a.stuck, a.bytes, b.stuck, b.bytes = true, 1<<20, true, 1<<20
	n.mustPublish("news", "1")
	ch := a.s.members[0].ch
	first, second := ch.outboxes[a.s.members[0]].First(), ch.outboxes[b.s.members[0]].First()
	if &first[0] != &second[0] {
		t.Error("each has a copy")
	}
	a.readOn()
	b.readOn()
	n.clock.advance(2 * wheelSlot)
	for _, c := range []*fakeTransport{a, b} {
		c.want(t, "reading again", `{"push":{"channel":"news","pub":{"data":1}}}`)
	}
	if log := n.log.String(); strings.Contains(log, "slow") || len(n.droppers.newestFirst()) > 0 {
		t.Errorf("log %q", log)
	}
}

// When a slow client leaves, its outbox is released.
func TestSlowClientLeaves(t *testing.T) {
	n := newTestNode(t, withRules(t, Namespace{Slow: SlowLatestOnly}))
	c, other := n.connected("news"), n.connected("news")
	c.stuck, c.bytes = true, 1<<20
	n.mustPublish("news", "1")
	ch := other.s.members[0].ch
	if len(ch.outboxes) != 1 {
		t.Fatalf("%d outboxes", len(ch.outboxes))
	}
	c.hangUp()
	if len(ch.outboxes) != 0 {
		t.Error("its outbox is still there")
	}
	n.clock.advance(time.Second)
}

// A stream of events continues where it was interrupted, or reports a gap.
func TestEventsRecover(t *testing.T) {
	ts := newTestServer(t, Config{Namespaces: []Namespace{{HistorySize: 3, Recovery: true}}})
	first := ts.subscribe("channel=news")
	head, id, found := strings.Cut(strings.TrimSuffix(first.take(), "\n\n"), "\n\nid: ")
	epoch, zero, _ := strings.Cut(id, ":")
	if !found || zero != "0" || !strings.HasPrefix(head, "retry: ") {
		t.Fatalf("a stream begins with %q and %q", head, id)
	}
	publish := func(data string) { ts.do("POST", "/api/publish", `{"channel":"news","data":`+data+`}`) }
	publish("1")
	publish("2")
	if got, want := first.take(), "id: E:1\ndata: 1\n\nid: E:2\ndata: 2\n\n"; got != strings.ReplaceAll(want, "E",
		epoch) {
		t.Errorf("received %q", got)
	}
	publish("3")
	for _, tt := range []struct{ name, query, header, want string }{
		{"by header", "channel=news", epoch + ":1", "id: E:2\ndata: 2\n\nid: E:3\ndata: 3\n\n"},
		{"by query", "channel=news&last_event_id=" + epoch + ":2", "", "id: E:3\ndata: 3\n\n"},
		{"named", "channel=news&named=1", epoch + ":2", "id: E:3\nevent: news\ndata: 3\n\n"},
		{"nothing missed", "channel=news", epoch + ":3", "id: E:3\n\n"},
		{"another epoch", "channel=news", "x:1", "event: gap\ndata: {\"channel\":\"news\"}\nid: E:3\n\n"},
		{"no id of ours", "channel=news", "17", "event: gap\ndata: {\"channel\":\"news\"}\nid: E:3\n\n"},
		{"several channels", "channel=news&channel=more", epoch + ":1", ""},
	} {
		fields := []string{}
		if tt.header != "" {
			fields = []string{"Last-Event-ID", tt.header}
		}
		_, got, _ := strings.Cut(ts.subscribe(tt.query, fields...).take(), "\n\n")
		if got != strings.ReplaceAll(tt.want, "E", epoch) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	publish("4")
	publish("5")
	_, got, _ := strings.Cut(ts.subscribe("channel=news", "Last-Event-ID", epoch+":1").take(), "\n\n")
	if !strings.HasPrefix(got, "event: gap\n") {
		t.Errorf("more was missed than is kept: %q", got)
	}
}

func TestAPI(t *testing.T) {
	ts := newTestServer(t, Config{Namespaces: []Namespace{{HistorySize: 5, Recovery: true, Presence: true},
		{Name: "bare"}}, Version: "v"})
	stream := ts.subscribe("channel=news")
	client := ts.hub.Sessions()[0].ID()
	epoch := ""
	for _, tt := range []struct{ method, body, want string }{
		{"publish", `{"channel":"news","data":1}`, `{"result":{"offset":1,"epoch":"E"}}`},
		{"publish", `{"channel":"bare:1","data":1}`, `{"result":{}}`},
		{"broadcast", `{"channels":["news","bare:1",""],"data":2}`,
			`{"responses":[{"result":{"offset":2,"epoch":"E"}},{"result":{}},{"error":{"code":107,`},
		{"broadcast", `{"data":2}`, `{"error":{"code":107,"message":"channels is missing"}}`},
		{"history", `{"channel":"news","limit":10}`,
			`{"result":{"publications":[{"data":1,"offset":1},{"data":2,"offset":2}],"epoch":"E","offset":2}}`},
		{"history", `{"channel":"news","limit":1,"reverse":true}`,
			`{"result":{"publications":[{"data":2,"offset":2}],"epoch":"E","offset":2}}`},
		{"history", `{"channel":"news","limit":1,"since":{"offset":1,"epoch":"x"}}`,
			`{"error":{"code":112,"message":"unrecoverable position"}}`},
		{"history", `{"channel":"bare:1"}`, `{"error":{"code":108,"message":"not available"}}`},
		{"history", `{}`, `{"error":{"code":107,"message":"channel is missing"}}`},
		{"history_remove", `{"channel":"news"}`, `{"result":{}}`},
		{"history", `{"channel":"news","limit":10}`, `{"result":{"publications":[],"epoch":"E","offset":2}}`},
		{"presence", `{"channel":"news"}`, `{"result":{"presence":{"` + client + `":{"user":"","client":"` + client +
			`"}}}}`},
		{"presence_stats", `{"channel":"news"}`, `{"result":{"num_clients":1,"num_users":1}}`},
		{"presence", `{"channel":"bare:1"}`, `{"error":{"code":108,"message":"not available"}}`},
		{"channels", `{}`, `{"result":{"channels":{"news":{"num_clients":1}}}}`},
		{"channels", `{"pattern":"n*s"}`, `{"result":{"channels":{"news":{"num_clients":1}}}}`},
		{"channels", `{"pattern":"x*"}`, `{"result":{"channels":{}}}`},
		{"info", `{}`, `{"result":{"nodes":[{"uid":"` + ts.hub.NodeID() +
			`","name":"myriad","version":"v","num_clients":1,"num_channels":1,"uptime":0,` +
			`"num_users":1,"num_subs":1}]}}`},
		{"unsubscribe", `{"channel":"news"}`,
			`{"error":{"code":107,"message":"user, client or session is missing"}}`},
		{"unsubscribe", `{"channel":"other","client":"` + client + `"}`, `{"result":{"num_clients":0}}`},
		{"disconnect", `{"client":"` + client + `","disconnect":{"code":1,"reason":""}}`, `{"error":{"code":107,`},
		{"disconnect", `{"user":"nobody"}`, `{"result":{"num_clients":0}}`},
		{"disconnect", `[`, `{"error":{"code":107,`},
		{"disconnect", `{"client":"` + client + `"}`, `{"result":{"num_clients":1}}`},
	} {
		got := ts.do("POST", "/api/"+tt.method, tt.body).Body.String()
		if epoch == "" {
			_, rest, _ := strings.Cut(got, `"epoch":"`)
			epoch, _, _ = strings.Cut(rest, `"`)
		}
		if !strings.Contains(got, strings.ReplaceAll(tt.want, `"E"`, `"`+epoch+`"`)) {
			t.Errorf("%s %s: %s, want %s", tt.method, tt.body, got, tt.want)
		}
	}
	if !stream.isClosed() {
		t.Error("the client was not disconnected")
	}
}

func TestAPIEndsSubscriptions(t *testing.T) {
	n := newTestNode(t)
	c := n.connected("news", "more")
	if !c.s.end("news", answer.UnsubscribedByServer) || c.s.end("news", answer.UnsubscribedByServer) {
		t.Error("a subscription can be ended once")
	}
	c.want(t, "ended", `{"push":{"channel":"news","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}`)
	n.mustPublish("news", "1")
	c.want(t, "after that")
}
