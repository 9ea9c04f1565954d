package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"
)

// withHooks returns a node's setting of hooks.
func withHooks(t *testing.T, h Hooks, rules ...policy.Namespace) func(*Config) {
	t.Helper()
	if err := h.Check(rules); err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Hooks, c.Rules = h, mustRules(t, rules...) }
}

func TestConnectHook(t *testing.T) {
	var asked ConnectRequest
	var by Caller
	says, failure := ConnectAnswer{User: "ann", Info: []byte(`{"a": 1}`), Data: []byte(`{"hello": "ann"}`),
		Channels: []string{"own"}, Meta: []byte(`{"m":1}`), Infos: map[string][]byte{"own": []byte(`2`)}}, error(nil)
	n := newTestNode(t, withHooks(t, Hooks{Connect: func(_ context.Context, c Caller,
		r ConnectRequest) (ConnectAnswer,
		error) {
		asked, by = r, c
		return says, failure
	}}, policy.Namespace{Presence: true}))
	dial := func() *fakeTransport {
		c := new(fakeTransport)
		c.s = n.Start(c, jsonForm, &RequestInfo{http.Header{"Cookie": {"session=1"}}, t.Context()})
		c.frame([]byte(`{"id":1,"connect":{"data":{"x":1},"name":"js","version":"5"}}`))
		return c
	}
	c := dial()
	if got := c.Take(); len(got) != 1 || !strings.Contains(got[0], `"data":{"hello":"ann"}`) ||
		!strings.Contains(got[0], `"subs":{"own":{}}`) || strings.Contains(got[0], "expires") {
		t.Errorf("connect was answered with %q", got)
	}
	if string(asked.Data) != `{"x":1}` || asked.Name != "js" || by.Client != c.s.ID() ||
		by.Transport != "websocket" ||
		by.Header.Get("Cookie") != "session=1" {
		t.Errorf("the hook was asked %+v by %+v", asked, by)
	}
	if again := c.s.caller(); again.User != "ann" || string(again.Meta) != `{"m":1}` || again.values != nil {
		t.Errorf("then the caller is %+v", again)
	}
	c.frame([]byte(`{"id":2,"presence":{"channel":"own"}}`))
	c.Want(t, "presence", `{"id":2,"presence":{"presence":{"`+c.s.ID()+`":{"user":"ann","client":"`+
		c.s.ID()+`","conn_info":{"a":1},"chan_info":2}}}}`)
	failure = answer.Error{Code: 1000, Message: "no"}
	dial().Want(t, "an error", `{"id":1,"error":{"code":1000,"message":"no"}}`)
	failure = answer.Disconnect{Code: 4501, Reason: "banned"}
	dial().WantClosed(t, "a disconnect", answer.Disconnect{Code: 4501, Reason: "banned"})
	failure = errors.New("the backend is down: secret")
	dial().Want(t, "a failure", `{"id":1,"error":{"code":100,"message":"internal server error","temporary":true}}`)
	if !strings.Contains(n.log.String(), "backend is down") {
		t.Error("the log does not have the failure")
	}
	failure, says = nil, ConnectAnswer{Channels: []string{"bad\n"}}
	dial().Want(t, "a bad channel",
		`{"id":1,"error":{"code":100,"message":"internal server error","temporary":true}}`)
	for _, s := range n.wheel.all() {
		s.t.(*fakeTransport).hangUp()
	}
	if len(n.callers.list) > 0 {
		t.Errorf("%d callers are left", len(n.callers.list))
	}
}

// A connection that a hook has accepted asks it again when it expires.
func TestRefreshHook(t *testing.T) {
	var says RefreshAnswer
	var failure error
	calls := 0
	var n *testNode
	n = newTestNode(t, func(c *Config) { c.Timing.Ping = time.Hour }, withHooks(t, Hooks{
		Connect: func(context.Context, Caller, ConnectRequest) (ConnectAnswer, error) {
			return ConnectAnswer{User: "ann", ExpireAt: n.clock.Now().Unix() + 60}, nil
		},
		Refresh: func(_ context.Context, c Caller) (RefreshAnswer, error) {
			if calls++; c.User != "ann" {
				t.Errorf("the caller is %+v", c)
			}
			return says, failure
		},
	}))
	c := n.connected()
	says.ExpireAt = n.clock.Now().Unix() + 300
	n.clock.Advance(62 * time.Second)
	if c.WantOpen(t, "after a refresh"); calls != 1 {
		t.Errorf("%d calls", calls)
	}
	failure = errors.New("down")
	n.clock.Advance(300 * time.Second)
	c.WantOpen(t, "while the hook fails")
	failure, says = nil, RefreshAnswer{}
	n.clock.Advance(time.Minute)
	if c.WantOpen(t, "without an end"); calls < 3 {
		t.Errorf("%d calls", calls)
	}
	says.Info, says.Meta, says.ExpireAt = []byte(`{"a": 2}`), []byte(`{"m":2}`), n.clock.Now().Unix()+600
	e := n.connected()
	n.callers.add(e.s.id, Caller{})
	n.clock.Advance(62 * time.Second)
	if again := e.s.caller(); string(again.Meta) != `{"m":2}` || string(again.ConnInfo) != `{"a":2}` {
		t.Errorf("after a refresh with info the caller is %+v", again)
	}
	for _, past := range []int64{-1, 1, n.clock.Now().Unix()} { // a time that has passed is not "never"
		f := n.connected()
		says.ExpireAt = past
		n.clock.Advance(62 * time.Second)
		f.WantClosed(t, "refreshed until a time that has passed", answer.DisconnectExpired)
	}
	d := n.connected()
	says = RefreshAnswer{Expired: true}
	n.clock.Advance(62 * time.Second)
	d.WantClosed(t, "expired", answer.DisconnectExpired)
	c.WantOpen(t, "the other")
}

func TestSubscribeAndPublishHooks(t *testing.T) {
	var subscribe SubscribeAnswer
	var publish PublishAnswer
	var failure error
	n := newTestNode(t, func(c *Config) { c.Timing.Ping = time.Hour }, withHooks(t, Hooks{
		Subscribe: func(_ context.Context, _ Caller, r SubscribeRequest) (SubscribeAnswer, error) {
			if r.Channel != "ask:x" || string(r.Data) != `5` {
				t.Errorf("asked %+v", r)
			}
			return subscribe, failure
		},
		Publish: func(_ context.Context, _ Caller, r PublishRequest) (PublishAnswer, error) {
			if r.Channel != "ask:x" || string(r.Data) != `"hi"` {
				t.Errorf("asked %+v", r)
			}
			return publish, failure
		},
	}, policy.Namespace{Name: "ask", SubscribeHook: true, PublishHook: true, Publish: policy.PublishNobody}))
	c := n.connected()
	ask := func() { c.frame([]byte(`{"id":2,"subscribe":{"channel":"ask:x","data":5}}`)) }
	failure = answer.ErrPermissionDenied
	ask()
	c.Want(t, "refused", `{"id":2,"error":{"code":103,"message":"permission denied"}}`)
	failure, subscribe = nil, SubscribeAnswer{Data: []byte(`{"d":1}`), ExpireAt: n.clock.Now().Unix() + 60}
	ask()
	c.Want(t, "allowed", `{"id":2,"subscribe":{"data":{"d":1}}}`)
	c.frame([]byte(`{"id":3,"publish":{"channel":"ask:x","data":"hi"}}`))
	by := `,"info":{"user":"","client":"` + c.s.ID() + `"}}}}`
	c.Want(t, "published", `{"push":{"channel":"ask:x","pub":{"data":"hi"`+by, `{"id":3,"publish":{}}`)
	publish.Data = []byte(`{"text": "hi"}`)
	c.frame([]byte(`{"id":3,"publish":{"channel":"ask:x","data":"hi"}}`))
	c.Want(t, "changed", `{"push":{"channel":"ask:x","pub":{"data":{"text":"hi"}`+by, `{"id":3,"publish":{}}`)
	failure = answer.Disconnect{Code: 4500, Reason: "spam"}
	n.clock.Advance(62 * time.Second)
	if got := c.Take(); len(got) == 0 || !strings.Contains(got[len(got)-1], `"code":2501`) {
		t.Errorf("at its end: %q", got)
	}
	c.frame([]byte(`{"id":3,"publish":{"channel":"ask:x","data":"hi"}}`))
	c.WantClosed(t, "spam", answer.Disconnect{Code: 4500, Reason: "spam"})
}

// What a hook refuses is counted once, as that.
func TestRefusalsByHooks(t *testing.T) {
	var failure error
	n := newTestNode(t, withHooks(t, Hooks{
		Connect: func(_ context.Context, _ Caller, r ConnectRequest) (ConnectAnswer, error) {
			return ConnectAnswer{ExpireAt: 1}, failure
		},
		Refresh: func(context.Context, Caller) (RefreshAnswer, error) { return RefreshAnswer{}, failure },
		Subscribe: func(context.Context, Caller, SubscribeRequest) (SubscribeAnswer, error) {
			return SubscribeAnswer{}, failure
		},
		Publish: func(context.Context, Caller, PublishRequest) (PublishAnswer, error) {
			return PublishAnswer{},
				failure
		},
	}, policy.Namespace{SubscribeHook: true, PublishHook: true}), func(c *Config) {
		c.RPC = func(context.Context, Caller, string, []byte) ([]byte, error) { return nil, failure }
	})
	for _, refused := range []error{answer.ErrPermissionDenied, answer.Error{Code: 1000, Message: "no"},
		answer.Disconnect{Code: 4500,
			Reason: "no"}} {
		for command, counts := range map[string]bool{
			`{"id":1,"connect":{}}`: true, `{"id":2,"subscribe":{"channel":"a"}}`: true,
			`{"id":2,"publish":{"channel":"a","data":1}}`: true,
			`{"id":2,"rpc":{"method":"a"}}`:               refused != (answer.Error{Code: 1000, Message: "no"}),
			// which is an answer
		} {
			c := n.dial()
			if failure = nil; !strings.Contains(command, "connect") {
				c.frame([]byte(`{"id":1,"connect":{}}`))
			}
			c.Take()
			var before [refusalReasons]uint64
			for why := range refusalReasons {
				before[why] = n.refusals.counts[why].Load()
			}
			failure = refused
			c.frame([]byte(command))
			for why := range refusalReasons {
				want := uint64(0)
				if counts && why == RefusedHook {
					want = 1
				}
				if got := n.refusals.counts[why].Load() - before[why]; got != want {
					t.Errorf("%s, %v: %d refusals are counted as %s, want %d", command, refused, got, why, want)
				}
			}
		}
	}
	if !strings.Contains(n.log.String(), "reason=hook") {
		t.Errorf("the log: %s", n.log)
	}
}

// Clients take an Error with the code 0 for success. A hook that returns one has failed, and so has
// one whose Disconnect no close frame can carry. The zero Disconnect is that of an operator.
func TestHooksAnswerWhatNoClientUnderstands(t *testing.T) {
	var failure error
	n := newTestNode(t, func(c *Config) { c.Timing.Ping = time.Hour }, withHooks(t, Hooks{
		Connect: func(context.Context, Caller, ConnectRequest) (ConnectAnswer, error) {
			return ConnectAnswer{}, failure
		},
		Subscribe: func(context.Context, Caller, SubscribeRequest) (SubscribeAnswer, error) {
			return SubscribeAnswer{}, failure
		},
		Publish: func(context.Context, Caller, PublishRequest) (PublishAnswer, error) {
			return PublishAnswer{}, failure
		},
	}, policy.Namespace{SubscribeHook: true, PublishHook: true}), func(c *Config) {
		c.RPC = func(context.Context, Caller, string, []byte) ([]byte, error) { return nil, failure }
	})
	internal := answer.ErrInternal
	for _, tt := range []struct {
		says   error
		told   answer.Error
		closed answer.Disconnect
		failed bool // the log has it as a failure
	}{
		{says: answer.Error{}, told: internal, failed: true},
		{says: answer.Error{Message: "not this one", Temporary: true}, told: internal, failed: true},
		{says: fmt.Errorf("a reason: %w", answer.Error{}), told: internal, failed: true},
		{says: answer.Error{Code: 1000, Message: "no \xff"}, told: answer.Error{Code: 1000, Message: "no \uFFFD"}},
		{says: answer.Disconnect{}, closed: answer.DisconnectForced},
		{says: fmt.Errorf("a reason: %w", answer.Disconnect{}), closed: answer.DisconnectForced},
		{says: answer.Disconnect{Code: 7}, closed: answer.DisconnectServerError, failed: true},
		{says: answer.Disconnect{Code: 4500, Reason: "\xff"}, closed: answer.DisconnectServerError, failed: true},
		{says: answer.Disconnect{Code: 4500, Reason: strings.Repeat("a", 124)}, closed: answer.DisconnectServerError,
			failed: true},
	} {
		for _, command := range []string{`{"id":2,"connect":{}}`, `{"id":2,"subscribe":{"channel":"a"}}`,
			`{"id":2,"publish":{"channel":"a","data":1}}`, `{"id":2,"rpc":{"method":"a"}}`} {
			what := fmt.Sprintf("%v to %s", tt.says, command)
			c := n.dial()
			if failure = nil; !strings.Contains(command, "connect") {
				c.frame([]byte(`{"id":1,"connect":{}}`))
			}
			c.Take()
			before := strings.Count(n.log.String(), "level=ERROR")
			failure = tt.says
			c.frame([]byte(command))
			if failed := strings.Count(n.log.String(), "level=ERROR") > before; failed != tt.failed {
				t.Errorf("%s: the log has a failure: %v", what, failed)
			}
			if tt.closed != (answer.Disconnect{}) {
				c.WantClosed(t, what, tt.closed)
				continue
			}
			temporary := ""
			if tt.told.Temporary {
				temporary = `,"temporary":true`
			}
			c.Want(t, what, fmt.Sprintf(`{"id":2,"error":{"code":%d,"message":"%s"%s}}`, tt.told.Code, tt.told.Message,
				temporary))
		}
	}
}
