package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/tokentest"
	"github.com/myriad-go/myriad/server/push/token"

	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/golang-jwt/jwt/v5"
)

const badRequestAnswer = `"error":{"code":107,"message":"bad request"}}`

// The users after the last # alone may use a user-limited channel, besides bearers of a token for
// it.
func TestUserLimitedChannels(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{Name: "u", UserLimited: true, HistorySize: 1},
		policy.Namespace{Name: "p", UserLimited: true, SubscribeToken: true, Publish: policy.PublishSubscribers},
		policy.Namespace{Name: "free"}))
	for _, tt := range []struct {
		user, channel      string
		subscribe, publish bool
	}{
		{"42", "u:#42", true, true}, {"42", "u:dialog#42,43", true, true}, {"43", "u:dialog#42,43", true, true},
		{"4", "u:dialog#42,43", false, false}, {"2,43", "u:dialog#42,43", false, false},
		{"42", "u:dialog#", false, false}, {"42", "u:#42#43", false, false}, {"43", "u:#42#43", true, true},
		{"42", "u:plain", true, true}, {"42", "p:plain", false, false}, {"42", "p:#42", true, false},
		{"43", "p:#42", false, false}, {"43", "free:#42", true, true}, {"43", "#42", true, true},
	} {
		c := n.as(jwt.MapClaims{"sub": tt.user})
		name := tt.user + " in " + tt.channel
		answer := func(id int, method string, may bool) string {
			if may {
				return fmt.Sprintf(`{"id":%d,%q:{}}`, id, method)
			}
			return fmt.Sprintf(`{"id":%d,%s`, id, denied)
		}
		c.asks(t, name+" publishes", `{"id":4,"publish":{"channel":"`+tt.channel+`","data":1}}`,
			answer(4, "publish", tt.publish))
		c.asks(t, name, `{"id":2,"subscribe":{"channel":"`+tt.channel+`"}}`, answer(2, "subscribe", tt.subscribe))
		if strings.HasPrefix(tt.channel, "u:") {
			c.frame([]byte(`{"id":5,"history":{"channel":"` + tt.channel + `"}}`))
			if got := c.Take(); strings.Contains(got[0], "error") == tt.subscribe {
				t.Errorf("%s reads the history: %q", name, got)
			}
		}
		c.hangUp()
	}
	c := n.as(jwt.MapClaims{"sub": "7"})
	token := n.signed(jwt.MapClaims{"sub": "7", "channel": "u:#42"})
	c.asks(t, "with a token", `{"id":2,"subscribe":{"channel":"u:#42","token":"`+token+`"}}`,
		`{"id":2,"subscribe":{"expires":true,"ttl":60}}`)
	c.frame([]byte(`{"id":5,"history":{"channel":"u:#42"}}`))
	if got := c.Take(); !strings.Contains(got[0], `"publications"`) {
		t.Errorf("a subscriber reads the history: %q", got)
	}
}

// Each user is subscribed to its personal channels, which no other user can name.
func TestPersonalChannels(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{Personal: true}, policy.Namespace{Name: "p",
		Personal: true}))
	connect := func(c jwt.MapClaims) *fakeTransport {
		f := n.dial()
		f.frame([]byte(`{"id":1,"connect":{"token":"` + n.signed(c) + `"}}`))
		return f
	}
	c := connect(jwt.MapClaims{"sub": "42", "channels": []string{"news", "p:#42"}})
	if got := c.Take(); len(got) != 1 || !strings.Contains(got[0], `"subs":{"#42":{},"news":{},"p:#42":{}}`) {
		t.Errorf("connect was answered with %q", got)
	}
	if _, err := n.publish(t.Context(), "p:#42", bus.Publication{Data: []byte(`1`)}); err != nil {
		t.Fatal(err)
	}
	c.Want(t, "a publication", `{"push":{"channel":"p:#42","pub":{"data":1}}}`)
	other := connect(jwt.MapClaims{"sub": "43"})
	other.Take()
	other.asks(t, "another user's", `{"id":2,"subscribe":{"channel":"p:#42"}}`, `{"id":2,`+denied)
	for user, want := range map[string]string{
		"42,43": "other users could have its personal channel", "a#42": "other users could have",
		strings.Repeat("x", 255): "is not a name of 1 to 255 bytes", "a\x01": "without control characters",
	} {
		connect(jwt.MapClaims{"sub": user}).WantClosed(t, want, answer.DisconnectInvalidToken)
		if !strings.Contains(n.log.String(), want) {
			t.Errorf("the log does not have %q:\n%s", want, n.log)
		}
	}
	connect(jwt.MapClaims{"sub": "1", "channels": manyChannels[:127]}).WantClosed(t, "many",
		answer.DisconnectInvalidToken)
}

// ChannelRegex is for the names that clients choose.
func TestChannelRegex(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{ChannelRegex: "^[a-z]+$"},
		policy.Namespace{Name: "n", ChannelRegex: `^\d+$`, HistorySize: 1}))
	c := n.as(jwt.MapClaims{"sub": "ann", "channels": []string{"n:x"}})
	for channel, fits := range map[string]bool{"n:1": true, "n:a": false, "n:": false, "news": true, "N": false,
		"o:1": false} {
		c.frame([]byte(`{"id":4,"publish":{"channel":"` + channel + `","data":1}}`))
		c.frame([]byte(`{"id":2,"subscribe":{"channel":"` + channel + `"}}`))
		got := c.Take()
		if fits != (got[0] == published) || fits != !strings.Contains(got[1], badRequestAnswer) {
			t.Errorf("%s: %q", channel, got)
		}
	}
	c.asks(t, "history", `{"id":5,"history":{"channel":"n:a"}}`, `{"id":5,`+denied)
	if _, err := policy.NewNamespaces([]policy.Namespace{{ChannelRegex: "("}}, false); err == nil {
		t.Error("a regex that is none is accepted")
	}
}

// KnownOnly refuses channels of unknown namespaces: to clients, in tokens and in the API.
func TestKnownOnly(t *testing.T) {
	rules := []policy.Namespace{{KnownOnly: true, HistorySize: 1, Presence: true, Publish: policy.PublishNobody},
		{Name: "n"}}
	n := newTestNode(t, withTokens, withRules(t, rules...))
	c := n.as(jwt.MapClaims{"sub": "ann", "caps": tokentest.Caps(tokentest.Cap("wildcard", []string{"sub", "pub",
		"prs", "hst"}, "*"))})
	const unknown = `"error":{"code":102,"message":"unknown channel"}}`
	for _, method := range []string{"subscribe", "presence", "presence_stats", "history"} {
		c.asks(t, method, `{"id":5,"`+method+`":{"channel":"o:a"}}`, `{"id":5,`+unknown)
	}
	c.asks(t, "publish", `{"id":5,"publish":{"channel":"o:a","data":1}}`, `{"id":5,`+unknown)
	c.asks(t, "a known namespace", `{"id":2,"subscribe":{"channel":"n:a"}}`, `{"id":2,"subscribe":{}}`)
	c.asks(t, "no colon", `{"id":3,"subscribe":{"channel":"plain"}}`, `{"id":3,"subscribe":{}}`)
	note := n.rules.Explain("o:a", &token.Report{}, policy.Access{})
	if !strings.Contains(note.Subscribe, "(102)") || !strings.Contains(note.Publish, "(102)") {
		t.Errorf("the token's explanation says %+v", note)
	}
	if g := (Grant{Channels: []string{"o:a"}}); n.checkGrant(&g) == nil {
		t.Error("a token with an unknown channel is accepted")
	}
}

// Capabilities grant what the rules do not.
func TestCapabilities(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{SubscribeToken: true, Publish: policy.PublishNobody,
		HistorySize: 1, Presence: true}))
	c := n.as(jwt.MapClaims{"sub": "ann", "caps": tokentest.Caps(
		tokentest.Cap("", []string{"sub"}, "news", "user_42"),
		tokentest.Cap("", []string{"pub", "prs"}, "user_42"),
		tokentest.Cap("wildcard", []string{"sub", "hst"}, "chat:*", "*:room:*"),
		tokentest.Cap("regex", []string{"pub"}, `^posts_\d+$`),
	)})
	methods := map[string]string{"sub": "subscribe", "pub": "publish", "hst": "history", "prs": "presence"}
	for channel, want := range map[string]string{
		"news": "sub", "user_42": "sub pub prs", "chat:1": "sub hst", "a:room:b": "sub hst", "room:b": "", "chat": "",
		"posts_7": "pub", "posts_x": "", "xposts_7": "", "new": "", "newss": "",
	} {
		for right, method := range methods {
			data := ""
			if right == "pub" {
				data = `,"data":1`
			}
			c.frame([]byte(`{"id":2,"` + method + `":{"channel":"` + channel + `"` + data + `}}`))
			got := c.Take()
			may := strings.Contains(want, right) || strings.Contains(want, "sub") && (right == "hst" ||
				right == "prs")
			if may == strings.Contains(got[0], `"code":103`) {
				t.Errorf("%s %s: %q, want %q", right, channel, got, want)
			}
			if right == "sub" && may {
				c.frame([]byte(`{"id":2,"unsubscribe":{"channel":"` + channel + `"}}`))
				c.Take()
			}
		}
	}
}

// A new token takes capabilities away: the subscriptions that needed them end.
func TestCapabilitiesAreRefreshed(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{SubscribeToken: true}, policy.Namespace{Name: "o"}))
	c := n.as(jwt.MapClaims{"sub": "ann", "channels": []string{"mine"},
		"caps": tokentest.Caps(tokentest.Cap("", []string{"sub"}, "a", "b", "c"))})
	token := n.signed(jwt.MapClaims{"sub": "ann", "channel": "c"})
	for _, subscribe := range []string{`"a"`, `"b"`, `"o:1"`, `"c","token":"` + token + `"`} {
		c.frame([]byte(`{"id":2,"subscribe":{"channel":` + subscribe + `}}`))
	}
	if got := c.Take(); len(got) != 4 || strings.Contains(strings.Join(got, ""), "error") {
		t.Fatalf("subscribing: %q", got)
	}
	refresh := func(claims jwt.MapClaims) {
		c.frame([]byte(`{"id":3,"refresh":{"token":"` + n.signed(claims) + `"}}`))
	}
	refresh(jwt.MapClaims{"sub": "ann", "caps": tokentest.Caps(tokentest.Cap("wildcard", []string{"sub"}, "b*"))})
	ok := `{"id":3,"refresh":{"client":"` + c.s.ID() + `","version":"","expires":true,"ttl":60}}`
	got := c.Take()
	if len(got) != 2 ||
		got[0] != `{"push":{"channel":"a","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}` {
		t.Errorf("after the first: %q, want one of %s", got, ok)
	}
	refresh(jwt.MapClaims{"sub": "ann"})
	if got := c.Take(); len(got) != 2 || !strings.Contains(got[0], `"channel":"b","unsubscribe"`) {
		t.Errorf("after the second: %q", got)
	}
	for channel, subscribed := range map[string]bool{"a": false, "b": false, "c": true, "mine": true, "o:1": true} {
		if (c.s.member(channel) != nil) != subscribed {
			t.Errorf("%s: subscribed is %v", channel, !subscribed)
		}
	}
	c.asks(t, "again", `{"id":2,"subscribe":{"channel":"b"}}`, `{"id":2,`+denied)
}

func TestCapabilitiesAreBounded(t *testing.T) {
	n := newTestNode(t, withTokens)
	many := make([]any, 65)
	for i := range many {
		many[i] = tokentest.Cap("", nil)
	}
	for want, list := range map[string]any{
		"is no list of objects": "all",
		"has 65 entries":        many,
		"names more than 256 channels": tokentest.Caps(tokentest.Cap("", nil, manyChannels...), tokentest.Cap("", nil,
			manyChannels...)),
		"allows \\\"write\\\"":       tokentest.Caps(tokentest.Cap("", []string{"write"}, "a")),
		"has the match \\\"glob\\\"": tokentest.Caps(tokentest.Cap("glob", nil, "a")),
		"missing closing":            tokentest.Caps(tokentest.Cap("regex", nil, "(")),
		"an expression of 513 bytes": tokentest.Caps(tokentest.Cap("regex", nil, strings.Repeat("a", 513))),
		"an empty pattern":           tokentest.Caps(tokentest.Cap("wildcard", nil, "")),
	} {
		c := n.dial()
		c.frame([]byte(`{"id":1,"connect":{"token":"` + n.signed(jwt.MapClaims{"sub": "ann", "caps": list}) + `"}}`))
		c.WantClosed(t, want, answer.DisconnectInvalidToken)
		if !strings.Contains(n.log.String(), want) {
			t.Errorf("the log does not have %q:\n%s", want, n.log)
		}
		n.clock.Advance(time.Second) // the log has room for ten refusals a second
	}
}

// Hooks get a token's meta, and grant and take capabilities.
func TestMetaAndCapabilitiesOfHooks(t *testing.T) {
	var by Caller
	refresh := RefreshAnswer{}
	hooks := Hooks{
		Connect: func(context.Context, Caller, ConnectRequest) (ConnectAnswer, error) {
			return ConnectAnswer{User: "bob", ExpireAt: 1_800_000_060,
				Caps: []policy.Capability{{Channels: []string{"a", "b"}, Allow: []string{"sub"}}}}, nil
		},
		Refresh: func(context.Context, Caller) (RefreshAnswer, error) { return refresh, nil },
		Publish: func(_ context.Context, c Caller, _ PublishRequest) (PublishAnswer, error) {
			by = c
			return PublishAnswer{}, nil
		},
	}
	rules := []policy.Namespace{{SubscribeToken: true, PublishHook: true}}
	n := newTestNode(t, withTokens, func(c *Config) { c.Timing.Ping = time.Hour }, withHooks(t, hooks, rules...))
	c := n.dial()
	c.frame([]byte(`{"id":1,"connect":{"token":"` + n.signed(jwt.MapClaims{"sub": "ann",
		"meta": map[string]int{"m": 1}}) +
		`"}}`))
	c.frame([]byte(strings.Replace(publishIt, "C", "news", 1)))
	if string(by.Meta) != `{"m":1}` || by.User != "ann" {
		t.Errorf("the caller is %+v", by)
	}
	c.frame([]byte(`{"id":3,"refresh":{"token":"` + n.signed(jwt.MapClaims{"sub": "ann", "meta": 2}) + `"}}`))
	c.frame([]byte(strings.Replace(publishIt, "C", "news", 1)))
	if string(by.Meta) != `2` {
		t.Errorf("after a refresh the meta is %s", by.Meta)
	}
	c.hangUp()

	d := n.connected("a", "b")
	refresh.Caps = []policy.Capability{{Channels: []string{"b"}, Allow: []string{"sub"}}}
	n.clock.Advance(62 * time.Second)
	d.Want(t, "fewer rights", `{"push":{"channel":"a","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}`)
}

// A hook says whether the subscriptions that a hook has allowed go on.
func TestSubRefreshHook(t *testing.T) {
	says, failure, calls := SubRefreshAnswer{}, error(nil), 0
	var n *testNode
	n = newTestNode(t, func(c *Config) { c.Timing.Ping = time.Hour }, withHooks(t, Hooks{
		Subscribe: func(context.Context, Caller, SubscribeRequest) (SubscribeAnswer, error) {
			return SubscribeAnswer{ExpireAt: n.clock.Now().Unix() + 60}, nil
		},
		SubRefresh: func(_ context.Context, _ Caller, channel string) (SubRefreshAnswer, error) {
			if calls++; channel != "r:1" {
				t.Errorf("asked about %q", channel)
			}
			return says, failure
		},
	}, policy.Namespace{Name: "r", SubscribeHook: true, SubRefreshHook: true}, policy.Namespace{Name: "s",
		SubscribeHook: true}))
	c := n.connected("r:1", "s:1")
	failure = errors.New("down")
	n.clock.Advance(62 * time.Second)
	c.Want(t, "the one without the rule",
		`{"push":{"channel":"s:1","unsubscribe":{"code":2501,"reason":"subscription expired"}}}`)
	if c.s.member("r:1") == nil || calls != 1 {
		t.Errorf("while the hook fails: %d calls", calls)
	}
	failure, says.ExpireAt = nil, n.clock.Now().Unix()+300
	n.clock.Advance(290 * time.Second)
	if c.Want(t, "until its new end"); calls != 2 {
		t.Errorf("%d calls", calls)
	}
	says.ExpireAt = 0
	n.clock.Advance(time.Hour)
	if c.Take(); c.s.member("r:1") == nil || calls != 3 {
		t.Errorf("without an end: %d calls", calls)
	}
	d := n.connected("r:1")
	says.Expired = true
	n.clock.Advance(62 * time.Second)
	d.Want(t, "expired", `{"push":{"channel":"r:1","unsubscribe":{"code":2501,"reason":"subscription expired"}}}`)
	e := n.connected("r:1")
	failure = answer.Disconnect{Code: 4501, Reason: "banned"}
	n.clock.Advance(62 * time.Second)
	e.WantClosed(t, "banned", answer.Disconnect{Code: 4501, Reason: "banned"})
	err := (&Hooks{}).Check([]policy.Namespace{{SubRefreshHook: true}})
	if err == nil || !strings.Contains(err.Error(), "set --proxy-sub-refresh (Hooks.SubRefresh)") {
		t.Errorf("the rule without its hook: %v", err)
	}
}

// A client that only receives gets the channels that it asks for and may have, and no others.
func TestReceiversAskForChannels(t *testing.T) {
	n := newTestNode(t, withTokens, withRules(t, policy.Namespace{Name: "p", SubscribeToken: true},
		policy.Namespace{Name: "r", ChannelRegex: "^1$"}))
	f := new(fakeTransport)
	f.s = n.Start(f, uniForm, nil)
	runMessage(f.s, []byte(`{"token":"`+n.signed(jwt.MapClaims{"sub": "ann", "channels": []string{"p:mine"}})+
		`","subs":{"news":{},"p:secret":{},"r:2":{},"p:mine":{}}}`))
	if got := f.Take(); len(got) != 1 || !strings.Contains(got[0], `"subs":{"news":{},"p:mine":{}}`) &&
		!strings.Contains(got[0], `"subs":{"p:mine":{},"news":{}}`) {
		t.Errorf("connect was answered with %q", got)
	}
	if log := n.log.String(); !strings.Contains(log, "p:secret") || !strings.Contains(log, "r:2") {
		t.Errorf("the log does not have the refusals:\n%s", log)
	}
}
