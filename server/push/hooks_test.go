package push_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors/redis"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// Streams of /events ask the hook for connect, if they have no token: they last as it says, and are
// refused as it says.
func TestEventsByHook(t *testing.T) {
	var by, again push.Caller
	var asked push.ConnectRequest
	var failure error
	var ts *servertest.Server
	ts = servertest.New(t, push.Config{Hooks: push.Hooks{Headers: []string{"Cookie"},
		Connect: func(_ context.Context, c push.Caller, r push.ConnectRequest) (push.ConnectAnswer, error) {
			by, asked = c, r
			return push.ConnectAnswer{User: "ann", Channels: []string{"own:1"}, ExpireAt: ts.Clock.Now().Unix() + 60,
				Meta: []byte(`{"m":1}`), Info: []byte(`{"a":1}`)}, failure
		},
		Refresh: func(_ context.Context, c push.Caller) (push.RefreshAnswer, error) {
			again = c
			return push.RefreshAnswer{Expired: true}, nil
		}, Subscribe: func(context.Context, push.Caller, push.SubscribeRequest) (push.SubscribeAnswer, error) {
			return push.SubscribeAnswer{}, nil
		}}, Namespaces: []push.Namespace{{Name: "own", UserLimited: true, Presence: true}, {Name: "for",
		UserLimited: true},
		{Name: "ask", SubscribeHook: true}}})
	stream := ts.Events("channel=own:1&channel=b", "Cookie", "s=1")
	if by.Transport != "events" || by.Header.Get("Cookie") != "s=1" || by.User != "" || by.Client == "" ||
		strings.Join(asked.Channels, " ") != "b own:1" {
		t.Errorf("the hook was asked %+v by %+v", asked, by)
	}
	if got := ts.Call("presence", `{"channel":"own:1"}`); !strings.Contains(got, `"`+by.Client+`":{"user":"ann"`) {
		t.Errorf("presence: %s, want the client %s", got, by.Client)
	}
	for path, status := range map[string]int{"for:room%2342": 403, "for:room%23ann": 200, "ask:a": 200} {
		if w := ts.Do("GET", "/events?channel="+path, ""); w.Code != status {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	ts.Clock.Advance(70 * time.Second)
	pushtest.WaitFor(t, "the stream to end", stream.IsClosed)
	if again.User != "ann" || again.Transport != "events" || string(again.Meta) != `{"m":1}` {
		t.Errorf("the hook for refresh was asked by %+v", again)
	}
	for _, tt := range []struct {
		failure error
		status  int
		answer  string
	}{
		{push.Error{Code: 1000, Message: "no"}, 403, `{"error":{"code":1000,"message":"no"}}`},
		{push.Error{Code: 1000, Message: "later", Temporary: true}, 503, `{"error":{"code":1000,"message":"later"}}`},
		{push.Disconnect{Code: 4501, Reason: "banned"}, 403, `{"error":{"code":4501,"message":"banned"}}`},
		{push.Disconnect{Code: 4001, Reason: "later"}, 503, `{"error":{"code":4001,"message":"later"}}`},
		{errors.New("down"), 503, `{"error":{"code":100,"message":"internal server error"}}`},
		{push.Error{}, 503, `{"error":{"code":100,"message":"internal server error"}}`},
		{push.Disconnect{}, 403, `{"error":{"code":3503,"message":"force disconnect"}}`},
		{push.Disconnect{Code: 7}, 503, `{"error":{"code":3004,"message":"internal server error"}}`},
	} {
		failure = tt.failure
		if w := ts.Do("GET", "/events?channel=a", ""); w.Code != tt.status || w.Body.String() != tt.answer {
			t.Errorf("%v: %d %s", tt.failure, w.Code, w.Body)
		}
	}
	if n := refusalCount(ts, "hook"); n != 5 {
		t.Errorf("%d refusals by a hook are counted, want 5", n)
	}
}

// With a hook for connect, no other door lets a client in that has no token.
func TestHookClosesOtherDoors(t *testing.T) {
	hook := func(context.Context, push.Caller, push.ConnectRequest) (push.ConnectAnswer, error) {
		return push.ConnectAnswer{}, nil
	}
	ask := func(context.Context, push.Caller, push.SubscribeRequest) (push.SubscribeAnswer, error) {
		return push.SubscribeAnswer{}, nil
	}
	ts := servertest.New(t, push.Config{Hooks: push.Hooks{Connect: hook, Subscribe: ask}})
	for _, path := range []string{mercurePath + "?topic=a", "/console/stats"} {
		if w := ts.Do("GET", path, ""); w.Code != 401 && w.Code != 403 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := ts.Do("POST", mercurePath, "topic=a"); w.Code != 401 {
		t.Errorf("publishing to Mercure: %d", w.Code)
	}
	_, err := push.New(push.Config{Namespaces: []push.Namespace{{SubscribeHook: true, PublishHook: true}}})
	for _, want := range []string{"set --proxy-subscribe (Hooks.Subscribe)", "set --proxy-publish (Hooks.Publish)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rules without their hooks: %v, want %q", err, want)
		}
	}
}

// A stream of /events gets the channels that Hooks.Connect or a token names without another
// question, as a client of the other doors does. Hooks.Subscribe decides about other channels with
// SubscribeHook, before one of them is subscribed to.
func TestEventsOfChannelsWithAHook(t *testing.T) {
	var asked []string
	var by push.Caller
	failure := map[string]error{}
	hooks := push.Hooks{
		Connect: func(context.Context, push.Caller, push.ConnectRequest) (push.ConnectAnswer, error) {
			return push.ConnectAnswer{User: "ann", Channels: []string{"ask:own"},
				Infos: map[string][]byte{"ask:own": []byte(`{"own":true}`)}, Meta: []byte(`7`)}, nil
		},
		Subscribe: func(_ context.Context, c push.Caller, r push.SubscribeRequest) (push.SubscribeAnswer, error) {
			asked, by = append(asked, r.Channel), c
			return push.SubscribeAnswer{Info: []byte(`"hook"`)}, failure[r.Channel]
		},
	}
	ts := servertest.New(t, push.Config{Hooks: hooks, TokenSecret: tokentest.Secret, Namespaces: []push.Namespace{
		{Name: "ask", SubscribeHook: true, Presence: true, HistorySize: 3, Recovery: true}, {Presence: true}}})
	own := ts.Events("channel=ask:own")
	if len(asked) > 0 {
		t.Errorf("the hook was asked about %q", asked)
	}
	if got := ts.Call("presence", `{"channel":"ask:own"}`); !strings.Contains(got, `"chan_info":{"own":true}`) {
		t.Errorf("presence: %s", got)
	}
	byToken := ts.Events("channel=ask:token", "Authorization",
		"Bearer "+tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), jwt.MapClaims{"sub": "bob",
			"exp": ts.Clock.Now().Unix() + 600, "channels": []string{"ask:token"}}))
	if len(asked) > 0 {
		t.Errorf("the hook was asked about %q", asked)
	}
	other := ts.Events("channel=ask:other", "Cookie", "s=1")
	if strings.Join(asked, " ") != "ask:other" || by.Transport != "events" || by.User != "ann" ||
		string(by.Meta) != "7" {
		t.Errorf("the hook was asked about %q by %+v", asked, by)
	}
	if got := ts.Call("presence", `{"channel":"ask:other"}`); !strings.Contains(got, `"chan_info":"hook"`) {
		t.Errorf("presence: %s", got)
	}
	for name, stream := range map[string]*servertest.Stream{"own": own, "token": byToken, "other": other} {
		ts.Call("publish", `{"channel":"ask:`+name+`","data":"to `+name+`"}`)
		if got := stream.Take(); !strings.HasSuffix(got, "data: \"to "+name+"\"\n\n") {
			t.Errorf("%s received %q", name, got)
		}
	}
	for _, tt := range []struct {
		failure error
		status  int
		answer  string
	}{
		{push.ErrPermissionDenied, 403, `{"error":{"code":103,"message":"permission denied"}}`},
		{push.Error{Code: 1000, Message: "later", Temporary: true}, 503, `{"error":{"code":1000,"message":"later"}}`},
		{push.Disconnect{Code: 4501, Reason: "banned"}, 403, `{"error":{"code":4501,"message":"banned"}}`},
		{errors.New("down"), 503, `{"error":{"code":100,"message":"internal server error"}}`},
	} {
		failure["ask:z"] = tt.failure
		if w := ts.Do("GET", "/events?channel=a&channel=ask:z", ""); w.Code != tt.status ||
			w.Body.String() != tt.answer {
			t.Errorf("%v: %d %s", tt.failure, w.Code, w.Body)
		}
		if got := ts.Call("presence", `{"channel":"a"}`); got != `{"result":{"presence":{}}}` {
			t.Errorf("%v: the other channel has %s", tt.failure, got)
		}
	}
	if n := ts.Figures(0).Connections; n != 3 {
		t.Errorf("%d connections", n)
	}
}

// A subscription by a hook has an end, and then the stream has: its client comes back, and the hook
// is asked again.
func TestEventsEndWithAHooksSubscription(t *testing.T) {
	var ts *servertest.Server
	ts = servertest.New(t, push.Config{Namespaces: []push.Namespace{{SubscribeHook: true}}, Hooks: push.Hooks{
		Subscribe: func(context.Context, push.Caller, push.SubscribeRequest) (push.SubscribeAnswer, error) {
			return push.SubscribeAnswer{ExpireAt: ts.Clock.Now().Unix() + 60}, nil
		}}})
	stream := ts.Events("channel=a")
	ts.Clock.Advance(59 * time.Second)
	if stream.IsClosed() {
		t.Error("the stream has ended too early")
	}
	ts.Clock.Advance(3 * time.Second)
	pushtest.WaitFor(t, "the stream to end", stream.IsClosed)
}

// The channels of a stream count for the rate of subscriptions.
func TestEventsAboveTheRate(t *testing.T) {
	ts := servertest.New(t, push.Config{Rates: push.Rates{AddressSubscriptions: push.Rate{Count: 3, Per: time.Minute}}})
	ts.Events("channel=a&channel=b")
	if w := ts.Do("GET", "/events?channel=c&channel=d", ""); w.Code != 429 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if n := ts.Figures(0).Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// Every door tells hooks who its clients are.
func TestHooksKnowTheClientsOfEachDoor(t *testing.T) {
	var mu sync.Mutex
	known := map[string]push.Caller{}
	s := servertest.NewLive(t, push.Config{Hooks: push.Hooks{Headers: []string{"Cookie"}},
		RPC: func(_ context.Context, c push.Caller, _ string, _ []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			known[c.Transport] = c
			return nil, nil
		}})
	head := " HTTP/1.1\r\nHost: test\r\nCookie: s=1\r\n\r\n"
	s.Dial(strings.Replace(servertest.UpgradeRequest, "Host: test\r\n", "Host: test\r\nCookie: s=1\r\n", 1)).Head()
	for _, path := range []string{"/events?channel=a", "/connection/uni_sse?cf_connect={}",
		"/connection/sse?cf_connect=" + url.QueryEscape(`{"id":1,"connect":{}}`),
		mercurePath + "?topic=a"} {
		if line := s.Dial("GET " + path + head).Head(); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Errorf("%s: %s", path, line)
		}
	}
	door := redis.Listener(s.Server, s.Engine)
	listener, err := door.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { door.Close() })
	subscriber, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer subscriber.Close()
	io.WriteString(subscriber, "SUBSCRIBE a\r\n")
	pushtest.WaitFor(t, "all clients", func() bool { return len(s.Hub.Sessions()) == 6 })
	for _, one := range s.Hub.Sessions() {
		one.RPC("who", nil)
	}
	for _, want := range []string{"websocket json s=1", "events json s=1", "uni_sse json s=1", "sse json s=1",
		"mercure events s=1", "redis resp2 "} {
		name, _, _ := strings.Cut(want, " ")
		c := known[name]
		if got := c.Transport + " " + c.Protocol + " " + c.Header.Get("Cookie"); got != want || c.Client == "" {
			t.Errorf("a hook knows %q of the client %q; want %q", got, c.Client, want)
		}
	}
}
