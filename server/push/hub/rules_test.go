package hub

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/outbox/outboxtest"
)

func withRules(t *testing.T, list ...policy.Namespace) func(*Config) {
	return func(c *Config) { c.Rules = mustRules(t, list...) }
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
	if got := f.Take(); len(got) != 1 || !strings.Contains(got[0], `"client"`) {
		n.t.Fatalf("connecting was answered with %q", got)
	}
	return f
}

func (f *fakeTransport) asks(t *testing.T, what, command, answer string) {
	t.Helper()
	f.frame([]byte(command))
	f.Want(t, what, answer)
}

const (
	denied    = `"error":{"code":103,"message":"permission denied"}}`
	publishIt = `{"id":4,"publish":{"channel":"C","data":1}}`
	published = `{"id":4,"publish":{}}`
)

func TestWhoMayPublish(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{}, policy.Namespace{Name: "s",
		Publish: policy.PublishSubscribers},
		policy.Namespace{Name: "t", Publish: policy.PublishToken}, policy.Namespace{Name: "n",
			Publish: policy.PublishNobody}))
	to := func(channel string) string { return strings.Replace(publishIt, "C", channel, 1) }
	c := n.as(jwt.MapClaims{"sub": "ann"})
	c.asks(t, "any client", to("news"), published)
	c.asks(t, "nobody", to("n:1"), `{"id":4,`+denied)
	c.asks(t, "not subscribed", to("s:1"), `{"id":4,`+denied)
	c.asks(t, "subscribes", `{"id":2,"subscribe":{"channel":"s:1"}}`, `{"id":2,"subscribe":{}}`)
	c.frame([]byte(to("s:1")))
	if got := c.Take(); len(got) != 2 || got[1] != published {
		t.Errorf("a subscriber that publishes was answered with %q", got)
	}
	c.asks(t, "subscribes without a token", `{"id":2,"subscribe":{"channel":"t:1"}}`, `{"id":2,"subscribe":{}}`)
	c.asks(t, "a token would be needed", to("t:1"), `{"id":4,`+denied)
	for channel, allow := range map[string][]string{"t:2": {"pub"}, "t:3": {"sub"}} {
		token := n.signed(jwt.MapClaims{"sub": "ann", "channel": channel, "allow": allow})
		c.frame([]byte(`{"id":2,"subscribe":{"channel":"` + channel + `","token":"` + token + `"}}`))
		c.Take()
		c.frame([]byte(to(channel)))
		if got := c.Take(); (got[len(got)-1] == published) != slices.Contains(allow, "pub") {
			t.Errorf("with %v: %q", allow, got)
		}
	}
}

func TestSubscriptionTokens(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{Name: "p", SubscribeToken: true, Presence: true}))
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
	d.WantClosed(t, "refreshed by an expired token", answer.Disconnect{Code: 3006, Reason: "subscription expired"})
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
	n.clock.Advance(2 * time.Minute)
	c.Want(t, "the token has expired, but there is time to renew it")
	n.clock.Advance(n.timing.Refresh + time.Second)
	c.Want(t, "not renewed", `{"push":{"channel":"p:1","unsubscribe":{"code":2501,"reason":"subscription expired"}}}`)
	c.WantOpen(t, "a subscription has expired")
	if c.s.member("p:1") != nil || c.s.member("p:mine") == nil {
		t.Error("the wrong subscription has ended")
	}
}

func TestPresenceAndNotices(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{Presence: true, JoinLeave: true}),
		func(c *Config) { c.Limits.Present = 2 })
	a := n.as(jwt.MapClaims{"sub": "ann", "info": "x"})
	a.frame([]byte(`{"id":2,"subscribe":{"channel":"news","join_leave":true}}`))
	info := func(f *fakeTransport, user, more string) string {
		return `{"user":"` + user + `","client":"` + f.s.ID() + `"` + more + `}`
	}
	notice := func(kind, info string) string {
		return `{"push":{"channel":"news","` + kind + `":{"info":` + info + `}}}`
	}
	a.Want(t, "subscribed", `{"id":2,"subscribe":{}}`, notice("join", info(a, "ann", `,"conn_info":"x"`)))
	b := n.as(jwt.MapClaims{"sub": "bob"})
	b.asks(t, "not subscribed", `{"id":5,"presence":{"channel":"news"}}`,
		`{"id":5,"presence":{"presence":{"`+a.s.ID()+`":`+info(a, "ann", `,"conn_info":"x"`)+`}}}`)
	b.frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	b.Want(t, "a client that did not ask for notices", `{"id":2,"subscribe":{}}`)
	a.Want(t, "another client has joined", notice("join", info(b, "bob", "")))
	a.asks(t, "presence", `{"id":5,"presence":{"channel":"news"}}`,
		fmt.Sprintf(`{"id":5,"presence":{"presence":{"%s":%s,"%s":%s}}}`, a.s.id, info(a, "ann", `,"conn_info":"x"`),
			b.s.id, info(b, "bob", "")))
	c := n.as(jwt.MapClaims{"sub": "bob"})
	c.frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	a.Take()
	a.asks(t, "too many", `{"id":5,"presence":{"channel":"news"}}`,
		`{"id":5,"error":{"code":106,"message":"limit exceeded"}}`)
	a.asks(t, "stats", `{"id":5,"presence_stats":{"channel":"news"}}`,
		`{"id":5,"presence_stats":{"num_clients":3,"num_users":2}}`)
	c.hangUp()
	a.Want(t, "a client has disconnected", notice("leave", info(c, "bob", "")))
	b.frame([]byte(`{"id":3,"unsubscribe":{"channel":"news"}}`))
	a.Want(t, "a client has unsubscribed", notice("leave", info(b, "bob", "")))
}

// Under push-join-leave also a client that did not ask is told who joins and leaves.
func TestNoticesForAll(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{JoinLeave: true, PushJoinLeave: true}))
	a, b := n.connected(), n.connected()
	notice := func(kind string, of *fakeTransport) string {
		return `{"push":{"channel":"news","` + kind + `":{"info":{"user":"","client":"` + of.s.ID() + `"}}}}`
	}
	a.frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	a.Want(t, "subscribed", `{"id":2,"subscribe":{}}`, notice("join", a))
	b.frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
	a.Want(t, "another client has joined", notice("join", b))
	b.hangUp()
	a.Want(t, "it has left", notice("leave", b))
}

// Under a policy that drops, a client that does not read stays connected and misses the oldest
// publications. When it reads again, it gets the rest in order. Others get everything.
func TestSlowPolicies(t *testing.T) {
	data := func(i int) string { return fmt.Sprintf(`"%03d%s"`, i, strings.Repeat("x", 995)) }
	for _, rule := range []policy.SlowPolicy{policy.SlowDropOldest, policy.SlowLatestOnly} {
		t.Run(string(rule), func(t *testing.T) {
			const publications = 200
			ns := policy.Namespace{Slow: rule}
			if rule == policy.SlowDropOldest {
				ns.SlowQueue = 20 << 10
			}
			n := newTestNode(t, withRules(t, ns))
			slow, quick := n.connected("news"), n.connected("news")
			slow.Stuck = true
			for i := range publications {
				n.mustPublish("news", data(i))
				if got := quick.Take(); len(got) != 1 {
					t.Fatalf("publication %d: the quick one received %d messages", i, len(got))
				}
			}
			slow.WantOpen(t, "not reading")
			most, kept := handed, 20
			if rule == policy.SlowLatestOnly {
				most, kept = handedLatest, 1
			}
			if slow.Max > handed+2048 {
				t.Errorf("its transport was given %d bytes, want about %d", slow.Max, most)
			}
			ch := slow.s.members[0].ch
			waiting := ch.outboxes[slow.s.members[0]].Len()
			if waiting < kept*9/10 || waiting > kept {
				t.Errorf("%d wait for it, want about %d", waiting, kept)
			}
			dropped := n.figures.overflow.Dropped.Load()
			if got := int(dropped) + waiting + slow.Max/1000; got < publications-5 || got > publications+5 {
				t.Errorf("%d dropped, %d wait, %d bytes handed over", dropped, waiting, slow.Max)
			}
			slow.ReadOn()
			slow.Take() // what its transport was given
			n.clock.Advance(2 * wheelSlot)
			got := slow.Take()
			if len(got) != waiting || !strings.Contains(got[len(got)-1], data(publications-1)) {
				t.Fatalf("reading again it received %d messages, %d waited", len(got), waiting)
			}
			for i, message := range got {
				if !strings.Contains(message, data(publications-waiting+i)) {
					t.Errorf("message %d is %.80s", i, message)
				}
			}
			n.mustPublish("news", "1")
			slow.Want(t, "it keeps up again", `{"push":{"channel":"news","pub":{"data":1}}}`)
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
				list[0].Queued < slow.Max+kept*900 || list[0].Queued > slow.Max+kept*1100 {
				t.Errorf("remembered are %+v; %d bytes were handed over", list, slow.Max)
			}
		})
	}
}

// A subscriber keeps the promises of each policy.
func TestSlowPoliciesConform(t *testing.T) {
	rules := map[outbox.Policy]policy.Namespace{
		outbox.DropOldest: {Slow: policy.SlowDropOldest, SlowQueue: 20 << 10},
		outbox.Latest:     {Slow: policy.SlowLatestOnly},
		outbox.Close:      {Slow: policy.SlowDisconnect},
	}
	outboxtest.Run(t, outboxtest.Config{
		Policies: slices.Sorted(maps.Keys(rules)),
		New: func(t *testing.T, p outbox.Policy) outboxtest.Receiver {
			n := newTestNode(t, withRules(t, rules[p]), func(c *Config) { c.Timing.Ping = time.Hour })
			r := &slowMember{n, n.connected("news")}
			r.Stuck = true
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
	if r.IsClosed() {
		return outboxtest.Ended
	}
	return outboxtest.Taken
}

func (r *slowMember) Drain() (got []int) {
	r.ReadOn()
	r.n.clock.Advance(2 * wheelSlot)
	for _, message := range r.Take() {
		var number int
		if _, err := fmt.Sscanf(message, `{"push":{"channel":"news","pub":{"data":"%d `, &number); err != nil {
			r.n.t.Errorf("%.80s: %v", message, err)
		}
		got = append(got, number)
	}
	r.Stick()
	return got
}

func (r *slowMember) Missed() uint64 { return r.n.figures.overflow.Dropped.Load() }
func (r *slowMember) Closed() bool   { return r.IsClosed() }

// Slow clients of one form wait for the same bytes. The log does not name those that miss nothing.
func TestSlowClientsShare(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{Slow: policy.SlowLatestOnly}))
	a, b := n.connected("news"), n.connected("news")
	a.Stuck, a.Bytes, b.Stuck, b.Bytes = true, 1<<20, true, 1<<20
	n.mustPublish("news", "1")
	ch := a.s.members[0].ch
	first, second := ch.outboxes[a.s.members[0]].First(), ch.outboxes[b.s.members[0]].First()
	if &first[0] != &second[0] {
		t.Error("each has a copy")
	}
	a.ReadOn()
	b.ReadOn()
	n.clock.Advance(2 * wheelSlot)
	for _, c := range []*fakeTransport{a, b} {
		c.Want(t, "reading again", `{"push":{"channel":"news","pub":{"data":1}}}`)
	}
	if log := n.log.String(); strings.Contains(log, "slow") || len(n.droppers.newestFirst()) > 0 {
		t.Errorf("log %q", log)
	}
}

// When a slow client leaves, its outbox is released.
func TestSlowClientLeaves(t *testing.T) {
	n := newTestNode(t, withRules(t, policy.Namespace{Slow: policy.SlowLatestOnly}))
	c, other := n.connected("news"), n.connected("news")
	c.Stuck, c.Bytes = true, 1<<20
	n.mustPublish("news", "1")
	ch := other.s.members[0].ch
	if len(ch.outboxes) != 1 {
		t.Fatalf("%d outboxes", len(ch.outboxes))
	}
	c.hangUp()
	if len(ch.outboxes) != 0 {
		t.Error("its outbox is still there")
	}
	n.clock.Advance(time.Second)
}

func TestAPIEndsSubscriptions(t *testing.T) {
	n := newTestNode(t)
	c := n.connected("news", "more")
	if !c.s.end("news", answer.UnsubscribedByServer) || c.s.end("news", answer.UnsubscribedByServer) {
		t.Error("a subscription can be ended once")
	}
	c.Want(t, "ended", `{"push":{"channel":"news","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}`)
	n.mustPublish("news", "1")
	c.Want(t, "after that")
}
