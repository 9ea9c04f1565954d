package push_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
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
	for path, status := range map[string]int{"for:room%2342": 403, "for:room%23ann": 200, "ask:a": 403} {
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
	} {
		failure = tt.failure
		if w := ts.Do("GET", "/events?channel=a", ""); w.Code != tt.status || w.Body.String() != tt.answer {
			t.Errorf("%v: %d %s", tt.failure, w.Code, w.Body)
		}
	}
	if n := refusalCount(ts, "hook"); n != 4 {
		t.Errorf("%d refusals by a hook are counted, want 4", n)
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
	open := servertest.New(t, push.Config{Hooks: push.Hooks{Subscribe: ask},
		Namespaces: []push.Namespace{{SubscribeHook: true}}})
	if w := open.Do("GET", "/events?channel=a", ""); w.Code != 403 {
		t.Errorf("a channel that a hook decides about: %d", w.Code)
	}
	_, err := push.New(push.Config{Namespaces: []push.Namespace{{SubscribeHook: true, PublishHook: true}}})
	for _, want := range []string{"set --proxy-subscribe (Hooks.Subscribe)", "set --proxy-publish (Hooks.Publish)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rules without their hooks: %v, want %q", err, want)
		}
	}
}
